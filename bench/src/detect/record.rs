//! What it costs to count one request, on one thread and on two.
//!
//! Called by: `detect`.
//! Bound: the stream and the rounds of the effort.
//! Invariant: the hash of the key is part of everybody's cost; ticks are not in it, they have
//! a section of their own.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

use heatsink_detect::config::Settings;
use heatsink_detect::heat::Kind;
use heatsink_detect::heavy::WorkerCounter;
use heatsink_detect::key::KeyHasher;
use heatsink_detect::snapshot::Snapshot;
use pingora_limits::estimator::Estimator;

use super::Effort;
use super::rivals::{DEPTH, ExactMap, SharedSketch, WIDTH, count_exactly};
use super::stream::{Block, Stream, Streams};
use super::timing::{Contender, Each, Pace, Spread, ns_per_request};
use crate::pairs::Pairs;
use crate::section::{Goal, Section};

const GOAL_NS: f64 = 25.0;
/// Two threads may be slower by this much: what two cores of one machine take from each other
/// without sharing anything.
const TWO_THREADS_RATIO_MAX: f64 = 1.10;
const BYTES_MOVED: u64 = 100;
const HOT_KEY: &[u8] = b"session:0123456789abcdef";

/// A worker's counter with its ticks.
struct Heatsink {
    counter: WorkerCounter,
    snapshot: Snapshot,
    hasher: KeyHasher,
}

impl Heatsink {
    fn new(hasher: &KeyHasher) -> Self {
        Self {
            counter: WorkerCounter::new(&Settings::default(), 1, Duration::ZERO),
            snapshot: Snapshot::new(),
            hasher: hasher.clone(),
        }
    }
}

impl Contender for Heatsink {
    fn name(&self) -> String {
        "heatsink".to_owned()
    }

    fn count(&mut self, keys: Block<'_>, _now_ms: u64) {
        for key in keys {
            self.counter.record(self.hasher.key(key), Kind::Read, BYTES_MOVED, false);
        }
    }

    fn tick(&mut self, now_ms: u64) {
        self.counter.drain_into(Duration::from_millis(now_ms), &mut self.snapshot);
    }
}

/// Every contender on the Zipf stream, one thread.
pub(crate) fn one_thread(effort: &Effort, streams: &Streams) -> Section {
    let pace = Pace {
        block_requests: effort.block_requests,
        block_ms: 50,
        round_blocks: effort.round_blocks,
        rounds: effort.rounds,
        warm_passes: 1,
    };
    let (of_received, names) = of_stream(&streams.received, pace);
    let (of_scattered, _) = of_stream(&streams.scattered, pace);
    let mut section = Section::new(
        "Count one request, Zipf 0.99, one thread",
        "ns a request",
        &["median", "least", "scattered: median", "least"],
    );
    section.notes = vec![
        format!(
            "{} keys of 16 to 32 bytes, one after the other in the order of the requests, as in a \
             buffer that they were received in; beside it the same requests with each key once in \
             memory, in no order, so that to read it is a cache miss for everybody",
            effort.keys
        ),
        "the least anybody can need is to read and hash the key; ticks of 50 ms at 200 000 \
         requests/s happen between the timed blocks"
            .to_owned(),
    ];
    for ((name, received), scattered) in names.into_iter().zip(&of_received).zip(&of_scattered) {
        section.row(name, received.cells().into_iter().chain(scattered.cells()));
    }
    let heatsink = of_received[1].median;
    let goal = Goal::of_time("count one request", heatsink, GOAL_NS, "ns", effort.judges_times);
    section.goals.push(goal);
    section
}

/// The second of the contenders is Heatsink.
fn of_stream(stream: &Stream, pace: Pace) -> (Vec<Spread>, Vec<String>) {
    let hasher = KeyHasher::random();
    let mut floor = Each::new("(only read and hash the key)", |key: &[u8], _| {
        black_box(hasher.key(key).hash());
    });
    let mut heatsink = Heatsink::new(&hasher);
    let estimator = Estimator::new(DEPTH, WIDTH);
    let mut pingora = Each::new("pingora-limits `Estimator`", |key: &[u8], _| {
        black_box(estimator.incr(key, 1));
    });
    let mut map = ExactMap::default();
    let mut exact = Each::new("hashbrown map, exact", |key: &[u8], _| {
        black_box(count_exactly(&mut map, key));
    });
    let sketch = SharedSketch::new();
    let mut shared = Each::new("shared sketch of atomics", |key: &[u8], _| {
        black_box(sketch.count(key));
    });
    let contenders: &mut [&mut dyn Contender] =
        &mut [&mut floor, &mut heatsink, &mut pingora, &mut exact, &mut shared];
    let spreads = ns_per_request(stream, pace, contenders);
    (spreads, contenders.iter().map(|contender| contender.name()).collect())
}

/// Every contender on one single key: one thread, then two at once.
pub(crate) fn two_threads(effort: &Effort) -> Section {
    let hasher = KeyHasher::random();
    let counter = || {
        let mut heatsink = Heatsink::new(&hasher);
        move |key: &[u8]| {
            heatsink.counter.record(heatsink.hasher.key(key), Kind::Read, BYTES_MOVED, false);
        }
    };
    let hash_only = || {
        let hasher = &hasher;
        move |key: &[u8]| {
            black_box(hasher.key(key).hash());
        }
    };
    let estimator = &Estimator::new(DEPTH, WIDTH);
    let incr = || {
        move |key: &[u8]| {
            black_box(estimator.incr(key, 1));
        }
    };
    let map = &Mutex::new(ExactMap::default());
    let exact = || {
        move |key: &[u8]| {
            let mut map = map.lock().expect("no panic under this lock");
            black_box(count_exactly(&mut map, key));
        }
    };
    let sketch = &SharedSketch::new();
    let shared = || {
        move |key: &[u8]| {
            black_box(sketch.count(key));
        }
    };
    let mut contenders = [
        Pairs::new("(only hash the key)", [hash_only(), hash_only()]),
        Pairs::new("heatsink, a counter for each thread", [counter(), counter()]),
        Pairs::new("pingora-limits `Estimator`, shared", [incr(), incr()]),
        Pairs::new("hashbrown map behind a mutex", [exact(), exact()]),
        Pairs::new("shared sketch of atomics", [shared(), shared()]),
    ];
    for _ in 0..effort.rounds {
        for contender in &mut contenders {
            contender.round(HOT_KEY, effort.hot_key_requests);
        }
    }
    let mut section = Section::new(
        "Count one request, one single hot key",
        "ns a request and thread",
        &[
            "one thread: median",
            "least",
            "two threads: median",
            "least",
            "two ÷ one",
            "on the clock",
        ],
    );
    section.notes.push(format!(
        "up to {TWO_THREADS_RATIO_MAX:.2} counts as no slower; the last column is the ratio of time \
         on the clock, in which waiting for a lock shows as well"
    ));
    let mut ratios = Vec::new();
    for contender in contenders {
        let cpu = contender.cpu_ns();
        let ratio = cpu.two.median / cpu.one.median;
        let cells = cpu.one.cells().into_iter().chain(cpu.two.cells());
        let clock = contender.clock_ratio();
        section.row(contender.name, cells.chain([ratio, clock].map(|ratio| format!("{ratio:.2}"))));
        ratios.push(ratio);
    }
    section.goals.push(Goal {
        what: "two threads on one hot key, each, ÷ one thread",
        limit: format!("at most {TWO_THREADS_RATIO_MAX:.2}"),
        figure: format!("{:.2}", ratios[1]),
        reached: effort.judges_times.then_some(ratios[1] <= TWO_THREADS_RATIO_MAX),
    });
    section
}
