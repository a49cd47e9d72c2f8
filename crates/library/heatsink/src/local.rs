//! The tier in this process's memory.
//!
//! Called by: every `get`, for a look; flights and `put`, for a fill.
//! Bound: entries and bytes at once. The cache underneath knows one bound, so an entry counts as its
//! bytes or as its share of all bytes, whichever is more.
//! Invariant: what is here may be out of date; whoever looks asks the record's fence.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::record::Record;
use crate::sync::step;

/// How much of the cache is kept in this process's memory, and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local {
    pub(crate) entries: usize,
    pub(crate) bytes: u64,
    pub(crate) hot_only: bool,
}

const DEFAULT_ENTRIES: usize = 10_000;
const DEFAULT_BYTES: u64 = 64 << 20;

impl Default for Local {
    fn default() -> Self {
        Self { entries: DEFAULT_ENTRIES, bytes: DEFAULT_BYTES, hot_only: false }
    }
}

impl Local {
    /// Everything, at most so many entries.
    pub fn entries(entries: usize) -> Self {
        Self { entries, bytes: u64::MAX, ..Self::default() }
    }

    /// Everything, at most so many bytes. What an entry counts is what it takes in the shared tier,
    /// or what the [`weigher`](crate::Builder::weigher) says, and the size of its type at least.
    pub fn bytes(bytes: u64) -> Self {
        Self {
            bytes,
            entries: usize::try_from(bytes / 64).unwrap_or(usize::MAX),
            ..Self::default()
        }
    }

    /// Only keys that are hot: 2048 entries. The others are read from the shared tier each time.
    pub fn hot() -> Self {
        Self { entries: 2048, hot_only: true, ..Self::default() }
    }

    /// Nothing.
    pub fn off() -> Self {
        Self { entries: 0, ..Self::default() }
    }

    /// A bound of entries as well.
    #[must_use]
    pub fn and_entries(mut self, entries: usize) -> Self {
        self.entries = self.entries.min(entries);
        self
    }

    /// A bound of bytes as well.
    #[must_use]
    pub fn and_bytes(mut self, bytes: u64) -> Self {
        self.bytes = self.bytes.min(bytes);
        self
    }
}

#[derive(Clone)]
struct ByWeight;

impl<K, V> Weighter<K, Arc<Record<V>>> for ByWeight {
    fn weight(&self, _: &K, record: &Arc<Record<V>>) -> u64 {
        record.weight
    }
}

type Memory<K, V> =
    Cache<K, Arc<Record<V>>, ByWeight, DefaultHashBuilder, DefaultLifecycle<K, Arc<Record<V>>>>;

pub(crate) struct LocalTier<K, V> {
    memory: Option<Memory<K, V>>,
    /// What an entry counts at least, so that the bound of entries holds as well.
    share: u64,
    pub(crate) hot_only: bool,
}

impl<K: Hash + Eq, V> LocalTier<K, V> {
    pub(crate) fn new(bounds: Local) -> Self {
        // With no bound of bytes the unit does not matter.
        let bytes = bounds.bytes.min(1 << 50);
        let entries = bounds.entries.min(1 << 32).min(usize::try_from(bytes).unwrap_or(usize::MAX));
        let share = if entries == 0 { 1 } else { (bytes / entries as u64).max(1) };
        let memory = (entries > 0).then(|| {
            let options = OptionsBuilder::new()
                .estimated_items_capacity(entries.min(1 << 20))
                .weight_capacity(bytes)
                .build();
            let Ok(options) = options else { unreachable!("both capacities are given") };
            Cache::with_options(
                options,
                ByWeight,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            )
        });
        Self { memory, share, hot_only: bounds.hot_only }
    }

    /// What an entry of so many bytes counts.
    pub(crate) fn weight(&self, bytes: u64) -> u64 {
        bytes.max(self.share)
    }

    #[inline]
    pub(crate) fn get<Q>(&self, key: &Q) -> Option<Arc<Record<V>>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        step();
        self.memory.as_ref()?.get(key)
    }

    pub(crate) fn peek<Q>(&self, key: &Q) -> Option<Arc<Record<V>>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        step();
        self.memory.as_ref()?.peek(key)
    }

    pub(crate) fn insert(&self, key: K, record: Arc<Record<V>>) {
        step();
        if let Some(memory) = &self.memory {
            memory.insert(key, record);
        }
    }

    pub(crate) fn remove<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        step();
        if let Some(memory) = &self.memory {
            memory.remove(key);
        }
    }

    pub(crate) fn clear(&self) {
        if let Some(memory) = &self.memory {
            memory.clear();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, Cache::len)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.memory.is_some()
    }
}
