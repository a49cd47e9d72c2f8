//! What the registry holds of one hot key.
//!
//! Called by: the aggregator and operators write entries, every process reads them. The API shows an
//! entry with the rates and the status of the moment.
//! The raw key is not part of an entry, which is stored under it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

mod split;

pub use split::{Pause, Phase, Removal, SplitRecord};

/// What is done about a hot key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mitigation {
    /// Reads are answered from a cache in the proxy.
    LocalCache,
    /// Concurrent reads share one upstream read, concurrent increments one upstream write.
    Coalesce,
    /// One logical key is kept as several physical keys on different nodes.
    Split,
    /// Copies of a value on several nodes, read in turn.
    Copies,
    /// Reads go to replicas as well.
    ReplicaReads,
}

/// Who brought a key into the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Found hot by the fleet.
    Auto,
    /// Promoted by an operator; stays until its TTL or its removal.
    Manual,
    /// Found hot by this proxy alone, while the coordination store could not be reached.
    Local,
}

/// Where a key stands in its life as a hot key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its value is to be moved or copied, and nobody has begun.
    Candidate,
    /// The mitigation is in force.
    Active,
    /// In force, below the retire fraction, waiting for the hold time to pass.
    Cooling,
    /// No longer in force.
    Retired,
    /// Writes are held while a split begins or ends.
    Freezing,
    /// The value is being moved between the key and its shards.
    Moving,
    /// The shards are being given back.
    Draining,
}

/// What the registry holds of one hot key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What is done.
    pub mitigation: Mitigation,
    /// Physical keys that the logical one is spread over; 1 if it is not split.
    pub split_factor: u32,
    /// Seconds that the entry lives unless it is renewed.
    pub ttl_seconds: Option<u64>,
    /// Who brought it in.
    pub origin: Origin,
    /// Where it stands.
    pub status: Status,
    /// Why, in words and numbers.
    pub reason: String,
    /// Nothing is done: this only says what would have been (`observe`).
    pub dry_run: bool,
    /// Requests/s when it was decided.
    pub frequency: f64,
    /// Reads/s when it was decided.
    pub reads_per_second: f64,
    /// Writes/s when it was decided.
    pub writes_per_second: f64,
    /// When it was found, in milliseconds of Unix time by the store's clock; 0 until the
    /// store has said so.
    pub detected_at_ms: u64,
    /// Where its value is, if it is moved or has been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitRecord>,
    /// Why its value is not moved, although it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
}

impl Entry {
    /// Whether it must be there after a restart of all processes: an operator wants it, or the value was
    /// moved.
    pub fn survives(&self) -> bool {
        self.origin == Origin::Manual || self.split.is_some()
    }
}

macro_rules! names {
    ($type:ident: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name that users see and write.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<Self, UnknownName> {
                Self::ALL.iter().copied().find(|one| one.name() == name).ok_or(UnknownName)
            }
        }
    };
}

names!(Mitigation:
    LocalCache = "local_cache",
    Coalesce = "coalesce",
    Split = "split",
    Copies = "copies",
    ReplicaReads = "replica_reads",
);
names!(Origin: Auto = "auto", Manual = "manual", Local = "local");
names!(Status:
    Candidate = "candidate",
    Active = "active",
    Cooling = "cooling",
    Retired = "retired",
    Freezing = "freezing",
    Moving = "moving",
    Draining = "draining",
);

/// A set of mitigations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mitigations(u8);

impl Mitigations {
    /// All that there are.
    pub const ALL: Self = Self(u8::MAX);
    /// None of them.
    pub const NONE: Self = Self(0);

    /// Whether one is among them.
    pub fn contains(self, mitigation: Mitigation) -> bool {
        self.0 & (1 << mitigation as u8) != 0
    }

    /// The same and one more.
    #[must_use]
    pub fn with(self, mitigation: Mitigation) -> Self {
        Self(self.0 | 1 << mitigation as u8)
    }
}

impl FromIterator<Mitigation> for Mitigations {
    fn from_iter<I: IntoIterator<Item = Mitigation>>(some: I) -> Self {
        some.into_iter().fold(Self::NONE, Self::with)
    }
}

/// Not the name of any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownName;

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown name")
    }
}

impl std::error::Error for UnknownName {}
