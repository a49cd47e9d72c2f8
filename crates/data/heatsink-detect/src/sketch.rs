//! Count-Min sketch with conservative update: counts per key in memory that does not grow
//! with the number of keys.
//!
//! Called by: [`crate::window`], and by whoever needs a plain count without a window.
//! Bound: `depth * width` counters of four bytes, fixed when it is built.
//! Invariant: every cell of a key is at least the key's true count, up to `u32::MAX`, where
//! counters stop. So the estimate, the smallest of them, is never too low.
//!
//! # When to widen
//!
//! An estimate is too high by at most `e / width` of all that was counted, with probability
//! `1 - e^-depth` ([`Shape::error_bound`]); conservative update
//! usually does much better. Widen when that bound comes near a quarter of the reporting
//! threshold: at 2048 columns and a threshold of 1000 requests/s that is about 190 000
//! requests/s of one kind on one worker. Double the width to halve the error; depth beyond
//! four only makes rare bad luck rarer. The truth sample ([`crate::truth`]) shows the error
//! that really occurs.

use std::f64::consts::E;

/// The deepest sketch that can be built.
pub const MAX_DEPTH: usize = 8;

/// Rows and columns of a sketch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    depth: usize,
    width: usize,
}

impl Shape {
    /// `depth` rows of `width` counters; at least one of each, at most [`MAX_DEPTH`] rows.
    pub fn new(depth: usize, width: usize) -> Self {
        assert!((1..=MAX_DEPTH).contains(&depth), "sketch depth {depth} is not 1 to {MAX_DEPTH}");
        assert!(
            u32::try_from(width).is_ok_and(|width| width > 0),
            "sketch width {width} is out of range"
        );
        Self { depth, width }
    }

    /// Number of rows.
    pub const fn depth(self) -> usize {
        self.depth
    }

    /// Counters in a row.
    pub const fn width(self) -> usize {
        self.width
    }

    /// Counters in all rows.
    pub const fn cells(self) -> usize {
        self.depth * self.width
    }

    /// By how much an estimate may be too high when `total` requests were counted; holds with
    /// probability 1 - e^-depth.
    pub fn error_bound(self, total: u64) -> f64 {
        E / self.width as f64 * total as f64
    }

    /// The cells of a key in the first `ROWS` rows. One hash serves all rows: row `r` takes
    /// the high bits of `low + r * high`, which is as accurate as a hash for each row.
    #[inline]
    pub(crate) fn cells_of<const ROWS: usize>(self, hash: u64) -> [usize; ROWS] {
        let (low, high) = (hash as u32, (hash >> 32) as u32 | 1);
        std::array::from_fn(|row| {
            let column = low.wrapping_add(high.wrapping_mul(row as u32));
            row * self.width + ((u64::from(column) * self.width as u64) >> 32) as usize
        })
    }
}

/// The default depth, which the request path is compiled for by itself.
pub(crate) const USUAL_DEPTH: usize = 4;

/// Calls a method that is generic over the number of rows with the depth of `$shape`, so that
/// its loops are unrolled.
macro_rules! with_depth {
    ($shape:expr, $object:ident . $method:ident :: <_> ( $($argument:expr),* )) => {
        match $shape.depth() {
            1 => $object.$method::<1>($($argument),*),
            2 => $object.$method::<2>($($argument),*),
            3 => $object.$method::<3>($($argument),*),
            4 => $object.$method::<4>($($argument),*),
            5 => $object.$method::<5>($($argument),*),
            6 => $object.$method::<6>($($argument),*),
            7 => $object.$method::<7>($($argument),*),
            _ => $object.$method::<8>($($argument),*),
        }
    };
}
pub(crate) use with_depth;

/// A Count-Min sketch with conservative update.
///
/// ```
/// use heatsink_detect::key::KeyHasher;
/// use heatsink_detect::sketch::{Shape, Sketch};
///
/// let hasher = KeyHasher::random();
/// let mut sketch = Sketch::new(Shape::new(4, 2048));
/// for _ in 0..7 {
///     sketch.add(hasher.key(b"user:9999").hash(), 1);
/// }
/// assert_eq!(sketch.estimate(hasher.key(b"user:9999").hash()), 7);
/// assert!(sketch.error_bound() < 1.0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sketch {
    shape: Shape,
    cells: Vec<u32>,
    total: u64,
}

impl Sketch {
    /// An empty sketch.
    pub fn new(shape: Shape) -> Self {
        Self { shape, cells: vec![0; shape.cells()], total: 0 }
    }

    /// Counts `count` requests of the key with this hash; returns the estimate that includes
    /// them.
    #[inline]
    pub fn add(&mut self, hash: u64, count: u32) -> u32 {
        with_depth!(self.shape, self.add_rows::<_>(hash, count))
    }

    #[inline]
    fn add_rows<const ROWS: usize>(&mut self, hash: u64, count: u32) -> u32 {
        let cells = self.shape.cells_of::<ROWS>(hash);
        let lowest = cells.iter().fold(u32::MAX, |lowest, &cell| lowest.min(self.cells[cell]));
        let raised = lowest.saturating_add(count);
        for cell in cells {
            self.cells[cell] = self.cells[cell].max(raised);
        }
        self.total = self.total.saturating_add(u64::from(count));
        raised
    }

    /// How often the key with this hash was counted: never too low, see
    /// [`Sketch::error_bound`].
    #[inline]
    pub fn estimate(&self, hash: u64) -> u32 {
        // Often nobody writes, and then no cell has to be fetched to know it.
        if self.total == 0 {
            return 0;
        }
        with_depth!(self.shape, self.estimate_rows::<_>(hash))
    }

    #[inline]
    fn estimate_rows<const ROWS: usize>(&self, hash: u64) -> u32 {
        let cells = self.shape.cells_of::<ROWS>(hash);
        cells.iter().fold(u32::MAX, |lowest, &cell| lowest.min(self.cells[cell]))
    }

    /// Adds another sketch cell by cell: afterwards this one counts the requests of both.
    /// The shapes must be equal.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.shape, other.shape, "only sketches of one shape can be merged");
        for (cell, more) in self.cells.iter_mut().zip(&other.cells) {
            *cell = cell.saturating_add(*more);
        }
        self.total = self.total.saturating_add(other.total);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.cells.fill(0);
        self.total = 0;
    }

    /// Rows and columns.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Requests counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// By how much an estimate may be too high at what was counted so far.
    pub fn error_bound(&self) -> f64 {
        self.shape.error_bound(self.total)
    }

    /// Bytes of the counters.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.cells.as_slice())
    }

    /// Overwrites this sketch with counters that were kept elsewhere.
    pub(crate) fn assign(&mut self, shape: Shape, cells: impl Iterator<Item = u32>, total: u64) {
        self.shape = shape;
        self.cells.clear();
        self.cells.extend(cells);
        self.total = total;
        debug_assert_eq!(self.cells.len(), shape.cells());
    }
}

#[cfg(test)]
mod tests;
