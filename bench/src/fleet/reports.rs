//! One aggregator and many proxies, which are simulated: what they report is real.
//!
//! Called by: `fleet`.
//! Bound: the seconds asked for.
//! Invariant: the aggregator is judged by reports that Redis took for it; with too few of them
//! it was not so many proxies, which is a goal of its own.

mod simulated;

use std::time::{Duration, Instant};

use heatsink_testkit::{ProcStats, RedisServer, poll_until};

use super::Effort;
use super::node::Node;
use super::onset::ms;
use crate::admin::{self, Events, What};
use crate::section::{Goal, Section};
use crate::spread::Spread;
use simulated::{
    NEW_KEY, OWN_KEYS, READS_LEAST, READS_SPREAD, SHARED_KEYS, Sent, TICK, join, new_key_name,
    shared_key_name, simulate,
};

const CORES_MAX: f64 = 1.0;
/// Of the reports that are due; with fewer it was not so many proxies.
const SENT_LEAST: f64 = 0.95;

/// Sends, and looks at what became of it.
pub(crate) fn taken_in(effort: &Effort) -> Result<Section, String> {
    let redis = RedisServer::start();
    let node = Node::start(effort, &redis, "aggregator", &["--detect-hold-seconds", "1"])?;
    let mut events = Events::of([node.admin])?;
    let stats = |pid: u32| ProcStats::of(pid).map_err(|error| format!("process {pid}: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let knows = |proxies: usize| {
        let metrics = admin::metrics(node.admin).unwrap_or_default();
        let members = admin::metric(&metrics, "heatsink_members{role=\"proxy\"}");
        members.is_some_and(|members| members as usize == proxies)
    };
    let proxies = runtime.block_on(join(effort, &redis, knows))?;
    let (before, redis_before) = (stats(node.pid())?, stats(redis.pid())?);
    let begun = Instant::now();
    let sent = runtime.block_on(simulate(effort, proxies))?;
    let seconds = begun.elapsed().as_secs_f64();
    let (after, redis_after) = (stats(node.pid())?, stats(redis.pid())?);
    // At once: a report counts only for a while.
    let summed = summed(&node)?;
    let at_end = admin::metrics(node.admin)?;
    let received = || {
        let metrics = admin::metrics(node.admin).ok()?;
        Some((admin::metric(&metrics, "heatsink_reports_received_total")?, metrics))
    };
    // The last ones may be on their way.
    let _ = poll_until(Duration::from_secs(2), || {
        received().is_some_and(|(count, _)| count >= sent.taken as f64)
    });
    let (received, metrics) = received().ok_or("the aggregator has no figures")?;
    let cores = (after.cpu_seconds - before.cpu_seconds) / seconds;
    let redis_cores = (redis_after.cpu_seconds - redis_before.cpu_seconds) / seconds;
    let noticed_ms = noticed(&mut events, &sent.new_keys_at);
    let figures = Figures {
        effort,
        sent: &sent,
        seconds,
        received,
        dropped: admin::metric(&metrics, "heatsink_reports_dropped_total").unwrap_or(f64::NAN),
        members: admin::metric(&at_end, "heatsink_members{role=\"proxy\"}").unwrap_or_default(),
        tick_ms: admin::quantile(&at_end, "heatsink_tick_seconds", 0.99).unwrap_or(f64::NAN) * 1e3,
        summed,
        cores,
        redis_cores,
        rss_mib: after.rss_bytes as f64 / f64::from(1 << 20),
        noticed_ms,
    };
    Ok(figures.section())
}

struct Figures<'a> {
    effort: &'a Effort,
    sent: &'a Sent,
    seconds: f64,
    received: f64,
    dropped: f64,
    members: f64,
    tick_ms: f64,
    /// Requests/s of one of the shared keys, as the aggregator has it.
    summed: f64,
    cores: f64,
    redis_cores: f64,
    rss_mib: f64,
    noticed_ms: Vec<f64>,
}

impl Figures<'_> {
    fn section(self) -> Section {
        let Self { effort, sent, seconds, .. } = self;
        let keys = SHARED_KEYS + OWN_KEYS + 1;
        let proxies = effort.simulated_proxies;
        let mut section = Section::new("One aggregator, simulated proxies", "what", &["figure"]);
        section.notes.push(format!(
            "{proxies} proxies report {keys} keys each every {} ms: {SHARED_KEYS} that all of them \
             report and that are hot, {OWN_KEYS} of their own, and one that begins every {} s",
            TICK.as_millis(),
            NEW_KEY.as_secs()
        ));
        let noticed = Spread::of(self.noticed_ms.clone());
        for (name, cell) in [
            ("reports sent each second", format!("{:.0}", sent.taken as f64 / seconds)),
            (
                "keys in them each second",
                format!("{:.0}", (sent.taken * keys as u64) as f64 / seconds),
            ),
            ("CPU of the aggregator, cores", format!("{:.2}", self.cores)),
            ("CPU of its Redis, cores", format!("{:.2}", self.redis_cores)),
            ("resident memory, MiB", format!("{:.1}", self.rss_mib)),
            ("p99 of `heatsink_tick_seconds`, at most, ms", format!("{:.1}", self.tick_ms)),
            (
                "a new key, first report to event: p50 and most, ms",
                format!("{:.0}, {:.0}", noticed.p50, noticed.most),
            ),
            ("reports that Redis did not take in time", sent.failed.to_string()),
        ] {
            section.row(name, [cell]);
        }
        let new_keys = sent.new_keys_at.len();
        let of_all = |reads: u64| reads as f64 * proxies as f64;
        let (least, most) = (of_all(READS_LEAST), of_all(READS_LEAST + READS_SPREAD));
        let enough = sent.taken as f64 >= sent.due as f64 * SENT_LEAST;
        section.goals = vec![
            Goal {
                what: "reports sent, so that it was that many proxies",
                limit: format!("at least {:.0} % of {}", SENT_LEAST * 100.0, sent.due),
                figure: sent.taken.to_string(),
                reached: effort.judges_times.then_some(enough),
            },
            Goal::of_fact(
                "members that the aggregator sees",
                proxies.to_string(),
                format!("{:.0}", self.members),
                self.members as usize == proxies,
            ),
            Goal::of_fact(
                "reports that the aggregator did not take in",
                "none",
                format!(
                    "{:.0} lost, {:.0} refused",
                    sent.taken as f64 - self.received,
                    self.dropped
                ),
                self.received >= sent.taken as f64 && self.dropped == 0.0,
            ),
            Goal::of_fact(
                "requests/s of a key that all report, in its sum",
                format!("{least:.0} to {most:.0}"),
                format!("{:.0}", self.summed),
                (least..=most).contains(&self.summed),
            ),
            Goal::of_fact(
                "new hot keys that it noticed",
                format!("all {new_keys}"),
                self.noticed_ms.len().to_string(),
                self.noticed_ms.len() == new_keys,
            ),
            Goal {
                what: "CPU of the aggregator",
                limit: format!("at most {CORES_MAX} core"),
                figure: format!("{:.2} cores", self.cores),
                reached: effort.judges_times.then_some(self.cores <= CORES_MAX),
            },
        ];
        section
    }
}

/// Requests/s of the first shared key, as the aggregator shows them.
fn summed(node: &Node) -> Result<f64, String> {
    let key = shared_key_name(0);
    let hot = admin::hot_key(node.admin, &key)?;
    hot.map(|hot| hot.frequency).ok_or_else(|| format!("{key} is not registered"))
}

/// How long after its first report each new key was told of, for those that were.
fn noticed(events: &mut Events, new_keys_at: &[Instant]) -> Vec<f64> {
    let delay = |(number, at): (usize, &Instant)| {
        Some(ms(*at, events.first(0, What::Registered, &new_key_name(number))?))
    };
    new_keys_at.iter().enumerate().filter_map(delay).collect()
}
