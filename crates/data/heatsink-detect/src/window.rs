//! The sketch of the last second: sub-slots that expire one by one.
//!
//! Called by: [`crate::heavy`]; `add_one` on the request path, `rotate` at each tick.
//! Bound: `slots + 2` sketches of one shape, and half of one; `add_one` touches two bytes per
//! row, `rotate` makes two passes over the cells and one per expired slot.
//! Invariant: a cell of the window is the sum of that cell over the open slot and the closed
//! slots that are still inside; and an estimate is never below the true count.
//!
//! # Why the conservative update is done per slot
//!
//! Conservative update is not linear: a cell is left alone when another key has raised it
//! already. Were that decided on the window's sum, this would happen:
//!
//! 1. slot 1: key `a` raises the cell it shares with `b` to 100;
//! 2. slot 2: `b` comes 100 times and leaves the cell alone, it is high enough;
//! 3. slot 1 expires and takes its 100 away: the cell is 0, `b` was counted 100 times.
//!
//! So each slot is a sketch of its own, which never underestimates what happened in it, and
//! the window adds them up. For each row the sum over the slots is at least the sum of the
//! true counts, and so is the smallest of the rows. It stays true if a slot is cut in two,
//! which is what happens when a counter of the open slot has no room left: all of them are
//! added to wide ones and begin anew.
//!
//! # What a request touches
//!
//! Between two requests of one client the caches are used for other things, so what counts
//! is how much memory all requests together touch: 16 KiB with the default shape. The open
//! slot has counters of 15 bits, and the bit above them says whether the sum of the closed
//! slots is high. Nearly all keys are known to be below the bar by these four words alone;
//! the sums, which are twice as wide and in memory of their own, are read for the others.

use crate::sketch::{Shape, Sketch, USUAL_DEPTH, with_depth};

/// The count in a word of the open slot.
const COUNT: u16 = HIGH - 1;
/// Set in it if the sum of the closed slots is within [`Window::slack`] of the bar.
const HIGH: u16 = 1 << 15;

/// A sliding Count-Min sketch.
#[derive(Debug, Clone)]
pub struct Window {
    shape: Shape,
    /// The open slot, and which sums are high.
    open: Vec<u16>,
    /// What the open slot had no room for.
    folded: Vec<u32>,
    /// The sums over the closed slots and `folded`.
    sums: Vec<u32>,
    /// Closed slots, `slots` of them one after the other; `newest` is the last one closed.
    closed: Vec<u32>,
    slots: usize,
    newest: usize,
    open_total: u64,
    closed_totals: Vec<u64>,
    total: u64,
    /// From which estimate on [`Window::add_one`] has to say so.
    bar: u32,
    /// A sum stopped at `u32::MAX`: slots cannot be taken away from it, it is made anew.
    saturated: bool,
}

impl Window {
    /// An empty window of `slots` closed slots and the open one.
    pub fn new(shape: Shape, slots: usize) -> Self {
        assert!(slots > 0, "a window has at least one slot");
        Self {
            shape,
            open: vec![0; shape.cells()],
            folded: vec![0; shape.cells()],
            sums: vec![0; shape.cells()],
            closed: vec![0; shape.cells() * slots],
            slots,
            newest: 0,
            open_total: 0,
            closed_totals: vec![0; slots],
            total: 0,
            bar: 1,
            saturated: false,
        }
    }

    /// Counts `count` requests of the key with this hash in the open slot; returns the
    /// estimate for the window that includes them.
    pub fn add(&mut self, hash: u64, count: u32) -> u32 {
        let _ = self.raise(hash, count);
        self.estimate(hash)
    }

    /// Counts one request; whether the estimate that includes it may have reached the bar.
    /// Always if it has, and seldom if not.
    #[inline]
    pub fn add_one(&mut self, hash: u64) -> bool {
        u32::from(self.raise(hash, 1)) > self.slack()
    }

    /// Reads what [`Window::add_one`] will need.
    #[inline]
    pub(crate) fn look(&self, hash: u64) -> u16 {
        let places = self.shape.cells_of::<USUAL_DEPTH>(hash);
        // Another depth than the usual has other cells, some of which are not there.
        let words = places.map(|place| self.open.get(place).copied().unwrap_or(0));
        words[0] ^ words[1] ^ words[2] ^ words[3]
    }

    /// Sets the bar of [`Window::add_one`].
    pub fn set_bar(&mut self, estimate: u32) {
        if self.bar != estimate {
            self.bar = estimate;
            self.mark_high();
        }
    }

    /// An estimate at the bar has, in each row, a sum that is at most so far below it, or more
    /// than so much in the open slot.
    #[inline]
    fn slack(&self) -> u32 {
        (self.bar / 8).min(u32::from(COUNT) - 1)
    }

    /// The least of the key's words in the open slot, after `count` requests were added.
    #[inline]
    fn raise(&mut self, hash: u64, count: u32) -> u16 {
        self.open_total += u64::from(count);
        if self.shape.depth() == USUAL_DEPTH {
            self.raise_rows::<USUAL_DEPTH>(hash, count)
        } else {
            self.raise_at_any_depth(hash, count)
        }
    }

    /// Apart, because the code of all depths in one function slows down each of them.
    #[inline(never)]
    fn raise_at_any_depth(&mut self, hash: u64, count: u32) -> u16 {
        with_depth!(self.shape, self.raise_rows::<_>(hash, count))
    }

    #[inline]
    fn raise_rows<const ROWS: usize>(&mut self, hash: u64, count: u32) -> u16 {
        let places = self.shape.cells_of::<ROWS>(hash);
        let words = places.map(|place| self.open[place]);
        let lowest = words.iter().fold(COUNT, |lowest, word| lowest.min(word & COUNT));
        let raised = u32::from(lowest).saturating_add(count);
        if raised > u32::from(COUNT) {
            return self.raise_wide::<ROWS>(hash, count);
        }
        let raised = raised as u16;
        let mut least = u16::MAX;
        for (place, word) in places.into_iter().zip(words) {
            let word = (word & COUNT).max(raised) | (word & HIGH);
            self.open[place] = word;
            least = least.min(word);
        }
        least
    }

    /// The same when the open slot has no room for it.
    #[cold]
    fn raise_wide<const ROWS: usize>(&mut self, hash: u64, count: u32) -> u16 {
        self.fold();
        self.mark_high();
        if count <= u32::from(COUNT) {
            return self.raise_rows::<ROWS>(hash, count);
        }
        for place in self.shape.cells_of::<ROWS>(hash) {
            self.folded[place] = self.folded[place].saturating_add(count);
            self.sums[place] = self.sums[place].saturating_add(count);
            self.saturated |= self.sums[place] == u32::MAX;
        }
        self.mark_high();
        u16::MAX
    }

    /// Makes room in the open slot; which sums are high is to be marked again.
    fn fold(&mut self) {
        let mut highest = 0;
        let wide = self.folded.iter_mut().zip(&mut self.sums);
        for (open, (folded, sum)) in self.open.iter_mut().zip(wide) {
            let count = u32::from(*open & COUNT);
            *folded = folded.saturating_add(count);
            *sum = sum.saturating_add(count);
            *open = 0;
            highest = highest.max(*sum);
        }
        self.saturated |= highest == u32::MAX;
    }

    /// Says of each sum in the word of the open slot whether it is high.
    fn mark_high(&mut self) {
        let high = self.bar - self.slack();
        for (open, sum) in self.open.iter_mut().zip(&self.sums) {
            *open = (*open & COUNT) | if *sum >= high { HIGH } else { 0 };
        }
    }

    /// How often the key was counted in the window: never too low.
    #[inline]
    pub fn estimate(&self, hash: u64) -> u32 {
        with_depth!(self.shape, self.estimate_rows::<_>(hash))
    }

    #[inline]
    fn estimate_rows<const ROWS: usize>(&self, hash: u64) -> u32 {
        let places = self.shape.cells_of::<ROWS>(hash);
        places.iter().fold(u32::MAX, |lowest, &place| {
            lowest.min(self.sums[place].saturating_add(u32::from(self.open[place] & COUNT)))
        })
    }

    /// Lets `steps` slots pass. What the open slot holds becomes the newest closed slot, so
    /// that after a pause without ticks the latest requests are the last to expire.
    pub fn rotate(&mut self, steps: usize) {
        if steps == 0 {
            return;
        }
        let steps = steps.min(self.slots);
        for step in 1..=steps {
            self.newest = (self.newest + 1) % self.slots;
            self.expire_newest();
            if step == steps {
                self.close_open();
            }
        }
        if self.saturated {
            self.sum_anew();
        }
        self.mark_high();
    }

    /// Takes the slot that `newest` has come round to out of the sums.
    fn expire_newest(&mut self) {
        let cells = self.shape.cells();
        let expired = &mut self.closed[self.newest * cells..][..cells];
        let total = &mut self.closed_totals[self.newest];
        self.total -= *total;
        if *total == 0 {
            return;
        }
        *total = 0;
        for (sum, expired) in self.sums.iter_mut().zip(expired) {
            *sum = sum.saturating_sub(*expired);
            *expired = 0;
        }
    }

    fn close_open(&mut self) {
        if self.open_total == 0 {
            return;
        }
        self.fold();
        let cells = self.shape.cells();
        let newest = &mut self.closed[self.newest * cells..][..cells];
        newest.copy_from_slice(&self.folded);
        self.folded.fill(0);
        self.closed_totals[self.newest] = self.open_total;
        self.total += self.open_total;
        self.open_total = 0;
    }

    /// The slow path after a counter reached its end: about slots times the work of a step.
    fn sum_anew(&mut self) {
        self.sums.copy_from_slice(&self.folded);
        for slot in self.closed.chunks_exact(self.shape.cells()) {
            for (sum, closed) in self.sums.iter_mut().zip(slot) {
                *sum = sum.saturating_add(*closed);
            }
        }
        self.saturated = self.sums.contains(&u32::MAX);
    }

    /// Writes the window's sums to `sketch`, as a sketch that can be merged and asked.
    pub fn copy_to(&self, sketch: &mut Sketch) {
        let open = self.open.iter().map(|open| u32::from(open & COUNT));
        let cells = self.sums.iter().zip(open).map(|(sum, open)| sum.saturating_add(open));
        sketch.assign(self.shape, cells, self.total());
    }

    /// Requests counted in the window.
    pub fn total(&self) -> u64 {
        self.total + self.open_total
    }

    /// Rows and columns.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Bytes of all counters.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.open.as_slice())
            + size_of_val(self.folded.as_slice())
            + size_of_val(self.sums.as_slice())
            + size_of_val(self.closed.as_slice())
    }
}

#[cfg(test)]
mod tests;
