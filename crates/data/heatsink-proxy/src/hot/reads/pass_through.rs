//! Reads of hot keys that are forwarded like those of any key, because they would find no read to join.
//!
//! Called by: `intake` with each request while any key is hot, before anything else is asked.
//! Bound: one look at the key; see [`heatsink_cache::joins`].
//! Invariant: what a client asks of one key keeps its order. Only keys that are not cached pass, so
//! that nothing is served here that a read under way could make older.
//!
//! A read that passes is queued on the link at once; a read that flies waits for its flight to leave.
//! Without the rules below they would be reordered:
//!
//! ```text
//! a flight behind what passed            what passes behind a flight
//! 1. A's GET flies: it is on the link    1. C's GET waits for the next flight
//! 2. C's GETRANGE passes, behind it      2. C's GETRANGE passes: it is on the link
//! 3. C's GET joins A's, before that      3. it is executed; somebody writes
//! 4. GET is executed; somebody writes    4. the next flight leaves: GET is executed
//! 5. GETRANGE is executed: C is told     5. GET sees the write, GETRANGE behind it does not
//!    the new value and then the old one
//! ```
//!
//! - A read that flies, and a change that is combined, wait until the reads that their client has passed
//!   are answered ([`Client::has_passed_reads`]).
//! - A read passes only if its client waits for no flight of the key, and for no write of any hot key.
//! - A write that is not combined is queued on the link like a read that passes, and so stays behind it.
//!
//! [`Client::has_passed_reads`]: crate::downstream::connection::Client::has_passed_reads

use std::hash::BuildHasher;

use heatsink_cache::joins::Joins;
use heatsink_resp::command::{Access, Command};

use crate::downstream::connection::ClientKey;
use crate::downstream::request::Request;
use crate::hot::reads::Reads;
use crate::hot::{Incoming, Mitigations};
use crate::relay::Relay;

impl Mitigations {
    /// A read of a key has taken a flight of its own.
    pub(in crate::hot) fn note_led(&mut self, name: &[u8]) {
        if self.keys.may_pass(name)
            && let Some(work) = self.work.get_mut(name)
            && work.joins.led()
        {
            self.reads.passing += 1;
        }
    }

    /// A read of a key goes as usual, whether it would find others or not.
    pub(in crate::hot) fn note_as_usual(&mut self, request: Request<'_>, command: &Command) {
        if let Some(name) = command.single_key_index().and_then(|index| request.arg(index))
            && let Some(work) = self.work.get_mut(name)
        {
            work.passed += 1;
        }
    }

    /// The hot keys or their treatments have changed: forgets the keys whose reads may not pass any more.
    pub(in crate::hot) fn keep_passing(&mut self) {
        self.reads.passing = 0;
        for (name, work) in &mut self.work {
            if !self.keys.may_pass(name) {
                work.joins = Joins::default();
            }
            self.reads.passing += usize::from(work.joins.passes());
        }
    }
}

/// What a request has to do with hot keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hotness {
    /// Nothing.
    Cold,
    /// It reads one, and goes as usual.
    Passes,
    /// It names one, or may change any.
    Hot,
}

impl Mitigations {
    /// What a request has to do with hot keys. One that passes is counted.
    #[inline]
    pub(crate) fn hotness(&mut self, relay: &mut Relay, incoming: Incoming<'_>) -> Hotness {
        let Incoming { key, request, command, .. } = incoming;
        if self.reads.passing > 0
            && command.access == Access::Read
            && let Some(index) = command.single_key_index()
            && let Some(name) = request.arg(index)
        {
            return self.hotness_of_read(relay, key, request, name);
        }
        if self.touches_hot_keys(request, command) { Hotness::Hot } else { Hotness::Cold }
    }

    fn hotness_of_read(
        &mut self,
        relay: &mut Relay,
        key: ClientKey,
        request: Request<'_>,
        name: &[u8],
    ) -> Hotness {
        let Self { work, reads, .. } = self;
        let Reads { flights, passing, hasher, .. } = reads;
        let Some(work) = work.get_mut(name) else { return Hotness::Cold };
        // A replica would be asked as usual, and the primary by a flight: time would go backwards.
        if !work.joins.passes() || relay.cluster.reads_replicas {
            return Hotness::Hot;
        }
        let Some(client) = relay.clients.get(key) else { return Hotness::Hot };
        if client.hot.writes + client.hot.changes > 0 || client.hot.apart {
            return Hotness::Hot;
        }
        let is_of_key = |flight| flights.request(flight).is_none_or(|(_, of, _)| of == name);
        if client.hot.reads.iter().any(|(_, flight)| is_of_key(*flight)) {
            return Hotness::Hot;
        }
        client.hot.passed_reads = true;
        work.passed += 1;
        // Those of another pool would not be joined.
        let hash = hasher.hash_one((client.pool, request.bytes));
        if !work.joins.passed(hash) {
            *passing -= 1;
        }
        Hotness::Passes
    }
}
