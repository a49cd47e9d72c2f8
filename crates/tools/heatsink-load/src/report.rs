//! The results as data, and by serde as JSON; `Display` is a table, [`html`] a page with plots.
//!
//! Called by: the command line.
//! Invariant: no credentials; times carry their unit in the name.

pub mod html;
mod plots;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::options::{Options, Pace};
use crate::recorder::{Outcome, SLICES};
use crate::verdict::{Kind, Tally};

/// The whole result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was played, so that it can be played again.
    pub settings: Settings,
    /// Somebody ended it before its time.
    pub stopped: bool,
    /// In the order they were given.
    pub targets: Vec<TargetReport>,
}

/// What was played.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// Where all chance came from.
    pub seed: u64,
    /// Requests/s, if it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<f64>,
    /// Connections to a target.
    pub connections: u32,
    /// Requests of one connection out at once.
    pub pipeline: u32,
    /// Threads of the generator.
    pub threads: u32,
    /// Rounds.
    pub rounds: u32,
    /// Measured time of one round.
    pub round_ms: u64,
    /// Time before each round that was not measured.
    pub warmup_ms: u64,
    /// Items.
    pub keys: u32,
    /// Of the Zipf law.
    pub exponent: f64,
    /// Of the operations on items.
    pub write_share: f64,
    /// Of all operations, to what is hot.
    pub hot_share: f64,
    /// When it became hot in each round, if not from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub onset_ms: Option<u64>,
    /// Bytes of a value.
    pub value_bytes: usize,
}

/// Times of requests. At a given rate they count from when a request was due.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean_us: f64,
    /// Half were faster.
    pub p50_us: f64,
    /// 90 of 100 were faster.
    pub p90_us: f64,
    /// 99 of 100 were faster.
    pub p99_us: f64,
    /// 999 of 1000 were faster.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
    /// Pairs of a quantile (0 to 1) and its time, for plots.
    pub curve_us: Vec<(f64, f64)>,
}

/// A slice of a round, all rounds of the target together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Slice {
    /// Since the round began to be measured.
    pub at_ms: u64,
    /// Requests/s, on average over the rounds.
    pub requests_per_second: f64,
    /// Errors, all rounds together.
    pub errors: u64,
    /// Median.
    pub p50_us: f64,
    /// 99 of 100 were faster.
    pub p99_us: f64,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundReport {
    /// From 0.
    pub round: u32,
    /// Requests/s.
    pub requests_per_second: f64,
    /// Median.
    pub p50_us: f64,
    /// 99 of 100 were faster.
    pub p99_us: f64,
}

/// Replies that were wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MismatchReport {
    /// How many.
    pub count: u64,
    /// How many of each kind that there were any of.
    pub kinds: BTreeMap<&'static str, u64>,
    /// The first ones, in words.
    pub examples: Vec<String>,
}

/// What the servers behind a target ran.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UpstreamReport {
    /// Commands in all, warm-ups included.
    pub commands: u64,
    /// For each request that was answered, warm-ups included.
    pub commands_per_request: f64,
    /// By command.
    pub calls: BTreeMap<String, u64>,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetReport {
    /// Its name.
    pub name: String,
    /// Where it is, without credentials.
    pub url: String,
    /// Requests answered in the measured time.
    pub requests: u64,
    /// The same a second.
    pub requests_per_second: f64,
    /// Of these, reads.
    pub reads: u64,
    /// Of these, writes.
    pub writes: u64,
    /// Of these, increments and decrements.
    pub increments: u64,
    /// Times.
    pub latency: Latency,
    /// Errors, lost connections and replies that did not come.
    pub errors: Tally,
    /// Wrong replies. Always 0 if all is well.
    pub mismatches: MismatchReport,
    /// Reads that gave an older version than one that was acknowledged before they were sent:
    /// allowed within the bound that a cache promises.
    pub stale_reads: u64,
    /// `stampede`: reads that found nothing.
    pub misses: u64,
    /// `stampede`: times that the value was computed anew.
    pub recomputations: u64,
    /// `flash-sale`: sold.
    pub sold: u64,
    /// `flash-sale`: attempts when nothing was left.
    pub sold_out: u64,
    /// Connections that were lost and made again.
    pub reconnects: u64,
    /// Requests that were due and not sent before the end; their times are among the others.
    pub unsent: u64,
    /// What the servers behind it ran, if they were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamReport>,
    /// Round by round.
    pub rounds: Vec<RoundReport>,
    /// Over the time of a round.
    pub series: Vec<Slice>,
}

impl Report {
    pub(crate) fn new(options: &Options, targets: Vec<TargetReport>, stopped: bool) -> Self {
        let settings = Settings {
            scenario: options.scenario.name(),
            seed: options.shape.seed,
            rate_per_second: match options.pace {
                Pace::Closed => None,
                Pace::Rate(rate) => Some(rate),
            },
            connections: options.connections,
            pipeline: options.pipeline,
            threads: options.threads,
            rounds: options.rounds,
            round_ms: options.round_length().as_millis() as u64,
            warmup_ms: options.warmup.as_millis() as u64,
            keys: options.shape.keys,
            exponent: options.shape.exponent,
            write_share: options.shape.write_share,
            hot_share: options.hot_share,
            onset_ms: options
                .scenario
                .has_onset()
                .then(|| options.round_onset().as_millis() as u64),
            value_bytes: options.value_bytes,
        };
        Self { settings, stopped, targets }
    }

    /// Wrong replies of all targets.
    pub fn mismatches(&self) -> u64 {
        self.targets.iter().map(|target| target.mismatches.count).sum()
    }

    /// Errors of all targets.
    pub fn errors(&self) -> u64 {
        self.targets.iter().map(|target| target.errors.count).sum()
    }
}

impl RoundReport {
    pub(crate) fn new(round: u32, measured: Duration, outcome: &Outcome) -> Self {
        Self {
            round,
            requests_per_second: rate(outcome.requests(), measured),
            p50_us: quantile_us(&outcome.latency, 0.5),
            p99_us: quantile_us(&outcome.latency, 0.99),
        }
    }
}

impl TargetReport {
    pub(crate) fn new(
        name: &str,
        url: String,
        measured: Duration,
        outcome: &Outcome,
        calls: Option<BTreeMap<String, u64>>,
        rounds: Vec<RoundReport>,
    ) -> Self {
        let kinds = Kind::ALL.into_iter().map(|kind| (kind.words(), outcome.mismatches.of(kind)));
        let upstream = calls.map(|calls| {
            let commands = calls.values().sum();
            let commands_per_request = commands as f64 / outcome.answered.max(1) as f64;
            UpstreamReport { commands, commands_per_request, calls }
        });
        let slice_length = measured / (SLICES * rounds.len().max(1)) as u32;
        let series = outcome.slices.iter().enumerate().map(|(at, slice)| Slice {
            at_ms: (slice_length * at as u32).as_millis() as u64,
            requests_per_second: rate(slice.latency.len(), slice_length * rounds.len() as u32),
            errors: slice.errors,
            p50_us: quantile_us(&slice.latency, 0.5),
            p99_us: quantile_us(&slice.latency, 0.99),
        });
        Self {
            name: name.to_owned(),
            url,
            requests: outcome.requests(),
            requests_per_second: rate(outcome.requests(), measured),
            reads: outcome.reads,
            writes: outcome.writes,
            increments: outcome.increments,
            latency: latency(&outcome.latency),
            errors: outcome.errors.clone(),
            mismatches: MismatchReport {
                count: outcome.mismatches.count(),
                kinds: kinds.filter(|(_, count)| *count > 0).collect(),
                examples: outcome.mismatches.examples().to_vec(),
            },
            stale_reads: outcome.stale_reads,
            misses: outcome.misses,
            recomputations: outcome.recomputations,
            sold: outcome.sold,
            sold_out: outcome.sold_out,
            reconnects: outcome.reconnects,
            unsent: outcome.unsent,
            upstream,
            series: series.collect(),
            rounds,
        }
    }
}

fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

fn quantile_us(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1000.0
}

fn latency(times: &Histogram<u64>) -> Latency {
    // Each step halves what is left, three points to a halving.
    let quantiles = (0..60).map(|step| 1.0 - 0.5_f64.powf(f64::from(step) / 3.0));
    let enough = |quantile: &f64| (1.0 - quantile) * times.len() as f64 >= 1.0;
    let curve = quantiles.take_while(enough).map(|q| (q, quantile_us(times, q)));
    Latency {
        mean_us: times.mean() / 1000.0,
        p50_us: quantile_us(times, 0.5),
        p90_us: quantile_us(times, 0.9),
        p99_us: quantile_us(times, 0.99),
        p999_us: quantile_us(times, 0.999),
        max_us: times.max() as f64 / 1000.0,
        curve_us: curve.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_ends_where_the_measurements_do() {
        let mut times = crate::recorder::histogram();
        for us in 1..=1_000_u64 {
            times.record(us * 1_000).unwrap();
        }
        let latency = latency(&times);
        assert!((latency.p50_us - 500.0).abs() < 1.0, "{latency:?}");
        assert!((latency.p999_us - 999.0).abs() < 2.0, "{latency:?}");
        let (last, us) = *latency.curve_us.last().unwrap();
        assert!((0.99..=0.999).contains(&last) && us <= latency.max_us);
        assert!(latency.curve_us.windows(2).all(|two| two[0].1 <= two[1].1));
    }
}
