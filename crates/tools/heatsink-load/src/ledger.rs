//! What was written to a target so far, shared by all connections to it.
//!
//! Called by: the engine before each write is sent and after it is acknowledged.
//! Bound: four numbers a key; of a counter, a bit for each of the first
//! [`ORDINALS_MAX`] replies.
//! Invariant: what this says was acknowledged, was; it may lag behind, never run ahead. So a
//! mismatch that is reported is one.
//!
//! # What makes "went back" certain
//!
//! Many connections write one key, and a server may apply two writes that overlap in any
//! order. Only writes that did not overlap are ordered. Each version therefore carries a
//! *floor*: all versions up to it were acknowledged before this one was sent. Whoever has
//! seen a version and then sees one at or below its floor, on the same connection, has seen
//! the key go back:
//!
//! ```text
//! A: SET v1 ........ OK
//! B:                     SET v2 (floor 1) ... OK
//! C:                                 GET v2         GET v1   <- v1 <= floor of v2: went back
//! ```

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Replies of a counter, from the first, that are checked for being given twice.
pub const ORDINALS_MAX: u64 = CHUNKS as u64 * CHUNK_BITS;
const CHUNKS: usize = 256;
const CHUNK_WORDS: usize = 4096;
const CHUNK_BITS: u64 = CHUNK_WORDS as u64 * 64;

/// The writes of all keys of a target.
#[derive(Debug)]
pub struct Ledger {
    /// Marks the values of this run.
    pub run: u32,
    keys: Box<[KeyLedger]>,
    counters: Box<[CounterLedger]>,
}

#[derive(Debug, Default)]
struct KeyLedger {
    issued: AtomicU64,
    acknowledged: AtomicU64,
    floor: AtomicU64,
    /// The highest floor of an acknowledged version.
    superseded: AtomicU64,
}

/// The increments of a counter.
#[derive(Debug)]
pub struct CounterLedger {
    issued: AtomicU64,
    acknowledged: AtomicU64,
    seen: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl Ledger {
    /// Nothing was written yet.
    pub fn new(run: u32, keys: usize, counters: usize) -> Self {
        Self {
            run,
            keys: (0..keys).map(|_| KeyLedger::default()).collect(),
            counters: (0..counters).map(|_| CounterLedger::new()).collect(),
        }
    }

    /// A write of key `at` is about to be sent: its version and its floor.
    pub fn issue(&self, at: usize) -> (u64, u64) {
        let key = &self.keys[at];
        // In this order: if as many were acknowledged as were issued later, all of them were.
        let acknowledged = key.acknowledged.load(Ordering::Acquire);
        let version = key.issued.fetch_add(1, Ordering::AcqRel) + 1;
        if acknowledged == version - 1 {
            key.floor.fetch_max(acknowledged, Ordering::AcqRel);
        }
        (version, key.floor.load(Ordering::Acquire))
    }

    /// A write of key `at` that was issued with this floor was acknowledged. One with an
    /// unknown outcome never is, and freezes the floor: it may still take effect at any time.
    pub fn acknowledge(&self, at: usize, floor: u64) {
        self.keys[at].superseded.fetch_max(floor, Ordering::AcqRel);
        self.keys[at].acknowledged.fetch_add(1, Ordering::AcqRel);
    }

    /// Up to this version, everything has certainly been overwritten by now.
    pub fn superseded(&self, at: usize) -> u64 {
        self.keys[at].superseded.load(Ordering::Acquire)
    }

    /// Whether a version of key `at` has been sent by now.
    pub fn was_issued(&self, at: usize, version: u64) -> bool {
        (1..=self.keys[at].issued.load(Ordering::Acquire)).contains(&version)
    }

    /// A counter.
    pub fn counter(&self, at: usize) -> &CounterLedger {
        &self.counters[at]
    }
}

impl CounterLedger {
    fn new() -> Self {
        Self {
            issued: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            seen: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// An increment is about to be sent.
    pub fn issue(&self) {
        self.issued.fetch_add(1, Ordering::AcqRel);
    }

    /// It was answered with the `ordinal`-th value. False if that was given before.
    pub fn acknowledge(&self, ordinal: u64) -> bool {
        self.acknowledged.fetch_add(1, Ordering::AcqRel);
        if ordinal >= ORDINALS_MAX {
            return true;
        }
        let zeros = || (0..CHUNK_WORDS).map(|_| AtomicU64::new(0)).collect();
        let chunk = self.seen[(ordinal / CHUNK_BITS) as usize].get_or_init(zeros);
        let place = ordinal % CHUNK_BITS;
        let bit = 1 << (place % 64);
        chunk[(place / 64) as usize].fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Increments sent so far.
    pub fn issued(&self) -> u64 {
        self.issued.load(Ordering::Acquire)
    }

    /// Increments answered so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_rises_only_when_nothing_is_out() {
        let ledger = Ledger::new(1, 1, 0);
        assert_eq!(ledger.issue(0), (1, 0));
        // Two writes overlap: neither is below the other.
        assert_eq!(ledger.issue(0), (2, 0));
        ledger.acknowledge(0, 0);
        assert_eq!(ledger.issue(0), (3, 0));
        ledger.acknowledge(0, 0);
        ledger.acknowledge(0, 0);
        assert_eq!(ledger.issue(0), (4, 3));
        assert_eq!(ledger.superseded(0), 0, "any of the three may be the one that is there");
        ledger.acknowledge(0, 3);
        assert_eq!(ledger.superseded(0), 3);
        assert!(ledger.was_issued(0, 4));
        assert!(!ledger.was_issued(0, 5) && !ledger.was_issued(0, 0));
    }

    #[test]
    fn a_lost_write_freezes_the_floor() {
        let ledger = Ledger::new(1, 1, 0);
        ledger.issue(0);
        ledger.acknowledge(0, 0);
        ledger.issue(0); // never acknowledged
        for version in 3..10 {
            assert_eq!(ledger.issue(0), (version, 1));
            ledger.acknowledge(0, 1);
        }
        assert_eq!(ledger.superseded(0), 1);
    }

    #[test]
    fn an_ordinal_is_given_once() {
        let ledger = Ledger::new(1, 0, 1);
        let counter = ledger.counter(0);
        for ordinal in [1, 64, 65, CHUNK_BITS, CHUNK_BITS + 1, ORDINALS_MAX - 1] {
            counter.issue();
            assert!(counter.acknowledge(ordinal));
            assert!(!counter.acknowledge(ordinal));
        }
        assert!(counter.acknowledge(ORDINALS_MAX) && counter.acknowledge(ORDINALS_MAX));
        assert_eq!((counter.issued(), counter.acknowledged()), (6, 14));
    }
}
