//! Whether what was read a while ago is still what is true.
//!
//! Keys are spread over stripes by their hash, and each stripe has an *epoch*. Whatever ends the
//! truth of a key (an own write, a word from the server) advances its epoch. An entry carries the
//! epoch that was current *before* its value was read, and counts for nothing once the stripe has
//! gone on:
//!
//! ```text
//! reader                      writer
//!   takes the fence: epoch 7
//!   reads: old
//!                             writes new, epoch 8
//!   fills: old, fence 7       <- is there, and is never served: 7 is not 8
//! ```
//!
//! So a fill needs no lock against invalidations, and an invalidation need not know what is cached:
//! the server names keys of the store, not of a cache. The price: a change ends the truth of all
//! entries of its stripe, which is one in 6 changes for 10 000 entries, and costs a read. Without a
//! shared tier, writes name the key itself, and stripes only advance together (`flight`).
//!
//! An entry of a shared store further depends on the *link* along which the server tells of
//! changes. The link vouches for what it told up to a moment; entries are served until then and no
//! longer, so a connection that is lost, or a process that was stopped, serves nothing old.
//!
//! Called by: every look at an entry; flights; the store's links.
//! Bound: the number of stripes is fixed, and [`LINKS`].
//! Invariant: epochs only grow.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;

use crate::clock::Ms;
use crate::sync::{AtomicU64, Ordering};

/// Links that entries can depend on: nodes of a cluster. Further ones are read and never cached
/// locally.
pub(crate) const LINKS: usize = 256;

/// The link of entries that depend on none.
pub(crate) const NO_LINK: u16 = 0;

/// Of a store: half a megabyte.
const STRIPES: usize = 1 << 16;
/// Where all stripes advance together, few do, and stay in the processor's cache.
const FEW_STRIPES: usize = 1 << 6;

/// What an entry depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) epoch: u64,
    pub(crate) stripe: u32,
    pub(crate) link: u16,
}

/// The epoch of a record that counts for nobody yet.
pub(crate) const NO_EPOCH: u64 = u64::MAX;

pub(crate) struct Fences {
    epochs: Box<[AtomicU64]>,
    vouched_until: Box<[AtomicU64]>,
    hasher: FixedState,
}

impl Fences {
    /// Of a store that several processes write.
    pub(crate) fn of_store() -> Self {
        Self::new(STRIPES)
    }

    /// Of a cache without one.
    pub(crate) fn of_one_process() -> Self {
        Self::new(FEW_STRIPES)
    }

    fn new(stripes: usize) -> Self {
        let fences = Self {
            epochs: (0..stripes).map(|_| AtomicU64::new(0)).collect(),
            vouched_until: (0..LINKS).map(|_| AtomicU64::new(0)).collect(),
            hasher: FixedState::with_seed(fastrand::u64(..)),
        };
        fences.vouch(NO_LINK, Ms::MAX);
        fences
    }

    pub(crate) fn stripe<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        self.hasher.hash_one(key) as u32 & (self.epochs.len() as u32 - 1)
    }

    pub(crate) fn epoch(&self, stripe: u32) -> u64 {
        self.epochs[stripe as usize].load(Ordering::Acquire)
    }

    /// To be taken before the read whose result it is to guard.
    pub(crate) fn take(&self, stripe: u32, link: u16) -> Fence {
        Fence { epoch: self.epoch(stripe), stripe, link }
    }

    #[inline]
    pub(crate) fn holds(&self, fence: Fence, now: Ms) -> bool {
        self.epochs[fence.stripe as usize].load(Ordering::Acquire) == fence.epoch
            && now < self.vouched_until[usize::from(fence.link)].load(Ordering::Relaxed)
    }

    /// Nothing that was read of the stripe before counts any more.
    pub(crate) fn advance(&self, stripe: u32) -> u64 {
        self.epochs[stripe as usize].fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Nothing that was read before counts any more.
    pub(crate) fn advance_all(&self) {
        for epoch in &self.epochs {
            epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The link has told everything that happened, and what it told may be relied on until then.
    pub(crate) fn vouch(&self, link: u16, until: Ms) {
        self.vouched_until[usize::from(link)].store(until, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_until_its_stripe_or_its_link_goes_on() {
        let fences = Fences::new(64);
        let stripe = fences.stripe("k");
        let (own, linked) = (fences.take(stripe, NO_LINK), fences.take(stripe, 3));
        assert!(fences.holds(own, 5) && !fences.holds(linked, 5));
        fences.vouch(3, 10);
        assert!(fences.holds(linked, 9) && !fences.holds(linked, 10));
        fences.advance(stripe ^ 1);
        assert!(fences.holds(own, 5));
        fences.advance(stripe);
        assert!(!fences.holds(own, 5) && !fences.holds(linked, 5));
        let again = fences.take(stripe, NO_LINK);
        fences.advance_all();
        assert!(!fences.holds(again, 5));
    }
}
