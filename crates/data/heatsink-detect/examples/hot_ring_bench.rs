//! What a touch of the hot ring costs on a Zipf stream, and what it allocates.
//!
//! `cargo run --release -p heatsink-detect --example hot_ring_bench [part of a name]`

use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::HashMap,
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use heatsink_detect::hot_ring::{Admission, HotRing, HotRingConfig, Rotation};

const KEYS: usize = 1_000_000;
const TOUCHES: usize = 4_000_000;
const EXPONENT: f64 = 0.99;
/// The stream's pace, in its own time.
const TOUCHES_PER_MS: usize = 1_000;
const SEGMENT_TOUCHES: usize = 50_000;
const SEGMENTS: usize = TOUCHES / SEGMENT_TOUCHES;
const RUNS: usize = 2;

struct Counting;

static ALLOCATED_BYTES: AtomicU64 = AtomicU64::new(0);

#[expect(unsafe_code, reason = "an allocator that counts is an unsafe trait")]
// SAFETY: every call goes unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let stream = Stream::zipf();
    println!("Zipf {EXPONENT}, {KEYS} keys of 16 to 32 bytes, {TOUCHES} touches");
    println!("{:<44} {:>8} {:>9} {:>16}", "", "ns/touch", "nodes", "allocated bytes");

    let all = HotRingConfig { node_cap: KEYS, ..HotRingConfig::reads() };
    let filtered =
        HotRingConfig { admission: Some(Admission::default()), ..HotRingConfig::reads() };
    let rotating = |config| HotRingConfig { rotation: Rotation::Every(1_500), ..config };
    measure("every key tracked, window 8 x 250 ms", &all, &stream);
    measure("the same, rotating every 1.5 s", &rotating(all), &stream);
    measure("behind the admission filter, window", &filtered, &stream);
    measure("the same, rotating every 1.5 s", &rotating(filtered), &stream);
    measure("one known key, window", &all, &Stream::one_key());
    if std::env::args().nth(1).is_some() {
        return;
    }
    measure_rivals(&stream);
    measure_two_threads("behind the filter, two threads, each", &filtered, &stream);
    measure_reports(&all, &stream);
}

/// The stream over a ring, from its third pass on: by then what is tracked is tracked, and
/// the buckets that the last keys brought have been linked.
fn measure(name: &str, config: &HotRingConfig, stream: &Stream) {
    if std::env::args().nth(1).is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    let ring = HotRing::new(config, 0).expect("valid settings");
    let (first_ms, _) = pass(&ring, stream, 0);
    let (mut now_ms, _) = pass(&ring, stream, first_ms);
    let mut segments_ns = Vec::with_capacity(RUNS * SEGMENTS);
    let allocated = ALLOCATED_BYTES.load(Ordering::Relaxed);
    let mut measuring = 0;
    for _ in 0..RUNS {
        let (later_ms, segments) = pass(&ring, stream, now_ms);
        // The list of segments itself is not the ring's.
        measuring += SEGMENTS * size_of::<f64>();
        segments_ns.extend(segments);
        now_ms = later_ms;
    }
    let bytes = ALLOCATED_BYTES.load(Ordering::Relaxed) - allocated - measuring as u64;
    report(name, segments_ns, ring.usage().active_nodes, bytes);
}

/// Touches every key of the stream; the later time, and the cost of a touch by segment.
fn pass(ring: &HotRing, stream: &Stream, from_ms: u64) -> (u64, Vec<f64>) {
    timed(stream, from_ms, |key, now_ms| ring.touch(key, now_ms))
}

fn timed(
    stream: &Stream,
    from_ms: u64,
    mut touch: impl FnMut(&[u8], u64) -> u64,
) -> (u64, Vec<f64>) {
    let mut segments_ns = Vec::with_capacity(SEGMENTS);
    let mut now_ms = from_ms;
    let mut keys = stream.keys();
    for _ in 0..SEGMENTS {
        let started = Instant::now();
        for _ in 0..SEGMENT_TOUCHES / TOUCHES_PER_MS {
            for key in keys.by_ref().take(TOUCHES_PER_MS) {
                black_box(touch(key, now_ms));
            }
            now_ms += 1;
        }
        segments_ns.push(started.elapsed().as_secs_f64() * 1e9 / SEGMENT_TOUCHES as f64);
    }
    (now_ms, segments_ns)
}

/// The rivals: nothing at all, and a plain map with the same window in each entry, which
/// one thread at a time could use.
fn measure_rivals(stream: &Stream) {
    let (_, segments_ns) = timed(stream, 0, |key, _| key.len() as u64);
    report("reading the stream, no ring", segments_ns, 0, 0);

    let mut map: HashMap<Box<[u8]>, [(u64, u32); 8], foldhash::quality::FixedState> =
        HashMap::default();
    let mut touch = |key: &[u8], now_ms: u64| {
        let period = now_ms / 250;
        let Some(window) = map.get_mut(key) else {
            map.insert(key.into(), [(period, 1); 8]);
            return 1;
        };
        let slot = &mut window[period as usize % 8];
        *slot = if slot.0 == period { (period, slot.1 + 1) } else { (period, 1) };
        let counted = window.iter().filter(|slot| slot.0 + 8 > period);
        counted.map(|slot| u64::from(slot.1)).sum()
    };
    let (now_ms, _) = timed(stream, 0, &mut touch);
    let (_, segments_ns) = timed(stream, now_ms, &mut touch);
    report("rival: hash map of windows, every key", segments_ns, map.len(), 0);
}

fn measure_two_threads(name: &str, config: &HotRingConfig, stream: &Stream) {
    let ring = HotRing::new(config, 0).expect("valid settings");
    let (now_ms, _) = pass(&ring, stream, 0);
    let segments_ns = std::thread::scope(|scope| {
        let threads: [_; 2] =
            std::array::from_fn(|_| scope.spawn(|| pass(&ring, stream, now_ms).1));
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    report(name, segments_ns, ring.usage().active_nodes, 0);
}

fn measure_reports(config: &HotRingConfig, stream: &Stream) {
    let ring = HotRing::new(config, 0).expect("valid settings");
    let (now_ms, _) = pass(&ring, stream, 0);
    let started = Instant::now();
    let top = ring.top_n(10, now_ms);
    let usage = ring.usage();
    println!(
        "top 10 of {} keys: {:.1} ms; the hottest has {}; {} buckets, {:.1} MiB",
        usage.active_nodes,
        started.elapsed().as_secs_f64() * 1e3,
        top[0].count,
        usage.buckets,
        usage.allocated_bytes as f64 / f64::from(1 << 20),
    );
}

/// Prints the median segment, which an interruption by another process does not move,
/// and the fastest tenth beside it.
fn report(name: &str, mut segments_ns: Vec<f64>, nodes: usize, bytes: u64) {
    segments_ns.sort_unstable_by(f64::total_cmp);
    let median = segments_ns[segments_ns.len() / 2];
    let tenth = segments_ns[segments_ns.len() / 10];
    println!("{name:<44} {median:>8.1} {nodes:>9} {bytes:>16}   (fastest tenth {tenth:.1})");
}

/// Keys one after the other in the order of their arrival, as in a request buffer.
struct Stream {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Stream {
    /// Ranks drawn from the cumulative weights, then scattered over the keys.
    fn zipf() -> Self {
        let mut random = fastrand::Rng::with_seed(2);
        let mut total = 0.0;
        let cumulative: Vec<f64> = (1..=KEYS)
            .map(|rank| {
                total += (rank as f64).powf(-EXPONENT);
                total
            })
            .collect();
        let mut key_of_rank: Vec<u32> = (0..KEYS as u32).collect();
        random.shuffle(&mut key_of_rank);
        let mut stream = Self { bytes: Vec::new(), ends: Vec::new() };
        for _ in 0..TOUCHES {
            let drawn = random.f64() * total;
            let rank = cumulative.partition_point(|&weight| weight < drawn);
            let at = key_of_rank[rank.min(KEYS - 1)];
            let end = stream.bytes.len() + 16 + at as usize % 17;
            stream.bytes.extend_from_slice(format!("key:{at:012}").as_bytes());
            stream.bytes.resize(end, b'x');
            stream.ends.push(end as u32);
        }
        stream
    }

    fn one_key() -> Self {
        let key = b"session:0123456789";
        Self {
            bytes: key.repeat(TOUCHES),
            ends: (1..=TOUCHES).map(|at| (at * key.len()) as u32).collect(),
        }
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let key = &self.bytes[start..end as usize];
            start = end as usize;
            key
        })
    }
}
