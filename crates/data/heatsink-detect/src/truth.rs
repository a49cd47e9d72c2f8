//! The truth sample: one key in 1024, chosen by hash, is counted exactly, so that the error
//! of the sketch is known in production and not only in theory.
//!
//! Called by: [`crate::heavy`], with every request; nearly all of them are turned away by one
//! multiplication.
//! Bound: a fixed number of keys. When more would be needed, the readings stop until the
//! window holds no request that went uncounted, so that a reading is never wrong.
//! Invariant: a sampled key's count is the exact number of its requests in the window.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// One key in this many is sampled.
pub const SAMPLE_ONE_IN: u64 = 1024;

/// Whether the key with this hash belongs to the sample. Mixed once more, so that being
/// sampled says nothing about the key's cells in the sketch.
#[inline]
pub fn is_sampled(hash: u64) -> bool {
    const MIX: u64 = 0xA24B_AED4_963E_E407;
    hash.wrapping_mul(MIX) >> (64 - SAMPLE_ONE_IN.trailing_zeros()) == 0
}

/// Exact counts of the sampled keys over the window.
#[derive(Debug)]
pub struct Truth {
    places: HashMap<u64, usize, BuildHasherDefault<HashIsKey>>,
    counts: Vec<Count>,
    free: Vec<usize>,
    /// Closed slots of all counts, `slots` for each.
    history: Vec<u32>,
    slots: usize,
    newest: usize,
    /// Slots until the window holds no request that found no place.
    unsure_slots: usize,
}

#[derive(Debug, Clone, Default)]
struct Count {
    hash: u64,
    open: u32,
    sum: u32,
}

impl Truth {
    /// Room for `entries` keys over a window of `slots`.
    pub fn new(entries: usize, slots: usize) -> Self {
        Self {
            places: HashMap::with_capacity_and_hasher(entries, BuildHasherDefault::default()),
            counts: vec![Count::default(); entries],
            free: (0..entries).rev().collect(),
            history: vec![0; entries * slots],
            slots,
            newest: 0,
            unsure_slots: 0,
        }
    }

    /// Counts one request, if its key belongs to the sample.
    #[inline]
    pub fn record(&mut self, hash: u64) {
        self.record_many(hash, 1);
    }

    /// Counts requests of a key, if the key is in the sample.
    #[inline]
    pub fn record_many(&mut self, hash: u64, requests: u32) {
        if is_sampled(hash) {
            self.record_sampled(hash, requests);
        }
    }

    #[cold]
    fn record_sampled(&mut self, hash: u64, requests: u32) {
        let Some(place) = self.place(hash) else {
            self.unsure_slots = self.slots + 1;
            return;
        };
        let count = &mut self.counts[place];
        count.open = count.open.saturating_add(requests);
        count.sum = count.sum.saturating_add(requests);
    }

    fn place(&mut self, hash: u64) -> Option<usize> {
        if let Some(place) = self.places.get(&hash) {
            return Some(*place);
        }
        let place = self.free.pop()?;
        self.places.insert(hash, place);
        self.counts[place] = Count { hash, open: 0, sum: 0 };
        Some(place)
    }

    /// Lets `steps` slots pass, see [`crate::window::Window::rotate`].
    pub fn rotate(&mut self, steps: usize) {
        if steps == 0 {
            return;
        }
        let steps = steps.min(self.slots);
        let passed = if self.unsure_slots == self.slots + 1 { 1 } else { steps };
        self.unsure_slots = self.unsure_slots.saturating_sub(passed);
        let Self { places, counts, free, history, slots, newest, .. } = self;
        places.retain(|_, place| {
            let count = &mut counts[*place];
            let history = &mut history[*place * *slots..][..*slots];
            for step in 1..=steps {
                let newest = &mut history[(*newest + step) % *slots];
                count.sum = count.sum.saturating_sub(*newest);
                *newest = if step == steps { count.open } else { 0 };
            }
            count.open = 0;
            // A sum of nothing leaves a history of nothing for the next key in this place.
            if count.sum == 0 {
                free.push(*place);
            }
            count.sum > 0
        });
        self.newest = (self.newest + steps) % self.slots;
    }

    /// Compares the exact counts with what `estimate` says of the same hashes.
    pub fn read(&self, estimate: impl Fn(u64) -> u32) -> TruthReading {
        let mut reading = TruthReading::default();
        if self.unsure_slots > 0 {
            reading.unsure = 1;
            return reading;
        }
        for place in self.places.values() {
            let count = &self.counts[*place];
            reading.add(count.sum, estimate(count.hash));
        }
        reading
    }

    /// Exact count of a sampled key in the window, if it was seen.
    pub fn count(&self, hash: u64) -> Option<u32> {
        self.places.get(&hash).map(|place| self.counts[*place].sum)
    }

    /// Bytes in use.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.counts.as_slice())
            + size_of_val(self.history.as_slice())
            + self.free.capacity() * size_of::<usize>()
            + self.places.capacity() * (size_of::<(u64, usize)>() + 1)
    }
}

/// What the sample shows about the sketch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TruthReading {
    /// Sampled keys in the window.
    pub keys: u64,
    /// Their requests, counted exactly.
    pub requests: u64,
    /// The sum of the sketch's estimates of the same.
    pub estimated: u64,
    /// The sum over the keys of `(estimate - count) / count`.
    pub relative_error_sum: f64,
    /// The largest `estimate - count`.
    pub max_excess: u32,
    /// Estimates below the count: a fault, always zero.
    pub underestimates: u64,
    /// Samples that had too little room to be read.
    pub unsure: u64,
}

impl TruthReading {
    fn add(&mut self, count: u32, estimate: u32) {
        let excess = estimate.saturating_sub(count);
        self.keys += 1;
        self.requests += u64::from(count);
        self.estimated += u64::from(estimate);
        self.relative_error_sum += f64::from(excess) / f64::from(count.max(1));
        self.max_excess = self.max_excess.max(excess);
        self.underestimates += u64::from(estimate < count);
    }

    /// Joins the readings of two samples.
    pub fn merge(&mut self, other: &Self) {
        self.keys += other.keys;
        self.requests += other.requests;
        self.estimated += other.estimated;
        self.relative_error_sum += other.relative_error_sum;
        self.max_excess = self.max_excess.max(other.max_excess);
        self.underestimates += other.underestimates;
        self.unsure += other.unsure;
    }

    /// Mean over the sampled keys of `(estimate - count) / count`. Most keys come once in a
    /// window, so this says how wrong the sketch is about *cold* keys.
    pub fn mean_relative_error(&self) -> Option<f64> {
        (self.keys > 0).then(|| self.relative_error_sum / self.keys as f64)
    }

    /// Mean over the sampled keys of `estimate - count`, in requests: the figure to compare
    /// with the threshold.
    pub fn mean_excess(&self) -> Option<f64> {
        let excess = self.estimated.saturating_sub(self.requests);
        (self.keys > 0).then(|| excess as f64 / self.keys as f64)
    }
}

/// The keys of the map are hashes already.
#[derive(Debug, Default)]
pub(crate) struct HashIsKey(u64);

impl Hasher for HashIsKey {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests;
