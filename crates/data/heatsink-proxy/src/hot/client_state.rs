//! What one client is in the middle of with hot keys.
//!
//! Owned by this room: others make it, look at it, and leave it alone.

use std::time::Instant;

use heatsink_cache::combine::PoolId;
use heatsink_cache::flights::FlightId;
use heatsink_cache::local::WriteToken;

use crate::runtime::clock::Clock;

/// What one client is in the middle of with hot keys.
#[derive(Debug, Default)]
pub(crate) struct ClientState {
    /// The version of the hot keys by which its outstanding requests were sent.
    pub(crate) version: u64,
    /// Unanswered requests that touch hot keys and were not combined.
    pub(super) writes: u32,
    /// The places of unanswered reads of hot keys, and the flight that each waits for.
    pub(super) reads: Vec<(u32, FlightId)>,
    /// Reads of hot keys have gone as usual, or to the shards of a counter, since it was last
    /// settled; see [`crate::downstream::connection::Client::has_passed_reads`].
    pub(crate) passed_reads: bool,
    /// Unanswered changes that may be combined, and with what.
    pub(crate) changes: u32,
    pub(super) combined_in: Option<PoolId>,
    /// It has touched hot keys in another way since it was last settled; those that are cached.
    pub(super) apart: bool,
    pub(crate) touched: Vec<WriteToken>,
    /// One of the requests since then may have touched any key, or one of which the server tells.
    pub(super) unknown: bool,
    /// When such requests were all answered. Until every link of the cache is known to have told of
    /// what they changed, nothing is served to it from the cache; see the head of `reads`.
    pub(super) unseen_since: Option<Instant>,
    /// When the last of its own requests was answered that may have written a hot key. Nothing is
    /// given to it that was read before.
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
    /// It waits for reads or changes of hot keys, which took a way of their own: what touches
    /// hot keys otherwise must not overtake them.
    #[inline]
    pub(crate) fn awaits(&self) -> bool {
        !self.reads.is_empty() || self.changes > 0
    }

    /// What it has touched apart is answered: what is to be given back for that.
    pub(super) fn end_apart(&mut self, now: Instant, clock: &Clock) -> Vec<WriteToken> {
        self.apart = false;
        self.written_at = Some(now);
        if std::mem::take(&mut self.unknown) {
            self.hear_of_changes(clock);
        }
        std::mem::take(&mut self.touched)
    }

    /// A request was answered that may have changed a hot key: nothing is served to it from the cache
    /// until word of the change must have come.
    pub(super) fn hear_of_changes(&mut self, clock: &Clock) {
        // Not the time of the turn, which began before the answer was read.
        self.unseen_since = Some(clock.now());
    }
}
