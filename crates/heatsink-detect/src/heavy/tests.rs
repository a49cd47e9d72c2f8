//! The worker's counter through its snapshots.

use std::time::Duration;

use super::WorkerCounter;
use crate::config::Settings;
use crate::heat::{KeyHeat, Kind};
use crate::key::{Key, KeyHasher};
use crate::report::{Merger, Report};
use crate::snapshot::Snapshot;

struct Rig {
    counter: WorkerCounter,
    hasher: KeyHasher,
    snapshot: Snapshot,
    now: Duration,
}

impl Rig {
    fn new() -> Self {
        Self::with(&Settings::default())
    }

    fn with(settings: &Settings) -> Self {
        Self {
            counter: WorkerCounter::new(settings, 1, Duration::ZERO),
            hasher: KeyHasher::with_seed(5),
            snapshot: Snapshot::new(),
            now: Duration::ZERO,
        }
    }

    fn key<'a>(&self, name: &'a str) -> Key<'a> {
        self.hasher.key(name.as_bytes())
    }

    fn reads(&mut self, name: &str, times: usize) {
        for _ in 0..times {
            self.counter.record(self.hasher.key(name.as_bytes()), Kind::Read, 0, false);
        }
    }

    fn tick(&mut self) -> Report {
        self.now += Duration::from_millis(50);
        self.counter.drain_into(self.now, &mut self.snapshot);
        Merger::new().merge(self.now, &[&self.snapshot])
    }
}

fn find<'a>(report: &'a Report, name: &str) -> Option<&'a KeyHeat> {
    report.keys.iter().find(|heat| heat.key == name.as_bytes())
}

fn equal(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn reads_writes_bytes_misses_and_absorbed_are_told_apart() {
    let mut rig = Rig::new();
    rig.reads("a", 1000);
    rig.tick();
    // From here on the name is known, so all is exact.
    let key = rig.key("a");
    for _ in 0..30 {
        rig.counter.record(key, Kind::Read, 100, false);
        rig.counter.record(key, Kind::Read, 0, true);
        rig.counter.record(key, Kind::Write, 7, false);
        rig.counter.record_absorbed(key, Kind::Read, 10);
        rig.counter.record_reply(key, 1000, false);
        rig.counter.record_reply(key, 0, true);
    }
    let report = rig.tick();
    let heat = find(&report, "a").expect("named");
    assert!(equal(heat.reads_per_second, 1090.0), "{heat:?}");
    assert!(equal(heat.writes_per_second, 30.0), "{heat:?}");
    assert!(equal(heat.bytes_per_second, 30.0 * 1117.0), "{heat:?}");
    assert!(equal(heat.misses_per_second, 60.0), "{heat:?}");
    assert!(equal(heat.absorbed_per_second, 30.0), "{heat:?}");
    assert!(equal(report.reads_per_second, 1090.0));
    assert!(equal(report.writes_per_second, 30.0));
    for _ in 0..20 {
        rig.tick();
    }
    assert_eq!(find(&rig.tick(), "a"), None, "after a window of silence");
}

#[test]
fn a_name_costs_a_bar_and_what_came_before_is_an_error_for_one_window() {
    let mut rig = Rig::new();
    rig.reads("a", 124);
    assert_eq!(find(&rig.tick(), "a"), None);
    rig.reads("a", 76);
    let report = rig.tick();
    let heat = find(&report, "a").expect("125 is an eighth of the threshold");
    assert!(equal(heat.requests_per_second(), 200.0));
    assert!(equal(heat.error_per_second, 124.0));
    for _ in 0..20 {
        rig.reads("a", 10);
        rig.tick();
    }
    rig.reads("a", 10);
    let report = rig.tick();
    let heat = find(&report, "a").expect("200 a second");
    assert!(equal(heat.requests_per_second(), 200.0), "{heat:?}");
    assert!(equal(heat.error_per_second, 0.0), "{heat:?}");
}

#[test]
fn big_values_are_named_by_their_bytes() {
    let mut rig = Rig::new();
    let (big, small) = (rig.key("big"), rig.key("small"));
    let mut report = Report::default();
    for tick in 0..40 {
        // 20 requests/s of 5 MB, one half of them known with the reply only.
        if tick % 2 == 0 {
            rig.counter.record(big, Kind::Read, 5_000_000, false);
        } else {
            rig.counter.record(big, Kind::Read, 0, false);
            rig.counter.record_reply(big, 5_000_000, false);
        }
        rig.counter.record(small, Kind::Read, 100, false);
        report = rig.tick();
    }
    let heat = find(&report, "big").expect("100 MB/s");
    assert!(equal(heat.bytes_per_second, 100e6), "{heat:?}");
    let thresholds = Settings::default().thresholds();
    assert_eq!(report.hot(&thresholds).count(), 1);
    assert_eq!(find(&report, "small"), None);
}

#[test]
fn a_miss_storm_is_seen_below_the_rate_threshold() {
    let mut rig = Rig::new();
    let absent = rig.key("absent");
    for _ in 0..25 {
        for _ in 0..35 {
            rig.counter.record(absent, Kind::Read, 5, true);
        }
        rig.tick();
    }
    let report = rig.tick();
    let heat = find(&report, "absent").expect("700 misses/s");
    assert!(heat.misses_per_second >= 650.0, "{heat:?}");
    assert!(heat.exceeds_any(&Settings::default().thresholds()));
}

#[test]
fn write_contention_counts_what_is_in_flight_at_once() {
    let mut rig = Rig::new();
    let key = rig.key("counter");
    let mut tickets: Vec<_> = (0..30).map(|_| rig.counter.begin_write(key)).collect();
    let report = rig.tick();
    let peak = find(&report, "counter").expect("many writes in flight").writes_in_flight;
    assert!((16..=30).contains(&peak), "{peak} of 30, less those from before the name");
    for ticket in tickets.drain(..) {
        rig.counter.end_write(ticket);
    }
    rig.tick();
    let report = rig.tick();
    assert_eq!(find(&report, "counter").map_or(0, |heat| heat.writes_in_flight), 0);
    // One after the other is no contention, however many.
    let key = rig.key("serial");
    for _ in 0..1000 {
        rig.counter.record(key, Kind::Write, 0, false);
        let ticket = rig.counter.begin_write(key);
        rig.counter.end_write(ticket);
    }
    let report = rig.tick();
    assert_eq!(find(&report, "serial").expect("1000 writes").writes_in_flight, 1);
}

#[test]
fn a_ticket_does_not_touch_the_successor_of_its_entry() {
    let mut rig = Rig::with(&Settings { table_entries: 8, ..Settings::default() });
    let old = rig.key("old");
    rig.reads("old", 300);
    let ticket = rig.counter.begin_write(old);
    for _ in 0..30 {
        rig.tick();
    }
    assert_eq!(rig.snapshot.named_keys(), 0);
    let new = rig.key("new");
    rig.reads("new", 300);
    let open = rig.counter.begin_write(new);
    rig.counter.end_write(ticket);
    let second = rig.counter.begin_write(new);
    let report = rig.tick();
    assert_eq!(find(&report, "new").expect("named").writes_in_flight, 2);
    rig.counter.end_write(open);
    rig.counter.end_write(second);
}

#[test]
fn a_scan_does_not_drive_out_a_key_that_was_counted() {
    let small = Settings { sketch_width: 64, table_entries: 8, ..Settings::default() };
    let mut rig = Rig::with(&small);
    for tick in 0..40_u32 {
        rig.reads("hot", 60);
        // From then on every cell of the sketch holds more than the key has.
        for number in 0..if tick < 25 { 0 } else { 10_000_u32 } {
            let name = format!("scan:{tick}:{number}");
            rig.counter.record(rig.hasher.key(name.as_bytes()), Kind::Read, 0, false);
        }
        let report = rig.tick();
        if tick >= 25 {
            let heat = find(&report, "hot").expect("named before the scan");
            assert!(equal(heat.requests_per_second(), 1200.0), "{heat:?}");
            assert_eq!(report.above(1000.0).count(), 1);
        }
    }
}

#[test]
fn long_keys_are_counted_but_not_named() {
    let mut rig = Rig::new();
    let name = "x".repeat(1025);
    rig.reads(&name, 2000);
    let report = rig.tick();
    assert_eq!(report.keys, []);
    assert!(report.too_long > 0);
    assert!(equal(report.reads_per_second, 2000.0));
}

#[test]
fn a_lower_threshold_names_cooler_keys() {
    let mut rig = Rig::new();
    rig.reads("a", 50);
    assert_eq!(find(&rig.tick(), "a"), None);
    rig.counter.set_report_threshold(Settings::default().report_floor(10));
    rig.reads("a", 50);
    let report = rig.tick();
    assert!(equal(find(&report, "a").expect("named").requests_per_second(), 100.0));
    assert_eq!(report.above(100.0).count(), 1, "half is certain");
    assert_eq!(report.above(101.0).count(), 0);
}

#[test]
fn memory_stays_where_it_was() {
    let mut rig = Rig::new();
    let before = rig.counter.memory_bytes();
    assert!(before < 2_500_000, "{before}");
    for number in 0..200_000_u32 {
        let name = number.to_le_bytes();
        let key = rig.hasher.key(&name);
        rig.counter.record(key, Kind::Read, u64::from(number), number % 3 == 0);
        if number % 10_000 == 0 {
            rig.tick();
        }
    }
    let grown = rig.counter.memory_bytes() - before;
    assert!(grown <= 1024 * 16, "{grown} bytes for names of 4 bytes");
}
