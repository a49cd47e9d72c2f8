//! The keys that are treated in their own way, as the control plane hands them over.
//!
//! Called by: whoever decides, through [`crate::Handle::set_hot_keys`]; each worker takes over
//! what is new once a turn.
//! Bound: as many keys as the registry holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::splits::Splitting;

/// What is done about one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// Reads are answered from a cache of the worker.
    pub local_cache: bool,
    /// Concurrent reads share one upstream read, concurrent increments one upstream write.
    pub coalesce: bool,
    /// A read that has waited too long gets what was read before.
    pub stale_if_late: bool,
}

impl Treatment {
    /// Whether reads may go as usual where they find none to join. What is to be kept has to fly.
    pub(crate) fn may_pass(self) -> bool {
        self.coalesce && !self.local_cache && !self.stale_if_late
    }

    /// Nobody can notice it.
    pub const EXACT: Self = Self { local_cache: false, coalesce: true, stale_if_late: false };
    /// A read may be older than a write that others have finished, by the time that word of
    /// the write takes.
    pub const COHERENT: Self = Self { local_cache: true, coalesce: true, stale_if_late: false };
    /// A read may also be older if the server does not answer in time.
    pub const RELAXED: Self = Self { local_cache: true, coalesce: true, stale_if_late: true };
}

/// What was done for one key, since it is hot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cooled {
    /// Reads that were answered here.
    pub hits: u64,
    /// Reads that went to the server; several clients may have waited for one.
    pub reads: u64,
    /// Those of them that went as usual, because none had found others to join.
    pub passed: u64,
    /// Reads that were given the reply to another's.
    pub joined: u64,
    /// Increments and the like that may go out together.
    pub changes: u64,
    /// Writes that were sent for them.
    pub batches: u64,
    /// Changes that the server told of.
    pub invalidations: u64,
    /// Bytes of the reads that were answered here.
    pub bytes_served: u64,
}

impl Cooled {
    /// Requests that took none to the server.
    pub fn saved(&self) -> u64 {
        self.hits + self.joined + self.changes.saturating_sub(self.batches)
    }

    /// Requests that shared one to the server, on average; none if nothing was sent.
    pub fn collapse_ratio(&self) -> Option<f64> {
        let sent = self.reads + self.batches;
        let asked = self.reads + self.joined + self.changes;
        (sent > 0).then(|| asked as f64 / sent as f64)
    }
}

/// By what the local caches hear of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// By nothing: no reply is kept.
    #[default]
    Nothing,
    /// Heatsinks tell each other of what they write.
    Broadcast,
    /// The server tells of every change.
    Tracking,
}

/// What a worker says of its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) guard: Guard,
    /// How long the server took to say that it is there.
    pub(crate) delay: Option<Duration>,
}

impl Told {
    /// As one number, for an atomic.
    pub(crate) fn pack(self) -> u64 {
        let micros = self.delay.map_or(0, |delay| (delay.as_micros() as u64).clamp(1, 1 << 60));
        micros << 2 | self.guard as u64
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        let guard = match packed & 3 {
            2 => Guard::Tracking,
            1 => Guard::Broadcast,
            _ => Guard::Nothing,
        };
        let micros = packed >> 2;
        Self { guard, delay: (micros > 0).then(|| Duration::from_micros(micros)) }
    }
}

/// The keys that are treated in their own way.
#[derive(Clone, Debug, Default)]
pub struct HotKeys {
    keys: HashMap<Vec<u8>, Treatment, RandomState>,
    /// Those of them whose values are moved, or have been.
    splits: HashMap<Vec<u8>, SplitKey, RandomState>,
    /// Shards of all of them.
    shards: usize,
    /// Those of them that have copies.
    copies: HashMap<Vec<u8>, Arc<Copies>, RandomState>,
    /// Further keys of which requests are counted exactly.
    counted: Vec<Vec<u8>>,
}

/// A key whose value is moved, or has been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SplitKey {
    pub(crate) splitting: Splitting,
    /// How many shards of others come before its own, where something is counted for each.
    pub(crate) first: usize,
}

/// Copies of a value on several nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Their names; the key itself is one more.
    pub names: Vec<Vec<u8>>,
    /// Reads are spread over them. Before that, and after, writes remove them all the same.
    pub read: bool,
    /// How long each lives at most.
    pub life: Duration,
}

impl HotKeys {
    /// What is done about a key, if anything is.
    pub fn get(&self, key: &[u8]) -> Option<Treatment> {
        self.keys.get(key).copied()
    }

    /// Whether reads of a key may go as usual: see [`Treatment::may_pass`]. Those of a value that
    /// lies elsewhere, too, may not.
    pub(crate) fn may_pass(&self, key: &[u8]) -> bool {
        self.get(key).is_some_and(Treatment::may_pass) && !self.is_moved(key)
    }

    /// Adds keys whose values are being moved into shards, or back, or lie in shards.
    #[must_use]
    pub fn with_splits(mut self, splits: impl IntoIterator<Item = (Vec<u8>, Splitting)>) -> Self {
        for (key, splitting) in splits {
            // Increments are combined before they go to a shard.
            self.keys.insert(key.clone(), Treatment::EXACT);
            let first = self.shards;
            self.shards += splitting.layout().len();
            self.splits.insert(key, SplitKey { splitting, first });
        }
        self
    }

    /// Counts requests of these keys exactly, as those of keys that are treated in some way.
    #[must_use]
    pub fn with_counted(mut self, keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let keys = keys.into_iter().filter(|key| !self.keys.contains_key(key));
        self.counted = keys.collect();
        self
    }

    /// All keys of which requests are counted exactly.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.keys().chain(&self.counted).map(Vec::as_slice)
    }

    /// Adds keys that have copies.
    #[must_use]
    pub fn with_copies(mut self, copies: impl IntoIterator<Item = (Vec<u8>, Copies)>) -> Self {
        for (key, copies) in copies {
            // The copies share the reads as they come.
            self.keys.insert(key.clone(), Treatment::default());
            self.copies.insert(key, Arc::new(copies));
        }
        self
    }

    /// The copies of a key.
    #[inline]
    pub fn copies(&self, key: &[u8]) -> Option<&Arc<Copies>> {
        if self.copies.is_empty() { None } else { self.copies.get(key) }
    }

    /// Where a key stands that is split, or about to be.
    #[inline]
    pub fn split(&self, key: &[u8]) -> Option<&Splitting> {
        self.split_key(key).map(|split| &split.splitting)
    }

    /// Where a split key stands, and the place of its shards among those of all keys.
    #[inline]
    pub(crate) fn split_key(&self, key: &[u8]) -> Option<&SplitKey> {
        if self.splits.is_empty() { None } else { self.splits.get(key) }
    }

    /// All of them.
    pub(crate) fn split_keys(&self) -> impl Iterator<Item = &SplitKey> {
        self.splits.values()
    }

    /// How many shards all of them have.
    pub(crate) fn shards(&self) -> usize {
        self.shards
    }

    /// All that are split, or about to be.
    pub fn splits(&self) -> impl Iterator<Item = (&[u8], &Splitting)> {
        self.splits.iter().map(|(key, split)| (key.as_slice(), &split.splitting))
    }

    /// All that have copies.
    pub fn copied(&self) -> impl Iterator<Item = &[u8]> {
        self.copies.keys().map(Vec::as_slice)
    }

    /// All whose values lie elsewhere, too.
    pub fn moved(&self) -> impl Iterator<Item = &[u8]> {
        self.splits.keys().map(Vec::as_slice).chain(self.copied())
    }

    /// Whether the value of a key lies elsewhere, too.
    pub fn is_moved(&self, key: &[u8]) -> bool {
        self.split(key).is_some() || self.copies(key).is_some()
    }

    /// Whether the values of any keys lie elsewhere, too.
    #[inline]
    pub fn has_moved(&self) -> bool {
        !self.splits.is_empty() || !self.copies.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Treatment)> {
        self.keys.iter().map(|(key, treatment)| (key.as_slice(), *treatment))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl FromIterator<(Vec<u8>, Treatment)> for HotKeys {
    fn from_iter<I: IntoIterator<Item = (Vec<u8>, Treatment)>>(keys: I) -> Self {
        let acts = |(_, treatment): &(Vec<u8>, Treatment)| *treatment != Treatment::default();
        let keys = keys.into_iter().filter(acts).collect();
        Self { keys, ..Self::default() }
    }
}
