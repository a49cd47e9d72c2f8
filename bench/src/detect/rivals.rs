//! Who else could count: what a detector would be built from without `heatsink-detect`.
//!
//! Called by: the measurements of `detect`.
//! Bound: maps hold every key they are shown; sketches have the detector's default size.
//! Invariant: each counts every request it is shown, and uses a hash as fast as Heatsink's.
//!
//! `pingora-limits`' estimator needs nothing around it and is used as it is.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Rows and columns of the sketches.
pub(crate) const DEPTH: usize = 4;
pub(crate) const WIDTH: usize = 2048;

/// Something for every key.
pub(crate) type Map<V> = HashMap<Box<[u8]>, V, RandomState>;

/// A count for every key.
pub(crate) type ExactMap = Map<u64>;

/// Does `work` with what a map holds for a key; a key that is new is looked for twice.
#[inline]
pub(crate) fn with_entry<V: Default, R>(
    map: &mut Map<V>,
    key: &[u8],
    work: impl FnOnce(&mut V) -> R,
) -> R {
    if let Some(value) = map.get_mut(key) {
        return work(value);
    }
    work(map.entry(key.into()).or_default())
}

/// Counts a request.
#[inline]
pub(crate) fn count_exactly(map: &mut ExactMap, key: &[u8]) -> u64 {
    with_entry(map, key, |count| {
        *count += 1;
        *count
    })
}

/// A Count-Min sketch that all threads share.
pub(crate) struct SharedSketch {
    cells: Box<[AtomicU32]>,
    state: RandomState,
}

impl SharedSketch {
    pub(crate) fn new() -> Self {
        let cells = (0..DEPTH * WIDTH).map(|_| AtomicU32::new(0)).collect();
        Self { cells, state: RandomState::default() }
    }

    /// Counts a request; the estimate that includes it.
    #[inline]
    pub(crate) fn count(&self, key: &[u8]) -> u32 {
        let hash = self.state.hash_one(key);
        let (low, high) = (hash as u32, (hash >> 32) as u32 | 1);
        (0..DEPTH).fold(u32::MAX, |least, row| {
            let column = low.wrapping_add(high.wrapping_mul(row as u32)) as usize % WIDTH;
            let before = self.cells[row * WIDTH + column].fetch_add(1, Ordering::Relaxed);
            least.min(before.wrapping_add(1))
        })
    }
}

/// The hot ring's window of eight slots as a plain map would hold it for a key.
#[derive(Clone, Default)]
pub(crate) struct MapWindow([(u32, u32); 8]);

impl MapWindow {
    /// Counts a touch; the touches that still count.
    #[inline]
    pub(crate) fn touch(&mut self, now_ms: u64) -> u64 {
        let period = (now_ms / 250) as u32 + 8;
        let slot = &mut self.0[period as usize % 8];
        *slot = if slot.0 == period { (period, slot.1 + 1) } else { (period, 1) };
        self.count(now_ms)
    }

    /// The touches that still count.
    #[inline]
    pub(crate) fn count(&self, now_ms: u64) -> u64 {
        let period = (now_ms / 250) as u32 + 8;
        let counted = self.0.iter().filter(|slot| slot.0 + 8 > period);
        counted.map(|slot| u64::from(slot.1)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_count() {
        let sketch = SharedSketch::new();
        let mut map = ExactMap::default();
        for expected in 1..=3 {
            assert_eq!(sketch.count(b"a"), expected);
            assert_eq!(count_exactly(&mut map, b"a"), u64::from(expected));
        }
        assert_eq!(map.len(), 1);
    }

    #[test]
    fn a_window_forgets_after_two_seconds() {
        let mut window = MapWindow::default();
        assert_eq!(window.touch(0), 1);
        assert_eq!(window.touch(1999), 2);
        assert_eq!(window.touch(2000), 2);
        assert_eq!(window.touch(9000), 1);
    }
}
