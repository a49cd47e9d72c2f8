//! What the store holds and says, the same for both implementations.
//!
//! Called by: users of the store; `memory` and `remote`.

use std::time::Duration;

/// A record of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its key, any bytes.
    pub key: Vec<u8>,
    /// The version that wrote it.
    pub epoch: u64,
    /// When the key was first put, by the store's clock, in milliseconds of Unix time.
    pub created_at_ms: u64,
    /// How long it has left; `None`: for ever.
    pub expires_in: Option<Duration>,
    /// What was put, any bytes.
    pub body: Vec<u8>,
}

/// The whole registry at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Differs from before if the store has lost its data.
    pub incarnation: String,
    /// The last change contained.
    pub version: u64,
    /// The store's clock, in milliseconds of Unix time.
    pub server_time_ms: u64,
    /// All records that have not expired, in no order.
    pub records: Vec<Record>,
    /// All keys that may not be put automatically, in no order.
    pub blocked: Vec<Blocked>,
}

/// A key that was removed for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The key.
    pub key: Vec<u8>,
    /// For how long yet.
    pub remaining: Duration,
}

/// What a change expects to find; otherwise it is stale and nothing happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expects {
    /// Anything.
    #[default]
    Any,
    /// The record with this epoch; with 0, none.
    Epoch(u64),
}

impl Expects {
    /// No record of the key.
    pub const ABSENT: Self = Self::Epoch(0);

    pub(crate) fn allows(self, epoch: u64) -> bool {
        match self {
            Self::Any => true,
            Self::Epoch(expected) => expected == epoch,
        }
    }
}

/// A record to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// The bytes to keep.
    pub body: Vec<u8>,
    /// When the record expires; `None`: never.
    pub ttl: Option<Duration>,
    /// What must be there.
    pub expects: Expects,
    /// Whether to refuse a blocked key. A put that does not ends the block.
    pub respects_block: bool,
    /// Whether to keep the creation time of the record that is replaced.
    pub keep_created: bool,
    /// Whether the record must be there after a restart of all processes. With the first put of this kind, a
    /// process that is alone begins to write to the server; see [`crate::Store::quiet`].
    pub survives: bool,
}

/// What became of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// Written.
    Applied {
        /// The version of the change, the epoch of the record.
        version: u64,
    },
    /// Something else than expected is there.
    Stale {
        /// The epoch of what is there, 0 for nothing.
        epoch: u64,
    },
    /// The key may not be put.
    Blocked {
        /// For how long yet.
        remaining: Duration,
    },
    /// There are as many records as allowed.
    Full,
}

/// What became of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveOutcome {
    /// Removed.
    Applied {
        /// The version of the change.
        version: u64,
    },
    /// Another record than expected is there.
    Stale {
        /// Its epoch.
        epoch: u64,
    },
    /// There was nothing to remove. The key is blocked anyway if it was to be, unless a
    /// particular record was expected; then subscribers are told of its removal.
    Absent,
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewOutcome {
    /// It has its full time to live again.
    Applied,
    /// Something else than expected is there.
    Stale {
        /// The epoch of what is there, 0 for nothing.
        epoch: u64,
    },
}

/// A member of the fleet that has been heard of recently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What it calls itself.
    pub id: String,
    /// What it said of itself.
    pub body: Vec<u8>,
}

/// Where processes talk to each other, besides the changes that all subscribers get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// From proxies to aggregators.
    Reports,
    /// From aggregators to proxies.
    Watch,
}

/// What a subscriber is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// From here on every change is told: time to read a snapshot. Changes that the snapshot
    /// contains already may be told again.
    Connected {
        /// Which server tells them.
        server: String,
    },
    /// Changes may be missed until the next `Connected`.
    Lost {
        /// What happened.
        why: String,
    },
    /// The registry changed.
    Change {
        /// One more than that of the change before.
        version: u64,
        /// The key.
        key: Vec<u8>,
        /// Its record, unless it was removed.
        record: Option<Record>,
    },
    /// A message without a seal says that something was removed: a snapshot is to be read, which shows it.
    Removals,
    /// A message of [`Channel::Reports`]. May be lost.
    Report(Vec<u8>),
    /// A message of [`Channel::Watch`]. May be lost.
    Watch(Vec<u8>),
}

impl Channel {
    pub(crate) fn notice(self, body: Vec<u8>) -> Notice {
        match self {
            Self::Reports => Notice::Report(body),
            Self::Watch => Notice::Watch(body),
        }
    }
}

/// A time to live as the store counts it: at least a millisecond, at most about 30 years.
pub(crate) fn whole_ms(ttl: Duration) -> u64 {
    const MOST_MS: u64 = 1_000_000_000_000;
    u64::try_from(ttl.as_millis()).unwrap_or(MOST_MS).clamp(1, MOST_MS)
}
