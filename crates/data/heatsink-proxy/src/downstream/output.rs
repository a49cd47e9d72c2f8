//! A bound on what all clients together have not read yet.
//!
//! Called by: the worker at the end of each turn, and at its ticks.
//! Each worker publishes the total of its clients when it changes. A worker that finds the sum of all
//! totals over `limits.max_total_output_bytes` has the slowest client closed, then the next, until
//! the rest fits. The slowest client is the one with the largest product of unread bytes and time
//! without a read. It may be another worker's: once half of the limit is used, each worker publishes
//! at its ticks how slow its slowest client is, and the one with the slowest of all is asked to close it.
//! Bound: the limit, and what comes within one turn of each worker.

use std::time::{Duration, Instant};

use crate::downstream::connection::Client;
use crate::downstream::total::Total;

/// The log tells of clients that were closed this often at most.
pub(crate) const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// How much clients have not read yet, and how many were closed for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputFigures {
    /// Bytes that clients have not read yet; a reply that several clients share counts once.
    pub unread_bytes: u64,
    /// Clients that were closed because they, or all clients together, had too many unread bytes.
    pub closed_total: u64,
}

impl OutputFigures {
    pub(crate) fn of(total: &Total) -> Self {
        Self { unread_bytes: total.bytes(), closed_total: total.closed() }
    }
}

/// What a worker has published of its clients.
#[derive(Debug)]
pub(crate) struct WorkerOutput {
    pub(crate) told_bytes: u64,
    /// Clients that were closed and are not in the log yet, and why they were.
    pub(crate) unlogged: u64,
    pub(crate) reason: &'static str,
    pub(crate) next_log: Instant,
}

impl WorkerOutput {
    pub(crate) fn new(now: Instant) -> Self {
        Self { told_bytes: 0, unlogged: 0, reason: "", next_log: now }
    }
}

/// The bytes that are held for a client, times how long it has not taken any of them.
pub(crate) fn slowness(client: &Client, now: Instant) -> u64 {
    let bytes = (client.output.share() + client.order.share()) as u64;
    let idle = now.saturating_duration_since(client.took_at).as_millis() as u64;
    bytes.saturating_mul(idle + 1)
}
