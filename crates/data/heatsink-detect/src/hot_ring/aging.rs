//! Aging: how old touches stop counting.
//!
//! Called by: `hot_ring` on every touch and every read of a counter.
//! Bound: one counter a slot of the window, each saturating at `u32::MAX`.
//! Invariant: a cell is (period, count) in one atomic word, so a reader never combines
//! the count of one period with the number of another.
//!
//! A window of up to eight slots begins in the brief form, one word for all of them (see
//! `brief`). When that is full it stays as it is, and its touches grow old where they are; the
//! cells begin with the next touch, and a key's count is the sum of both.
//!
//! Nothing runs in the background: a cell remembers the period it was written in and
//! whoever looks at it applies the time that has passed since.

use super::{
    brief::{BRIEF_SLOTS, Brief},
    config::HotRingConfig,
    period::Periods,
    slab::Cells,
    sync::{AtomicU64, Ordering},
};

/// How counters lose their age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aging {
    /// The touches of the last `slots` periods count.
    Window { slots: u32, periods: Periods },
    /// The count is shifted right at the end of every period.
    Decay { shift: u32, periods: Periods },
    /// Every touch counts forever.
    Never,
}

/// A moment, in the numbering of the ring's periods.
///
/// Numbers wrap; a cell counts as older than now for half of their range, which is
/// 17 years at 250 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Period(u32);

/// A counter cell, taken apart.
#[derive(Clone, Copy)]
struct Cell {
    period: Period,
    count: u32,
}

impl Cell {
    const fn unpack(word: u64) -> Self {
        Self { period: Period((word >> 32) as u32), count: word as u32 }
    }

    const fn pack(self) -> u64 {
        ((self.period.0 as u64) << 32) | self.count as u64
    }

    /// Periods since the cell was written; zero when it was written "later" than now,
    /// by a thread whose clock is ahead.
    const fn age(self, now: Period) -> u32 {
        let age = now.0.wrapping_sub(self.period.0);
        if age > u32::MAX / 2 { 0 } else { age }
    }

    /// What the cell is worth in a window of `slots` periods.
    const fn within(self, slots: u32, now: Period) -> u64 {
        // The order of ages with the future first: one comparison instead of two.
        const HALF: u32 = 1 << 31;
        let age = now.0.wrapping_sub(self.period.0).wrapping_add(HALF);
        if age < slots + HALF { self.count as u64 } else { 0 }
    }

    /// What the cell is worth when every period since shifts it.
    fn decayed(self, shift: u32, now: Period) -> u64 {
        let bits = self.age(now).saturating_mul(shift);
        u64::from(self.count.checked_shr(bits).unwrap_or(0))
    }

    /// The cell after a touch. Its period never goes back: a touch that comes late counts
    /// in the newer one. A cell without a count has no period worth keeping: fresh cells
    /// say 0, which to half of all periods looks like the future.
    const fn touched(self, worth: u32, now: Period) -> Self {
        let is_newer = self.count != 0 && self.age(now) == 0;
        Self { period: if is_newer { self.period } else { now }, count: worth.saturating_add(1) }
    }
}

impl Aging {
    pub(super) fn of(config: &HotRingConfig) -> Self {
        match (config.window, config.decay) {
            (Some(window), _) => Self::Window {
                slots: window.slots,
                periods: Periods::of_ms(u64::from(window.slot_ms)),
            },
            (None, Some(decay)) => Self::Decay {
                shift: decay.shift,
                periods: Periods::of_ms(u64::from(decay.interval_ms)),
            },
            (None, None) => Self::Never,
        }
    }

    /// Cells that a key needs beside the one in its node.
    pub(super) const fn cells(self) -> usize {
        match self {
            Self::Window { slots, .. } => slots as usize,
            Self::Decay { .. } | Self::Never => 0,
        }
    }

    /// The period that a time lies in.
    pub(super) fn period(self, now_ms: u64) -> Period {
        Period(match self {
            Self::Window { periods, .. } | Self::Decay { periods, .. } => {
                periods.number(now_ms) as u32
            }
            Self::Never => 0,
        })
    }

    /// The count of a key with these counters.
    pub(super) fn count(self, cells: Cells<'_>, now: Period) -> u64 {
        let first = || Cell::unpack(cells.first().load(Ordering::Relaxed));
        match self {
            Self::Window { slots, .. } => {
                let brief = Brief(cells.first().load(Ordering::Relaxed));
                if slots <= BRIEF_SLOTS && !brief.is_full() {
                    return brief.count(slots, now.0);
                }
                let of_cells = cells.sum(|word| Cell::unpack(word).within(slots, now));
                brief.count(slots, now.0) + of_cells
            }
            Self::Decay { shift, .. } => first().decayed(shift, now),
            Self::Never => u64::from(first().count),
        }
    }

    /// Counts one touch unless the key is at `limit`.
    ///
    /// The count, with the touch in it if it was counted; the flag says that it was not.
    /// Exact among threads within one period: of all cells only the present one changes
    /// then, and if it changed since it was summed up, the swap fails. So it does in the brief
    /// form, which is one cell, and does not change any more when the others are used.
    pub(super) fn touch(self, cells: Cells<'_>, now: Period, limit: u64) -> (u64, bool) {
        match self {
            Self::Window { slots, .. } => {
                let before = match touch_brief(cells.first(), slots, now, limit) {
                    Ok(counted) => return counted,
                    Err(before) => before,
                };
                let worth = |cell: Cell| cell.within(slots, now);
                let (cell, seen, others) =
                    cells.one_and_others(now.0, |word| worth(Cell::unpack(word)));
                swap_in_touch(cell, seen, before + others, limit, now, worth)
            }
            Self::Decay { shift, .. } => {
                let cell = cells.first();
                let seen = cell.load(Ordering::Relaxed);
                swap_in_touch(cell, seen, 0, limit, now, |cell| cell.decayed(shift, now))
            }
            Self::Never => {
                let cell = cells.first();
                let seen = cell.load(Ordering::Relaxed);
                swap_in_touch(cell, seen, 0, limit, now, |cell| u64::from(cell.count))
            }
        }
    }
}

/// Counts a touch in the brief form; if that is full, or too short for the slots, what it is
/// worth.
fn touch_brief(word: &AtomicU64, slots: u32, now: Period, limit: u64) -> Result<(u64, bool), u64> {
    if slots > BRIEF_SLOTS {
        return Err(0);
    }
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let old = Brief(seen);
        if old.is_full() {
            // A key that stays hot was full long ago, and that is forgotten by now.
            return Err(if old.is_over(slots, now.0) { 0 } else { old.count(slots, now.0) });
        }
        let present = old.count(slots, now.0);
        if present >= limit {
            return Ok((present, true));
        }
        let new = old.touched(now.0);
        // Released for reports, as in `swap_in_touch`.
        let swapped = word.compare_exchange_weak(seen, new.0, Ordering::Release, Ordering::Relaxed);
        match swapped {
            Ok(_) => return Ok((present + 1, false)),
            Err(other) => seen = other,
        }
    }
}

/// Adds a touch to the cell that was `seen`, unless that and the `others` reach the limit.
fn swap_in_touch(
    cell: &AtomicU64,
    mut seen: u64,
    others: u64,
    limit: u64,
    now: Period,
    worth: impl Fn(Cell) -> u64,
) -> (u64, bool) {
    loop {
        let old = Cell::unpack(seen);
        let present = worth(old);
        if others + present >= limit {
            return (others + present, true);
        }
        let new = old.touched(present as u32, now);
        // Released for reports, which come to a key by its count and not through the list.
        let swapped =
            cell.compare_exchange_weak(seen, new.pack(), Ordering::Release, Ordering::Relaxed);
        match swapped {
            Ok(_) => return (others + u64::from(new.count), false),
            Err(other) => seen = other,
        }
    }
}
