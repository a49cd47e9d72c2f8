//! What a tick costs: two workers hand over, their snapshots are merged and reported.
//!
//! Called by: `detect`.
//! Bound: the ticks of the effort.
//! Invariant: the goal is for what the ticker does. To drain a counter is its worker's part, on
//! another thread; it is shown beside.

use std::hint::black_box;
use std::time::Duration;

use heatsink_detect::config::Settings;
use heatsink_detect::heat::Kind;
use heatsink_detect::heavy::WorkerCounter;
use heatsink_detect::key::KeyHasher;
use heatsink_detect::report::Merger;
use heatsink_detect::snapshot::Snapshot;
use heatsink_detect::tracker::Tracker;

use super::Effort;
use super::rivals::{ExactMap, count_exactly};
use super::stream::{Block, Stream};
use super::timing::{CpuTime, Spread};
use crate::section::{Goal, Section};

const GOAL_US: f64 = 200.0;
const WORKERS: usize = 2;
/// Until then windows and tables fill.
const WARM_TICKS: u32 = 25;

/// Two workers and what reads them.
struct Bench {
    name: &'static str,
    goal: Option<&'static str>,
    counters: Vec<WorkerCounter>,
    snapshots: Vec<Snapshot>,
    merger: Merger,
    tracker: Tracker,
    threshold: f64,
    named: usize,
    drain_us: Vec<f64>,
    merge_us: Vec<f64>,
}

impl Bench {
    fn new(name: &'static str, goal: Option<&'static str>) -> Self {
        let settings = Settings::default();
        let counter = |_| WorkerCounter::new(&settings, WORKERS, Duration::ZERO);
        Self {
            name,
            goal,
            counters: (0..WORKERS).map(counter).collect(),
            snapshots: vec![Snapshot::new(); WORKERS],
            merger: Merger::new(),
            tracker: Tracker::new(&settings),
            threshold: f64::from(settings.report_threshold),
            named: 0,
            drain_us: Vec::new(),
            merge_us: Vec::new(),
        }
    }

    fn forget_times(&mut self) {
        for times_us in [&mut self.drain_us, &mut self.merge_us] {
            times_us.clear();
        }
    }

    fn record(&mut self, worker: usize, hasher: &KeyHasher, keys: Block<'_>) {
        for key in keys {
            self.counters[worker].record(hasher.key(key), Kind::Read, 100, false);
        }
    }

    fn tick(&mut self, now: Duration) {
        let started = CpuTime::start();
        for (counter, snapshot) in self.counters.iter_mut().zip(&mut self.snapshots) {
            counter.drain_into(now, snapshot);
        }
        let drained_us = started.ns() / 1e3;
        let [first, second] = &self.snapshots[..] else { unreachable!("two workers") };
        let report = self.merger.merge(now, &[first, second]);
        black_box(report.above(self.threshold).count());
        black_box(self.tracker.tick(now, &report));
        let whole_us = started.ns() / 1e3;
        self.drain_us.push(drained_us);
        self.merge_us.push(whole_us - drained_us);
        self.named = report.keys.len();
    }
}

/// Ticks with full tables and with the Zipf stream.
pub(crate) fn merge_and_report(effort: &Effort, stream: &Stream) -> Section {
    let hasher = KeyHasher::random();
    // Different keys for each worker: three for each place in the table, over the bar; and as
    // many as fit, over the threshold.
    let in_turn =
        |keys: u64, times| [0, 1_000_000].map(|from| Stream::in_turn(from..from + keys, times));
    let (full_streams, hot_streams) = (in_turn(3000, 12), in_turn(1000, 60));
    let mut full = Bench::new("full tables", Some("merge + report, full tables"));
    let mut hot = Bench::new("full tables, every key hot", None);
    let mut zipf = Bench::new("Zipf 0.99", Some("merge + report, Zipf"));
    let mut exact_us = Vec::new();
    // An exact window would have to be kept for each worker; one of a second of the stream is
    // enough to see what it costs to merge two of them.
    let mut maps = [ExactMap::default(), ExactMap::default()];
    let mut blocks = stream.blocks(effort.tick_requests).cycle();
    for (number, block) in blocks.by_ref().take(40).enumerate() {
        block.for_each(|key| _ = count_exactly(&mut maps[number % 2], key));
    }
    for tick in 1..=effort.ticks {
        let now = Duration::from_millis(50) * tick;
        for (bench, streams) in [(&mut full, &full_streams), (&mut hot, &hot_streams)] {
            for (worker, keys) in streams.iter().enumerate() {
                keys.blocks(keys.len()).for_each(|all| bench.record(worker, &hasher, all));
            }
        }
        for worker in 0..WORKERS {
            zipf.record(worker, &hasher, blocks.next().expect("they start again"));
        }
        for bench in [&mut full, &mut hot, &mut zipf] {
            bench.tick(now);
            if tick == WARM_TICKS {
                bench.forget_times();
            }
        }
        if tick % 20 == 0 {
            exact_us.push(merge_exactly(&maps));
        }
    }
    let mut section = Section::new(
        "A tick: merge and report two workers, default sizes",
        "microseconds a tick",
        &["keys named", "merge + report: median", "least", "drain of both: median", "least"],
    );
    section.notes.push(format!(
        "the Zipf stream at {} requests/s and worker; full tables: on each worker 3000 keys over \
         the bar, no key on both; every key hot: 1000 over the threshold; the rival merges two \
         exact maps of the same second and looks for keys over the threshold",
        effort.tick_requests * 20
    ));
    for bench in [full, hot, zipf] {
        let merge = Spread::of(bench.merge_us);
        let cells = [bench.named.to_string()].into_iter();
        let cells = cells.chain(merge.cells()).chain(Spread::of(bench.drain_us).cells());
        section.row(format!("heatsink, {}", bench.name), cells);
        let judged = effort.judges_times;
        let goal = |what| Goal::of_time(what, merge.median, GOAL_US, "µs", judged);
        section.goals.extend(bench.goal.map(goal));
    }
    let exact = Spread::of(exact_us).cells();
    let cells = [maps[0].len().max(maps[1].len()).to_string()].into_iter().chain(exact);
    let none = || "-".to_owned();
    section.row("two exact hashbrown maps", cells.chain([none(), none()]));
    section
}

fn merge_exactly(maps: &[ExactMap; 2]) -> f64 {
    let started = CpuTime::start();
    let [first, second] = maps;
    let above =
        first.iter().filter(|(key, count)| **count + second.get(*key).unwrap_or(&0) >= 1000);
    let other = second.iter().filter(|(key, count)| **count >= 1000 && !first.contains_key(*key));
    black_box(above.count() + other.count());
    started.ns() / 1e3
}
