//! The report of a tick: the snapshots of all workers added up, key by key.
//!
//! Called by: the ticker, with the latest snapshot of every worker.
//! Bound: the sum of the workers' tables, and the keys that are asked for; time grows with
//! both times workers.
//! Invariant: a key's requests are never too low. A worker that does not know the key by
//! name adds its sketch's estimate to what is possible, and nothing to what is certain.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use crate::heat::{KeyHeat, Kind, Thresholds};
use crate::key::Key;
use crate::snapshot::{Snapshot, SnapshotEntry};
use crate::truth::{HashIsKey, TruthReading};

/// What all workers together saw in the last window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// The named keys, and those that were asked for, most requests first; no order is promised among equals.
    pub keys: Vec<KeyHeat>,
    /// Reads/s of all keys.
    pub reads_per_second: f64,
    /// Writes/s of all keys.
    pub writes_per_second: f64,
    /// By how much the sketches together may overestimate one key, in requests/s, in theory.
    /// Keys that were named for a whole window are exact, see [`KeyHeat::error_per_second`].
    pub error_bound_per_second: f64,
    /// What the truth sample shows of the sketches' error.
    pub truth: TruthReading,
    /// Workers whose last snapshot is older than a window and was left out.
    pub silent_workers: usize,
    /// Since the start: keys that found no place in a worker's table.
    pub refused: u64,
    /// Since the start: keys that were too long to be named.
    pub too_long: u64,
}

impl Report {
    /// Keys at or over `requests_per_second`, with half of it certain; hottest first.
    pub fn above(&self, requests_per_second: f64) -> impl Iterator<Item = &KeyHeat> {
        self.keys
            .iter()
            .take_while(move |key| key.requests_per_second() >= requests_per_second)
            .filter(move |key| key.certain_per_second() >= requests_per_second / 2.0)
    }

    /// Keys that are hot in any way.
    pub fn hot(&self, thresholds: &Thresholds) -> impl Iterator<Item = &KeyHeat> {
        let thresholds = *thresholds;
        self.keys.iter().filter(move |key| key.exceeds_any(&thresholds))
    }

    /// The `n` keys with the most requests, hottest first.
    pub fn top(&self, n: usize) -> &[KeyHeat] {
        &self.keys[..n.min(self.keys.len())]
    }
}

/// Adds up snapshots; keeps its buffers from tick to tick.
#[derive(Debug, Default)]
pub struct Merger {
    places: HashMap<u64, u32, BuildHasherDefault<HashIsKey>>,
    sums: Vec<Sum>,
    /// Requests and place of each sum, to be sorted.
    order: Vec<(u64, u32)>,
}

/// One key over the workers that were added so far. Small, because thousands of them go
/// through the caches at each tick.
#[derive(Debug)]
struct Sum {
    hash: u64,
    /// Where the name stands: which snapshot, which entry.
    named_in: (u32, u32),
    /// The last snapshot that was added.
    added: u32,
    certain_requests: u64,
    at_most: [u64; 2],
    misses: u64,
    absorbed: u64,
    bytes: u64,
    in_flight: u32,
    value_kind: u8,
}

impl Merger {
    /// A merger with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The report over the latest snapshots of all workers.
    pub fn merge(&mut self, now: Duration, snapshots: &[&Snapshot]) -> Report {
        self.merge_with(now, snapshots, [])
    }

    /// The same, and `asked` keys are in it even if no worker has named them: with what the
    /// sketches say of their requests, of which nothing is certain. One without
    /// any is left out.
    pub fn merge_with<'a>(
        &mut self,
        now: Duration,
        snapshots: &[&Snapshot],
        asked: impl IntoIterator<Item = Key<'a>>,
    ) -> Report {
        self.places.clear();
        self.sums.clear();
        let mut report = Report::default();
        let mut live = Vec::with_capacity(snapshots.len());
        for snapshot in snapshots {
            report.refused += snapshot.refused;
            report.too_long += snapshot.too_long;
            if now.saturating_sub(snapshot.taken_at) > snapshot.window {
                report.silent_workers += 1;
            } else {
                live.push(*snapshot);
            }
        }
        let Some(window_s) = live.first().map(|snapshot| snapshot.window.as_secs_f64()) else {
            return report;
        };
        for (number, snapshot) in live.iter().enumerate() {
            self.add(&live, number);
            report.reads_per_second += snapshot.total(Kind::Read) as f64 / window_s;
            report.writes_per_second += snapshot.total(Kind::Write) as f64 / window_s;
            report.truth.merge(&snapshot.truth);
            for sketch in &snapshot.sketches {
                report.error_bound_per_second += sketch.error_bound() / window_s;
            }
        }
        self.order.clear();
        self.order.extend(self.sums.iter().map(Sum::at_most).zip(0..));
        self.order.sort_unstable_by_key(|(at_most, _)| Reverse(*at_most));
        let hottest_first = self.order.iter().map(|(_, place)| &self.sums[*place as usize]);
        // A key that is followed has a name even if nobody asks for it.
        let hottest_first = hottest_first.filter(|sum| sum.at_most() > 0 || sum.in_flight > 0);
        report.keys = hottest_first.map(|sum| sum.heat(&live, window_s)).collect();
        let unnamed = asked.into_iter().filter(|key| self.find(&live, *key).is_none());
        let mut unnamed: Vec<_> = unnamed.collect();
        unnamed.sort_unstable_by_key(|key| key.bytes());
        unnamed.dedup();
        let estimates = unnamed.into_iter().filter_map(|key| estimate(&live, window_s, key));
        let named = report.keys.len();
        report.keys.extend(estimates);
        if report.keys.len() > named {
            let rate = KeyHeat::requests_per_second;
            report.keys.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        }
        report
    }

    /// The sum of a key that a worker has named.
    fn find(&self, snapshots: &[&Snapshot], key: Key<'_>) -> Option<u32> {
        let mut slot = key.hash();
        loop {
            let place = *self.places.get(&slot)?;
            if self.sums[place as usize].name(snapshots) == key.bytes() {
                return Some(place);
            }
            slot = slot.wrapping_add(1);
        }
    }

    fn add(&mut self, snapshots: &[&Snapshot], number: usize) {
        let snapshot = snapshots[number];
        let known = self.sums.len();
        for (index, entry) in snapshot.entries.iter().enumerate() {
            let place = self.place(snapshots, (number as u32, index as u32), entry);
            self.sums[place as usize].add(number as u32, entry);
        }
        // Keys that others have named and this worker has not.
        for sum in self.sums[..known].iter_mut().filter(|sum| sum.added != number as u32) {
            sum.add_estimate(snapshot);
        }
    }

    /// The sum of the named key, begun with the estimates of the workers before if it is new.
    #[inline]
    fn place(
        &mut self,
        snapshots: &[&Snapshot],
        named_in: (u32, u32),
        entry: &SnapshotEntry,
    ) -> u32 {
        let number = named_in.0 as usize;
        let name = snapshots[number].key(entry);
        let mut slot = entry.hash;
        loop {
            match self.places.entry(slot) {
                Entry::Occupied(place) => {
                    let place = *place.get();
                    if self.sums[place as usize].name(snapshots) == name {
                        return place;
                    }
                    // Another name with this hash: look at the next place, as it did.
                    slot = slot.wrapping_add(1);
                }
                Entry::Vacant(free) => {
                    let mut sum = Sum::new(entry.hash, named_in);
                    for earlier in &snapshots[..number] {
                        sum.add_estimate(earlier);
                    }
                    let place = self.sums.len() as u32;
                    self.sums.push(sum);
                    return *free.insert(place);
                }
            }
        }
    }
}

impl Sum {
    fn new(hash: u64, named_in: (u32, u32)) -> Self {
        Self {
            hash,
            named_in,
            added: named_in.0,
            certain_requests: 0,
            at_most: [0; 2],
            misses: 0,
            absorbed: 0,
            bytes: 0,
            in_flight: 0,
            value_kind: 0,
        }
    }

    fn add(&mut self, number: u32, entry: &SnapshotEntry) {
        self.added = number;
        for (sum, more) in self.at_most.iter_mut().zip(entry.at_most) {
            *sum += u64::from(more);
        }
        let certain = &entry.certain;
        self.certain_requests += certain.requests.iter().copied().map(u64::from).sum::<u64>();
        self.misses += u64::from(certain.misses);
        self.absorbed += u64::from(certain.absorbed);
        self.bytes = self.bytes.saturating_add(certain.bytes);
        self.in_flight = self.in_flight.saturating_add(entry.in_flight_peak);
        self.value_kind = self.value_kind.max(entry.value_kind);
    }

    fn add_estimate(&mut self, snapshot: &Snapshot) {
        for (sum, more) in self.at_most.iter_mut().zip(snapshot.estimates(self.hash)) {
            *sum += u64::from(more);
        }
    }

    fn at_most(&self) -> u64 {
        self.at_most[0] + self.at_most[1]
    }

    fn name<'a>(&self, snapshots: &[&'a Snapshot]) -> &'a [u8] {
        let snapshot = snapshots[self.named_in.0 as usize];
        snapshot.key(&snapshot.entries[self.named_in.1 as usize])
    }

    fn heat(&self, snapshots: &[&Snapshot], window_s: f64) -> KeyHeat {
        KeyHeat {
            key: self.name(snapshots).to_vec(),
            reads_per_second: self.at_most[Kind::Read as usize] as f64 / window_s,
            writes_per_second: self.at_most[Kind::Write as usize] as f64 / window_s,
            error_per_second: self.at_most().saturating_sub(self.certain_requests) as f64
                / window_s,
            absorbed_per_second: self.absorbed as f64 / window_s,
            bytes_per_second: self.bytes as f64 / window_s,
            misses_per_second: self.misses as f64 / window_s,
            writes_in_flight: self.in_flight,
            value_kind: self.value_kind,
        }
    }
}

/// A key that no worker has named, by what their sketches say.
fn estimate(snapshots: &[&Snapshot], window_s: f64, key: Key<'_>) -> Option<KeyHeat> {
    let mut sum = Sum::new(key.hash(), (0, 0));
    for snapshot in snapshots {
        sum.add_estimate(snapshot);
    }
    (sum.at_most() > 0).then(|| KeyHeat {
        key: key.bytes().to_vec(),
        reads_per_second: sum.at_most[Kind::Read as usize] as f64 / window_s,
        writes_per_second: sum.at_most[Kind::Write as usize] as f64 / window_s,
        error_per_second: sum.at_most() as f64 / window_s,
        ..KeyHeat::default()
    })
}

#[cfg(test)]
mod tests;
