//! Reports over the whole ring: the keys of both generations with the sum of their counts.
//!
//! Called by: `HotRing::top_n` and `HotRing::keys_above`.
//! Bound: one pass over the lists; only keys that are reported are kept.
//! Invariant: both lists are in the order of (tag, key), so the same key is met in both
//! at the same time and no map is needed to add them up.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    iter::Peekable,
};

use super::{
    aging::{Aging, Period},
    generation::{Entry, Generation, Walk},
};

/// A key and how often it was touched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotKey {
    /// The raw key.
    pub key: Box<[u8]>,
    /// Touches that still count.
    pub count: u64,
}

impl Ord for HotKey {
    /// The hotter one first; among equals, the smaller key.
    fn cmp(&self, other: &Self) -> Ordering {
        (Reverse(self.count), &self.key).cmp(&(Reverse(other.count), &other.key))
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
        // The worst of those kept is on top, ready to be replaced.
        let mut kept = BinaryHeap::with_capacity(n.min(self.active.len() as usize) + 1);
        self.for_each(|count, key| {
            let full = kept.len() >= n;
            if full && kept.peek().is_none_or(|worst: &HotKey| count < worst.count) {
                return;
            }
            kept.push(HotKey { key: key().into(), count });
            if full {
                kept.pop();
            }
        });
        kept.into_sorted_vec()
    }

    /// The keys with at least `threshold` touches, the hottest first.
    pub(super) fn keys_above(&self, threshold: u64) -> Vec<HotKey> {
        let mut found = Vec::new();
        self.for_each(|count, key| {
            if count >= threshold {
                found.push(HotKey { key: key().into(), count });
            }
        });
        found.sort_unstable();
        found
    }

    /// Calls `visit` with the count of each key that has one, and a way to the key.
    fn for_each(&self, mut visit: impl FnMut(u64, &mut dyn FnMut() -> Vec<u8>)) {
        let mut active = self.active.walk().peekable();
        let mut warm = self.warm.map(|warm| (warm, warm.walk().peekable()));
        loop {
            let (first, second) = match &mut warm {
                None => (active.next(), None),
                Some((keys, walk)) => self.step(&mut active, keys, walk),
            };
            let (holder, index) = match (first, second, self.warm) {
                (Some((_, index)), _, _) => (self.active, index),
                (None, Some((_, index)), Some(keys)) => (keys, index),
                _ => return,
            };
            let of = |keys: &Generation, entry: Option<Entry>| {
                entry.map_or(0, |(_, index)| self.aging.count(keys.cells(index), self.now))
            };
            let count = of(self.active, first) + self.warm.map_or(0, |keys| of(keys, second));
            if count > 0 {
                visit(count, &mut || {
                    let mut key = Vec::new();
                    holder.copy_key(index, &mut key);
                    key
                });
            }
        }
    }

    /// Takes the lesser of both next entries, or both when they are the same key.
    fn step(
        &self,
        active: &mut Peekable<Walk<'_>>,
        keys: &Generation,
        warm: &mut Peekable<Walk<'_>>,
    ) -> (Option<Entry>, Option<Entry>) {
        let order = match (active.peek(), warm.peek()) {
            (_, None) => Ordering::Less,
            (None, _) => Ordering::Greater,
            (Some(a), Some(b)) => a.0.cmp(&b.0).then_with(|| {
                let (mut left, mut right) = (Vec::new(), Vec::new());
                self.active.copy_key(a.1, &mut left);
                keys.copy_key(b.1, &mut right);
                left.cmp(&right)
            }),
        };
        match order {
            Ordering::Less => (active.next(), None),
            Ordering::Greater => (None, warm.next()),
            Ordering::Equal => (active.next(), warm.next()),
        }
    }
}
