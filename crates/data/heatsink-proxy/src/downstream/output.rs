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

use crate::downstream::connection::{Client, ClientKey};
use crate::downstream::total::Total;
use crate::runtime::shared::Message;
use crate::runtime::worker::Worker;

/// Clients that were closed are told of in the log this often at most.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

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
    told_bytes: u64,
    /// Clients that were closed and not yet told of in the log, and for what.
    unlogged: u64,
    reason: &'static str,
    next_log: Instant,
}

impl WorkerOutput {
    pub(crate) fn new(now: Instant) -> Self {
        Self { told_bytes: 0, unlogged: 0, reason: "", next_log: now }
    }
}

/// How much a client answers for, times how long it has not taken any of it.
fn slowness(client: &Client, now: Instant) -> u64 {
    let bytes = (client.output.share() + client.order.share()) as u64;
    let idle = now.saturating_duration_since(client.took_at).as_millis() as u64;
    bytes.saturating_mul(idle + 1)
}

impl Worker {
    /// Sees to it that all clients together do not have too much output.
    #[inline]
    pub(crate) fn bound_output(&mut self) {
        let bytes = (self.clients.copied_bytes + self.clients.ledger.bytes()) as u64;
        if bytes != self.output.told_bytes && self.tell_output(bytes) > self.max_output() {
            self.close_slowest();
        }
    }

    fn max_output(&self) -> u64 {
        self.live.limits.max_total_output_bytes
    }

    /// Tells the total of this worker's clients; that of all workers.
    fn tell_output(&mut self, bytes: u64) -> u64 {
        let before = std::mem::replace(&mut self.output.told_bytes, bytes);
        self.shared.output.change(before, bytes)
    }

    /// Another worker has found that all clients together have too much output.
    pub(crate) fn output_bound_asked(&mut self) {
        self.shared.output.looked(self.index);
        if self.shared.output.bytes() > self.max_output() {
            self.close_slowest();
        }
    }

    /// At each tick: how slow the slowest client is, if that may matter soon.
    pub(crate) fn tell_slowest(&mut self) {
        let total = self.shared.output.bytes();
        let matters = total > self.max_output() / 2;
        let slowest = if matters { self.by_slowness().first().map_or(0, |(s, _)| *s) } else { 0 };
        self.shared.output.tell_worst(self.index, slowest);
        if total > self.max_output() {
            // Whoever was asked may have had nobody left.
            self.close_slowest();
        }
        self.log_closed();
    }

    /// Clients that have not read everything, the slowest first.
    fn by_slowness(&self) -> Vec<(u64, ClientKey)> {
        let slow = |(slot, client): (usize, &Client)| {
            let key = ClientKey { slot: slot as u32, generation: client.generation };
            (slowness(client, self.now), key)
        };
        let unread = |(_, client): &(usize, &Client)| client.unread() > 0 && !client.within;
        let mut clients: Vec<_> = self.clients.slab.iter().filter(unread).map(slow).collect();
        clients.sort_unstable_by_key(|(slowness, _)| std::cmp::Reverse(*slowness));
        clients
    }

    /// Closes slow clients until what is left fits, or another worker has slower ones.
    fn close_slowest(&mut self) {
        let mut clients = self.by_slowness().into_iter().peekable();
        loop {
            let dedicated = clients.peek().map_or(0, |(slowness, _)| *slowness);
            self.shared.output.tell_worst(self.index, dedicated);
            let (worker, slowness) = self.shared.output.worst();
            if slowness > dedicated {
                if self.shared.output.ask(worker) {
                    self.shared.mailboxes[worker].send(Message::BoundOutput);
                }
                return;
            }
            let Some((_, key)) = clients.next() else { return };
            self.close_slow(key, "limits.max_total_output_bytes");
            let bytes = (self.clients.copied_bytes + self.clients.ledger.bytes()) as u64;
            if self.tell_output(bytes) <= self.max_output() {
                return;
            }
        }
    }

    /// Closes a client that has too much output.
    pub(crate) fn close_slow(&mut self, key: ClientKey, reason: &'static str) {
        if self.clients.get(key).is_none() {
            return;
        }
        self.close_client(key);
        self.shared.output.note_closed();
        self.output.unlogged += 1;
        self.output.reason = reason;
        self.log_closed();
    }

    fn log_closed(&mut self) {
        let WorkerOutput { unlogged, reason, next_log, .. } = &mut self.output;
        if *unlogged > 0 && self.now >= *next_log {
            tracing::warn!(
                clients = std::mem::take(unlogged),
                limit = reason,
                "clients that did not read their replies were closed: a limit is reached"
            );
            *next_log = self.now + LOG_INTERVAL;
        }
    }
}
