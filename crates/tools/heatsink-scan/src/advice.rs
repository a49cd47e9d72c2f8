//! What Heatsink would do about a key, and why.
//!
//! Called by: [`crate::scan`], for each key that is shown.
//! Invariant: the mitigation is the one that the fleet itself would decide on for a key of
//! mode `coherent` (`heatsink_control::decision`), but for splitting, which it never decides
//! on its own unless told that all traffic goes through it: that is said.

use std::fmt::Write;

use heatsink_control::decision::{Case, Settings, decide};
use heatsink_control::entry::Mitigation;
use heatsink_control::policy::{Effective, Mode, Rights};
use heatsink_control::value::{self, ValueKind};
use heatsink_control::words;
use heatsink_detect::heat::{HeatKind, KeyHeat};
use serde::Serialize;

use crate::value_size::ValueReport;

/// From here on a collection is big.
pub const BIG_ELEMENTS: u64 = 10_000;
/// From here on a collection is big.
pub const BIG_BYTES: u64 = 1 << 20;

/// What to expect of Heatsink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Nothing where Heatsink would leave the key alone, or where it cannot be known.
    pub mitigation: Option<Mitigation>,
    /// Why, in words and numbers.
    pub reason: String,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Reads/s.
    pub reads_per_second: f64,
    /// Writes/s of all kinds.
    pub writes_per_second: f64,
    /// Of the writes, increments (0 to 1).
    pub increment_share: f64,
    /// Of the writes, plain `SET`s (0 to 1).
    pub set_share: f64,
    /// Of the writes, scripts and functions (0 to 1).
    pub script_share: f64,
    /// What it holds, as far as its commands told.
    pub kind: ValueKind,
    /// What it holds, as the server said afterwards.
    pub value: Option<&'a ValueReport>,
}

/// Judges a key whose requests were counted. `hot_threshold` is in requests/s.
pub fn of_requests(facts: &Facts<'_>, hot_threshold: f64) -> Advice {
    let requests = facts.reads_per_second + facts.writes_per_second;
    let mut reason = format!("{} req/s", words::whole(requests));
    if requests < hot_threshold {
        let _ = write!(reason, ", below the threshold of {}", words::whole(hot_threshold));
        return Advice { mitigation: None, reason };
    }
    let read_share = facts.reads_per_second / requests;
    let _ = write!(reason, ", {} reads", words::percent(read_share));
    let mitigation = if is_big_collection(facts) && read_share < 0.5 {
        let _ = write!(
            reason,
            "; writes spread over the members of {}; splitting needs all clients behind \
             Heatsink (policy whole_traffic, or a manual promote)",
            big_words(facts.value)
        );
        Mitigation::Split
    } else {
        let mitigation = decided(facts, hot_threshold);
        reason.push_str("; ");
        reason.push_str(&explain(mitigation, facts, read_share));
        mitigation
    };
    if facts.script_share > 0.5 {
        reason.push_str("; most writes are scripts, which are passed on as they are");
    }
    Advice { mitigation: Some(mitigation), reason }
}

/// Judges a key of which only cost is known (`HOTKEYS` tells neither rate nor mix).
pub fn of_cost(cpu_share: Option<f64>, net_share: Option<f64>) -> Advice {
    let part = |share: Option<f64>, of: &str| {
        share.map(|share| format!("{} of {of}", words::percent(share)))
    };
    let known: Vec<String> = [part(cpu_share, "the CPU time"), part(net_share, "the bytes")]
        .into_iter()
        .flatten()
        .collect();
    let reason = format!(
        "{}; HOTKEYS does not tell reads from writes: scan with MONITOR to know what would help",
        known.join(", ")
    );
    Advice { mitigation: None, reason }
}

fn decided(facts: &Facts<'_>, threshold: f64) -> Mitigation {
    let requests = facts.reads_per_second + facts.writes_per_second;
    let value_bytes = facts.value.and_then(|value| value.bytes).unwrap_or_default() as f64;
    let heat = KeyHeat {
        reads_per_second: facts.reads_per_second,
        writes_per_second: facts.writes_per_second,
        bytes_per_second: value_bytes * requests,
        ..KeyHeat::default()
    };
    let (mode, rights) = (Mode::Coherent, Rights::default());
    let policy = Effective { mode, rights, rule: None, own: false };
    let case = Case {
        heat: &heat,
        value: facts.kind,
        proxies: 1,
        kind: HeatKind::Rate,
        threshold,
        policy,
    };
    // Mode coherent always gives a decision.
    decide(&case, &Settings::default()).map_or(Mitigation::Coalesce, |decision| decision.mitigation)
}

fn explain(mitigation: Mitigation, facts: &Facts<'_>, read_share: f64) -> String {
    match mitigation {
        Mitigation::LocalCache if read_share >= 0.999 => {
            "reads are answered from the proxies' memory".to_owned()
        }
        Mitigation::LocalCache => {
            "reads are answered from the proxies' memory, each write costs a fetch".to_owned()
        }
        Mitigation::Coalesce if facts.increment_share >= 0.5 => {
            "concurrent increments become one, each caller gets its own total".to_owned()
        }
        Mitigation::Coalesce if facts.set_share >= 0.5 => {
            "of concurrent SETs the last is written, all are answered after it".to_owned()
        }
        Mitigation::Coalesce => {
            "concurrent reads become one; these writes are passed on".to_owned()
        }
        Mitigation::Split | Mitigation::Copies | Mitigation::ReplicaReads => {
            "the load is spread over several nodes".to_owned()
        }
    }
}

fn is_big_collection(facts: &Facts<'_>) -> bool {
    let splits = match facts.value.map(|value| value.kind.as_str()) {
        Some(kind) => matches!(kind, "hash" | "set" | "zset"),
        None => value::splits(facts.kind) && facts.kind != ValueKind::Counter,
    };
    splits
        && facts.value.is_some_and(|value| {
            value.elements.is_some_and(|count| count >= BIG_ELEMENTS)
                || value.bytes.is_some_and(|bytes| bytes >= BIG_BYTES)
        })
}

fn big_words(value: Option<&ValueReport>) -> String {
    let Some(value) = value else { return "a big collection".to_owned() };
    match (value.elements, value.bytes) {
        (Some(elements), _) => format!("a {} of {}", value.kind, words::whole(elements as f64)),
        (None, Some(bytes)) => format!("a {} of {} bytes", value.kind, words::whole(bytes as f64)),
        (None, None) => format!("a {}", value.kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(reads: f64, writes: f64, kind: ValueKind) -> Facts<'static> {
        Facts {
            reads_per_second: reads,
            writes_per_second: writes,
            increment_share: 0.0,
            set_share: 0.0,
            script_share: 0.0,
            kind,
            value: None,
        }
    }

    #[test]
    fn the_mix_decides() {
        let advice = of_requests(&facts(9_990.0, 10.0, ValueKind::String), 1_000.0);
        assert_eq!(advice.mitigation, Some(Mitigation::LocalCache));
        assert!(advice.reason.contains("99.9 % reads"), "{}", advice.reason);

        let counter = Facts { increment_share: 1.0, ..facts(100.0, 5_000.0, ValueKind::Counter) };
        let advice = of_requests(&counter, 1_000.0);
        assert_eq!(advice.mitigation, Some(Mitigation::Coalesce));
        assert!(advice.reason.contains("concurrent increments"), "{}", advice.reason);

        let sets = Facts { set_share: 0.9, ..facts(0.0, 2_000.0, ValueKind::String) };
        let advice = of_requests(&sets, 1_000.0);
        assert_eq!(advice.mitigation, Some(Mitigation::Coalesce));
        assert!(advice.reason.contains("concurrent SETs"), "{}", advice.reason);
    }

    #[test]
    fn only_a_big_collection_that_is_written_is_split() {
        let value = |elements| ValueReport {
            kind: "hash".to_owned(),
            bytes: Some(1_000),
            elements: Some(elements),
        };
        let (big, small) = (value(20_000), value(5));
        let written = facts(10.0, 3_000.0, ValueKind::Hash);
        let split = of_requests(&Facts { value: Some(&big), ..written }, 1_000.0);
        assert_eq!(split.mitigation, Some(Mitigation::Split));
        assert!(split.reason.contains("a hash of 20 000"), "{}", split.reason);
        let left = of_requests(&Facts { value: Some(&small), ..written }, 1_000.0);
        assert_eq!(left.mitigation, Some(Mitigation::Coalesce));
        let read = facts(3_000.0, 10.0, ValueKind::Hash);
        let cached = of_requests(&Facts { value: Some(&big), ..read }, 1_000.0);
        assert_eq!(cached.mitigation, Some(Mitigation::LocalCache));
    }

    #[test]
    fn a_lukewarm_key_is_left_alone() {
        let advice = of_requests(&facts(400.0, 0.0, ValueKind::String), 1_000.0);
        assert_eq!(advice.mitigation, None);
        assert_eq!(advice.reason, "400 req/s, below the threshold of 1 000");
    }
}
