//! What loaders are told and what they return.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::entry::{Entry, Source};
use crate::record::Record;

/// What a loader is told.
pub struct Context<V> {
    pub(crate) stale: Option<Arc<Record<V>>>,
    pub(crate) deadline: Instant,
    pub(crate) token: Option<u128>,
}

impl<V> Context<V> {
    /// The value that is to be replaced, if there is one: for a conditional query, answered with
    /// [`Loaded::not_modified`].
    pub fn stale(&self) -> Option<&V> {
        self.stale.as_ref().and_then(|record| record.value())
    }

    /// When the load is given up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The token of the lease under which this load runs, where there is a shared tier and it
    /// could be asked. Two loads never have the same.
    pub fn token(&self) -> Option<u128> {
        self.token
    }
}

/// What was loaded, with what the loader has to say about it.
///
/// A loader that has nothing to say returns the value itself, or an `Option` of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded<V> {
    pub(crate) what: What<V>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) no_store: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What<V> {
    Value(V),
    Absent,
    NotModified,
}

impl<V> Loaded<V> {
    fn of(what: What<V>) -> Self {
        Self { what, ttl: None, no_store: false }
    }

    /// A value.
    pub fn new(value: V) -> Self {
        Self::of(What::Value(value))
    }

    /// There is no such thing; kept for the cache's `negative_ttl`.
    pub fn absent() -> Self {
        Self::of(What::Absent)
    }

    /// What [`Context::stale`] showed is still right, and is fresh again. Without such a value it
    /// counts as absent, and is not kept.
    pub fn not_modified() -> Self {
        Self::of(What::NotModified)
    }

    /// Fresh for so long instead of the cache's time to live.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// For those who wait for it, and nobody else.
    #[must_use]
    pub fn no_store(mut self) -> Self {
        self.no_store = true;
        self
    }
}

/// What a loader may return: `V`, `Option<V>` or [`Loaded<V>`]. Callers get an [`Entry<V>`] for
/// the first and an `Option` of it for the others.
pub trait LoadResult<V>: Send + 'static {
    /// What the caller gets.
    type Output;

    #[doc(hidden)]
    fn into_loaded(self) -> Loaded<V>;

    /// `None`: absent, and this type has no word for that.
    #[doc(hidden)]
    fn output(found: Found<V>) -> Option<Self::Output>;
}

/// A record on its way to the caller.
#[doc(hidden)]
pub struct Found<V> {
    pub(crate) record: Arc<Record<V>>,
    pub(crate) source: Source,
    pub(crate) now: u64,
}

impl<V> Found<V> {
    #[inline]
    fn entry(self) -> Option<Entry<V>> {
        Entry::new(self.record, self.source, self.now)
    }
}

impl<V: Send + 'static> LoadResult<V> for V {
    type Output = Entry<V>;

    fn into_loaded(self) -> Loaded<V> {
        Loaded::new(self)
    }

    #[inline]
    fn output(found: Found<V>) -> Option<Entry<V>> {
        found.entry()
    }
}

impl<V: Send + 'static> LoadResult<V> for Option<V> {
    type Output = Option<Entry<V>>;

    fn into_loaded(self) -> Loaded<V> {
        self.map_or_else(Loaded::absent, Loaded::new)
    }

    #[inline]
    fn output(found: Found<V>) -> Option<Option<Entry<V>>> {
        Some(found.entry())
    }
}

impl<V: Send + 'static> LoadResult<V> for Loaded<V> {
    type Output = Option<Entry<V>>;

    fn into_loaded(self) -> Self {
        self
    }

    #[inline]
    fn output(found: Found<V>) -> Option<Option<Entry<V>>> {
        Some(found.entry())
    }
}
