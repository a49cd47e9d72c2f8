//! The unanswered requests of one client that touch hot keys, and what follows from them.
//!
//! Owned by this room: others create it and read it, and never change it.

use std::time::Instant;

use heatsink_cache::combine::PoolId;
use heatsink_cache::flights::FlightId;
use heatsink_cache::local::WriteToken;

use crate::runtime::clock::Clock;

/// The unanswered requests of one client that touch hot keys.
#[derive(Debug, Default)]
pub(crate) struct ClientState {
    /// The version of the hot keys by which its outstanding requests were sent.
    pub(crate) version: u64,
    /// Unanswered requests that touch hot keys and were not combined.
    pub(super) writes: u32,
    /// The places of unanswered reads of hot keys, and the flight that each waits for.
    pub(super) reads: Vec<(u32, FlightId)>,
    /// Reads of hot keys have gone as usual, or to the shards of a counter, since it was last
    /// drained; see [`crate::downstream::connection::Client::has_passed_reads`].
    pub(crate) passed_reads: bool,
    /// Unanswered changes that may be combined, and with what.
    pub(crate) changes: u32,
    pub(super) combined_in: Option<PoolId>,
    /// Since it was last drained, it has touched hot keys by requests that are not on the tracked link;
    /// these are the keys among them that are cached.
    pub(super) apart: bool,
    pub(crate) touched: Vec<WriteToken>,
    /// One of those requests may have touched any key, or a key that the server sends invalidations for.
    pub(super) unknown: bool,
    /// When such requests were all answered. Until every link of the cache is known to have told of
    /// what they changed, nothing is served to it from the cache; see the head of `reads`.
    pub(super) unseen_since: Option<Instant>,
    /// When the last of its requests that may have written a hot key was answered. The client is given
    /// no reply that was read before then.
    pub(super) written_at: Option<Instant>,
    pub(super) copies: CopyReads,
    /// Its requests that were sent to shards so far; may wrap around.
    pub(super) asked_shards: u32,
}

/// Reads of one client that were sent to copies of values.
#[derive(Debug, Default)]
pub(super) struct CopyReads {
    /// How many are not answered.
    pub(super) reads: u32,
    /// One of them found no copy: the others are asked again, of the key.
    pub(super) is_gone: bool,
    /// Until when the client reads keys themselves.
    pub(super) off_until: Option<Instant>,
}

impl ClientState {
    /// It waits for reads or changes of hot keys that a mitigation carries out: its other requests that
    /// touch hot keys must not overtake them.
    #[inline]
    pub(crate) fn awaits(&self) -> bool {
        !self.reads.is_empty() || self.changes > 0
    }

    /// All requests of `apart` are answered: takes the keys that were noted for them.
    pub(super) fn end_apart(&mut self, now: Instant, clock: &Clock) -> Vec<WriteToken> {
        self.apart = false;
        self.written_at = Some(now);
        if std::mem::take(&mut self.unknown) {
            self.hear_of_changes(clock);
        }
        std::mem::take(&mut self.touched)
    }

    /// Notes that a request which may have changed a hot key was answered: nothing is served to the client
    /// from the cache until an invalidation for the change must have come.
    pub(super) fn hear_of_changes(&mut self, clock: &Clock) {
        // Not the time of the turn, which began before the answer was read.
        self.unseen_since = Some(clock.now());
    }
}
