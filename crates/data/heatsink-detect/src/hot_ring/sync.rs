//! The synchronisation that the ring is built on, in one place.
//!
//! Called by: every other file of the ring, which never names `std::sync` itself.
//! Bound: none of its own.
//! Invariant: with the feature `shuttle` every atomic access is a point where the
//! schedule explorer may switch threads; without it these are the plain types.
//!
//! `OnceLock` stays the standard one in both: what it initialises here creates atomics
//! but never touches one, so no schedule can stop in the middle of it. So does `fence`: the
//! explorer's atomics are sequentially consistent.

pub(super) use std::sync::{Arc, OnceLock, atomic::fence};

#[cfg(not(feature = "shuttle"))]
pub(super) use std::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

/// A shared pointer that is read all the time and replaced seldom; reading takes no lock.
#[cfg(not(feature = "shuttle"))]
#[derive(Debug)]
pub(super) struct Swap<T>(arc_swap::ArcSwap<T>);

#[cfg(not(feature = "shuttle"))]
impl<T> Swap<T> {
    pub(super) fn new(value: T) -> Self {
        Self(arc_swap::ArcSwap::from_pointee(value))
    }

    pub(super) fn load(&self) -> impl std::ops::Deref<Target = Arc<T>> {
        self.0.load()
    }

    pub(super) fn store(&self, value: T) {
        self.0.store(Arc::new(value));
    }
}

/// The same pointer for the schedule explorer, which sees the read and the replacement
/// as one step each.
#[cfg(feature = "shuttle")]
#[derive(Debug)]
pub(super) struct Swap<T>(shuttle::sync::RwLock<Arc<T>>);

#[cfg(feature = "shuttle")]
impl<T> Swap<T> {
    pub(super) fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(Arc::new(value)))
    }

    pub(super) fn load(&self) -> impl std::ops::Deref<Target = Arc<T>> + use<T> {
        Box::new(Arc::clone(&self.0.read().expect("no panic under this lock")))
    }

    pub(super) fn store(&self, value: T) {
        *self.0.write().expect("no panic under this lock") = Arc::new(value);
    }
}
