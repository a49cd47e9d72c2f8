//! Decisions: which mitigation a key gets, by its traffic and its policy, and why.
//!
//! Called by: the aggregator with the sums of the fleet, the agent of a proxy that is alone
//! with its own counts.
//! Invariant: a decision depends on its arguments only, so all aggregators with the same sums come to the
//! same decision. It is always one that the policy allows.

use heatsink_detect::heat::{HeatKind, KeyHeat};

use crate::entry::{Mitigation, Mitigations};
use crate::policy::{Effective, Mode};
use crate::value::{self, ValueKind};
use crate::words;

/// Where the lines between mitigations are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// From this share of reads on, reads dominate.
    pub read_share: f64,
    /// Writes/s of one key that one node can take.
    pub node_writes_per_second: f64,
    /// Shards of one key at most.
    pub max_split_factor: u32,
    /// From these bytes a request on, on average, a value is big.
    pub big_value_bytes: f64,
    /// Bigger values, on average, do not fit into the local cache.
    pub cacheable_bytes: f64,
    /// The mitigations that proxies carry out. A decision for any other is a dry run: it says what would
    /// have been done. This must be the same in the whole fleet, or aggregators disagree.
    pub available: Mitigations,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            read_share: 0.8,
            node_writes_per_second: 50_000.0,
            max_split_factor: 64,
            big_value_bytes: 65_536.0,
            cacheable_bytes: 1_048_576.0,
            available: Mitigations::ALL,
        }
    }
}

/// All that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// What the key does.
    pub heat: &'a KeyHeat,
    /// What it holds.
    pub value: ValueKind,
    /// How many proxies see it.
    pub proxies: usize,
    /// In which way it is hot.
    pub kind: HeatKind,
    /// The threshold that it crossed.
    pub threshold: f64,
    /// What it may get.
    pub policy: Effective<'a>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The mitigation.
    pub mitigation: Mitigation,
    /// Physical keys; 1 unless the key is split.
    pub split_factor: u32,
    /// Nothing is done; this is what would have been.
    pub dry_run: bool,
    /// Why, in words and numbers.
    pub reason: String,
}

/// Decides; nothing if the policy wants the key left alone, or it is one of Heatsink's own.
pub fn decide(case: &Case<'_>, settings: &Settings) -> Option<Decision> {
    if case.policy.own {
        return None;
    }
    let choice = match case.policy.mode {
        Mode::Off => return None,
        Mode::Exact => Choice::of(Mitigation::Coalesce).because("mode exact allows no other"),
        Mode::Observe | Mode::Coherent | Mode::Relaxed => choose(case, settings),
    };
    let observed = case.policy.mode == Mode::Observe;
    let available = settings.available.contains(choice.mitigation);
    let mut reason = circumstances(case);
    for remark in &choice.remarks {
        reason.push_str("; ");
        reason.push_str(remark);
    }
    if observed {
        reason.push_str("; mode observe: nothing is done");
    } else if !available {
        reason.push_str("; this version does not act on it");
    }
    Some(Decision {
        mitigation: choice.mitigation,
        split_factor: choice.split_factor,
        dry_run: observed || !available,
        reason,
    })
}

/// A mitigation with words for the reason.
struct Choice {
    mitigation: Mitigation,
    split_factor: u32,
    remarks: Vec<String>,
}

impl Choice {
    fn of(mitigation: Mitigation) -> Self {
        Self { mitigation, split_factor: 1, remarks: Vec::new() }
    }

    fn because(mut self, remark: impl Into<String>) -> Self {
        self.remarks.push(remark.into());
        self
    }
}

fn choose(case: &Case<'_>, settings: &Settings) -> Choice {
    let heat = case.heat;
    let capacity = settings.node_writes_per_second;
    if heat.writes_per_second > capacity {
        let writes = words::whole(heat.writes_per_second);
        let beyond = format!("{writes} writes/s, one node takes about {}", words::whole(capacity));
        if !value::splits(case.value) {
            return by_mix(case, settings)
                .because(beyond)
                .because(format!("{} cannot be split", case.value.words()));
        }
        if !case.policy.rights.whole_traffic {
            return by_mix(case, settings)
                .because(beyond)
                .because("a manual promote to split would help");
        }
        let mut choice = Choice::of(Mitigation::Split).because(beyond);
        choice.split_factor = split_factor(heat.writes_per_second, settings);
        return choice;
    }
    by_mix(case, settings)
}

/// Enough shards for the writes, as a power of two.
fn split_factor(writes_per_second: f64, settings: &Settings) -> u32 {
    let shards = (writes_per_second / settings.node_writes_per_second).ceil();
    let most = settings.max_split_factor.max(2);
    // The cast saturates, and `next_power_of_two` of at most 2^30 cannot overflow.
    (shards as u32).clamp(2, 1 << 30).next_power_of_two().min(most)
}

fn by_mix(case: &Case<'_>, settings: &Settings) -> Choice {
    let heat = case.heat;
    let reads_dominate = heat.read_share() >= settings.read_share;
    let mean_bytes = mean_bytes(heat);
    let fits = mean_bytes <= settings.cacheable_bytes;
    if reads_dominate && mean_bytes >= settings.big_value_bytes {
        let big = format!("{} bytes a request", words::whole(mean_bytes));
        let choice = if case.policy.rights.whole_traffic {
            Choice::of(Mitigation::Copies)
        } else if case.policy.rights.replica_reads {
            Choice::of(Mitigation::ReplicaReads)
        } else if fits {
            Choice::of(Mitigation::LocalCache)
        } else {
            Choice::of(Mitigation::Coalesce).because("too big for the local cache")
        };
        return choice.because(big);
    }
    if reads_dominate && fits {
        return Choice::of(Mitigation::LocalCache);
    }
    let counter = value::combines_writes(case.value);
    if heat.reads_per_second > heat.writes_per_second && fits && !counter {
        return Choice::of(Mitigation::LocalCache)
            .because("more reads than writes, each write costs a fetch");
    }
    let choice = Choice::of(Mitigation::Coalesce);
    if counter || reads_dominate {
        choice
    } else {
        choice.because(format!("writes of {} are not combined", case.value.words()))
    }
}

fn mean_bytes(heat: &KeyHeat) -> f64 {
    heat.bytes_per_second / heat.requests_per_second().max(1.0)
}

/// The beginning of a reason: how hot the key is, and the threshold.
fn circumstances(case: &Case<'_>) -> String {
    let heat = case.heat;
    let (unit, rate_too) = match case.kind {
        HeatKind::Rate => ("req/s", false),
        HeatKind::Bytes => ("bytes/s", true),
        HeatKind::MissStorm => ("misses/s", true),
        HeatKind::WriteContention => ("writes in flight", true),
    };
    let level = words::whole(heat.level(case.kind));
    let proxies = words::count(case.proxies, "proxy", "proxies");
    let threshold = words::whole(case.threshold);
    let mut text = format!("{level} {unit} over {proxies}, threshold {threshold}; ");
    if rate_too {
        text.push_str(&words::whole(heat.requests_per_second()));
        text.push_str(" req/s, ");
    }
    text.push_str(&words::percent(heat.read_share()));
    text.push_str(" reads");
    text
}

#[cfg(test)]
mod tests;
