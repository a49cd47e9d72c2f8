//! What a worker hands to the ticker at each tick.
//!
//! Called by: [`crate::heavy`] fills it, [`crate::report`] reads it.
//! Bound: the table's entries with their names, and one sketch for each kind of request; the
//! buffers are used again at the next tick.

use std::time::Duration;

use crate::heat::Kind;
use crate::sketch::{Shape, Sketch};
use crate::table::Tally;
use crate::truth::TruthReading;

/// One worker's last window.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) taken_at: Duration,
    pub(crate) window: Duration,
    pub(crate) keys: Vec<u8>,
    pub(crate) entries: Vec<SnapshotEntry>,
    pub(crate) sketches: [Sketch; 2],
    pub(crate) truth: TruthReading,
    pub(crate) refused: u64,
    pub(crate) too_long: u64,
}

/// One named key of a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotEntry {
    pub(crate) hash: u64,
    pub(crate) key_start: usize,
    pub(crate) key_len: usize,
    pub(crate) certain: Tally,
    pub(crate) at_most: [u32; 2],
    pub(crate) in_flight_peak: u32,
    /// What the last request that knew said the value is.
    pub(crate) value_kind: u8,
}

impl Snapshot {
    /// An empty snapshot, to be filled.
    pub fn new() -> Self {
        let nothing = Sketch::new(Shape::new(1, 1));
        Self {
            taken_at: Duration::ZERO,
            window: Duration::ZERO,
            keys: Vec::new(),
            entries: Vec::new(),
            sketches: [nothing.clone(), nothing],
            truth: TruthReading::default(),
            refused: 0,
            too_long: 0,
        }
    }

    /// Named keys in it.
    pub fn named_keys(&self) -> usize {
        self.entries.len()
    }

    /// Requests of one kind in the window.
    pub fn total(&self, kind: Kind) -> u64 {
        self.sketches[kind as usize].total()
    }

    /// The sketch of one kind of request over the window.
    pub fn sketch(&self, kind: Kind) -> &Sketch {
        &self.sketches[kind as usize]
    }

    pub(crate) fn key(&self, entry: &SnapshotEntry) -> &[u8] {
        &self.keys[entry.key_start..][..entry.key_len]
    }

    /// Upper bound of the requests of a key that is not named here.
    pub(crate) fn estimates(&self, hash: u64) -> [u32; 2] {
        [self.sketches[0].estimate(hash), self.sketches[1].estimate(hash)]
    }
}

impl Default for Snapshot {
    fn default() -> Self {
        Self::new()
    }
}
