//! A bound on what all clients together have not read yet.
//!
//! Called by: the worker at the end of each turn, and at its ticks.
//! Each worker tells the total of its clients when it changes. Whoever finds that all of them
//! together are over `limits.max_total_output_bytes` has the slowest client closed, and the next
//! until it fits. The slowest is the one with the most unread bytes times the time for which it has
//! taken none. It may be another worker's: each tells how slow its slowest is at its ticks, once
//! half of the limit is used, and the worker that has the slowest of all is asked to close it.
//! Bound: the limit, and what comes within one turn of each worker.

use std::time::{Duration, Instant};

use crate::downstream::connection::Client;
use crate::downstream::total::Total;

/// Clients that were closed are told of in the log this often at most.
pub(crate) const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// What clients have not read yet, and who was closed for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputFigures {
    /// Bytes that clients have not read yet; what several are sent counts once.
    pub unread_bytes: u64,
    /// Clients that were closed because they, or all together, had too many of them.
    pub closed_total: u64,
}

impl OutputFigures {
    pub(crate) fn of(total: &Total) -> Self {
        Self { unread_bytes: total.bytes(), closed_total: total.closed() }
    }
}

/// What a worker has told of its clients.
#[derive(Debug)]
pub(crate) struct WorkerOutput {
    pub(crate) told_bytes: u64,
    /// Clients that were closed and not yet told of in the log, and for what.
    pub(crate) unlogged: u64,
    pub(crate) reason: &'static str,
    pub(crate) next_log: Instant,
}

impl WorkerOutput {
    pub(crate) fn new(now: Instant) -> Self {
        Self { told_bytes: 0, unlogged: 0, reason: "", next_log: now }
    }
}

/// How much a client answers for, times how long it has not taken any of it.
pub(crate) fn slowness(client: &Client, now: Instant) -> u64 {
    let bytes = (client.output.share() + client.order.share()) as u64;
    let idle = now.saturating_duration_since(client.took_at).as_millis() as u64;
    bytes.saturating_mul(idle + 1)
}
