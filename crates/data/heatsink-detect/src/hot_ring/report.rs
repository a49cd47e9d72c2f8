//! Reports over the whole ring: the keys of both generations with the sum of their counts.
//!
//! Called by: `HotRing::top_n` and `HotRing::keys_above`.
//! Bound: one pass over the counters of each generation, two for `top_n`; only keys that are
//! reported are kept.
//! Invariant: a key is reported once, and with the counts of both generations.
//!
//! The passes go through the slabs in the order of memory, several times as fast as through
//! the lists. What is not in a list, because it lost a race or is not linked yet, has no count.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use super::{
    aging::{Aging, Period},
    generation::Generation,
};

/// A key and how often it was touched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotKey {
    /// The raw key.
    pub key: Box<[u8]>,
    /// Touches that still count.
    pub count: u64,
}

impl HotKey {
    /// The hotter one first; among equals, the smaller key.
    fn order(&self, count: u64, key: &[u8]) -> Ordering {
        (Reverse(self.count), &*self.key).cmp(&(Reverse(count), key))
    }
}

impl Ord for HotKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order(other.count, &other.key)
    }
}

impl PartialOrd for HotKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The pass over both generations.
pub(super) struct Pass<'a> {
    aging: Aging,
    now: Period,
    active: &'a Generation,
    warm: Option<&'a Generation>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        aging: Aging,
        now: Period,
        active: &'a Generation,
        warm: Option<&'a Generation>,
    ) -> Self {
        Self { aging, now, active, warm }
    }

    /// The `n` hottest keys, the hottest first.
    pub(super) fn top_n(&self, n: usize) -> Vec<HotKey> {
        // Whoever is among the hottest of one generation has at least as much in the sum.
        let nth = |keys| self.nth_count(keys, n);
        let floor = nth(self.active).max(self.warm.map_or(0, nth));
        // The worst of those kept is on top, ready to be replaced.
        let mut kept = BinaryHeap::new();
        self.for_each(floor, |count, key| {
            let full = kept.len() >= n;
            let is_worse = |worst: &HotKey| worst.order(count, key).is_le();
            if full && kept.peek().is_none_or(is_worse) {
                return;
            }
            kept.push(HotKey { key: key.into(), count });
            if full {
                kept.pop();
            }
        });
        kept.into_sorted_vec()
    }

    /// The keys with at least `threshold` touches, the hottest first.
    pub(super) fn keys_above(&self, threshold: u64) -> Vec<HotKey> {
        let mut found = Vec::new();
        self.for_each(threshold, |count, key| found.push(HotKey { key: key.into(), count }));
        found.sort_unstable();
        found
    }

    /// The `n`th largest count of a generation; zero when it has fewer keys.
    fn nth_count(&self, keys: &Generation, n: usize) -> u64 {
        let mut largest = BinaryHeap::new();
        keys.for_each(|_, cells| {
            let count = self.aging.count(cells, self.now);
            if largest.len() < n {
                largest.push(Reverse(count));
            } else if let Some(mut least) = largest.peek_mut()
                && least.0 < count
            {
                *least = Reverse(count);
            }
        });
        if largest.len() < n { 0 } else { largest.peek().map_or(0, |least| least.0) }
    }

    /// Calls `visit` with each key that has a count, and at least `threshold` in the sum.
    ///
    /// Such a key has half of the threshold in one of the generations, so all others are passed
    /// over without a look at the other generation.
    fn for_each(&self, threshold: u64, mut visit: impl FnMut(u64, &[u8])) {
        let threshold = threshold.max(1);
        let half = threshold.div_ceil(2);
        let mut key = Vec::new();
        // Nodes of the warm generation that were reported with it, in ascending order. Remembered,
        // because the counts in the active one go on changing: looking at them twice to find
        // out who reports a key might report it twice, or not at all.
        let mut reported = Vec::new();
        if let Some(warm) = self.warm {
            warm.for_each(|index, cells| {
                let own = self.aging.count(cells, self.now);
                if own < half {
                    return;
                }
                let tag = warm.copy_key(index, &mut key);
                let active = self.active.find_tag(tag, &key);
                let count = own + active.map_or(0, |index| self.count(self.active, index));
                if count >= threshold {
                    reported.push(index);
                    visit(count, &key);
                }
            });
        }
        let least = if self.warm.is_some() { half } else { threshold };
        self.active.for_each(|index, cells| {
            let own = self.aging.count(cells, self.now);
            if own < least {
                return;
            }
            let tag = self.active.copy_key(index, &mut key);
            let warm = self.warm.and_then(|warm| Some((warm, warm.find_tag(tag, &key)?)));
            if warm.is_some_and(|(_, index)| reported.binary_search(&index).is_ok()) {
                return;
            }
            let count = own + warm.map_or(0, |(warm, index)| self.count(warm, index));
            if count >= threshold {
                visit(count, &key);
            }
        });
    }

    fn count(&self, keys: &Generation, index: u32) -> u64 {
        self.aging.count(keys.cells(index), self.now)
    }
}
