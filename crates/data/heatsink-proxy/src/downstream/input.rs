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

use std::time::Instant;

use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::downstream::total::Total;

pub(crate) const REFUSAL: &str =
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
    pub(crate) told_bytes: u64,
    /// Clients that were closed and not yet told of in the log.
    pub(crate) unlogged: u64,
    pub(crate) next_log: Instant,
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
