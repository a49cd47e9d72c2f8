//! What can be watched of a cache, beside its counters.

use std::time::Duration;

use crate::entry::Source;

/// Something that happened, other than a plain hit: those are only counted
/// ([`Cache::counts`](crate::Cache::counts)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A caller that had to wait was answered.
    Answered {
        /// Where the value came from; `None`: it got an error.
        source: Option<Source>,
        /// How long it waited.
        waited: Duration,
        /// Whether the value was past its time to live.
        stale: bool,
    },
    /// A loader ended.
    Loaded {
        /// How long it took.
        cost: Duration,
        /// Whether it ran in the background.
        refresh: bool,
        /// `None`: it succeeded; else why it did not.
        failure: Option<&'a str>,
    },
    /// What was loaded was not stored: the key was written or deleted meanwhile, or the lease had
    /// run out.
    LeaseLost,
    /// A value of the shared tier could not be read.
    Undecodable,
    /// A value was over the limit, and not stored in the shared tier.
    TooLarge {
        /// How large it is.
        bytes: usize,
    },
    /// A call of the shared tier failed.
    SharedFailed {
        /// What it said.
        words: &'a str,
    },
}

/// Is told what happens in a cache. Called on the path of requests, so it should be quick, and not
/// call the cache.
pub trait Observer: Send + Sync + 'static {
    /// Something happened in the cache of that name.
    fn on(&self, cache: &str, event: Event<'_>);
}
