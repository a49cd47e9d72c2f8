//! A sum over the clients of all workers, and the worker whose client contributes most to it.
//!
//! Called by: `output` and `input`, each with a sum of its own.
//! Each worker adds what its clients have more, or less, than before. The worker that finds the sum over
//! its limit asks the worker that has the worst client to close it.
//! Bound: a worker is asked again only after it has looked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of all clients together.
#[derive(Debug)]
pub(crate) struct Total {
    bytes: AtomicU64,
    closed: AtomicU64,
    workers: Vec<Told>,
}

/// What one worker publishes.
#[derive(Debug, Default)]
struct Told {
    /// How bad its worst client is, by the caller's measure.
    worst: AtomicU64,
    /// It was asked to close that client, and has not looked yet.
    is_asked: AtomicBool,
}

impl Total {
    pub(crate) fn new(workers: usize) -> Self {
        let workers = std::iter::repeat_with(Told::default).take(workers).collect();
        Self { bytes: AtomicU64::new(0), closed: AtomicU64::new(0), workers }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Clients that were closed because of it.
    pub(crate) fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    pub(crate) fn note_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a worker's clients have `bytes` in place of `before`. Returns the sum of all workers.
    pub(crate) fn change(&self, before: u64, bytes: u64) -> u64 {
        // If `bytes` is less than `before`, both the difference and the sum wrap around.
        let change = bytes.wrapping_sub(before);
        self.bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    /// How bad a worker's worst client is.
    pub(crate) fn tell_worst(&self, worker: usize, badness: u64) {
        self.workers[worker].worst.store(badness, Ordering::Relaxed);
    }

    /// The worker that has the worst client of all, and how bad that is.
    pub(crate) fn worst(&self) -> (usize, u64) {
        let worst = self.workers.iter().map(|told| told.worst.load(Ordering::Relaxed));
        worst.enumerate().max_by_key(|(_, badness)| *badness).unwrap_or_default()
    }

    /// A worker is to be asked to close its worst client; false if it was asked already.
    pub(crate) fn ask(&self, worker: usize) -> bool {
        !self.workers[worker].is_asked.swap(true, Ordering::AcqRel)
    }

    /// A worker that was asked has looked.
    pub(crate) fn looked(&self, worker: usize) {
        self.workers[worker].is_asked.store(false, Ordering::Release);
    }
}
