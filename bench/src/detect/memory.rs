//! What the detector holds in memory, and that it does not grow with the number of keys.
//!
//! Called by: `detect`, before anything that leaves memory behind.
//! Bound: the rival's map of all keys, which is given back.
//! Invariant: what is compared is the resident memory of this process, not a sum of sizes.

use std::time::Duration;

use heatsink_detect::config::Settings;
use heatsink_detect::heat::Kind;
use heatsink_detect::heavy::WorkerCounter;
use heatsink_detect::hot_ring::{Admission, HotRing, HotRingConfig, HotRings};
use heatsink_detect::key::KeyHasher;
use heatsink_detect::sketch::Sketch;
use heatsink_detect::snapshot::Snapshot;
use heatsink_detect::window::Window;
use heatsink_testkit::ProcStats;

use super::Effort;
use super::rivals::{ExactMap, count_exactly};
use super::stream::Name;
use crate::section::{Goal, Section};

/// Growth that counts as flat: a tenth of a byte a key, less than half a percent of the names.
const FLAT_BYTES: i64 = 1 << 20;
/// As many keys fill the ring up to its cap.
const FILLING_KEYS: u64 = 500_000;
const KEYS_PER_TICK: u64 = 10_000;

/// A counter and rings as a proxy has them.
struct Detector {
    counter: WorkerCounter,
    snapshot: Snapshot,
    rings: HotRings,
    filtered: HotRing,
    hasher: KeyHasher,
    next_key: u64,
}

impl Detector {
    fn new() -> Self {
        let filtered =
            HotRingConfig { admission: Some(Admission::default()), ..HotRingConfig::reads() };
        Self {
            counter: WorkerCounter::new(&Settings::default(), 1, Duration::ZERO),
            snapshot: Snapshot::new(),
            rings: HotRings::with_defaults(0),
            filtered: HotRing::new(&filtered, 0).expect("valid settings"),
            hasher: KeyHasher::random(),
            next_key: 0,
        }
    }

    /// Counts so many keys that were never seen before, once each.
    fn see(&mut self, keys: u64) {
        for number in self.next_key..self.next_key + keys {
            let now_ms = number / KEYS_PER_TICK * 50;
            let name = Name::of(number);
            self.counter.record(self.hasher.key(name.bytes()), Kind::Read, 100, number % 2 == 0);
            self.rings.reads.touch(name.bytes(), now_ms);
            self.rings.writes.touch(name.bytes(), now_ms);
            self.filtered.touch(name.bytes(), now_ms);
            if number % KEYS_PER_TICK == 0 {
                self.counter.drain_into(Duration::from_millis(now_ms), &mut self.snapshot);
            }
        }
        self.next_key += keys;
    }
}

/// Sizes, and the growth over many keys.
pub(crate) fn sizes(effort: &Effort) -> std::io::Result<Section> {
    let rss_bytes = || ProcStats::of(std::process::id()).map(|stats| stats.rss_bytes as i64);
    let mut detector = Detector::new();
    detector.see(FILLING_KEYS);
    let before = rss_bytes()?;
    detector.see(effort.distinct_keys);
    let growth = rss_bytes()? - before;
    let settings = Settings::default();
    let kib = |bytes: usize| [format!("{:.0}", bytes as f64 / 1024.0)];
    let mut section = Section::new("Memory", "KiB", &["size"]);
    let window = Window::new(settings.shape(), settings.slots());
    section.row("one sketch, 4 x 2048", kib(Sketch::new(settings.shape()).memory_bytes()));
    section.row("its window of 20 slots", kib(window.memory_bytes()));
    section.row("a worker's whole counter, reads and writes", kib(detector.counter.memory_bytes()));
    let ring = |name: &str, ring: &HotRing| {
        let usage = ring.usage();
        (format!("{name}, {} keys", usage.active_nodes), kib(usage.allocated_bytes))
    };
    let rings = [
        ring("hot ring of reads at its cap", &detector.rings.reads),
        ring("hot ring of writes at its cap", &detector.rings.writes),
        ring("hot ring behind the filter", &detector.filtered),
    ];
    for (name, size) in rings {
        section.row(name, size);
    }
    drop(detector);
    let before = rss_bytes()?;
    let mut map = ExactMap::default();
    (0..effort.distinct_keys).for_each(|key| _ = count_exactly(&mut map, Name::of(key).bytes()));
    let exact = rss_bytes()? - before;
    let keys = effort.distinct_keys;
    section.notes.push(format!(
        "growth: resident memory over {keys} distinct keys, after {FILLING_KEYS} that fill the \
         rings; up to {} KiB counts as flat",
        FLAT_BYTES >> 10
    ));
    let signed = |bytes: i64| [format!("{:.0}", bytes as f64 / 1024.0)];
    section.row(format!("growth over {keys} keys: counter and rings"), signed(growth));
    section
        .row(format!("growth over {keys} keys: {} in a hashbrown map", map.len()), signed(exact));
    section.goals.push(Goal {
        what: "growth of resident memory over all distinct keys",
        limit: format!("flat: {} KiB", FLAT_BYTES >> 10),
        figure: format!("{} KiB", growth / 1024),
        reached: Some(growth <= FLAT_BYTES),
    });
    Ok(section)
}
