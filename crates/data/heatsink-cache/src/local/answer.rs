//! What the cache says, and what it is told of a key's time to live.

use std::sync::Arc;
use std::time::Duration;

use super::token::{FillToken, WriteToken};

/// The answer to a read.
#[derive(Debug)]
pub enum Lookup<'a> {
    /// Served from here.
    Hit {
        /// The reply, to be copied into the client's output.
        reply: &'a [u8],
        /// Send one fill besides, with a token of [`super::LocalCache::fill_token`]: the deadline
        /// is near.
        refresh: bool,
    },
    /// Send a fill on the tracked link.
    Miss(FillToken),
    /// Send a fill whose reply is not stored.
    Bypass(FillToken),
    /// Not a key of this cache.
    NotRegistered,
}

/// A read that is served from here.
#[derive(Debug)]
pub struct Hit<'a> {
    /// The reply.
    pub reply: &'a [u8],
    /// The same, if it is large: to be shared, not copied.
    pub shared: Option<&'a Arc<[u8]>>,
    /// As in [`Lookup::Hit`].
    pub refresh: bool,
}

/// The key's time to live, fetched right behind a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// The key does not exist: a tracked miss.
    Absent,
    /// The key does not expire.
    Unlimited,
    /// What is left.
    Remaining(Duration),
}

impl Ttl {
    /// From the reply to `PTTL`; `None` for a number that it does not give.
    pub fn from_pttl(reply: i64) -> Option<Self> {
        match reply {
            -2 => Some(Self::Absent),
            -1 => Some(Self::Unlimited),
            _ => u64::try_from(reply).ok().map(Duration::from_millis).map(Self::Remaining),
        }
    }
}

/// What became of a registration.
#[derive(Debug)]
pub enum Registered {
    /// The key is new and pending until the token is given back (rule 5 of this module).
    New(WriteToken),
    /// It was known; its settings are the new ones.
    Known,
    /// No more keys fit.
    Full,
}
