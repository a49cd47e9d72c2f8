//! What happened in a round: counts, times, and both over time.
//!
//! Called by: connections, for each request that was answered; [`crate::run()`] adds up.
//! Bound: one histogram of about 200 KiB, and one of about 30 KiB for each of at most
//! [`SLICES`] slices of time.
//! Invariant: only requests that were due in the measured time are measured.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::verdict::{Mismatches, Tally};

/// Slices that a round is divided into for plots.
pub(crate) const SLICES: usize = 60;
/// Longer times count as this.
const LONGEST: Duration = Duration::from_secs(600);

/// Times in nanoseconds, to three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3).expect("bounds that are possible")
}

fn coarse_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 2).expect("bounds that are possible")
}

/// One slice of a round.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) errors: u64,
    pub(crate) latency: Histogram<u64>,
}

/// Everything that is counted.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Answered in the measured time, by kind.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) increments: u64,
    /// Answered at all, warm-up included.
    pub(crate) answered: u64,
    pub(crate) errors: Tally,
    pub(crate) mismatches: Mismatches,
    /// Reads that gave what was overwritten before they were sent.
    pub(crate) stale_reads: u64,
    /// Reads of the expiring key that found nothing.
    pub(crate) misses: u64,
    /// Times that it was computed anew.
    pub(crate) recomputations: u64,
    /// Items sold, and attempts when there were none left.
    pub(crate) sold: u64,
    pub(crate) sold_out: u64,
    /// Connections that were lost and made again.
    pub(crate) reconnects: u64,
    /// Requests that were due and could not be sent before the end.
    pub(crate) unsent: u64,
    /// Somebody wanted it to end then.
    pub(crate) stopped_at: Option<Duration>,
    pub(crate) latency: Histogram<u64>,
    pub(crate) slices: Vec<Slice>,
}

impl Outcome {
    pub(crate) fn new() -> Self {
        let slice = Slice { errors: 0, latency: coarse_histogram() };
        Self {
            reads: 0,
            writes: 0,
            increments: 0,
            answered: 0,
            errors: Tally::default(),
            mismatches: Mismatches::default(),
            stale_reads: 0,
            misses: 0,
            recomputations: 0,
            sold: 0,
            sold_out: 0,
            reconnects: 0,
            unsent: 0,
            stopped_at: None,
            latency: histogram(),
            slices: vec![slice; SLICES],
        }
    }

    /// Answered in the measured time.
    pub(crate) fn requests(&self) -> u64 {
        self.reads + self.writes + self.increments
    }

    /// A time that was measured, `at` this part (0 to 1) of the round.
    pub(crate) fn record(&mut self, at: f64, time: Duration) {
        let nanos = time.min(LONGEST).as_nanos() as u64;
        self.latency.saturating_record(nanos.max(1));
        self.slice(at).latency.saturating_record(nanos.max(1));
    }

    pub(crate) fn record_error(&mut self, at: f64) {
        self.slice(at).errors += 1;
    }

    fn slice(&mut self, at: f64) -> &mut Slice {
        &mut self.slices[((at * SLICES as f64) as usize).min(SLICES - 1)]
    }

    /// Adds another thread's, or another round's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.increments += other.increments;
        self.answered += other.answered;
        self.errors.merge(&other.errors);
        self.mismatches.merge(&other.mismatches);
        self.stale_reads += other.stale_reads;
        self.misses += other.misses;
        self.recomputations += other.recomputations;
        self.sold += other.sold;
        self.sold_out += other.sold_out;
        self.reconnects += other.reconnects;
        self.unsent += other.unsent;
        self.stopped_at = self.stopped_at.or(other.stopped_at);
        self.latency.add(&other.latency).expect("the same bounds");
        for (slice, more) in self.slices.iter_mut().zip(&other.slices) {
            slice.errors += more.errors;
            slice.latency.add(&more.latency).expect("the same bounds");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_their_slices() {
        let mut outcome = Outcome::new();
        outcome.record(0.0, Duration::from_micros(10));
        outcome.record(0.999, Duration::from_millis(10));
        outcome.record(1.0, Duration::from_secs(10_000));
        outcome.record_error(0.5);
        let mut sum = Outcome::new();
        sum.merge(&outcome);
        sum.merge(&outcome);
        assert_eq!(sum.latency.len(), 6);
        assert_eq!(sum.slices[0].latency.len(), 2);
        assert_eq!(sum.slices[SLICES - 1].latency.len(), 4);
        assert_eq!(sum.slices[SLICES / 2].errors, 2);
        assert!(sum.latency.max() >= LONGEST.as_nanos() as u64, "never shorter than it was");
    }
}
