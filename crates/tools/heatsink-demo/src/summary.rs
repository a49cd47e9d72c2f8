//! Before and after, and whether the claims hold.
//!
//! Called by: `director`, with what was measured in each act.

use std::fmt;
use std::time::Duration;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use hdrhistogram::Histogram;
use heatsink_control::words;
use heatsink_load::verdict::{self, Mismatches};

use crate::acts::Act;
use crate::plain::time;
use crate::shop::Tally;

/// A hot key is known after at most this time: a window of the detector, and a second for the
/// fleet to agree and for the demo to look.
pub const DETECTION_BOUND: Duration = Duration::from_secs(2);
/// Of the share that the hottest node has of all requests, at most so much is left.
const SHARE_LEFT: f64 = 0.75;
/// From this part of its capacity on, a node is at its limit.
const LIMIT: f64 = 0.9;
/// Of the load of the hottest node, at most so much is left.
const LOAD_LEFT: f64 = 0.75;
/// Of the 99th percentile, at most so much is left.
const P99_LEFT: f64 = 0.5;

/// What was measured in an act.
#[derive(Clone, Debug)]
pub struct Stage {
    latency: Histogram<u64>,
    seconds: f64,
    answered: u64,
    given_up: u64,
    nodes: Vec<u64>,
}

impl Stage {
    pub(crate) fn of(tally: &Tally, nodes: &[u64], seconds: f64) -> Self {
        Self {
            latency: tally.latency.clone(),
            seconds,
            answered: tally.answered,
            given_up: tally.given_up,
            nodes: nodes.to_vec(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.latency.add(&other.latency).expect("the same bounds");
        self.seconds += other.seconds;
        self.answered += other.answered;
        self.given_up += other.given_up;
        // A node that was heard of only now had nothing to do before.
        self.nodes.resize(self.nodes.len().max(other.nodes.len()), 0);
        for (sum, more) in self.nodes.iter_mut().zip(&other.nodes) {
            *sum += more;
        }
    }

    /// Requests/s that were answered.
    pub fn requests_per_second(&self) -> f64 {
        self.answered as f64 / self.seconds.max(0.001)
    }

    /// The latency that a share of the requests, 0 to 1, stayed below.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.latency.value_at_quantile(quantile))
    }

    /// The part of all requests to nodes that the busiest one got, 0 to 1.
    pub fn hottest_share(&self) -> f64 {
        self.hottest() as f64 / self.upstream().max(1) as f64
    }

    /// The load of the busiest node, as part of its capacity.
    pub fn hottest_load(&self, capacity_per_second: u32) -> f64 {
        let rate = self.hottest() as f64 / self.seconds.max(0.001);
        rate / f64::from(capacity_per_second.max(1))
    }

    /// Requests to nodes for each that was answered.
    pub fn upstream_per_request(&self) -> f64 {
        self.upstream() as f64 / self.answered.max(1) as f64
    }

    fn hottest(&self) -> u64 {
        self.nodes.iter().copied().max().unwrap_or_default()
    }

    fn upstream(&self) -> u64 {
        self.nodes.iter().sum()
    }
}

/// Something that the demo shows, or does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// With figures.
    pub words: String,
    /// Whether it does.
    pub holds: bool,
}

/// The end of the demo.
#[derive(Clone, Debug)]
pub struct Summary {
    stages: [Option<Stage>; Act::ALL.len()],
    capacity_per_second: Option<u32>,
    /// All acts took place as they are written.
    pub is_complete: bool,
    /// How long it took until the viral key was known.
    pub viral_after: Option<Duration>,
    /// How long it took until the counter was known.
    pub counter_after: Option<Duration>,
    /// Wrong replies.
    pub mismatches: Mismatches,
    /// Errors, and connections that were lost.
    pub errors: verdict::Tally,
}

impl Summary {
    pub(crate) fn new(capacity_per_second: Option<u32>) -> Self {
        Self {
            stages: [const { None }; Act::ALL.len()],
            capacity_per_second,
            is_complete: false,
            viral_after: None,
            counter_after: None,
            mismatches: Mismatches::default(),
            errors: verdict::Tally::default(),
        }
    }

    pub(crate) fn add(&mut self, act: Act, stage: &Stage) {
        match &mut self.stages[act as usize] {
            Some(sum) => sum.add(stage),
            empty => *empty = Some(stage.clone()),
        }
    }

    /// What was measured in an act, if it came to that.
    pub fn stage(&self, act: Act) -> Option<&Stage> {
        self.stages[act as usize].as_ref()
    }

    /// What the demo shows. Before real servers, whose capacity is not known, nothing is said of
    /// times; before one server, nothing of shares.
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims = vec![self.correct()];
        let (Some(before), Some(after)) = (self.stage(Act::Melting), self.stage(Act::Cooled))
        else {
            return claims;
        };
        if !self.is_complete {
            return claims;
        }
        claims.push(detected("the viral key", self.viral_after));
        claims.push(detected("the counter", self.counter_after));
        if before.nodes.len() > 1 {
            let (high, low) = (before.hottest_share(), after.hottest_share());
            claims.push(Claim {
                words: format!(
                    "the hottest node's share of the load fell from {} to {}",
                    words::percent(high),
                    words::percent(low)
                ),
                holds: low <= high * SHARE_LEFT,
            });
        }
        if let Some(capacity) = self.capacity_per_second {
            let (high, low) = (before.hottest_load(capacity), after.hottest_load(capacity));
            claims.push(Claim {
                words: format!(
                    "the hottest node was at its limit ({} of its capacity) and is at {}",
                    words::percent(high),
                    words::percent(low)
                ),
                holds: high >= LIMIT && low <= high * LOAD_LEFT,
            });
            let (high, low) = (before.quantile(0.99), after.quantile(0.99));
            claims.push(Claim {
                words: format!("the 99th percentile fell from {} to {}", time(high), time(low)),
                holds: low <= high.mul_f64(P99_LEFT),
            });
        }
        let (many, few) = (before.upstream_per_request(), after.upstream_per_request());
        claims.push(Claim {
            words: format!(
                "requests to nodes for each request of the shop fell from {many:.2} to {few:.2}"
            ),
            holds: few < many,
        });
        claims
    }

    fn correct(&self) -> Claim {
        let (wrong, errors) = (self.mismatches.count(), self.errors.count);
        let mut words = format!("{wrong} replies were wrong, {errors} were errors");
        for example in self.mismatches.examples().iter().chain(&self.errors.examples).take(3) {
            words.push_str("; ");
            words.push_str(example);
        }
        Claim { words, holds: wrong + errors == 0 }
    }

    /// Whether all claims hold, as far as they can be judged.
    pub fn holds(&self) -> bool {
        self.claims().iter().all(|claim| claim.holds)
    }
}

fn detected(what: &str, after: Option<Duration>) -> Claim {
    let bound = words::seconds(DETECTION_BOUND);
    let words = match after {
        Some(after) => format!("{what} was found after {} (bound {bound})", words::seconds(after)),
        None => format!("{what} was not found (bound {bound})"),
    };
    Claim { words, holds: after.is_some_and(|after| after <= DETECTION_BOUND) }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        let header =
            ["", "req/s", "p50", "p99", "hottest node", "its share", "upstream/req", "given up"];
        table.set_header(header);
        for act in Act::ALL {
            let Some(stage) = self.stage(act) else { continue };
            let rate = stage.hottest() as f64 / stage.seconds.max(0.001);
            let busy = match self.capacity_per_second {
                Some(capacity) => words::percent(stage.hottest_load(capacity)),
                None => format!("{} req/s", words::whole(rate)),
            };
            table.add_row([
                act.title().to_owned(),
                words::whole(stage.requests_per_second()),
                time(stage.quantile(0.5)),
                time(stage.quantile(0.99)),
                busy,
                words::percent(stage.hottest_share()),
                format!("{:.2}", stage.upstream_per_request()),
                words::whole(stage.given_up as f64),
            ]);
        }
        for column in 1..header.len() {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        write!(f, "{table}")?;
        for claim in self.claims() {
            write!(f, "\n{:3} {}", if claim.holds { "ok" } else { "NO" }, claim.words)?;
        }
        if !self.is_complete {
            f.write_str("\nstopped or changed before its end: the rest is not judged")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(p99_ms: u64, nodes: &[u64]) -> Stage {
        let mut tally = Tally::new();
        tally.answered = 1_000;
        for _ in 0..1_000 {
            tally.latency.record(p99_ms * 1_000).expect("within bounds");
        }
        Stage::of(&tally, nodes, 1.0)
    }

    fn complete(after_ms: u64, after_nodes: &[u64]) -> Summary {
        let mut summary = Summary::new(Some(800));
        summary.add(Act::Melting, &stage(1_000, &[800, 100, 100]));
        summary.add(Act::Cooled, &stage(after_ms, after_nodes));
        summary.viral_after = Some(Duration::from_millis(400));
        summary.counter_after = Some(Duration::from_millis(400));
        summary.is_complete = true;
        summary
    }

    #[test]
    fn claims_hold_only_if_the_figures_say_so() {
        let good = complete(5, &[150, 100, 100]);
        assert!(good.holds(), "{good}");
        assert_eq!(good.claims().len(), 7);
        let idle = Summary { capacity_per_second: Some(10_000), ..good.clone() };
        assert!(!idle.holds(), "nothing melted: {idle}");
        assert!(!complete(600, &[150, 100, 100]).holds(), "still slow");
        assert!(!complete(5, &[750, 100, 100]).holds(), "still one node");
        let late = Summary { viral_after: Some(Duration::from_secs(3)), ..good.clone() };
        assert!(!late.holds(), "{late}");
        let never = Summary { counter_after: None, ..good.clone() };
        assert!(!never.holds(), "{never}");
        let mut wrong = good;
        wrong.mismatches.add(verdict::Kind::WentBack, || "item".to_owned());
        assert!(!wrong.holds(), "{wrong}");
    }

    #[test]
    fn what_did_not_take_place_is_not_judged() {
        let mut early = complete(600, &[750, 100, 100]);
        early.is_complete = false;
        assert!(early.holds() && early.claims().len() == 1);
        assert!(early.to_string().contains("not judged"));
    }
}
