//! What a cache has done, in numbers that add up.
//!
//! Called by: every `get`, once when it is answered; flights.
//! Bound: a fixed number of counters. Hits are counted by thread (`place`), so that hits of two
//! threads do not wait for each other, and one thread's need no atomic addition.
//! Invariant: each `get` that was answered is counted in exactly one of the fields that
//! [`Counts::gets`] sums.

mod place;

use place::{PLACES, Place};

use crate::sync::{AtomicU64, Ordering};

/// A counter, by what it counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    Joined,
    Shared,
    Loaded,
    Stale,
    Failed,
    Abandoned,
    Loads,
    LoadsFailed,
    Refreshes,
    EarlyRefreshes,
    LeasesLost,
    LeasesWaited,
    Undecodable,
    TooLarge,
    SharedErrors,
    Invalidations,
}

const COUNTS: usize = Count::Invalidations as usize + 1;

/// Two cache lines: they are fetched together.
#[repr(align(128))]
#[derive(Default)]
struct Hits(AtomicU64);

pub(crate) struct Counters {
    /// A counter for each thread that has a place of its own.
    own: [Hits; PLACES],
    /// For all other threads together.
    shared: Hits,
    others: [AtomicU64; COUNTS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            own: std::array::from_fn(|_| Hits::default()),
            shared: Hits::default(),
            others: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Counters {
    #[inline]
    pub(crate) fn hit(&self) {
        match place::mine() {
            // Nobody else writes here, so a load and a store will do.
            Place::Own(place) => {
                let hits = &self.own[place].0;
                hits.store(hits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            Place::Shared => {
                self.shared.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn add(&self, count: Count) {
        self.others[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        let of = |count: Count| self.others[count as usize].load(Ordering::Relaxed);
        Counts {
            local_hits: self
                .own
                .iter()
                .chain([&self.shared])
                .map(|hits| hits.0.load(Ordering::Relaxed))
                .sum(),
            shared_hits: of(Count::Shared),
            loaded: of(Count::Loaded),
            loads_deduped: of(Count::Joined),
            stale_served: of(Count::Stale),
            failed: of(Count::Failed),
            abandoned: of(Count::Abandoned),
            loads: of(Count::Loads),
            loads_failed: of(Count::LoadsFailed),
            refreshes: of(Count::Refreshes),
            early_refreshes: of(Count::EarlyRefreshes),
            leases_lost: of(Count::LeasesLost),
            leases_waited: of(Count::LeasesWaited),
            undecodable: of(Count::Undecodable),
            too_large: of(Count::TooLarge),
            shared_errors: of(Count::SharedErrors),
            invalidations: of(Count::Invalidations),
        }
    }
}

/// What a cache has done since it was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Answered from this process's memory, fresh.
    pub local_hits: u64,
    /// Answered from the shared tier, fresh, by a read of this caller's own.
    pub shared_hits: u64,
    /// Answered by this caller's own loader.
    pub loaded: u64,
    /// Answered by what another caller of this process had already asked for.
    pub loads_deduped: u64,
    /// Answered with a value past its time to live, wherever it came from.
    pub stale_served: u64,
    /// Answered with an error.
    pub failed: u64,
    /// Given up by the caller before there was an answer.
    pub abandoned: u64,
    /// Times a loader was run, refreshes included.
    pub loads: u64,
    /// Of these, how many failed.
    pub loads_failed: u64,
    /// Loads in the background, while callers went on being served.
    pub refreshes: u64,
    /// Of these, how many began before the value's time to live was over.
    pub early_refreshes: u64,
    /// Loads whose result was not stored, because the key was written or deleted meanwhile, or the
    /// lease had run out.
    pub leases_lost: u64,
    /// Times a flight waited for a load of another process.
    pub leases_waited: u64,
    /// Values of the shared tier that could not be read, and were taken as absent.
    pub undecodable: u64,
    /// Values over the limit, which were not stored in the shared tier.
    pub too_large: u64,
    /// Calls of the shared tier that failed.
    pub shared_errors: u64,
    /// Keys that were put or invalidated here.
    pub invalidations: u64,
}

impl Counts {
    /// Calls of `get(..).load(..)` that came to an end.
    pub fn gets(&self) -> u64 {
        self.local_hits
            + self.shared_hits
            + self.loaded
            + self.loads_deduped
            + self.stale_served
            + self.failed
            + self.abandoned
    }
}
