//! What is told to those who have waited too long for a read: the error, or, in mode `relaxed`,
//! what was read before.
//!
//! Bound: [`MOST_REPLIES`] replies of [`MOST_BYTES`] each, and none older than
//! `coalesce.max_stale_ms`.
//! Invariant: a reply is given only to the login that it was read for, and to no connection that may
//! have written the key since it was read:
//!
//! ```text
//! 1. GET k is sent, and answered v1: kept
//! 2. A: SET k v2, answered OK           3. the server stands still
//! 4. A: GET k waits too long: v1 would be older than what A wrote itself
//! ```
//!
//! So each is kept with the time at which its read was sent, and A has to get one that was sent after
//! A's last write was answered. What others wrote does not matter: they may be told v1.

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
    /// Keeps the reply to a read that was sent at that time.
    pub(super) fn keep(&mut self, sent_at: Instant, reader: Reader, command: &[u8], reply: &[u8]) {
        if command.len() + reply.len() > MOST_BYTES {
            return;
        }
        let place = place(reader, command);
        if self.replies.len() >= MOST_REPLIES && !self.replies.contains_key(&place) {
            self.replies.clear();
        }
        self.replies.insert(place, (sent_at, reply.to_vec()));
    }

    /// What was read before, and when that was sent, if it is not too old.
    pub(super) fn get(
        &self,
        now: Instant,
        reader: Reader,
        command: &[u8],
        max_age: Duration,
    ) -> Option<(Instant, &[u8])> {
        let (sent_at, reply) = self.replies.get(&place(reader, command))?;
        (now.saturating_duration_since(*sent_at) <= max_age).then_some((*sent_at, reply))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.replies.clear();
    }
}

fn place(reader: Reader, command: &[u8]) -> Place {
    (reader.login.0, reader.protocol == Protocol::Resp3, command.to_vec())
}
