//! A value with what is known of it, as the local tier and flights hand it around.
//!
//! Called by: everything that stores, looks up or answers.
//! Invariant: a record never changes but for its counters, and its fence is closed once; a newer
//! value is a new record.

use std::sync::Arc;
use std::time::Duration;

use heatsink_cache::stampede::freshness::{Freshness, Life};

use crate::clock::{Ms, whole_ms};
use crate::fence::Fence;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// What was loaded, or that there is nothing.
///
/// In this order: what a hit reads or writes stands together behind the counts of the `Arc`, so it
/// touches one cache line, or two neighbours.
#[repr(C)]
pub(crate) struct Record<V> {
    /// Before this moment a look needs nothing but the fence.
    pub(crate) quiet_until: Ms,
    /// Set before the record is put where others find it; until then it holds for nobody.
    pub(crate) epoch: AtomicU64,
    /// When the value was stored, by this process's clock.
    pub(crate) born: Ms,
    /// Looks that found it; they are told to the detector in batches.
    pub(crate) looks: AtomicU32,
    pub(crate) stripe: u32,
    pub(crate) link: u16,
    pub(crate) payload: Payload<V>,
    /// From then on the shared tier has to be asked again.
    pub(crate) local_until: Ms,
    /// From then on it is asked again ahead of that, if the key is hot.
    pub(crate) renew_at: Ms,
    /// What the key is called in the shared tier; the detector knows it by this name.
    pub(crate) name: Option<Box<[u8]>>,
    pub(crate) life: Life,
    /// What it counts in a bound by bytes.
    pub(crate) weight: u64,
    /// What the shared tier's bytes began with: a refresh replaces only this.
    pub(crate) version: Version,
    /// No refresh is tried before this moment: one has failed, or is under way elsewhere.
    pub(crate) retry_at: AtomicU64,
}

/// What a record is about.
pub(crate) enum Payload<V> {
    /// Known not to exist.
    Absent,
    Value(V),
    /// The value of an older record, which is fresh again.
    Same(Arc<Record<V>>),
}

/// The bytes by which one writing of a key is told from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Version(pub(crate) [u8; 16]);

impl<V> Record<V> {
    #[inline]
    pub(crate) fn fence(&self) -> Fence {
        Fence { epoch: self.epoch.load(Ordering::Relaxed), stripe: self.stripe, link: self.link }
    }

    /// From now on it holds for others, until the fence falls. Before it is put where they find it.
    pub(crate) fn close(&self, fence: Fence) {
        self.epoch.store(fence.epoch, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn value(&self) -> Option<&V> {
        match &self.payload {
            Payload::Value(value) => Some(value),
            Payload::Absent => None,
            Payload::Same(older) => match &older.payload {
                Payload::Value(value) => Some(value),
                Payload::Absent | Payload::Same(_) => None,
            },
        }
    }

    /// The same value for another record.
    pub(crate) fn same(self: &Arc<Self>) -> Payload<V> {
        match &self.payload {
            Payload::Absent => Payload::Absent,
            Payload::Value(_) => Payload::Same(Arc::clone(self)),
            Payload::Same(older) => Payload::Same(Arc::clone(older)),
        }
    }

    /// The same, to be served from this process for longer, while no refresh is tried.
    pub(crate) fn again(self: &Arc<Self>, local_until: Ms) -> Self {
        let kept_until = self.born.saturating_add(whole_ms(self.life.kept_for()));
        Self {
            payload: self.same(),
            quiet_until: 0,
            epoch: AtomicU64::new(self.epoch.load(Ordering::Relaxed)),
            born: self.born,
            looks: AtomicU32::new(0),
            stripe: self.stripe,
            link: self.link,
            local_until: local_until.min(kept_until),
            renew_at: Ms::MAX,
            name: self.name.clone(),
            life: self.life,
            weight: self.weight,
            version: self.version,
            retry_at: AtomicU64::new(self.retry_at.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn age(&self, now: Ms) -> Duration {
        Duration::from_millis(now.saturating_sub(self.born))
    }

    /// A draw is only taken where it matters.
    pub(crate) fn freshness(&self, now: Ms, early: Option<f64>) -> Freshness {
        self.life.at(self.age(now), early, fastrand::f64())
    }

    /// Whether a refresh may be tried now; if so, nobody else tries for `pause`.
    pub(crate) fn claim_retry(&self, now: Ms, pause: Duration) -> bool {
        let due = self.retry_at.load(Ordering::Relaxed);
        due <= now
            && self
                .retry_at
                .compare_exchange(due, now + whole_ms(pause), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    pub(crate) fn postpone_retry(&self, until: Ms) {
        self.retry_at.store(until, Ordering::Relaxed);
    }

    pub(crate) fn is_retry_due(&self, now: Ms) -> bool {
        self.retry_at.load(Ordering::Relaxed) <= now
    }
}
