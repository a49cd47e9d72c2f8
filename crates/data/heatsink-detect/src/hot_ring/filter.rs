//! The admission filter: an estimate of how often a key without a node was touched.
//!
//! Called by: `hot_ring`, for keys that have no node yet.
//! Bound: eight bytes a column, whatever the number of keys.
//! Invariant: an estimate is at least the true count of the period, unless two threads
//! met in the same cell; then a touch may be lost and the admission comes one later.
//!
//! A Count-Min sketch with conservative update whose two cells for a key lie in the same
//! cache line: one line to fetch for a key that is seldom seen. A cell is (period, count)
//! in 16 bits each and is empty for whoever sees it in another period: nothing is swept.

use super::{
    config::Admission,
    period::Periods,
    sync::{AtomicU32, Ordering},
};

/// Cells in one cache line.
const LINE_CELLS: usize = 16;
const COUNT_MASK: u32 = 0xffff;

#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU32; LINE_CELLS]);

#[derive(Debug)]
pub(super) struct Filter {
    lines: Box<[Line]>,
    line_mask: usize,
    periods: Periods,
    at_least: u32,
}

impl Filter {
    pub(super) fn new(admission: Admission) -> Self {
        let lines = (admission.columns * 2).div_ceil(LINE_CELLS);
        Self {
            lines: (0..lines).map(|_| Line(std::array::from_fn(|_| AtomicU32::new(0)))).collect(),
            line_mask: lines - 1,
            periods: Periods::of_ms(u64::from(admission.period_ms)),
            at_least: u32::from(admission.at_least),
        }
    }

    /// Counts a touch of a key that has no node; true when it has deserved one.
    pub(super) fn admits(&self, hash: u64, now_ms: u64) -> bool {
        let period = (self.periods.number(now_ms) as u32) << 16;
        // The list takes the lowest bits of the hash first; these are others. The second
        // cell is one of the fifteen that are not the first.
        let line = &self.lines[(hash >> 32) as usize & self.line_mask].0;
        let first = (hash >> 60) as usize;
        let second = (first + 1 + ((15 * (hash >> 52 & 0xff)) >> 8) as usize) % LINE_CELLS;
        let cells = [&line[first], &line[second]];
        let counts = cells.map(|cell| {
            let word = cell.load(Ordering::Relaxed);
            if word & !COUNT_MASK == period { word & COUNT_MASK } else { 0 }
        });
        let estimate = (counts[0].min(counts[1]) + 1).min(COUNT_MASK);
        for (cell, count) in cells.into_iter().zip(counts) {
            if count < estimate {
                cell.store(period | estimate, Ordering::Relaxed);
            }
        }
        estimate >= self.at_least
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}
