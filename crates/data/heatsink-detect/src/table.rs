//! The names of the heavy hitters of one worker, with exact counts since they were admitted.
//!
//! Called by: [`crate::heavy`]; `find` on every request, `admit` when an estimate is high.
//! Bound: a fixed number of entries, in sets of eight. A set that is full gives up its
//! coolest entry to a hotter newcomer, else the newcomer is refused. Nothing is allocated on
//! the request path but room for a name that is longer than [`NAME_ROOM`].
//! Invariant: an entry counts every request of its key since it was admitted; what may have
//! come before is in `carried` for as long as it can still be inside the window.

use std::mem;

use crate::heat::Kind;
use crate::key::Key;

/// So many entries of a set may be followed; the others are for whoever becomes hot.
const FOLLOWED_WAYS: usize = WAYS / 2;

/// Bytes of a name for which an entry has room from the start.
const NAME_ROOM: usize = 64;

/// Entries in a set; their tags are compared at once, as the bytes of one word.
const WAYS: usize = 8;

/// What happened to a key in some stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Requests, by `Kind as usize`: reads, then writes.
    pub(crate) requests: [u32; 2],
    /// Reads that found nothing.
    pub(crate) misses: u32,
    /// Requests that a mitigation answered.
    pub(crate) absorbed: u32,
    /// Bytes moved.
    pub(crate) bytes: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        for (mine, more) in self.requests.iter_mut().zip(other.requests) {
            *mine = mine.saturating_add(more);
        }
        self.misses = self.misses.saturating_add(other.misses);
        self.absorbed = self.absorbed.saturating_add(other.absorbed);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    fn subtract(&mut self, other: &Self) {
        for (mine, less) in self.requests.iter_mut().zip(other.requests) {
            *mine = mine.saturating_sub(less);
        }
        self.misses = self.misses.saturating_sub(other.misses);
        self.absorbed = self.absorbed.saturating_sub(other.absorbed);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }

    #[inline]
    pub(crate) fn record(&mut self, kind: Kind, bytes: u64, miss: bool, absorbed: bool) {
        let requests = &mut self.requests[kind as usize];
        *requests = requests.saturating_add(1);
        self.misses = self.misses.saturating_add(u32::from(miss));
        self.absorbed = self.absorbed.saturating_add(u32::from(absorbed));
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What a unit of each measure weighs, so that different kinds of heat can be compared: one
/// is a whole threshold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights {
    pub(crate) request: f32,
    pub(crate) byte: f32,
    pub(crate) miss: f32,
    pub(crate) write_in_flight: f32,
}

impl Weights {
    pub(crate) fn score(&self, requests: u32, bytes: u64, misses: u32, in_flight: u32) -> f32 {
        (requests as f32 * self.request)
            .max(bytes as f32 * self.byte)
            .max(misses as f32 * self.miss)
            .max(in_flight as f32 * self.write_in_flight)
    }
}

/// What speaks for a key that wants to be admitted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Claim {
    /// Estimates of the requests so far, by kind.
    pub(crate) carried: [u32; 2],
    /// How much of them is more than noise. A full sketch estimates every key high, and a
    /// newcomer must not drive out an entry whose requests were really counted.
    pub(crate) credit: u32,
    /// Bytes of the request at hand.
    pub(crate) bytes: u64,
    /// Whether it missed.
    pub(crate) misses: u32,
    /// Writes in flight.
    pub(crate) in_flight: u32,
}

impl Claim {
    fn score(&self, weights: &Weights) -> f32 {
        weights.score(self.credit, self.bytes, self.misses, self.in_flight)
    }
}

/// One named key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    /// Since the slot was opened.
    pub(crate) open: Tally,
    /// Over the closed slots.
    closed: Tally,
    /// Requests that may have come before the key was admitted: an upper bound.
    carried: [u32; 2],
    /// The part of them that is more than noise: what they count when entries are compared.
    credit: u32,
    /// Slots until all that was carried is out of the window.
    carried_slots: usize,
    /// Closed slots that this entry has written; what its predecessor left is not read.
    written_slots: usize,
    pub(crate) key: Vec<u8>,
    /// Tells a ticket of this entry from one of its predecessor in the same place.
    pub(crate) generation: u32,
    pub(crate) in_flight: u32,
    pub(crate) in_flight_peak: u32,
    /// What the last request that knew said the value is.
    pub(crate) value_kind: u8,
    /// It is kept however cool it is.
    pub(crate) is_followed: bool,
}

impl Entry {
    /// What is known for certain about the window.
    pub(crate) fn certain(&self) -> Tally {
        let mut tally = self.closed;
        tally.add(&self.open);
        tally
    }

    /// The most requests of one kind that the window can hold.
    pub(crate) fn at_most(&self, kind: Kind) -> u32 {
        self.closed.requests[kind as usize]
            .saturating_add(self.open.requests[kind as usize])
            .saturating_add(self.carried[kind as usize])
    }

    /// Whether the entry is younger than a window.
    pub(crate) fn is_young(&self) -> bool {
        self.carried_slots > 0
    }

    pub(crate) fn begin_write(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
        self.in_flight_peak = self.in_flight_peak.max(self.in_flight);
    }

    /// One slot passes: `newest` expires and takes the open slot's place if it is the last.
    fn rotate(&mut self, newest: &mut Tally, is_last: bool, slots: usize) {
        if self.written_slots == slots {
            self.closed.subtract(newest);
        } else {
            self.written_slots += 1;
        }
        *newest = if is_last { mem::take(&mut self.open) } else { Tally::default() };
        self.closed.add(newest);
    }

    fn score(&self, weights: &Weights) -> f32 {
        let certain = self.certain();
        let requests = certain.requests[0].saturating_add(certain.requests[1]);
        let requests = requests.saturating_add(self.credit);
        weights.score(requests, certain.bytes, certain.misses, self.in_flight_peak)
    }
}

/// The bounded table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// One byte of the hash of each entry: turns most keys that are not here away.
    tags: Vec<[u8; WAYS]>,
    /// Hashes of the entries, zero where there is none.
    hashes: Vec<u64>,
    entries: Vec<Entry>,
    /// The closed slots, each with a tally for every place.
    history: Vec<Tally>,
    slots: usize,
    newest: usize,
    weights: Weights,
    /// For each set, a score that none of its entries is below; zero if nothing is known. A busy
    /// sketch sends nearly every key here, and this turns it away without a look at the entries.
    ///
    /// Entries become cooler only where this is forgotten, see [`Table::forget_floors`]; until
    /// then they become hotter, or give way to one that is.
    floors: Vec<f32>,
}

impl Table {
    pub(crate) fn new(entries: usize, slots: usize, weights: Weights) -> Self {
        let sets = entries.div_ceil(WAYS).next_power_of_two();
        Self {
            tags: vec![[0; WAYS]; sets],
            hashes: vec![0; sets * WAYS],
            entries: (0..sets * WAYS)
                .map(|_| Entry { key: Vec::with_capacity(NAME_ROOM), ..Entry::default() })
                .collect(),
            history: vec![Tally::default(); sets * WAYS * slots],
            slots,
            newest: 0,
            weights,
            floors: vec![0.0; sets],
        }
    }

    /// Changes how kinds of heat compare.
    pub(crate) fn set_weights(&mut self, weights: Weights) {
        self.weights = weights;
        self.forget_floors();
    }

    /// Entries may be cooler than they were.
    fn forget_floors(&mut self) {
        self.floors.fill(0.0);
    }

    #[inline]
    fn set(&self, key: Key<'_>) -> usize {
        key.hash() as usize & (self.tags.len() - 1)
    }

    /// The byte for a key; a tag may stand for many keys, also for a place that is empty.
    #[inline]
    fn tag(key: Key<'_>) -> u8 {
        (key.hash() >> 24) as u8
    }

    /// The place of a key. An equal hash is not enough, the names are compared.
    #[inline]
    pub(crate) fn find(&self, key: Key<'_>) -> Option<usize> {
        const ONES: u64 = u64::from_ne_bytes([1; 8]);
        let set = self.set(key);
        let tags = u64::from_le_bytes(self.tags[set]) ^ (ONES * u64::from(Self::tag(key)));
        // The high bit of every byte that is zero, and of a few that are not: each is looked
        // at more closely below.
        let mut matches = tags.wrapping_sub(ONES) & !tags & (ONES << 7);
        while matches != 0 {
            let place = set * WAYS + matches.trailing_zeros() as usize / 8;
            if self.hashes[place] == key.hash() && self.entries[place].key == key.bytes() {
                return Some(place);
            }
            matches &= matches - 1;
        }
        None
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, place: usize) -> &mut Entry {
        &mut self.entries[place]
    }

    /// Takes in a key that is not in the table, if its set has room or an entry that is
    /// cooler.
    pub(crate) fn admit(&mut self, key: Key<'_>, claim: &Claim) -> Option<usize> {
        let set = self.set(key);
        let hashes = &self.hashes[set * WAYS..][..WAYS];
        let way = match hashes.iter().position(|hash| *hash == 0) {
            Some(way) => way,
            None => self.coolest(set, claim.score(&self.weights))?,
        };
        Some(self.put(set, way, key, claim))
    }

    /// Keeps a key from now on, however cool it is, until [`Table::follow_nobody`]; false if too
    /// many of its set are kept already.
    pub(crate) fn follow(&mut self, key: Key<'_>, claim: &Claim) -> bool {
        let set = self.set(key);
        let ways = set * WAYS..(set + 1) * WAYS;
        let followed = self.entries[ways.clone()].iter().filter(|entry| entry.is_followed);
        if followed.count() >= FOLLOWED_WAYS {
            return false;
        }
        let place = self.find(key).or_else(|| {
            let free = self.hashes[ways].iter().position(|hash| *hash == 0);
            let way = free.or_else(|| self.coolest(set, f32::MAX))?;
            Some(self.put(set, way, key, claim))
        });
        if let Some(place) = place {
            self.entries[place].is_followed = true;
        }
        place.is_some()
    }

    /// Keeps entries only for as long as they are hot.
    pub(crate) fn follow_nobody(&mut self) {
        for entry in &mut self.entries {
            entry.is_followed = false;
        }
        self.forget_floors();
    }

    fn put(&mut self, set: usize, way: usize, key: Key<'_>, claim: &Claim) -> usize {
        let place = set * WAYS + way;
        self.tags[set][way] = Self::tag(key);
        self.hashes[place] = key.hash();
        let entry = &mut self.entries[place];
        entry.key.clear();
        entry.key.extend_from_slice(key.bytes());
        entry.open = Tally::default();
        entry.closed = Tally::default();
        entry.carried = claim.carried;
        entry.credit = claim.credit;
        entry.carried_slots = self.slots + 1;
        entry.written_slots = 0;
        entry.generation = entry.generation.wrapping_add(1);
        entry.in_flight = 0;
        entry.in_flight_peak = 0;
        entry.value_kind = 0;
        entry.is_followed = false;
        place
    }

    fn coolest(&mut self, set: usize, score: f32) -> Option<usize> {
        if score <= self.floors[set] {
            return None;
        }
        let (way, coolest) = self.entries[set * WAYS..][..WAYS]
            .iter()
            .map(|entry| if entry.is_followed { f32::MAX } else { entry.score(&self.weights) })
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        self.floors[set] = coolest;
        (coolest < score).then_some(way)
    }

    /// The entries in use, with their hashes; what is done to them may cool them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Entry)> {
        self.forget_floors();
        let hashes = self.hashes.iter().copied();
        hashes.zip(&mut self.entries).filter(|(hash, _)| *hash != 0)
    }

    /// Lets `steps` slots pass, see [`crate::window::Window::rotate`].
    pub(crate) fn rotate(&mut self, steps: usize) {
        if steps == 0 {
            return;
        }
        self.forget_floors();
        let steps = steps.min(self.slots);
        let places = self.entries.len();
        for step in 1..=steps {
            let slot = (self.newest + step) % self.slots;
            let history = &mut self.history[slot * places..][..places];
            let is_last = step == steps;
            for ((hash, entry), newest) in self.hashes.iter().zip(&mut self.entries).zip(history) {
                if *hash != 0 {
                    entry.rotate(newest, is_last, self.slots);
                }
            }
        }
        for entry in &mut self.entries {
            // What was carried into the open slot becomes part of the newest closed one.
            let passed = if entry.carried_slots == self.slots + 1 { 1 } else { steps };
            entry.carried_slots = entry.carried_slots.saturating_sub(passed);
            if entry.carried_slots == 0 {
                entry.carried = [0; 2];
                entry.credit = 0;
            }
        }
        self.newest = (self.newest + steps) % self.slots;
    }

    /// Lets go of the entries that are not worth keeping.
    pub(crate) fn sweep(&mut self, keep: impl Fn(&Entry) -> bool) {
        for (hash, entry) in self.hashes.iter_mut().zip(&mut self.entries) {
            if *hash != 0 && !keep(entry) {
                *hash = 0;
                // A ticket of the entry must not find its successor.
                entry.generation = entry.generation.wrapping_add(1);
            }
        }
    }

    /// Bytes in use, names included.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self.tags.as_slice())
            + size_of_val(self.hashes.as_slice())
            + size_of_val(self.entries.as_slice())
            + size_of_val(self.history.as_slice())
            + size_of_val(self.floors.as_slice())
            + self.entries.iter().map(|entry| entry.key.capacity()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
