//! Settings: the bounds of a cache, and how one key is cached.

use std::time::Duration;

use super::answer::Ttl;

/// Bounds of one worker's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Registered keys; more are refused.
    pub keys: usize,
    /// Entries; the least used make room.
    pub entries: usize,
    /// Bytes of commands and replies, with what holding them costs; as for entries.
    pub bytes: usize,
    /// The same of one entry; a larger reply is not stored.
    pub entry_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { keys: 4096, entries: 2048, bytes: 64 << 20, entry_bytes: 1 << 20 }
    }
}

/// How one key is cached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeySettings {
    /// No entry is served longer than this after its fill was sent.
    pub max_ttl: Duration,
    /// Nor longer than this part of the key's remaining time to live; from 0 to 1, anything
    /// else counts as the nearer of the two, what is no number as 0.
    pub ttl_fraction: f64,
    /// Ask for a refresh before an entry in use reaches its deadline.
    pub refresh_ahead: bool,
}

impl Default for KeySettings {
    fn default() -> Self {
        Self { max_ttl: Duration::from_secs(60), ttl_fraction: 0.2, refresh_ahead: true }
    }
}

impl KeySettings {
    /// How long an entry may be served, from the sending of its fill.
    pub(super) fn life(&self, ttl: Ttl) -> Duration {
        let Ttl::Remaining(left) = ttl else { return self.max_ttl };
        let fraction = if self.ttl_fraction > 0.0 { self.ttl_fraction.min(1.0) } else { 0.0 };
        self.max_ttl.min(left.mul_f64(fraction))
    }
}
