//! A bound on the bytes of unfinished or waiting requests of all clients together.
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
//! What a transaction on a cluster has queued is kept, and counts likewise; see
//! [`crate::cluster::transactions`].
//!
//! Clients are closed rather than left unread: if nothing was read from any of them, no request would
//! ever be complete, and no memory would ever be freed.
//!
//! Called by: `intake` when it has read from a client; the worker when it writes to one, since a transaction
//! may have ended, and at the end of each turn.
//! Bound: the limit, and what comes within one turn of each worker.

use std::time::Instant;

use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::downstream::total::Total;

pub(crate) const REFUSAL: &str =
    "ERR Protocol error: too many bytes of unfinished requests, of all clients together";

/// How much is held of requests that are not taken yet, and how many clients were closed for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputFigures {
    /// Bytes that are held for requests that are not complete, or have to wait.
    pub held_bytes: u64,
    /// Clients that were closed because all clients together had too many such bytes.
    pub closed_total: u64,
}

impl InputFigures {
    pub(crate) fn of(total: &Total) -> Self {
        Self { held_bytes: total.bytes(), closed_total: total.closed() }
    }
}

/// What a worker has published of its clients.
#[derive(Debug)]
pub(crate) struct WorkerInput {
    pub(crate) told_bytes: u64,
    /// Clients that were closed and are not in the log yet.
    pub(crate) unlogged: u64,
    pub(crate) next_log: Instant,
}

impl WorkerInput {
    pub(crate) fn new(now: Instant) -> Self {
        Self { told_bytes: 0, unlogged: 0, next_log: now }
    }
}

impl Clients {
    /// Counts a client's input anew, after it may have grown or shrunk.
    #[inline]
    pub(crate) fn count_input(&mut self, key: ClientKey) {
        let Some(client) = self.slab.get_mut(key.slot as usize) else { return };
        let queued =
            client.transaction.as_ref().map_or(0, |transaction| transaction.queued.capacity());
        let held = client.input.capacity() + queued;
        if client.generation == key.generation && held != client.input_counted {
            self.input_bytes += held;
            self.input_bytes -= std::mem::replace(&mut client.input_counted, held);
        }
    }
}
