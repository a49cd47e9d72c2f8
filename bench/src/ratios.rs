//! Ratios of two peers' figures, taken within a round.
//!
//! Called by: `fleet::overhead` and `cold`.
//! Bound: one ratio a round.
//! Invariant: a round is compared with itself, so a busy minute of the machine meets both.

use crate::summary;

/// Ratios of all rounds in short.
pub(crate) struct Ratios {
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
}

/// Of one process's figures to the other's, round by round.
pub(crate) fn ratios(figures: &[f64], others: &[f64]) -> Ratios {
    let mut all: Vec<f64> = figures.iter().zip(others).map(|(one, other)| one / other).collect();
    all.sort_by(f64::total_cmp);
    let quartile = |number: usize| {
        let last = all.len().saturating_sub(1);
        all.get((last * number + 2) / 4).copied().unwrap_or(f64::NAN)
    };
    let (lower, upper) = (quartile(1), quartile(3));
    Ratios { lower, median: summary::median(all).unwrap_or(f64::NAN), upper }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_with_themselves() {
        let shown = |ratios: &Ratios| {
            [ratios.lower, ratios.median, ratios.upper].map(|figure| format!("{figure:.1}"))
        };
        let busy_at_times = ratios(&[1.1, 12.0, 1.0], &[1.0, 10.0, 1.0]);
        assert_eq!(shown(&busy_at_times), ["1.1", "1.1", "1.2"]);
        let quarters = ratios(&[5.0, 1.0, 3.0, 2.0, 4.0], &[1.0; 5]);
        assert_eq!(shown(&quarters), ["2.0", "3.0", "4.0"]);
        assert!(ratios(&[], &[]).median.is_nan());
    }
}
