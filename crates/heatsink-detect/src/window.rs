//! The sketch of the last second: sub-slots that expire one by one.
//!
//! Called by: [`crate::heavy`]; `add` on the request path, `rotate` at each tick.
//! Bound: `slots + 2` sketches of one shape; `add` touches one cell pair per row, `rotate`
//! one pass over the cells per expired slot.
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
//! the window adds what the slot's cells were raised by. For each row the sum over the slots
//! is at least the sum of the true counts, and so is the smallest of the rows.

use crate::sketch::{Shape, Sketch, USUAL_DEPTH, with_depth};

/// A sliding Count-Min sketch.
#[derive(Debug, Clone)]
pub struct Window {
    shape: Shape,
    cells: Vec<Cell>,
    /// Closed slots, `slots` of them one after the other; `newest` is the last one closed.
    closed: Vec<u32>,
    slots: usize,
    newest: usize,
    open_total: u64,
    closed_totals: Vec<u64>,
    total: u64,
    /// A sum stopped at `u32::MAX`: slots cannot be taken away from it, it is made anew.
    saturated: bool,
}

/// What a request touches lies side by side, on one cache line per row, and is read and
/// written as one word: the open slot's counter in the high half, the sum over the open and
/// all closed slots in the low half.
#[derive(Debug, Clone, Copy, Default)]
struct Cell(u64);

impl Cell {
    #[inline]
    fn new(open: u32, sum: u32) -> Self {
        Self(u64::from(open) << 32 | u64::from(sum))
    }

    #[inline]
    fn open(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    fn sum(self) -> u32 {
        self.0 as u32
    }

    /// Both halves raised; neither may overflow.
    #[inline]
    fn raised_by(self, growth: u32) -> Self {
        Self(self.0 + u64::from(growth) * (1 << 32 | 1))
    }
}

impl Window {
    /// An empty window of `slots` closed slots and the open one.
    pub fn new(shape: Shape, slots: usize) -> Self {
        assert!(slots > 0, "a window has at least one slot");
        Self {
            shape,
            cells: vec![Cell::default(); shape.cells()],
            closed: vec![0; shape.cells() * slots],
            slots,
            newest: 0,
            open_total: 0,
            closed_totals: vec![0; slots],
            total: 0,
            saturated: false,
        }
    }

    /// Counts `count` requests of the key with this hash in the open slot; returns the
    /// estimate for the window that includes them.
    #[inline]
    pub fn add(&mut self, hash: u64, count: u32) -> u32 {
        if self.shape.depth() == USUAL_DEPTH {
            self.add_rows::<USUAL_DEPTH>(hash, count)
        } else {
            self.add_at_any_depth(hash, count)
        }
    }

    /// Apart, because the code of all depths in one function slows down each of them.
    #[inline(never)]
    fn add_at_any_depth(&mut self, hash: u64, count: u32) -> u32 {
        with_depth!(self.shape, self.add_rows::<_>(hash, count))
    }

    #[inline]
    fn add_rows<const ROWS: usize>(&mut self, hash: u64, count: u32) -> u32 {
        self.open_total += u64::from(count);
        // No cell is above the total, so that nothing can overflow below this.
        if self.total() >= u64::from(u32::MAX) {
            return self.add_near_the_end::<ROWS>(hash, count);
        }
        let places = self.shape.cells_of::<ROWS>(hash);
        let cells = places.map(|place| self.cells[place]);
        let lowest = cells.iter().fold(u32::MAX, |lowest, cell| lowest.min(cell.open()));
        let raised = lowest + count;
        let mut estimate = u32::MAX;
        for (place, cell) in places.into_iter().zip(cells) {
            let cell = cell.raised_by(raised.saturating_sub(cell.open()));
            self.cells[place] = cell;
            estimate = estimate.min(cell.sum());
        }
        estimate
    }

    /// The same with counters that stop at their end.
    #[cold]
    fn add_near_the_end<const ROWS: usize>(&mut self, hash: u64, count: u32) -> u32 {
        let places = self.shape.cells_of::<ROWS>(hash);
        let lowest = places.map(|place| self.cells[place].open()).into_iter().min().unwrap_or(0);
        let raised = lowest.saturating_add(count);
        for place in places {
            let cell = self.cells[place];
            let growth = raised.saturating_sub(cell.open());
            let sum = cell.sum().saturating_add(growth);
            self.cells[place] = Cell::new(cell.open() + growth, sum);
            self.saturated |= sum == u32::MAX;
        }
        self.estimate_rows::<ROWS>(hash)
    }

    /// How often the key was counted in the window: never too low.
    #[inline]
    pub fn estimate(&self, hash: u64) -> u32 {
        with_depth!(self.shape, self.estimate_rows::<_>(hash))
    }

    #[inline]
    fn estimate_rows<const ROWS: usize>(&self, hash: u64) -> u32 {
        let places = self.shape.cells_of::<ROWS>(hash);
        places.iter().fold(u32::MAX, |lowest, &place| lowest.min(self.cells[place].sum()))
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
        for (cell, expired) in self.cells.iter_mut().zip(expired) {
            *cell = Cell::new(cell.open(), cell.sum().saturating_sub(*expired));
            *expired = 0;
        }
    }

    fn close_open(&mut self) {
        if self.open_total == 0 {
            return;
        }
        let cells = self.shape.cells();
        let newest = &mut self.closed[self.newest * cells..][..cells];
        for (closed, cell) in newest.iter_mut().zip(&mut self.cells) {
            *closed = cell.open();
            *cell = Cell::new(0, cell.sum());
        }
        self.closed_totals[self.newest] = self.open_total;
        self.total += self.open_total;
        self.open_total = 0;
    }

    /// The slow path after a counter reached its end: about slots times the work of a step.
    fn sum_anew(&mut self) {
        for cell in &mut self.cells {
            *cell = Cell::new(cell.open(), cell.open());
        }
        for slot in self.closed.chunks_exact(self.shape.cells()) {
            for (cell, closed) in self.cells.iter_mut().zip(slot) {
                *cell = Cell::new(cell.open(), cell.sum().saturating_add(*closed));
            }
        }
        self.saturated = self.cells.iter().any(|cell| cell.sum() == u32::MAX);
    }

    /// Writes the window's sums to `sketch`, as a sketch that can be merged and asked.
    pub fn copy_to(&self, sketch: &mut Sketch) {
        sketch.assign(self.shape, self.cells.iter().map(|cell| cell.sum()), self.total());
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
        size_of_val(self.cells.as_slice()) + size_of_val(self.closed.as_slice())
    }
}

#[cfg(test)]
mod tests;
