//! Sums over the fleet: the last report of each proxy, added up key by key as it comes.
//!
//! Called by: the aggregator, for each report and each tick.
//! Bound: [`MAX_SUMMED_KEYS`] keys and [`MAX_REPORTERS`] reporters; a key or reporter beyond is
//! left out and counted. The cost of a report is one look-up for each of its keys.
//! Invariant: a key's sum is exactly the sum over the reports that count. What a report added is
//! subtracted when the next one of its member comes, or when its time is over. Only the time of receipt
//! matters, and not the senders' clocks.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;
use heatsink_detect::heat::KeyHeat;

use crate::value::ValueKind;
use crate::wire::{Counts, Report};

/// Keys that are summed at once.
pub const MAX_SUMMED_KEYS: usize = 1 << 17;
/// Members whose reports are held.
pub const MAX_REPORTERS: usize = 4096;

/// Larger numbers in a report are cut: all that can be summed up still fits 64 bits.
const MAX_COUNT: u64 = 1 << 38;
/// A member that was silent for this long is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// The sum of one key.
#[derive(Debug, Default)]
pub struct KeySum {
    key: Vec<u8>,
    counts: Counts,
    reporters: u32,
    value: ValueKind,
}

impl KeySum {
    /// The raw key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Requests/s, at most.
    pub fn requests(&self) -> u64 {
        self.counts.reads + self.counts.writes
    }

    /// All measures, as the detector's own type, without the key.
    pub fn heat(&self) -> KeyHeat {
        self.counts.heat()
    }

    /// Proxies that reported it.
    pub fn proxies(&self) -> usize {
        self.reporters as usize
    }

    /// What it holds, as far as a proxy could tell.
    pub fn value(&self) -> ValueKind {
        self.value
    }
}

#[derive(Debug, Default)]
struct Heard {
    boot: u64,
    sequence: u64,
    at: Duration,
    /// What the last report added, and to which place.
    parts: Vec<(u32, Counts)>,
}

/// Sums of all keys that anybody reports.
#[derive(Debug, Default)]
pub struct Sums {
    places: HashMap<Vec<u8>, u32, RandomState>,
    keys: Vec<KeySum>,
    free: Vec<u32>,
    heard: HashMap<String, Heard, RandomState>,
    refused: u64,
    outdated: u64,
}

impl Sums {
    /// Takes a report in; one that was overtaken by a later one of the same start is dropped.
    pub fn add(&mut self, now: Duration, report: &Report<'_>) {
        if !self.heard.contains_key(report.member) {
            if self.heard.len() >= MAX_REPORTERS {
                self.refused += 1;
                return;
            }
            self.heard.insert(report.member.to_owned(), Heard::default());
        }
        let Some(heard) = self.heard.get_mut(report.member) else { return };
        if heard.boot == report.boot && report.sequence <= heard.sequence {
            self.outdated += 1;
            return;
        }
        heard.boot = report.boot;
        heard.sequence = report.sequence;
        heard.at = now;
        let mut parts = std::mem::take(&mut heard.parts);
        // First what is new, so that a key that stays reported keeps its place.
        let old = parts.len();
        for record in &report.keys {
            let counts = record.counts.cut();
            let Some(place) = self.place(record.key) else {
                self.refused += 1;
                continue;
            };
            let sum = &mut self.keys[place as usize];
            sum.counts.add(&counts);
            sum.reporters += 1;
            if record.value != ValueKind::Unknown {
                sum.value = record.value;
            }
            parts.push((place, counts));
        }
        for (place, counts) in parts.drain(..old) {
            self.take_back(place, &counts);
        }
        if let Some(heard) = self.heard.get_mut(report.member) {
            heard.parts = parts;
        }
    }

    fn place(&mut self, key: &[u8]) -> Option<u32> {
        if let Some(place) = self.places.get(key) {
            return Some(*place);
        }
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.keys.len() < MAX_SUMMED_KEYS => {
                self.keys.push(KeySum::default());
                (self.keys.len() - 1) as u32
            }
            None => return None,
        };
        self.keys[place as usize].key = key.to_vec();
        self.places.insert(key.to_vec(), place);
        Some(place)
    }

    fn take_back(&mut self, place: u32, counts: &Counts) {
        let sum = &mut self.keys[place as usize];
        sum.counts.subtract(counts);
        sum.reporters -= 1;
        if sum.reporters == 0 {
            self.places.remove(&sum.key);
            *sum = KeySum::default();
            self.free.push(place);
        }
    }

    /// Takes back reports whose time is over.
    pub fn expire(&mut self, now: Duration, life: Duration) {
        let age = |heard: &Heard| now.saturating_sub(heard.at);
        let mut over = Vec::new();
        for heard in self.heard.values_mut().filter(|heard| age(heard) > life) {
            over.append(&mut heard.parts);
        }
        for (place, counts) in over {
            self.take_back(place, &counts);
        }
        self.heard.retain(|_, heard| age(heard) <= FORGET_AFTER);
    }

    /// Whether a report of this member counts now.
    pub fn hears(&self, now: Duration, life: Duration, member: &str) -> bool {
        self.heard.get(member).is_some_and(|heard| now.saturating_sub(heard.at) <= life)
    }

    /// Members whose reports count now.
    pub fn heard_members(&self, now: Duration, life: Duration) -> usize {
        self.heard.values().filter(|heard| now.saturating_sub(heard.at) <= life).count()
    }

    /// The sum of a key, if anybody reports it.
    pub fn get(&self, key: &[u8]) -> Option<&KeySum> {
        self.places.get(key).map(|place| &self.keys[*place as usize])
    }

    /// All sums, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &KeySum> {
        self.keys.iter().filter(|sum| sum.reporters > 0)
    }

    /// Keys that anybody reports.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nobody reports anything.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Since the start: keys and reporters that found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Since the start: reports that came twice or too late.
    pub fn outdated(&self) -> u64 {
        self.outdated
    }
}

impl Counts {
    fn fields(&mut self) -> [&mut u64; 7] {
        let Self { reads, writes, error, absorbed, bytes, misses, writes_in_flight } = self;
        [reads, writes, error, absorbed, bytes, misses, writes_in_flight]
    }

    fn cut(mut self) -> Self {
        for field in self.fields() {
            *field = (*field).min(MAX_COUNT);
        }
        self
    }

    fn add(&mut self, other: &Self) {
        let mut other = *other;
        for (sum, part) in self.fields().into_iter().zip(other.fields()) {
            *sum += *part;
        }
    }

    fn subtract(&mut self, other: &Self) {
        let mut other = *other;
        for (sum, part) in self.fields().into_iter().zip(other.fields()) {
            *sum -= *part;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Sums;
    use crate::value::ValueKind;
    use crate::wire::{Counts, KeyRecord, Report};

    const LIFE: Duration = Duration::from_millis(1500);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn report<'a>(member: &'a str, sequence: u64, keys: &[(&'a str, u64)]) -> Report<'a> {
        let record = |&(key, reads): &(&'a str, u64)| KeyRecord {
            key: key.as_bytes(),
            value: ValueKind::Unknown,
            counts: Counts { reads, ..Counts::default() },
        };
        let keys = keys.iter().map(record).collect();
        Report { member, boot: 1, sequence, keys, ..Report::default() }
    }

    fn requests(sums: &Sums, key: &str) -> u64 {
        sums.get(key.as_bytes()).map_or(0, super::KeySum::requests)
    }

    #[test]
    fn the_last_report_of_each_member_counts() {
        let mut sums = Sums::default();
        sums.add(at(0), &report("a", 1, &[("x", 400), ("y", 7)]));
        sums.add(at(0), &report("b", 1, &[("x", 300)]));
        assert_eq!((requests(&sums, "x"), requests(&sums, "y")), (700, 7));
        sums.add(at(50), &report("a", 2, &[("x", 500)]));
        assert_eq!((requests(&sums, "x"), requests(&sums, "y")), (800, 0));
        assert_eq!(sums.get(b"x").map(super::KeySum::proxies), Some(2));
        assert_eq!(sums.len(), 1);
    }

    #[test]
    fn what_comes_twice_or_late_changes_nothing() {
        let mut sums = Sums::default();
        sums.add(at(0), &report("a", 2, &[("x", 400)]));
        sums.add(at(0), &report("a", 2, &[("x", 400)]));
        sums.add(at(0), &report("a", 1, &[("x", 9000)]));
        assert_eq!((requests(&sums, "x"), sums.outdated()), (400, 2));
        let restarted = Report { boot: 2, ..report("a", 1, &[("x", 5)]) };
        sums.add(at(0), &restarted);
        assert_eq!(requests(&sums, "x"), 5);
    }

    #[test]
    fn a_silent_member_stops_counting() {
        let mut sums = Sums::default();
        sums.add(at(0), &report("a", 1, &[("x", 400)]));
        sums.add(at(1000), &report("b", 1, &[("x", 300)]));
        sums.expire(at(1500), LIFE);
        assert_eq!(requests(&sums, "x"), 700);
        sums.expire(at(1501), LIFE);
        assert_eq!(requests(&sums, "x"), 300);
        assert!(!sums.hears(at(1501), LIFE, "a") && sums.hears(at(1501), LIFE, "b"));
        assert_eq!(sums.heard_members(at(1501), LIFE), 1);
    }

    #[test]
    fn absurd_numbers_do_not_overflow() {
        let mut sums = Sums::default();
        let keys = vec![("x", u64::MAX); 4096];
        for member in ["a", "b", "c"] {
            sums.add(at(0), &report(member, 1, &keys));
        }
        assert!(requests(&sums, "x") > 0);
        sums.expire(at(9000), LIFE);
        assert!(sums.is_empty());
    }

    #[test]
    fn incremental_sums_equal_sums_from_scratch() {
        let mut random = fastrand::Rng::with_seed(7);
        let names: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
        let members = ["a", "b", "c", "d"];
        let mut last = [const { Vec::new() }; 4];
        let mut sums = Sums::default();
        for round in 1..2000 {
            let who = random.usize(..4);
            let keys: Vec<(&str, u64)> = (0..random.usize(..8))
                .map(|_| (names[random.usize(..20)].as_str(), random.u64(..1000)))
                .collect();
            sums.add(at(0), &report(members[who], round, &keys));
            last[who] = keys;
            for name in &names {
                let expected: u64 = last
                    .iter()
                    .flatten()
                    .filter_map(|(key, reads)| (key == name).then_some(*reads))
                    .sum();
                assert_eq!(requests(&sums, name), expected);
            }
        }
    }
}
