//! Reports over several workers.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::Merger;
use crate::config::Settings;
use crate::heat::Kind;
use crate::heavy::WorkerCounter;
use crate::key::KeyHasher;
use crate::snapshot::Snapshot;

const TICK: Duration = Duration::from_millis(50);

fn counters(settings: &Settings, workers: usize) -> Vec<WorkerCounter> {
    (0..workers).map(|_| WorkerCounter::new(settings, workers, Duration::ZERO)).collect()
}

fn drain(counters: &mut [WorkerCounter], now: Duration) -> Vec<Snapshot> {
    let mut snapshots = vec![Snapshot::new(); counters.len()];
    for (counter, snapshot) in counters.iter_mut().zip(&mut snapshots) {
        counter.drain_into(now, snapshot);
    }
    snapshots
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Small sketches and low thresholds, so that everything collides with everything.
    #[test]
    fn a_report_brackets_the_truth(
        requests in prop::collection::vec((0_usize..3, 0_u8..30, any::<bool>()), 1..1500),
        width in 16_usize..64,
    ) {
        let settings = Settings {
            sketch_width: width, report_threshold: 60, hot_threshold: 60, ..Settings::default()
        };
        let hasher = KeyHasher::with_seed(11);
        let mut counters = counters(&settings, 3);
        let mut exact: HashMap<u8, u32> = HashMap::new();
        for (worker, name, write) in requests {
            // A few keys take most of it.
            let name = if name < 20 { name % 4 } else { name };
            let kind = if write { Kind::Write } else { Kind::Read };
            counters[worker].record(hasher.key(&[name]), kind, 1, false);
            *exact.entry(name).or_default() += 1;
        }
        let snapshots = drain(&mut counters, TICK);
        let report = Merger::new().merge(TICK, &snapshots.iter().collect::<Vec<_>>());
        for heat in &report.keys {
            let count = f64::from(exact[&heat.key[0]]);
            prop_assert!(heat.requests_per_second() >= count);
            prop_assert!(heat.certain_per_second() <= count + 1e-9);
        }
        for pair in report.keys.windows(2) {
            prop_assert!(pair[0].requests_per_second() >= pair[1].requests_per_second());
        }
        for (name, count) in exact {
            let reported = report.above(60.0).any(|heat| heat.key == [name]);
            prop_assert!(count < 60 || reported, "{name} with {count} is missing");
            prop_assert!(count >= 30 || !reported, "{name} with {count} is reported");
        }
    }
}

#[test]
fn a_key_that_is_hot_only_in_the_sum_is_found() {
    let settings = Settings::default();
    let hasher = KeyHasher::random();
    let mut counters = counters(&settings, 4);
    for counter in &mut counters {
        for _ in 0..300 {
            counter.record(hasher.key(b"spread"), Kind::Read, 10, false);
        }
    }
    let snapshots = drain(&mut counters, TICK);
    let report = Merger::new().merge(TICK, &snapshots.iter().collect::<Vec<_>>());
    let heat = report.above(1000.0).next().expect("1200 in the sum");
    assert!((heat.requests_per_second() - 1200.0).abs() < 1e-6);
}

#[test]
fn a_worker_that_does_not_know_the_name_adds_its_estimate() {
    let settings = Settings::default();
    let hasher = KeyHasher::random();
    for (first, second) in [(900, 10), (10, 900)] {
        let mut counters = counters(&settings, 2);
        for (counter, times) in counters.iter_mut().zip([first, second]) {
            for _ in 0..times {
                counter.record(hasher.key(b"a"), Kind::Write, 0, false);
            }
        }
        let snapshots = drain(&mut counters, TICK);
        let report = Merger::new().merge(TICK, &snapshots.iter().collect::<Vec<_>>());
        assert_eq!(report.keys.len(), 1);
        assert!((report.keys[0].writes_per_second - 910.0).abs() < 1e-6);
        assert!(report.keys[0].certain_per_second() <= 900.0);
    }
}

#[test]
fn a_silent_worker_is_left_out_after_a_window() {
    let settings = Settings::default();
    let hasher = KeyHasher::random();
    let mut counters = counters(&settings, 1);
    for _ in 0..2000 {
        counters[0].record(hasher.key(b"a"), Kind::Read, 0, false);
    }
    let snapshots = drain(&mut counters, TICK);
    let mut merger = Merger::new();
    let at = |ms| Duration::from_millis(ms);
    assert_eq!(merger.merge(at(1050), &[&snapshots[0]]).keys.len(), 1);
    let report = merger.merge(at(1051), &[&snapshots[0]]);
    assert_eq!((report.keys.len(), report.silent_workers), (0, 1));
}

#[test]
fn top_gives_the_hottest_first_and_no_more_than_there_are() {
    let settings = Settings::default();
    let hasher = KeyHasher::random();
    let mut counters = counters(&settings, 1);
    for (key, times) in [(b"a", 300), (b"b", 900), (b"c", 600)] {
        for _ in 0..times {
            counters[0].record(hasher.key(key), Kind::Read, 0, false);
        }
    }
    let snapshots = drain(&mut counters, TICK);
    let report = Merger::new().merge(TICK, &[&snapshots[0]]);
    let names: Vec<&[u8]> = report.top(2).iter().map(|heat| heat.key.as_slice()).collect();
    assert_eq!(names, [b"b", b"c"]);
    assert_eq!(report.top(10).len(), 3);
    assert!(report.error_bound_per_second > 0.0);
}

#[test]
fn keys_that_are_asked_for_are_in_it_whatever_their_count() {
    let settings = Settings::default();
    let hasher = KeyHasher::random();
    let mut counters = counters(&settings, 2);
    for (counter, times) in counters.iter_mut().zip([10, 14]) {
        for _ in 0..times {
            counter.record(hasher.key(b"watched"), Kind::Read, 0, false);
        }
        counter.record(hasher.key(b"watched"), Kind::Write, 0, false);
    }
    for _ in 0..900 {
        counters[0].record(hasher.key(b"hot"), Kind::Read, 0, false);
    }
    let snapshots = drain(&mut counters, TICK);
    let snapshots: Vec<_> = snapshots.iter().collect();
    let mut merger = Merger::new();
    assert_eq!(merger.merge(TICK, &snapshots).keys.len(), 1);
    let names: [&[u8]; 4] = [b"watched", b"hot", b"nobody", b"watched"];
    let report = merger.merge_with(TICK, &snapshots, names.map(|name| hasher.key(name)));
    let names: Vec<&[u8]> = report.keys.iter().map(|heat| heat.key.as_slice()).collect();
    assert_eq!(names, [&b"hot"[..], b"watched"], "each once, hottest first");
    let [hot, watched] = report.keys.as_slice() else { unreachable!() };
    assert!((hot.requests_per_second() - 900.0).abs() < 1e-6 && hot.certain_per_second() > 0.0);
    assert!((watched.reads_per_second - 24.0).abs() < 1e-6, "{watched:?}");
    assert!((watched.writes_per_second - 2.0).abs() < 1e-6, "{watched:?}");
    assert!(watched.certain_per_second().abs() < 1e-6, "the sketches' word is no certainty");
}
