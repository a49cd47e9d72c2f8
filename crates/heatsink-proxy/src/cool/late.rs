//! What is told to those who have waited too long for a read: the error, or, in mode `relaxed`,
//! what was read before.
//!
//! Bound: [`MOST_REPLIES`] replies of [`MOST_BYTES`] each, and none older than
//! `coalesce.max_stale_ms`.
//! Invariant: a reply is given only to the login that it was read for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use heatsink_cache::identity::{Protocol, Reader};

/// Replies that are kept.
const MOST_REPLIES: usize = 1024;
/// The longest of them.
const MOST_BYTES: usize = 16 << 10;

/// Login, protocol and request.
type Place = (u32, bool, Vec<u8>);

/// Replies that may be given to those who have waited too long.
#[derive(Debug, Default)]
pub(crate) struct LateReplies {
    replies: HashMap<Place, (Instant, Vec<u8>), RandomState>,
}

impl LateReplies {
    pub(super) fn keep(&mut self, now: Instant, reader: Reader, command: &[u8], reply: &[u8]) {
        if command.len() + reply.len() > MOST_BYTES {
            return;
        }
        let place = place(reader, command);
        if self.replies.len() >= MOST_REPLIES && !self.replies.contains_key(&place) {
            self.replies.clear();
        }
        self.replies.insert(place, (now, reply.to_vec()));
    }

    /// What was read before, if it is not too old.
    pub(super) fn get(
        &self,
        now: Instant,
        reader: Reader,
        command: &[u8],
        max_age: Duration,
    ) -> Option<&[u8]> {
        let (at, reply) = self.replies.get(&place(reader, command))?;
        (now.saturating_duration_since(*at) <= max_age).then_some(reply)
    }

    pub(super) fn clear(&mut self) {
        self.replies.clear();
    }
}

fn place(reader: Reader, command: &[u8]) -> Place {
    (reader.login.0, reader.protocol == Protocol::Resp3, command.to_vec())
}
