//! Requests at a steady rate, whatever becomes of them.
//!
//! Called by: `expiry`, once a strategy.
//! Bound: a slot for each request; the generator is one thread, which sleeps between requests.
//! Invariant: a request is sent when it is due or later, never left out; its latency counts from
//! then on.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::expiry::ANSWER_LIMIT;
use crate::expiry::database::Database;

/// Asks one of the caches for the key; gives when the query ended that brought the row.
pub(crate) type Ask = Arc<dyn Fn(usize) -> Pin<Box<dyn Future<Output = u64> + Send>> + Send + Sync>;

/// What callers saw.
pub(crate) struct Answers {
    /// In order.
    latency_us: Vec<u64>,
    age_us: Vec<u64>,
}

#[derive(Default)]
struct Slot {
    latency_us: AtomicU64,
    age_us: AtomicU64,
}

/// Sends all requests, to each cache in turn, and waits for the answers.
pub(crate) fn run(
    runtime: &Runtime,
    database: &Arc<Database>,
    requests: usize,
    rate: u64,
    caches: usize,
    ask: &Ask,
) -> Answers {
    let slots: Arc<Vec<Slot>> = Arc::new((0..requests).map(|_| Slot::default()).collect());
    let (open, mut all_done) = mpsc::channel::<()>(1);
    let begun = Instant::now();
    for number in 0..requests {
        let due = begun + Duration::from_nanos(number as u64 * 1_000_000_000 / rate);
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            thread::sleep(early);
        }
        let (slots, database, open) = (Arc::clone(&slots), Arc::clone(database), open.clone());
        let ask = Arc::clone(ask);
        runtime.spawn(async move {
            let born_us = ask(number % caches).await;
            let latency = due.elapsed();
            let age_us = database.now_us().saturating_sub(born_us);
            slots[number].latency_us.store(latency.as_micros() as u64, Ordering::Relaxed);
            slots[number].age_us.store(age_us, Ordering::Relaxed);
            drop(open);
        });
    }
    drop(open);
    let end = runtime.block_on(async { tokio::time::timeout(ANSWER_LIMIT, all_done.recv()).await });
    assert!(end.is_ok(), "some requests got no answer within {ANSWER_LIMIT:?}");
    let sorted = |figure: fn(&Slot) -> &AtomicU64| {
        let mut all: Vec<_> =
            slots.iter().map(|slot| figure(slot).load(Ordering::Relaxed)).collect();
        all.sort_unstable();
        all
    };
    Answers { latency_us: sorted(|slot| &slot.latency_us), age_us: sorted(|slot| &slot.age_us) }
}

impl Answers {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.latency_us.iter().filter(|latency| **latency > 0).count()
    }

    /// The latency that this part of the requests did not exceed.
    pub(crate) fn latency_us(&self, part: f64) -> u64 {
        let last = self.latency_us.len() - 1;
        self.latency_us[((self.latency_us.len() as f64 * part) as usize).min(last)]
    }

    /// The part of answers whose data was older than that when they came.
    pub(crate) fn older_than(&self, age: Duration) -> f64 {
        let age_us = age.as_micros() as u64;
        let younger = self.age_us.partition_point(|one| *one <= age_us);
        (self.age_us.len() - younger) as f64 / self.age_us.len() as f64
    }

    pub(crate) fn oldest_us(&self) -> u64 {
        self.age_us.last().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_meets_every_request_that_is_due_in_it() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let database = Arc::new(Database::new(Duration::ZERO));
        // The first request blocks the only worker, as a pause of the process would.
        let ask: Ask = Arc::new(|cache| {
            Box::pin(async move {
                if cache == 0 {
                    thread::sleep(Duration::from_millis(200));
                }
                0
            })
        });
        let answers = run(&runtime, &database, 100, 1000, 100, &ask);
        assert_eq!(answers.len(), 100);
        // The last of the 100 was due 100 ms before the end of the stall.
        assert!(answers.latency_us(0.0) >= 90_000, "{}", answers.latency_us(0.0));
    }

    #[test]
    fn parts_are_taken_of_what_is_sorted() {
        let answers = Answers { latency_us: (1..=1000).collect(), age_us: vec![1, 2, 3, 4] };
        assert_eq!(
            [0.5, 0.99, 0.999, 1.0].map(|part| answers.latency_us(part)),
            [501, 991, 1000, 1000]
        );
        assert!((answers.older_than(Duration::from_micros(3)) - 0.25).abs() < 1e-9);
        assert_eq!(answers.oldest_us(), 4);
    }
}
