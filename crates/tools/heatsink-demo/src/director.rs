//! Plays the acts at their times, measures each, and does what the viewer asks for.
//!
//! Called by: the command line.
//! Bound: one look at the hot keys every [`TICK`]; a sample every [`SAMPLE_TICKS`] of them.
//! Invariant: a claim is judged only if every act took place as it is written: whoever switches
//! mitigation by hand, or ends early, gets figures and no verdict.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heatsink_admin::HotKeyView;
use heatsink_control::words;
use heatsink_load::workload::KeyId;

use crate::acts::{Act, Timeline};
use crate::options::{NODES, Options};
use crate::rig::Rig;
use crate::sample::{NodeLine, Sample, Scene, View, Wish, treatment};
use crate::shop::{Shop, Tally};
use crate::summary::{Stage, Summary};

const TICK: Duration = Duration::from_millis(100);
const SAMPLE_TICKS: u32 = 5;
const SAMPLE: Duration = Duration::from_millis(500);
/// Samples that make a second.
const LOOKS: usize = 2;

/// Why there is no summary.
#[derive(Debug)]
pub enum DemoError {
    /// The options make no sense.
    Options(String),
    /// This machine, or a server, refuses something.
    Io(io::Error),
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(why) => f.write_str(why),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DemoError {}

impl From<io::Error> for DemoError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Plays until the end, until `is_stopped`, or until the view wants it to end.
pub fn run(
    options: &Options,
    is_stopped: &AtomicBool,
    view: &mut dyn View,
) -> Result<Summary, DemoError> {
    options.check().map_err(DemoError::Options)?;
    let rig = Rig::start(options)?;
    let addresses = rig.addresses();
    let shop = Shop::open(options, &addresses)?;
    let capacity_per_second = options.upstream.is_none().then_some(options.capacity_per_second);
    view.open(&Scene {
        page: rig.page().to_owned(),
        proxies: addresses.iter().map(|address| format!("redis://{address}")).collect(),
        upstream: match &options.upstream {
            Some((url, _)) => url.to_string(),
            None => format!("an embedded cluster of {NODES} nodes, each for {} req/s", {
                words::whole(f64::from(options.capacity_per_second))
            }),
        },
        capacity_per_second,
        rate_per_second: options.rate_per_second,
        length: options.duration,
    })?;
    let mut play = Play {
        timeline: Timeline::new(options.duration),
        viral: shown(KeyId::Item(shop.viral()), options.prefix()),
        counter: shown(KeyId::Counter(0), options.prefix()),
        capacity_per_second,
        act: None,
        mitigates: false,
        by_hand: false,
        hot_keys: Vec::new(),
        looks: VecDeque::from([Look::now(&rig, &shop, 0)]),
        whole: Tally::new(),
        summary: Summary::new(capacity_per_second),
        rig,
        shop,
    };
    play.play(options.duration, is_stopped, view)?;
    let clean = options.upstream.is_some();
    Ok(play.end(clean)?)
}

fn shown(key: KeyId, prefix: &str) -> String {
    words::key_text(&key.name(prefix))
}

struct Play {
    timeline: Timeline,
    viral: String,
    counter: String,
    capacity_per_second: Option<u32>,
    act: Option<Act>,
    mitigates: bool,
    /// Somebody has switched mitigation, and keeps it.
    by_hand: bool,
    hot_keys: Vec<HotKeyView>,
    /// The last ones, newest last.
    looks: VecDeque<Look>,
    whole: Tally,
    summary: Summary,
    // The shop closes before the proxies end.
    shop: Shop,
    rig: Rig,
}

impl Play {
    fn play(&mut self, length: Duration, stop: &AtomicBool, view: &mut dyn View) -> io::Result<()> {
        for tick in 1.. {
            let at = self.shop.elapsed();
            if at >= length {
                self.summary.is_complete = !self.by_hand;
                break;
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.enter(at, view)?;
            self.look(view)?;
            if tick % SAMPLE_TICKS == 0 {
                let sample = self.sample();
                view.sample(&sample)?;
            }
            match view.wait(TICK)? {
                Some(Wish::Quit) => break,
                Some(Wish::Toggle) => {
                    self.by_hand = true;
                    self.switch(!self.mitigates);
                    let state = if self.mitigates { "on" } else { "off" };
                    view.event(self.shop.elapsed(), &format!("mitigation {state}, by hand"))?;
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Begins the next act when its time has come.
    fn enter(&mut self, at: Duration, view: &mut dyn View) -> io::Result<()> {
        let act = self.timeline.act(at);
        if self.act == Some(act) {
            return Ok(());
        }
        self.act = Some(act);
        if !self.by_hand && self.mitigates != act.mitigates() {
            self.switch(act.mitigates());
        } else if self.by_hand && act == Act::Cooled {
            return Ok(());
        }
        view.event(at, act.opening())
    }

    fn switch(&mut self, acts: bool) {
        self.mitigates = acts;
        self.rig.set_mitigation(acts);
    }

    /// Looks at the hot keys, and tells of the two that matter when they are first there.
    fn look(&mut self, view: &mut dyn View) -> io::Result<()> {
        let Some(hot_keys) = self.rig.hot_keys() else { return Ok(()) };
        self.hot_keys = hot_keys;
        let at = self.shop.elapsed();
        for (key, act, detected) in [
            (&self.viral, Act::Melting, &mut self.summary.viral_after),
            (&self.counter, Act::Counter, &mut self.summary.counter_after),
        ] {
            let Some(hot) = self.hot_keys.iter().find(|hot| hot.key == *key) else { continue };
            if detected.is_none() {
                let after = at.saturating_sub(self.timeline.start(act));
                *detected = Some(after);
                let (seconds, what) = (words::seconds(after), treatment(hot));
                view.event(at, &format!("{key} found after {seconds}: {what}; {}", hot.reason))?;
            }
        }
        Ok(())
    }

    fn sample(&mut self) -> Sample {
        let tally = self.shop.take();
        self.whole.merge(&tally);
        let look = Look::now(&self.rig, &self.shop, self.whole.answered);
        let at = look.at;
        if let Some(before) = self.looks.back() {
            // A sample that began in another act, or before things had settled, would blur both.
            let measured = self.timeline.measured(at).filter(|_| !self.by_hand);
            if let Some(act) = measured
                && self.timeline.measured(before.at) == Some(act)
            {
                let (nodes, seconds) = (look.new_requests(before), look.seconds(before));
                self.summary.add(act, &Stage::of(&tally, &nodes, seconds));
            }
        }
        // Proxies tell of their requests about once a second, so that is what is looked at.
        let oldest = self.looks.front().unwrap_or(&look);
        let seconds = look.seconds(oldest);
        let rates: Vec<f64> =
            look.new_requests(oldest).iter().map(|count| *count as f64 / seconds).collect();
        let upstream: f64 = rates.iter().sum();
        let answered = look.answered.saturating_sub(oldest.answered) as f64 / seconds;
        let capacity = self.capacity_per_second.map(f64::from);
        let nodes = look.totals.iter().zip(&rates).map(|((name, _), rate)| NodeLine {
            name: name.clone(),
            requests_per_second: *rate,
            share: rate / upstream.max(1.0),
            load: capacity.map(|capacity| rate / capacity),
        });
        let sample = Sample {
            at,
            act: self.timeline.act(at),
            mitigates: self.mitigates,
            requests_per_second: answered,
            given_up_per_second: tally.given_up as f64 / SAMPLE.as_secs_f64(),
            p50: tally.quantile(0.5),
            p99: tally.quantile(0.99),
            upstream_per_second: upstream,
            saved: 1.0 - (upstream / answered.max(1.0)).min(1.0),
            nodes: nodes.collect(),
            hot_keys: self.hot_keys.clone(),
            mismatches: self.whole.mismatches.count(),
            errors: self.whole.errors.count,
        };
        self.looks.push_back(look);
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
        sample
    }

    fn end(self, clean: bool) -> io::Result<Summary> {
        let Self { mut summary, shop, rig, mut whole, .. } = self;
        whole.merge(&shop.close(clean)?);
        summary.mismatches = whole.mismatches;
        summary.errors = whole.errors;
        rig.stop();
        Ok(summary)
    }
}

/// What was counted up to a moment.
struct Look {
    at: Duration,
    answered: u64,
    totals: Vec<(String, u64)>,
}

impl Look {
    fn now(rig: &Rig, shop: &Shop, answered: u64) -> Self {
        Self { at: shop.elapsed(), answered, totals: rig.node_totals() }
    }

    fn seconds(&self, before: &Self) -> f64 {
        self.at.saturating_sub(before.at).as_secs_f64().max(0.001)
    }

    /// What each node got since then.
    fn new_requests(&self, before: &Self) -> Vec<u64> {
        let known = |name: &str| {
            let total = before.totals.iter().find(|(other, _)| other == name);
            total.map_or(0, |(_, total)| *total)
        };
        self.totals.iter().map(|(name, total)| total.saturating_sub(known(name))).collect()
    }
}
