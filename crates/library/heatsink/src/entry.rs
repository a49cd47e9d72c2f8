//! What a caller gets.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::record::Record;

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// This process's memory.
    Local,
    /// The shared tier.
    Shared,
    /// This caller's loader.
    Loaded,
    /// The loader of another caller that was already under way.
    Joined,
}

/// A value, where it came from, and how old it is.
///
/// It dereferences to the value, which stays in memory as long as the entry does; cloning an
/// entry does not clone the value.
pub struct Entry<V> {
    record: Arc<Record<V>>,
    source: Source,
    age_ms: u64,
}

impl<V> Entry<V> {
    /// Of a record that has a value.
    #[inline]
    pub(crate) fn new(record: Arc<Record<V>>, source: Source, now: u64) -> Option<Self> {
        let age_ms = now.saturating_sub(record.born);
        record.value().is_some().then_some(Self { record, source, age_ms })
    }

    /// Where it came from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// How long ago it was loaded or put, when it was handed out; up to 4 ms more than that.
    pub fn age(&self) -> Duration {
        Duration::from_millis(self.age_ms)
    }

    /// Whether its time to live was over when it was handed out.
    pub fn is_stale(&self) -> bool {
        self.age() >= self.record.life.fresh_for
    }

    /// How long it took to load.
    pub fn cost(&self) -> Duration {
        self.record.life.cost
    }

    /// The value by itself, cloned.
    pub fn into_value(self) -> V
    where
        V: Clone,
    {
        self.deref().clone()
    }
}

impl<V> Deref for Entry<V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        let Some(value) = self.record.value() else { unreachable!("an entry has a value") };
        value
    }
}

impl<V> Clone for Entry<V> {
    fn clone(&self) -> Self {
        Self { record: Arc::clone(&self.record), source: self.source, age_ms: self.age_ms }
    }
}

impl<V> AsRef<V> for Entry<V> {
    fn as_ref(&self) -> &V {
        self
    }
}

impl<V: fmt::Debug> fmt::Debug for Entry<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("value", &**self)
            .field("source", &self.source)
            .field("age", &self.age())
            .finish_non_exhaustive()
    }
}
