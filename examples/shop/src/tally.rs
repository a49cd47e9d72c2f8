//! What is counted of each way.
//!
//! Called by: `shop`, with answers; `database`, with queries; `web` and `main`, to show it.
//! Bound: one set of numbers a way, two histograms of 60 s at most.
//! Invariant: an *expiry* is a stretch of time during which at least one request wants the database.
//! So whoever comes while another one is waiting for a query or a connection belongs to the same
//! expiry: with one query for each, nobody asked for what somebody else was fetching already.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Failure;
use crate::ways::{Answer, Tier, Way};

const LONGEST_US: u64 = 60_000_000;

/// The numbers of one way since they were last cleared.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) local: u64,
    pub(crate) shared: u64,
    pub(crate) loaded: u64,
    /// Requests that waited for what another one was fetching.
    pub(crate) joined: u64,
    /// Of all these, answers past their time to live.
    pub(crate) stale: u64,
    pub(crate) failed: u64,
    /// Not sent, because too many requests were waiting already.
    pub(crate) shed: u64,
    pub(crate) oldest_ms: u64,
    pub(crate) queries: u64,
    pub(crate) expiries: u64,
    /// The most queries of one expiry.
    pub(crate) worst: u64,
    /// How long it was under load.
    pub(crate) seconds: u64,
}

/// What a way did in one second of load.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Second {
    pub(crate) way: Way,
    pub(crate) counts: Counts,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
}

/// A way's row in the comparison.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Total {
    pub(crate) way: Way,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
}

pub(crate) struct Tally(Mutex<Numbers>);

struct Numbers {
    counts: Counts,
    waits: Histogram<u64>,
    /// Of the second that runs.
    now: Counts,
    now_waits: Histogram<u64>,
    /// Requests that want the database at this moment.
    wanting: u64,
    /// Queries of the expiry that lasts; `None`: none does, or the numbers were cleared in it.
    burst: Option<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Self(Mutex::new(Numbers {
            counts: Counts::default(),
            waits: histogram(),
            now: Counts::default(),
            now_waits: histogram(),
            wanting: 0,
            burst: None,
        }))
    }
}

impl Tally {
    pub(crate) fn answered(&self, took: Duration, answer: &Result<Option<Answer>, Failure>) {
        let mut numbers = self.lock();
        let us = u64::try_from(took.as_micros()).unwrap_or(LONGEST_US);
        numbers.waits.saturating_record(us);
        numbers.now_waits.saturating_record(us);
        numbers.each(|counts| {
            counts.requests += 1;
            match answer {
                Err(_) => counts.failed += 1,
                // Somebody has asked the database to know.
                Ok(None) => counts.loaded += 1,
                Ok(Some(answer)) => {
                    match answer.tier {
                        Tier::Local => counts.local += 1,
                        Tier::Shared => counts.shared += 1,
                        Tier::Loaded => counts.loaded += 1,
                        Tier::Joined => counts.joined += 1,
                    }
                    counts.stale += u64::from(answer.is_stale);
                    counts.oldest_ms = counts.oldest_ms.max(answer.age_ms);
                }
            }
        });
    }

    /// A request that could not be sent.
    pub(crate) fn shed(&self) {
        self.lock().each(|counts| counts.shed += 1);
    }

    /// Somebody wants the database, as long as what this returns lives.
    pub(crate) fn demand(&self) -> Demand<'_> {
        let mut numbers = self.lock();
        numbers.wanting += 1;
        numbers.burst.get_or_insert(0);
        Demand(self)
    }

    /// Ends the second that runs.
    pub(crate) fn second(&self, way: Way) -> Second {
        let mut numbers = self.lock();
        numbers.counts.seconds += 1;
        numbers.now.seconds = 1;
        let counts = std::mem::take(&mut numbers.now);
        let (p50_us, p99_us) = percentiles(&numbers.now_waits);
        numbers.now_waits.reset();
        Second { way, counts, p50_us, p99_us }
    }

    /// Begins anew.
    pub(crate) fn clear(&self) {
        let mut numbers = self.lock();
        numbers.counts = Counts::default();
        numbers.now = Counts::default();
        numbers.waits.reset();
        numbers.now_waits.reset();
        numbers.burst = None;
    }

    fn total(&self, way: Way) -> Total {
        let numbers = self.lock();
        let (p50_us, p99_us) = percentiles(&numbers.waits);
        Total { way, counts: numbers.counts.clone(), p50_us, p99_us }
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Numbers {
    fn each(&mut self, change: impl Fn(&mut Counts)) {
        change(&mut self.counts);
        change(&mut self.now);
    }
}

/// See [`Tally::demand`].
pub(crate) struct Demand<'a>(&'a Tally);

impl Demand<'_> {
    /// The query goes out.
    pub(crate) fn sent(&self) {
        let mut numbers = self.0.lock();
        let burst = numbers.burst.get_or_insert(0);
        *burst += 1;
        let burst = *burst;
        numbers.each(|counts| {
            // One whose queries cannot be sent, because the database is down, is none.
            counts.expiries += u64::from(burst == 1);
            counts.queries += 1;
            counts.worst = counts.worst.max(burst);
        });
    }
}

impl Drop for Demand<'_> {
    fn drop(&mut self) {
        let mut numbers = self.0.lock();
        numbers.wanting -= 1;
        if numbers.wanting == 0 {
            numbers.burst = None;
        }
    }
}

/// All ways.
#[derive(Default)]
pub(crate) struct Tallies([Tally; 4]);

impl Tallies {
    pub(crate) fn of(&self, way: Way) -> &Tally {
        &self.0[way as usize]
    }

    pub(crate) fn totals(&self) -> Vec<Total> {
        Way::ALL.map(|way| self.of(way).total(way)).into()
    }

    /// As text, of those that were used.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        for total in self.totals().iter().filter(|total| total.counts.requests > 0) {
            if text.is_empty() {
                text +=
                    "way        requests  queries  per expiry  worst  stale    p50 ms    p99 ms\n";
            }
            let counts = &total.counts;
            let each = counts.queries as f64 / counts.expiries.max(1) as f64;
            let ms = |us: u64| us as f64 / 1000.0;
            let _ = writeln!(
                text,
                "{:9} {:9}  {:7}  {each:10.1}  {:5}  {:5}  {:8.2}  {:8.2}",
                total.way.name(),
                counts.requests,
                counts.queries,
                counts.worst,
                counts.stale,
                ms(total.p50_us),
                ms(total.p99_us),
            );
        }
        text
    }
}

fn histogram() -> Histogram<u64> {
    let Ok(histogram) = Histogram::new_with_bounds(1, LONGEST_US, 2) else {
        unreachable!("the bounds are in order")
    };
    histogram
}

fn percentiles(waits: &Histogram<u64>) -> (u64, u64) {
    (waits.value_at_quantile(0.5), waits.value_at_quantile(0.99))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_while_another_one_waits_belongs_to_the_same_expiry() {
        let tally = Tally::default();
        let (one, two) = (tally.demand(), tally.demand());
        one.sent();
        drop(one);
        // It has waited for the connection of the first.
        two.sent();
        drop(two);
        tally.demand().sent();
        let counts = tally.total(Way::Naive).counts;
        assert_eq!((counts.queries, counts.expiries, counts.worst), (3, 2, 2));
    }

    #[test]
    fn what_could_not_be_sent_is_no_expiry() {
        let tally = Tally::default();
        drop(tally.demand());
        tally.demand().sent();
        let counts = tally.total(Way::Naive).counts;
        assert_eq!((counts.queries, counts.expiries, counts.worst), (1, 1, 1));
    }

    #[test]
    fn a_query_that_was_sent_before_the_numbers_were_cleared_is_not_in_them() {
        let tally = Tally::default();
        let before = tally.demand();
        before.sent();
        tally.clear();
        let after = tally.demand();
        after.sent();
        drop((before, after));
        let counts = tally.total(Way::Naive).counts;
        assert_eq!((counts.queries, counts.expiries, counts.worst), (1, 1, 1));
    }
}
