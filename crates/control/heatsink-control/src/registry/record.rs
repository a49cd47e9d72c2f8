//! What the store says of the registry, and what the copy makes of it: plain data.
//!
//! Invariant: the store tells how long something still lives, never until when, so that its
//! clock and this process's need not agree.

use std::time::Duration;

use crate::entry::{Entry, Origin};

/// A record as the store tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The version that wrote it.
    pub epoch: u64,
    /// What it says.
    pub entry: Entry,
    /// How long it still lives; for ever if nothing is said.
    pub remaining: Option<Duration>,
}

/// A record of the copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The version that wrote it.
    pub epoch: u64,
    /// What it says.
    pub entry: Entry,
    /// When it ends by this process's clock, unless it is renewed.
    pub expires_at: Option<Duration>,
}

impl Record {
    /// How long it still lives; `None` is for ever.
    pub fn remaining(&self, now: Duration) -> Option<Duration> {
        self.expires_at.map(|end| end.saturating_sub(now))
    }

    /// Whether its time is over.
    pub fn is_expired(&self, now: Duration) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    /// Whether nobody but an operator may change it.
    pub(super) fn is_manual(&self) -> bool {
        self.entry.origin == Origin::Manual
    }

    pub(super) fn of(now: Duration, stored: Stored) -> Self {
        let Stored { epoch, entry, remaining } = stored;
        Self { epoch, entry, expires_at: remaining.map(|remaining| now + remaining) }
    }
}

/// One change of the registry.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The registry's version after it.
    pub version: u64,
    /// The raw key.
    pub key: Vec<u8>,
    /// What happened to it.
    pub what: What,
}

/// What happened to a key.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "most of them are puts, and there are few")]
pub enum What {
    /// It has this entry now.
    Put {
        /// What the entry says.
        entry: Entry,
        /// How long it lives.
        remaining: Option<Duration>,
    },
    /// It has none any more.
    Removed {
        /// How long it may not be put again automatically.
        blocked_for: Option<Duration>,
    },
}

/// Everything that the store holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Differs when the store lost its data.
    pub incarnation: Vec<u8>,
    /// Counts the changes.
    pub version: u64,
    /// All records.
    pub records: Vec<(Vec<u8>, Stored)>,
    /// Keys that may not be put automatically, and for how long.
    pub blocked: Vec<(Vec<u8>, Duration)>,
}

/// A put that brings back what the store has lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Reclaim {
    /// The raw key.
    pub key: Vec<u8>,
    /// What it had.
    pub entry: Entry,
    /// The epoch of what is there now; 0 if nothing is.
    pub expects_epoch: u64,
    /// How long it still had to live.
    pub remaining: Option<Duration>,
}
