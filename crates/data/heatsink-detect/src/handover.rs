//! How a worker's snapshot gets to the ticker: three buffers that change hands.
//!
//! Called by: the worker publishes at its tick, the ticker takes the latest.
//! Bound: three snapshots per worker; one that nobody took is overwritten by the next.
//! Invariant: the worker fills a buffer that only it can reach, the ticker reads one that
//! only it can reach; what is shared is the third, and only for the time of a swap. Neither
//! waits for the other's work, and the request path is not concerned at all.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::heavy::WorkerCounter;
use crate::snapshot::Snapshot;

#[derive(Debug, Default)]
struct Middle {
    snapshot: Box<Snapshot>,
    fresh: bool,
}

/// The worker's end.
#[derive(Debug)]
pub struct Outbox {
    middle: Arc<Mutex<Middle>>,
    back: Box<Snapshot>,
}

/// The ticker's end.
#[derive(Debug)]
pub struct Inbox {
    middle: Arc<Mutex<Middle>>,
    front: Box<Snapshot>,
}

/// Both ends for one worker.
pub fn pair() -> (Outbox, Inbox) {
    let middle = Arc::new(Mutex::new(Middle::default()));
    (
        Outbox { middle: Arc::clone(&middle), back: Box::default() },
        Inbox { middle, front: Box::default() },
    )
}

impl Outbox {
    /// Drains the counter and hands the snapshot over.
    pub fn publish(&mut self, now: Duration, counter: &mut WorkerCounter) {
        counter.drain_into(now, &mut self.back);
        let mut middle = lock(&self.middle);
        mem::swap(&mut middle.snapshot, &mut self.back);
        middle.fresh = true;
    }
}

impl Inbox {
    /// The latest snapshot; the one from before if there is no newer.
    pub fn latest(&mut self) -> &Snapshot {
        let mut middle = lock(&self.middle);
        if mem::take(&mut middle.fresh) {
            mem::swap(&mut middle.snapshot, &mut self.front);
        }
        drop(middle);
        &self.front
    }
}

/// A swap cannot leave the buffers half-changed, so a poisoned lock is as good as any.
fn lock(middle: &Mutex<Middle>) -> MutexGuard<'_, Middle> {
    middle.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::pair;
    use crate::config::Settings;
    use crate::heat::Kind;
    use crate::heavy::WorkerCounter;
    use crate::key::KeyHasher;

    #[test]
    fn the_latest_snapshot_arrives_and_stays_until_the_next() {
        let hasher = KeyHasher::random();
        let mut counter = WorkerCounter::new(&Settings::default(), 1, Duration::ZERO);
        let (mut outbox, mut inbox) = pair();
        assert_eq!(inbox.latest().total(Kind::Read), 0);
        for tick in 1..=3 {
            counter.record(hasher.key(b"a"), Kind::Read, 0, false);
            outbox.publish(Duration::from_millis(50 * tick), &mut counter);
            if tick != 2 {
                assert_eq!(inbox.latest().total(Kind::Read), tick);
                assert_eq!(inbox.latest().taken_at, Duration::from_millis(50 * tick));
            }
        }
        assert_eq!(inbox.latest().total(Kind::Read), 3);
    }

    #[test]
    fn worker_and_ticker_run_at_the_same_time() {
        let hasher = KeyHasher::random();
        let (mut outbox, mut inbox) = pair();
        let worker = std::thread::spawn(move || {
            let mut counter = WorkerCounter::new(&Settings::default(), 1, Duration::ZERO);
            for tick in 1..=200 {
                counter.record(hasher.key(b"a"), Kind::Write, 0, false);
                outbox.publish(Duration::from_micros(tick), &mut counter);
            }
        });
        let mut seen = 0;
        while seen < 200 {
            let snapshot = inbox.latest();
            let total = snapshot.total(Kind::Write);
            assert!(total >= seen, "a snapshot came back");
            assert_eq!(snapshot.taken_at, Duration::from_micros(total), "a torn snapshot");
            seen = total;
        }
        worker.join().expect("the worker ends");
    }
}
