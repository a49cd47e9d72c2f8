//! Pipelines that write a hot key and read it: their requests stay together.
//!
//! A server usually executes all requests that it reads from a connection at once, without requests of
//! others between them. With mitigations, a read behind a write of its own client would be a step of its
//! own, which is taken together with those of other clients:
//!
//! ```text
//! 1. A: SET k a, GET k      B: SET k b, GET k
//! 2. both SETs leave as one, and are answered; then both GETs leave as one
//! 3. A, or B, is told what the other wrote: legal, and never seen of a server on its own
//! ```
//!
//! So such a run goes along the shared link as it came, like requests for keys that are not hot. The
//! server executes each of its requests, and the client waits for one round trip instead of one a step.
//!
//! Called by: `intake`, with each request for a hot key.
//! Bound: [`MOST`] requests; what comes behind them is judged anew. A look at the request behind each,
//! which ends at the command's name if that is the same: pipelines of one command pay nothing.

use std::ops::Range;

use heatsink_resp::command::{Access, CommandTable, Role};
use heatsink_resp::request::{RequestScan, Status};

use crate::downstream::request::Request;
use crate::hot::{Incoming, Mitigations};
use crate::relay::Relay;

/// Requests that stay together.
const MOST: u32 = 16;

/// A run of requests for one hot key, of what was read at once.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Where its name stands in what was read.
    key: Range<usize>,
    /// How many more may belong to it.
    left: u32,
}

impl Mitigations {
    /// Whether a request for a hot key, at `at` of what was read, stays together with what is before or
    /// behind it.
    pub(crate) fn stays_together(
        &self,
        relay: &Relay,
        incoming: Incoming<'_>,
        (buf, at): (&[u8], usize),
        table: &CommandTable,
        run: &mut Run,
    ) -> bool {
        let Incoming { request, command, .. } = incoming;
        let Some(index) = command.single_key_index().filter(|index| *index < request.len()) else {
            run.left = 0;
            return false;
        };
        let Range { start, end } = request.args[index].clone();
        let name = &request.bytes[start..end];
        if run.left > 0 && buf[run.key.clone()] == *name {
            run.left -= 1;
            return true;
        }
        run.left = 0;
        let behind = &buf[at + request.bytes.len()..];
        if behind.is_empty() || behind.starts_with(&request.bytes[..request.args[0].end]) {
            return false;
        }
        let begins = self.begins_run(relay, incoming, name, behind, table);
        if begins {
            *run = Run { key: at + start..at + end, left: MOST - 1 };
        }
        begins
    }

    #[cold]
    fn begins_run(
        &self,
        relay: &Relay,
        incoming: Incoming<'_>,
        name: &[u8],
        behind: &[u8],
        table: &CommandTable,
    ) -> bool {
        let Incoming { key, request, command, .. } = incoming;
        let Some(treatment) = self.keys.get(name) else { return false };
        let reads = command.access == Access::Read;
        // What is cached is not asked for.
        if !treatment.coalesce || reads && treatment.local_cache || relay.clients.awaits_hot(key) {
            return false;
        }
        let limits = &relay.request_limits[usize::from(relay.is_unauthenticated(key))];
        let mut args = Vec::with_capacity(request.len());
        let scan = RequestScan::default().advance(behind, limits, |span| args.push(span));
        if !matches!(scan, Ok(Status::Complete { .. })) {
            return false;
        }
        let next = Request { bytes: behind, args: &args };
        let Some(other) = table.lookup(next.name(), next.arg(1)) else { return false };
        other.role == Role::Plain
            && (other.access == Access::Read) != reads
            && other.single_key_index().and_then(|index| next.arg(index)) == Some(name)
    }
}
