//! A bound on what all clients together have sent of requests that are not taken yet.
//!
//! A request that may touch several keys, or goes to a node of a cluster, is held until it is
//! complete, and so is whatever its client sends behind a request that waits. One client may hold
//! `limits.max_request_bytes`; many that each send half of a large request, and then nothing more,
//! would use up the memory:
//!
//! ```text
//! 1. A, B, C ... each send an MSET of 900 MB but for its last byte; nobody breaks a limit
//! 2. all together are over limits.max_total_input_bytes
//! 3. whoever has sent most of all is told so, and closed; and the next, until the rest fits
//! ```
//!
//! They are refused, not stopped: if all were stopped, none would be complete, and each would wait for
//! the others.
//!
//! Called by: `intake` when it has read from a client; the worker at the end of each turn.
//! Bound: the limit, and what comes within one turn of each worker.

use std::time::{Duration, Instant};

use crate::downstream::clients::Clients;
use crate::downstream::connection::{Client, ClientKey};
use crate::downstream::total::Total;
use crate::runtime::shared::Message;
use crate::runtime::worker::Worker;

/// Clients that were refused are told of in the log this often at most.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

const REFUSAL: &str =
    "ERR Protocol error: too many bytes of unfinished requests, of all clients together";

/// What clients have sent of requests that are not taken yet, and who was closed for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputFigures {
    /// Bytes that are held for requests that are not complete, or have to wait.
    pub held_bytes: u64,
    /// Clients that were closed because all together had too many of them.
    pub closed_total: u64,
}

impl InputFigures {
    pub(crate) fn of(total: &Total) -> Self {
        Self { held_bytes: total.bytes(), closed_total: total.closed() }
    }
}

/// What a worker has told of its clients.
#[derive(Debug)]
pub(crate) struct WorkerInput {
    told_bytes: u64,
    /// Clients that were closed and not yet told of in the log.
    unlogged: u64,
    next_log: Instant,
}

impl WorkerInput {
    pub(crate) fn new(now: Instant) -> Self {
        Self { told_bytes: 0, unlogged: 0, next_log: now }
    }
}

impl Clients {
    /// What is held of a client's input may be more, or less, than before.
    #[inline]
    pub(crate) fn count_input(&mut self, key: ClientKey) {
        let Some(client) = self.slab.get_mut(key.slot as usize) else { return };
        let held = client.input.capacity();
        if client.generation == key.generation && held != client.input_counted {
            self.input_bytes += held;
            self.input_bytes -= std::mem::replace(&mut client.input_counted, held);
        }
    }
}

impl Worker {
    /// Sees to it that all clients together do not have too much input held.
    #[inline]
    pub(crate) fn bound_input(&mut self) {
        let bytes = self.clients.input_bytes as u64;
        if bytes != self.input.told_bytes {
            self.input_changed(bytes);
        }
    }

    #[cold]
    fn input_changed(&mut self, bytes: u64) {
        let total = self.tell_input(bytes);
        let max = self.live.limits.max_total_input_bytes;
        // Another worker may have to know soon.
        let largest =
            if total > max / 2 { self.largest_input().map_or(0, |(most, _)| most) } else { 0 };
        self.shared.input.tell_worst(self.index, largest);
        if total > max {
            self.close_largest();
        }
    }

    /// Tells the total of this worker's clients; that of all workers.
    fn tell_input(&mut self, bytes: u64) -> u64 {
        let before = std::mem::replace(&mut self.input.told_bytes, bytes);
        self.shared.input.change(before, bytes)
    }

    /// Another worker has found that all clients together have too much input held.
    pub(crate) fn input_bound_asked(&mut self) {
        self.shared.input.looked(self.index);
        if self.shared.input.bytes() > self.live.limits.max_total_input_bytes {
            self.close_largest();
        }
    }

    /// At each tick: whoever was asked may have had nobody left.
    pub(crate) fn look_after_input(&mut self) {
        if self.shared.input.bytes() > self.live.limits.max_total_input_bytes {
            self.close_largest();
        }
        self.log_refused();
    }

    /// The client for which most is held.
    fn largest_input(&self) -> Option<(u64, ClientKey)> {
        let held = |(slot, client): (usize, &Client)| {
            let key = ClientKey { slot: slot as u32, generation: client.generation };
            (client.input_counted as u64, key)
        };
        let clients = self.clients.slab.iter().filter(|(_, client)| !client.within);
        clients.map(held).filter(|(held, _)| *held > 0).max_by_key(|(held, _)| *held)
    }

    /// Closes clients until what is left fits, or another worker has one for which more is held.
    fn close_largest(&mut self) {
        loop {
            let largest = self.largest_input();
            let dedicated = largest.map_or(0, |(held, _)| held);
            self.shared.input.tell_worst(self.index, dedicated);
            let (worker, most) = self.shared.input.worst();
            if most > dedicated {
                if self.shared.input.ask(worker) {
                    self.shared.mailboxes[worker].send(Message::BoundInput);
                }
                return;
            }
            let Some((_, key)) = largest else { return };
            self.refuse_input(key);
            let bytes = self.clients.input_bytes as u64;
            if self.tell_input(bytes) <= self.live.limits.max_total_input_bytes {
                let left = self.largest_input().map_or(0, |(held, _)| held);
                self.shared.input.tell_worst(self.index, left);
                return;
            }
        }
    }

    /// Tells a client that its request is too much, behind the replies that it is owed, and closes it.
    fn refuse_input(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get_ref(key) else { return };
        if client.dedicated.as_ref().is_none_or(|dedicated| dedicated.is_settled()) {
            self.clients.error(key, REFUSAL);
        }
        self.clients.close_after_replies(key);
        self.shared.input.note_closed();
        self.input.unlogged += 1;
        self.log_refused();
    }

    fn log_refused(&mut self) {
        let WorkerInput { unlogged, next_log, .. } = &mut self.input;
        if *unlogged > 0 && self.now >= *next_log {
            tracing::warn!(
                clients = std::mem::take(unlogged),
                "clients with large unfinished requests were closed: limits.max_total_input_bytes is reached"
            );
            *next_log = self.now + LOG_INTERVAL;
        }
    }
}
