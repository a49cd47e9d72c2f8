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

use crate::sketch::{Shape, Sketch};

/// A sliding Count-Min sketch.
#[derive(Debug, Clone)]
pub struct Window {
    shape: Shape,
    /// Counters of the slot that is being filled.
    open: Vec<u32>,
    /// Sums over the open and all closed slots.
    sums: Vec<u32>,
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

impl Window {
    /// An empty window of `slots` closed slots and the open one.
    pub fn new(shape: Shape, slots: usize) -> Self {
        assert!(slots > 0, "a window has at least one slot");
        Self {
            shape,
            open: vec![0; shape.cells()],
            sums: vec![0; shape.cells()],
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
        let cells = self.shape.cells_of(hash);
        let cells = &cells[..self.shape.depth()];
        let lowest = cells.iter().fold(u32::MAX, |lowest, &cell| lowest.min(self.open[cell]));
        let raised = lowest.saturating_add(count);
        let mut estimate = u32::MAX;
        for &cell in cells {
            let open = &mut self.open[cell];
            let growth = raised.saturating_sub(*open);
            *open += growth;
            let sum = self.sums[cell].saturating_add(growth);
            self.sums[cell] = sum;
            self.saturated |= sum == u32::MAX;
            estimate = estimate.min(sum);
        }
        self.open_total += u64::from(count);
        estimate
    }

    /// How often the key was counted in the window: never too low.
    #[inline]
    pub fn estimate(&self, hash: u64) -> u32 {
        let cells = self.shape.cells_of(hash);
        cells[..self.shape.depth()]
            .iter()
            .fold(u32::MAX, |lowest, &cell| lowest.min(self.sums[cell]))
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
        for (sum, expired) in self.sums.iter_mut().zip(expired) {
            *sum = sum.saturating_sub(*expired);
            *expired = 0;
        }
    }

    fn close_open(&mut self) {
        if self.open_total == 0 {
            return;
        }
        let cells = self.shape.cells();
        let newest = &mut self.closed[self.newest * cells..][..cells];
        newest.copy_from_slice(&self.open);
        self.open.fill(0);
        self.closed_totals[self.newest] = self.open_total;
        self.total += self.open_total;
        self.open_total = 0;
    }

    /// The slow path after a counter reached its end: about slots times the work of a step.
    fn sum_anew(&mut self) {
        self.sums.copy_from_slice(&self.open);
        for slot in self.closed.chunks_exact(self.shape.cells()) {
            for (sum, cell) in self.sums.iter_mut().zip(slot) {
                *sum = sum.saturating_add(*cell);
            }
        }
        self.saturated = self.sums.contains(&u32::MAX);
    }

    /// Writes the window's sums to `sketch`, as a sketch that can be merged and asked.
    pub fn copy_to(&self, sketch: &mut Sketch) {
        sketch.assign(self.shape, &self.sums, self.total());
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
        (self.open.len() + self.sums.len() + self.closed.len()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests;
