//! The same work on one thread and on two at once.
//!
//! Called by: `detect::record` and `cache`, for everybody that they compare.
//! Bound: two figures a round.
//! Invariant: both threads begin together and do as much; a figure is the mean of what each of
//! them needed for one request.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use crate::detect::timing::{CpuTime, Spread};

/// What one round took, a request and thread.
struct PerThread {
    cpu_ns: f64,
    clock_ns: f64,
}

/// Figures of one thread and of two.
pub(crate) struct OneAndTwo {
    pub(crate) one: Spread,
    pub(crate) two: Spread,
}

/// A run of a key on so many threads, with so many requests each.
type Run<'a> = dyn FnMut(&[u8], usize, usize) -> PerThread + 'a;

/// A contender with its figures.
pub(crate) struct Pairs<'a> {
    pub(crate) name: &'static str,
    run: Box<Run<'a>>,
    one: Vec<PerThread>,
    two: Vec<PerThread>,
}

impl<'a> Pairs<'a> {
    pub(crate) fn new<W: FnMut(&[u8]) + Send + 'a>(
        name: &'static str,
        mut workers: [W; 2],
    ) -> Self {
        let run = move |key: &[u8], threads: usize, requests| {
            per_thread(&mut workers[..threads], key, requests)
        };
        Self { name, run: Box::new(run), one: Vec::new(), two: Vec::new() }
    }

    /// So many requests of the key on one thread, then on each of two.
    pub(crate) fn round(&mut self, key: &[u8], requests: usize) {
        self.one.push((self.run)(key, 1, requests));
        self.two.push((self.run)(key, 2, requests));
    }

    /// CPU time of a request; of at least one round.
    pub(crate) fn cpu_ns(&self) -> OneAndTwo {
        self.spreads(|time| time.cpu_ns)
    }

    /// Two threads to one by the clock, in which waiting for a lock shows as well.
    pub(crate) fn clock_ratio(&self) -> f64 {
        let clock = self.spreads(|time| time.clock_ns);
        clock.two.median / clock.one.median
    }

    fn spreads(&self, ns: fn(&PerThread) -> f64) -> OneAndTwo {
        let of = |times: &[PerThread]| Spread::of(times.iter().map(ns).collect());
        OneAndTwo { one: of(&self.one), two: of(&self.two) }
    }
}

/// Each worker does as many requests of the same key, all at once; the mean of what each
/// needed for a request.
fn per_thread<W: FnMut(&[u8]) + Send>(workers: &mut [W], key: &[u8], requests: usize) -> PerThread {
    let start = Barrier::new(workers.len());
    let each = 1.0 / (workers.len() * requests) as f64;
    let work = |worker: &mut W| {
        start.wait();
        let (started, cpu) = (Instant::now(), CpuTime::start());
        for _ in 0..requests {
            worker(black_box(key));
        }
        (cpu.ns(), started.elapsed().as_nanos() as f64)
    };
    let times: Vec<(f64, f64)> = thread::scope(|scope| {
        let work = &work;
        let spawn = |worker| scope.spawn(move || work(worker));
        let running: Vec<_> = workers.iter_mut().map(spawn).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let sum = |time: fn(&(f64, f64)) -> f64| times.iter().map(time).sum::<f64>();
    PerThread { cpu_ns: sum(|time| time.0) * each, clock_ns: sum(|time| time.1) * each }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_worker_works_alone_and_then_both() {
        let done = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let worker = |index: usize| {
            let done = &done;
            move |key: &[u8]| {
                assert_eq!(key, b"k");
                done[index].fetch_add(1, Ordering::Relaxed);
            }
        };
        let mut pairs = Pairs::new("both", [worker(0), worker(1)]);
        pairs.round(b"k", 100);
        pairs.round(b"k", 100);
        assert!(pairs.cpu_ns().one.least <= pairs.cpu_ns().one.median);
        assert_eq!(done.each_ref().map(|done| done.load(Ordering::Relaxed)), [400, 200]);
    }
}
