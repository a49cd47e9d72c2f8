//! The figures of one moment, as the control plane hands them over.
//!
//! Called by: the control plane fills a [`Metrics`] for every scrape; [`text`] writes it down.
//! Bound: as many nodes as the upstream has; of the keys only the first
//! [`crate::Settings::metric_keys`] by rate are written by name, the rest as their sum.
//! Invariant: what nobody measures is absent (`None`, an empty list), never zero, so that a
//! dashboard shows a gap instead of a wrong figure. Totals only ever grow.

mod lines;
pub mod text;

use crate::control::UpstreamNode;

/// Everything that `/metrics` shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// The version of Heatsink.
    pub version: String,
    /// `all`, `proxy` or `aggregator`.
    pub role: String,
    /// When the process started, in milliseconds of Unix time.
    pub process_start_ms: u64,
    /// Log lines that could not be written.
    pub log_lines_dropped_total: Option<u64>,
    /// The data plane; nothing in an aggregator.
    pub traffic: Option<Traffic>,
    /// The registered hot keys.
    pub keys: Vec<KeyMetrics>,
    /// The local cache, all keys together.
    pub local_cache: Option<CacheCounts>,
    /// Coalescing, all keys together.
    pub coalesce: Option<CollapseCounts>,
    /// From a whole-key read on a split key to its joined reply.
    pub split_fan_out_seconds: Option<Histogram>,
    /// Keys that are split, and moves; nothing where nothing is moved.
    pub splits: Option<Splits>,
    /// From the tick that found a key over the threshold to the registry's acknowledgement.
    pub detection_latency_seconds: Option<Histogram>,
    /// How wrong the sketch is.
    pub sketch: Option<SketchError>,
    /// The upstream's nodes as seen from here.
    pub nodes: Vec<NodeLoad>,
    /// Whether they can be reached; nothing in an aggregator.
    pub upstream: Option<UpstreamHealth>,
    /// How often one key had many misses at once.
    pub miss_storms_total: Option<u64>,
    /// How often one key had many writes in flight at once.
    pub write_contention_total: Option<u64>,
    /// The registry and the fleet; nothing until the control plane runs.
    pub fleet: Option<Fleet>,
    /// How long a tick of detection takes.
    pub tick_seconds: Option<Histogram>,
}

/// The data plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests taken from clients.
    pub requests_total: u64,
    /// Clients connected now.
    pub clients: u64,
    /// Commands sent upstream for them.
    pub upstream_commands_total: u64,
    /// How often a worker let requests and replies gather.
    pub pauses_total: u64,
    /// Bytes of replies that clients have not read yet.
    pub unread_bytes: u64,
    /// Clients that were closed because of them.
    pub slow_clients_closed_total: u64,
    /// Bytes of requests that are not complete, or have to wait.
    pub held_input_bytes: u64,
    /// Clients that were closed because of them.
    pub large_clients_closed_total: u64,
}

/// One registered hot key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyMetrics {
    /// The key.
    pub key: Vec<u8>,
    /// Reads/s over the fleet.
    pub reads_per_second: f64,
    /// Writes/s over the fleet.
    pub writes_per_second: f64,
    /// Its share of the local cache's work.
    pub local_cache: Option<CacheCounts>,
    /// Its share of coalescing.
    pub coalesce: Option<CollapseCounts>,
    /// Physical keys that it is to be spread over, if it is to be split.
    pub split_factor: Option<u32>,
    /// Those that its value is in, if it is.
    pub shards: Option<u32>,
}

/// Reads that asked the local cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Answered.
    pub hits_total: u64,
    /// Passed on.
    pub misses_total: u64,
}

/// Requests that shared upstream requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollapseCounts {
    /// Requests that were answered by a shared upstream request, the first one included.
    pub requests_total: u64,
    /// Upstream requests that served them.
    pub fetches_total: u64,
}

/// Split keys, as far as this process moves values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Splits {
    /// Keys that are split now, whole fleet.
    pub active: u64,
    /// Moves of this process by way (`split`, `unsplit`) and outcome.
    pub moves_total: Vec<(&'static str, &'static str, u64)>,
    /// How long writes of a key were held for a move.
    pub freeze_seconds: Histogram,
    /// When the markers of split keys were last looked at, in milliseconds of Unix time.
    pub reconciled_at_ms: Option<u64>,
    /// Times that the registry and the upstream did not agree.
    pub drift_total: u64,
}

/// How wrong the sketch is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SketchError {
    /// What an estimate is too high by at most, nearly always, in requests/s.
    pub bound_per_second: f64,
    /// What the truth sample shows estimates to be too high by, in requests a window.
    pub mean_excess_requests: Option<f64>,
    /// The same, relative to the true count.
    pub mean_relative: Option<f64>,
    /// Estimates that were too low: a fault, always zero.
    pub underestimates_total: u64,
}

/// One node of the upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLoad {
    /// host:port.
    pub node: String,
    /// Commands sent to it.
    pub commands_total: u64,
    /// Commands/s sent to it, over the last window.
    pub commands_per_second: f64,
}

/// Whether the servers behind can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamHealth {
    /// Each of them, as far as it was tried.
    pub nodes: Vec<UpstreamNode>,
    /// What went wrong with connections to them, by kind.
    pub errors_total: Vec<(&'static str, u64)>,
    /// Connections that were had again.
    pub reconnects_total: u64,
}

/// The registry and the fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    /// Hot keys by mitigation and origin: names as in the API.
    pub registry_entries: Vec<(&'static str, &'static str, u64)>,
    /// Version of the registry in force here.
    pub registry_version: u64,
    /// Live members by role.
    pub members: Vec<(String, u64)>,
    /// It works on what it sees itself.
    pub degraded: bool,
    /// Reports published.
    pub reports_sent_total: u64,
    /// Reports heard.
    pub reports_received_total: u64,
    /// Reports that were not sent or not understood.
    pub reports_dropped_total: u64,
    /// Records and messages that were not understood, or not signed by a member.
    pub records_ignored_total: u64,
}

/// A distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: Vec<f64>,
    /// One more than bounds: the last counts what is over all of them.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// Upper bounds in seconds for latencies from 100 us to 10 s.
    pub const LATENCY_SECONDS: &[f64] = &[
        0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25,
        0.3, 0.5, 1.0, 2.5, 5.0, 10.0,
    ];

    /// An empty distribution over ascending upper bounds.
    pub fn new(bounds: &[f64]) -> Self {
        debug_assert!(bounds.is_sorted(), "bounds ascend");
        Self { bounds: bounds.to_vec(), counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// One that was counted elsewhere: how many values are up to each bound and not up to the one
    /// before, and, last, over all of them.
    pub fn counted(bounds: Vec<f64>, counts: Vec<u64>, sum: f64) -> Self {
        debug_assert!(bounds.is_sorted() && counts.len() == bounds.len() + 1);
        Self { bounds, counts, sum }
    }

    /// Counts one value; a bound belongs to the bucket that it closes.
    pub fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Upper bounds with the number of values up to each.
    fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        self.bounds.iter().copied().zip(self.counts.iter().scan(0, |total, count| {
            *total += count;
            Some(*total)
        }))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new(Self::LATENCY_SECONDS)
    }
}
