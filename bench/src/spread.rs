//! Least, middle, late and last of some figures.
//!
//! Called by: `fleet` and `split`, for delays.
//! Bound: one sort.
//! Invariant: a quantile is a figure that was measured, the nearest above.

/// Figures in short; infinite if there are none.
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (figures.len() * percent).div_ceil(100).max(1);
            figures.get(rank - 1).copied().unwrap_or(f64::INFINITY)
        };
        Self { least: at(0), p50: at(50), p99: at(99), most: at(100) }
    }

    pub(crate) fn cells(&self) -> [String; 4] {
        [self.least, self.p50, self.p99, self.most].map(|figure| format!("{figure:.0}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest_above() {
        let spread = Spread::of((1..=50).rev().map(f64::from).collect());
        assert_eq!(spread.cells(), ["1", "25", "50", "50"].map(str::to_owned));
        let many = Spread::of((1..=200).map(f64::from).collect());
        assert_eq!(many.cells(), ["1", "100", "198", "200"].map(str::to_owned));
        assert!(Spread::of(Vec::new()).p50.is_infinite());
    }
}
