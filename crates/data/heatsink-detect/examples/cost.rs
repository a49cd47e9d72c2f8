//! Prints what counting costs: ns per request, microseconds per tick, bytes per worker.
//!
//! `cargo run --release -p heatsink-detect --example cost`

use std::hint::black_box;
use std::time::{Duration, Instant};

use heatsink_detect::config::Settings;
use heatsink_detect::heat::Kind;
use heatsink_detect::heavy::WorkerCounter;
use heatsink_detect::key::KeyHasher;
use heatsink_detect::report::Merger;
use heatsink_detect::snapshot::Snapshot;

#[path = "../tests/support/mod.rs"]
mod support;

const KEYS: usize = 1_000_000;
const REQUESTS: usize = 4_000_000;
/// About 200 000 requests/s at a tick of 50 ms.
const REQUESTS_PER_TICK: usize = 10_000;

fn main() {
    let mut random = fastrand::Rng::with_seed(1);
    let names: Vec<Vec<u8>> = (0..KEYS)
        .map(|number| {
            let mut name = format!("user:{number:011}").into_bytes();
            name.resize(random.usize(16..=32), b'.');
            name
        })
        .collect();
    let zipf = support::Zipf::new(KEYS, 0.99);
    let skewed: Vec<usize> = (0..REQUESTS).map(|_| zipf.draw(&mut random)).collect();
    let uniform: Vec<usize> = (0..REQUESTS).map(|_| random.usize(..KEYS)).collect();
    // The requests as a proxy sees them: one after the other in a buffer that is warm.
    for (name, stream) in
        [("one key", vec![0; REQUESTS]), ("zipf 0.99", skewed), ("uniform", uniform)]
    {
        let buffer = Buffer::new(&names, &stream);
        let reading = buffer.time(|keys| {
            for key in keys {
                black_box(key);
            }
        });
        let hasher = KeyHasher::random();
        let hashing = buffer.time(|keys| {
            for key in keys {
                black_box(hasher.key(key).hash());
            }
        });
        let record = counting(&buffer);
        println!(
            "{name:10} {record:5.1} ns/record; {reading:.1} to read, {hashing:.1} to read and hash"
        );
    }
    tick();
}

/// Keys one after the other, as in requests that were received.
struct Buffer {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Buffer {
    fn new(names: &[Vec<u8>], stream: &[usize]) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for number in stream {
            bytes.extend_from_slice(&names[*number]);
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let key = &self.bytes[start..*end];
            start = *end;
            key
        })
    }

    fn time<'a>(&'a self, work: impl Fn(&mut dyn Iterator<Item = &'a [u8]>)) -> f64 {
        let start = Instant::now();
        work(&mut self.keys());
        start.elapsed().as_nanos() as f64 / self.ends.len() as f64
    }
}

/// The median of several rounds, in ns per request; the ticks are not in it.
fn counting(buffer: &Buffer) -> f64 {
    let hasher = KeyHasher::random();
    let mut counter = WorkerCounter::new(&Settings::default(), 1, Duration::ZERO);
    let mut snapshot = Snapshot::new();
    let mut now = Duration::ZERO;
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let mut spent = Duration::ZERO;
        let mut keys = buffer.keys();
        for _ in 0..REQUESTS / REQUESTS_PER_TICK {
            let start = Instant::now();
            for key in keys.by_ref().take(REQUESTS_PER_TICK) {
                counter.record(hasher.key(key), Kind::Read, 100, false);
            }
            spent += start.elapsed();
            now += Duration::from_millis(50);
            counter.drain_into(now, &mut snapshot);
        }
        rounds.push(spent.as_nanos() as f64 / REQUESTS as f64);
    }
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// Two workers with full tables: the most a tick can cost at the default sizes.
fn tick() {
    let hasher = KeyHasher::random();
    for (name, keys, per_key) in [("16 named keys", 16, 200), ("full tables", 3000, 40)] {
        let workers = 2;
        let mut counters: Vec<_> = (0..workers)
            .map(|_| WorkerCounter::new(&Settings::default(), workers, Duration::ZERO))
            .collect();
        let mut snapshots = vec![Snapshot::new(); workers];
        let mut merger = Merger::new();
        let (mut drain_times, mut merge_times) = (Vec::new(), Vec::new());
        for tick in 1..200_u32 {
            for (worker, counter) in counters.iter_mut().enumerate() {
                for number in 0..keys {
                    let key = format!("user:{worker}:{number:011}");
                    for _ in 0..per_key {
                        counter.record(hasher.key(key.as_bytes()), Kind::Read, 100, false);
                    }
                }
            }
            let now = Duration::from_millis(50) * tick;
            let start = Instant::now();
            for (counter, snapshot) in counters.iter_mut().zip(&mut snapshots) {
                counter.drain_into(now, snapshot);
            }
            let drained = start.elapsed();
            let report = merger.merge(now, &snapshots.iter().collect::<Vec<_>>());
            merge_times.push(start.elapsed().saturating_sub(drained));
            drain_times.push(drained);
            black_box(report);
        }
        drain_times.sort();
        merge_times.sort();
        let named: usize = snapshots.iter().map(Snapshot::named_keys).sum();
        println!(
            "tick, two workers, {name} ({named} named): drain {:.0?} + merge {:.0?} \
             (p99 {:.0?} + {:.0?}); {} KiB per worker",
            drain_times[100],
            merge_times[100],
            drain_times[197],
            merge_times[197],
            counters[0].memory_bytes() / 1024,
        );
    }
}
