//! Recall, precision and delay on whole streams in virtual time, against exact counts.
//!
//! `HEATSINK_DETECT_RUNS=100` runs a hundred seeds and scans of ten million keys; the default
//! is a few seeds and a million keys. A failure names its seed.

use std::collections::VecDeque;
use std::time::Duration;

use heatsink_detect::config::Settings;
use heatsink_detect::heat::{HeatKind, Kind};
use heatsink_detect::heavy::WorkerCounter;
use heatsink_detect::key::KeyHasher;
use heatsink_detect::report::{Merger, Report};
use heatsink_detect::snapshot::Snapshot;
use heatsink_detect::tracker::{Event, Tracker};

mod support;

const KEYS: usize = 1_000_000;
const TICK: Duration = Duration::from_millis(50);
const TICKS_PER_SECOND: usize = 20;
const THRESHOLD: u32 = 1000;

/// How many seeds, and how many keys a scan has.
fn effort() -> (u64, usize) {
    match std::env::var("HEATSINK_DETECT_RUNS") {
        Ok(runs) => (runs.parse().expect("HEATSINK_DETECT_RUNS is a number"), 10_000_000),
        Err(_) => (3, 1_000_000),
    }
}

/// A detector of two workers beside exact counts of the same window.
struct Rig {
    workers: Vec<WorkerCounter>,
    snapshots: Vec<Snapshot>,
    merger: Merger,
    tracker: Tracker,
    hasher: KeyHasher,
    random: fastrand::Rng,
    now: Duration,
    /// Requests of each key in the window, and which they were in each slot.
    exact: Vec<u32>,
    slots: VecDeque<Vec<u32>>,
    seed: u64,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let settings = Settings::default();
        assert_eq!(settings.hot_threshold, THRESHOLD);
        Self {
            workers: vec![
                WorkerCounter::new(&settings, 2, Duration::ZERO),
                WorkerCounter::new(&settings, 2, Duration::ZERO),
            ],
            snapshots: vec![Snapshot::new(), Snapshot::new()],
            merger: Merger::new(),
            tracker: Tracker::new(&settings),
            hasher: KeyHasher::with_seed(seed),
            random: fastrand::Rng::with_seed(seed),
            now: Duration::ZERO,
            exact: vec![0; KEYS + 2],
            slots: VecDeque::from([Vec::new()]),
            seed,
        }
    }

    /// A request of a key that is followed exactly, to any worker.
    fn request(&mut self, key: usize) {
        self.count(key as u64);
        self.exact[key] += 1;
        if let Some(open) = self.slots.back_mut() {
            open.push(key as u32);
        }
    }

    /// A request of a key that comes once, as in a scan.
    fn scan(&mut self, key: usize) {
        self.count((1 << 40) + key as u64);
    }

    fn count(&mut self, key: u64) {
        let kind = if self.random.u8(..) < 26 { Kind::Write } else { Kind::Read };
        let worker = usize::from(self.random.bool());
        let name = name(key);
        self.workers[worker].record(self.hasher.key(&name), kind, 100, false);
    }

    fn tick(&mut self) -> (Report, Vec<Event>) {
        self.now += TICK;
        for (worker, snapshot) in self.workers.iter_mut().zip(&mut self.snapshots) {
            worker.drain_into(self.now, snapshot);
        }
        let report = self.merger.merge(self.now, &self.snapshots.iter().collect::<Vec<_>>());
        if self.slots.len() > TICKS_PER_SECOND {
            for key in self.slots.pop_front().unwrap_or_default() {
                self.exact[key as usize] -= 1;
            }
        }
        self.slots.push_back(Vec::new());
        let events = self.tracker.tick(self.now, &report);
        assert_eq!(report.truth.underestimates, 0, "seed {}", self.seed);
        (report, events)
    }

    /// Every key at the threshold is in the report, and none below half of it.
    fn check(&self, report: &Report) {
        let context = || format!("seed {} at {:?}", self.seed, self.now);
        let reported: Vec<usize> =
            report.above(f64::from(THRESHOLD)).filter_map(|heat| number(&heat.key)).collect();
        for key in &reported {
            let count = self.exact.get(*key).copied().unwrap_or(1);
            assert!(count >= THRESHOLD / 2, "{key} is reported with {count}; {}", context());
        }
        for (key, count) in self.exact.iter().enumerate() {
            let missing = *count >= THRESHOLD && !reported.contains(&key);
            assert!(!missing, "{key} is missing with {count}; {}", context());
        }
    }
}

/// A name of 16 to 32 bytes, without an allocation.
fn name(key: u64) -> [u8; 24] {
    let mut name = *b"session:________________";
    for (place, byte) in name[8..].iter_mut().enumerate() {
        *byte = b'a' + (key >> (4 * place) & 15) as u8;
    }
    name
}

fn number(name: &[u8]) -> Option<usize> {
    let digits = name.strip_prefix(b"session:")?;
    Some(digits.iter().rev().fold(0, |number, digit| number << 4 | usize::from(digit - b'a')))
}

#[test]
fn names_and_numbers_agree() {
    assert_eq!(number(&name(123_456_789)), Some(123_456_789));
}

#[test]
fn a_rising_key_in_skewed_traffic_is_found_and_no_cool_one_accused() {
    let (runs, scanned) = effort();
    let zipf = support::Zipf::new(KEYS, 0.99);
    let rising = KEYS + 1;
    for seed in 1..=runs {
        let mut rig = Rig::new(seed);
        let mut found = false;
        for tick in 0..6 * TICKS_PER_SECOND {
            for _ in 0..30_000 / TICKS_PER_SECOND {
                let key = zipf.draw(&mut rig.random);
                rig.request(key);
            }
            // From nothing to twice the threshold within four seconds, then steady.
            let rate = 2 * THRESHOLD as usize * tick.min(80) / 80;
            for _ in 0..rate / TICKS_PER_SECOND {
                rig.request(rising);
            }
            // In the first run, a scan from the second to the fourth second.
            if seed == 1 && (40..80).contains(&tick) {
                (0..scanned / 40).for_each(|step| rig.scan(tick * 1_000_000 + step));
            }
            let (report, events) = rig.tick();
            rig.check(&report);
            found |= events.iter().any(|event| is_onset(event, rising));
        }
        assert!(found, "seed {seed}");
    }
}

#[test]
fn uniform_traffic_is_not_hot_with_or_without_a_scan() {
    let (runs, scanned) = effort();
    for seed in 1..=runs {
        let mut rig = Rig::new(seed);
        for tick in 0..3 * TICKS_PER_SECOND {
            for _ in 0..200_000 / TICKS_PER_SECOND {
                let key = rig.random.usize(..KEYS);
                rig.request(key);
            }
            if seed == 1 && (20..40).contains(&tick) {
                (0..scanned / 20).for_each(|step| rig.scan(tick * 1_000_000 + step));
            }
            let (report, events) = rig.tick();
            assert_eq!(report.above(f64::from(THRESHOLD)).count(), 0, "seed {seed}");
            assert_eq!(events, [], "seed {seed}");
        }
    }
}

fn is_onset(event: &Event, key: usize) -> bool {
    matches!(event, Event::Hot { heat, kind: HeatKind::Rate, .. } if number(&heat.key) == Some(key))
}

/// Virtual time from the first request of a key to the tick that reports it, with evenly
/// spaced requests that begin `offset` after a tick.
fn onset(rate: u32, offset: Duration, seed: u64) -> Duration {
    let zipf = support::Zipf::new(10_000, 0.99);
    let mut rig = Rig::new(seed);
    let begin = Duration::from_secs(1) + offset;
    let mut next = begin;
    loop {
        for _ in 0..30_000 / TICKS_PER_SECOND {
            // Without the ranks that are hot themselves.
            let key = 100 + zipf.draw(&mut rig.random);
            rig.request(key);
        }
        let tick = rig.now + TICK;
        while next < tick {
            rig.request(KEYS + 1);
            next += Duration::from_secs(1) / rate;
        }
        let (_, events) = rig.tick();
        if events.iter().any(|event| is_onset(event, KEYS + 1)) {
            return rig.now.saturating_sub(begin);
        }
        assert!(rig.now < Duration::from_secs(5), "never found");
    }
}

#[test]
fn the_delay_from_onset_to_report_is_the_window_s_share_and_a_tick() {
    for (number, offset_ms) in [0, 1, 13, 25, 37, 49].into_iter().enumerate() {
        let offset = Duration::from_millis(offset_ms);
        let twice = onset(2 * THRESHOLD, offset, number as u64);
        assert!(twice <= Duration::from_millis(600), "{twice:?} at twice the threshold");
        assert!(twice >= Duration::from_millis(450), "{twice:?}: before the count was there");
        let ten = onset(10 * THRESHOLD, offset, number as u64);
        assert!(ten <= Duration::from_millis(160), "{ten:?} at ten times the threshold");
    }
}

#[test]
fn the_measured_error_is_within_the_theory_s() {
    let zipf = support::Zipf::new(KEYS, 0.99);
    let mut rig = Rig::new(9);
    for _ in 0..2 * TICKS_PER_SECOND {
        for _ in 0..30_000 / TICKS_PER_SECOND {
            let key = zipf.draw(&mut rig.random);
            rig.request(key);
        }
        let (report, _) = rig.tick();
        let bound = report.error_bound_per_second;
        if let Some(excess) = report.truth.mean_excess() {
            assert!(excess <= bound, "{excess} is over {bound}");
        }
    }
    let (report, _) = rig.tick();
    assert!(report.truth.keys > 5 && report.truth.unsure == 0, "{:?}", report.truth);
    assert!(report.truth.mean_relative_error().is_some_and(f64::is_finite));
}
