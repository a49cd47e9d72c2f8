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
        let tag = rig.counter.begin(key, Kind::Read, 0, 0);
        rig.counter.answered(tag, 1000, false);
        let tag = rig.counter.begin(key, Kind::Read, 0, 0);
        rig.counter.answered(tag, 0, true);
    }
    let report = rig.tick();
    let heat = find(&report, "a").expect("named");
    assert!(equal(heat.reads_per_second, 1150.0), "{heat:?}");
    assert!(equal(heat.writes_per_second, 30.0), "{heat:?}");
    assert!(equal(heat.bytes_per_second, 30.0 * 1117.0), "{heat:?}");
    assert!(equal(heat.misses_per_second, 60.0), "{heat:?}");
    assert!(equal(heat.absorbed_per_second, 30.0), "{heat:?}");
    assert!(equal(report.reads_per_second, 1150.0));
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
            let tag = rig.counter.begin(big, Kind::Read, 0, 0);
            rig.counter.answered(tag, 5_000_000, false);
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
    let mut tags: Vec<_> = (0..30).map(|_| rig.counter.begin(key, Kind::Write, 0, 0)).collect();
    let report = rig.tick();
    let peak = find(&report, "counter").expect("many writes in flight").writes_in_flight;
    assert!((16..=30).contains(&peak), "{peak} of 30, less those from before the name");
    for tag in tags.drain(..) {
        rig.counter.answered(tag, 0, false);
    }
    rig.tick();
    let report = rig.tick();
    assert_eq!(find(&report, "counter").map_or(0, |heat| heat.writes_in_flight), 0);
    // One after the other is no contention, however many.
    let key = rig.key("serial");
    for _ in 0..1000 {
        let tag = rig.counter.begin(key, Kind::Write, 0, 0);
        rig.counter.answered(tag, 0, false);
    }
    let report = rig.tick();
    assert_eq!(find(&report, "serial").expect("1000 writes").writes_in_flight, 1);
}

#[test]
fn a_tag_does_not_touch_the_successor_of_its_entry() {
    let mut rig = Rig::with(&Settings { table_entries: 8, ..Settings::default() });
    let old = rig.key("old");
    rig.reads("old", 300);
    let tag = rig.counter.begin(old, Kind::Write, 0, 0);
    for _ in 0..30 {
        rig.tick();
    }
    assert_eq!(rig.snapshot.named_keys(), 0);
    let new = rig.key("new");
    rig.reads("new", 300);
    let open = rig.counter.begin(new, Kind::Write, 0, 0);
    rig.counter.answered(tag, 0, false);
    let second = rig.counter.begin(new, Kind::Write, 0, 0);
    let report = rig.tick();
    assert_eq!(find(&report, "new").expect("named").writes_in_flight, 2);
    rig.counter.answered(open, 0, false);
    rig.counter.answered(second, 0, false);
}

#[test]
fn what_only_the_reply_shows_names_the_key_with_its_next_request() {
    let mut rig = Rig::with(&Settings { report_threshold: 10_000, ..Settings::default() });
    let (big, absent) = (rig.key("big"), rig.key("absent"));
    for _ in 0..2 {
        let tag = rig.counter.begin(big, Kind::Read, 30, 0);
        rig.counter.answered(tag, 30_000_000, false);
    }
    // Far under the bar of the requests, at a quarter of the miss threshold.
    let tags: Vec<_> = (0..125).map(|_| rig.counter.begin(absent, Kind::Read, 30, 0)).collect();
    for tag in tags {
        rig.counter.answered(tag, 5, true);
    }
    let report = rig.tick();
    let heat = find(&report, "big").expect("named by its second request");
    assert!(equal(heat.bytes_per_second, 30_000_030.0), "{heat:?}");
    assert_eq!(find(&report, "absent"), None, "nothing has told its name since it missed");
    let tag = rig.counter.begin(absent, Kind::Read, 30, 0);
    rig.counter.answered(tag, 5, true);
    assert_eq!(find(&rig.tick(), "absent").map(|heat| heat.misses_per_second > 0.0), Some(true));
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

#[test]
fn a_clients_further_writes_do_not_contend_with_its_first() {
    let mut rig = Rig::new();
    let key = rig.key("pipelined");
    let first = rig.counter.begin(key, Kind::Write, 0, 0);
    let behind: Vec<_> = (0..400).map(|_| rig.counter.begin_behind(key, 10, 0)).collect();
    let report = rig.tick();
    let heat = find(&report, "pipelined").expect("401 writes");
    assert!(equal(heat.writes_per_second, 401.0), "{heat:?}");
    assert_eq!(heat.writes_in_flight, 0, "named after its first, with nothing in flight since");
    let second_client = rig.counter.begin(key, Kind::Write, 0, 0);
    for tag in behind {
        assert!(tag.is_write());
        rig.counter.answered(tag, 5, false);
    }
    assert_eq!(find(&rig.tick(), "pipelined").expect("still").writes_in_flight, 1);
    // The first is answered last, and its being in flight apart from it.
    rig.counter.answered(second_client.grounded(), 5, false);
    assert_eq!(find(&rig.tick(), "pipelined").expect("still").writes_in_flight, 1);
    rig.counter.answered(second_client, 0, false);
    rig.counter.answered(first, 5, false);
    rig.tick();
    assert_eq!(find(&rig.tick(), "pipelined").expect("still").writes_in_flight, 0);
}

#[test]
fn thresholds_that_change_name_other_keys() {
    let mut rig = Rig::new();
    let absent = rig.key("absent");
    let miss = |rig: &mut Rig, times: usize| {
        for _ in 0..times {
            rig.counter.record(absent, Kind::Read, 5, true);
        }
        find(&rig.tick(), "absent").is_some()
    };
    let writes = |rig: &mut Rig, name: &str| {
        let key = rig.hasher.key(name.as_bytes());
        let tags: Vec<_> = (0..4).map(|_| rig.counter.begin(key, Kind::Write, 0, 0)).collect();
        for tag in tags {
            rig.counter.answered(tag, 0, false);
        }
        find(&rig.tick(), name).is_some()
    };
    let big = |rig: &mut Rig, name: &str| {
        rig.counter.record(rig.hasher.key(name.as_bytes()), Kind::Read, 30_000, false);
        find(&rig.tick(), name).is_some()
    };
    assert!(!miss(&mut rig, 30) && !writes(&mut rig, "contended") && !big(&mut rig, "big"));
    rig.counter.apply(&Settings {
        miss_storm_threshold: 50,
        write_contention_threshold: 6,
        hot_bytes_per_second: 20_000_000,
        ..Settings::default()
    });
    assert!(miss(&mut rig, 1) && writes(&mut rig, "contended") && big(&mut rig, "big"));
    // And back.
    rig.counter.apply(&Settings::default());
    assert!(!writes(&mut rig, "calm") && !big(&mut rig, "small"));
}

#[test]
fn every_threshold_is_shared_by_workers_and_proxies() {
    let named = |workers: usize, proxies: usize, use_it: &dyn Fn(&mut WorkerCounter, Key<'_>)| {
        let settings = Settings::default();
        let mut counter = WorkerCounter::new(&settings, workers, Duration::ZERO);
        counter.set_proxies(proxies);
        counter.set_report_threshold(settings.report_floor(proxies));
        use_it(&mut counter, KeyHasher::with_seed(5).key(b"k"));
        let mut snapshot = Snapshot::new();
        counter.drain_into(Duration::from_millis(50), &mut snapshot);
        snapshot.named_keys() == 1
    };
    let in_flight = |count: usize| {
        move |counter: &mut WorkerCounter, key: Key<'_>| {
            for _ in 0..count {
                let _ = counter.begin(key, Kind::Write, 0, 0);
            }
        }
    };
    // Half of sixteen; of one of four; and never less than two.
    assert!(named(1, 1, &in_flight(8)) && !named(1, 1, &in_flight(7)));
    assert!(named(4, 1, &in_flight(2)) && named(1, 2, &in_flight(4)));
    assert!(!named(1, 2, &in_flight(3)) && !named(4, 4, &in_flight(1)));
    let missed = |count: usize| {
        move |counter: &mut WorkerCounter, key: Key<'_>| {
            (0..count).for_each(|_| counter.record(key, Kind::Read, 0, true));
        }
    };
    // A quarter of five hundred, under the bar of the requests.
    assert!(named(1, 1, &missed(125)) && !named(1, 1, &missed(124)));
    assert!(named(1, 5, &missed(25)) && !named(1, 5, &missed(24)));
    let moved = |bytes: u64| {
        move |counter: &mut WorkerCounter, key: Key<'_>| {
            counter.record(key, Kind::Read, bytes, false);
        }
    };
    // The same for a request whatever the fleet, since there are fewer of them on each.
    for proxies in [1, 10, 25] {
        assert!(named(1, proxies, &moved(67_200)), "{proxies}");
        assert!(!named(1, proxies, &moved(60_000)), "{proxies}");
    }
}

#[test]
fn writes_that_meet_by_chance_raise_the_bar() {
    let settings = Settings::default();
    let mut counter = WorkerCounter::new(&settings, 8, Duration::ZERO);
    let hasher = KeyHasher::with_seed(5);
    let mut snapshot = Snapshot::new();
    let mut named_by = |name: &str, times: usize, now: u64| {
        let names: Vec<_> = (0..times).map(|n| format!("{name}{n}")).collect();
        for name in &names {
            let _ = counter.begin(hasher.key(name.as_bytes()), Kind::Write, 0, 0);
        }
        counter.drain_into(Duration::from_millis(now), &mut snapshot);
        snapshot.named_keys()
    };
    let before = named_by("a", 2000, 50);
    assert!(before > 400, "two to a cell are enough while few are out: {before}");
    let more = named_by("b", 500, 100) - before;
    assert!(more < 50, "{more} of 500 named by chance");
}

#[test]
fn what_follows_of_a_large_request_counts_for_its_key() {
    let mut rig = Rig::new();
    let (named, unnamed) = (rig.key("named"), rig.key("unnamed"));
    let tag = rig.counter.begin(named, Kind::Write, 100_000, 0);
    rig.counter.moved(tag, 900_000, 1_000_000);
    rig.counter.answered(tag, 5, false);
    let tag = rig.counter.begin(unnamed, Kind::Write, 60_000, 0);
    rig.counter.moved(tag, 20_000, 80_000);
    rig.counter.answered(tag, 5, false);
    let report = rig.tick();
    assert!(equal(find(&report, "named").expect("large").bytes_per_second, 1_000_005.0));
    assert_eq!(find(&report, "unnamed"), None);
    rig.counter.record(unnamed, Kind::Read, 1, false);
    assert!(find(&rig.tick(), "unnamed").is_some(), "its next request has told its name");
}

/// Requests of others, spread so that each cell of the sketch has some.
fn crowd(rig: &mut Rig) {
    for number in 0..40_000 {
        rig.reads(&format!("other:{number}"), 1);
    }
}

#[test]
fn a_followed_key_is_counted_exactly_in_a_crowd() {
    let mut rig = Rig::new();
    let names = ["idle", "rare"];
    let keys = names.map(|name| rig.hasher.key(name.as_bytes()));
    crowd(&mut rig);
    rig.counter.drain_into(rig.now, &mut rig.snapshot);
    let estimated = Merger::new().merge_with(rig.now, &[&rig.snapshot], keys);
    assert!(find(&estimated, "idle").is_some(), "the crowd makes the sketch say too much");
    rig.counter.follow(keys);
    // What was counted before leaves the window with it.
    for _ in 0..25 {
        rig.tick();
    }
    crowd(&mut rig);
    rig.reads("rare", 3);
    rig.now += Duration::from_millis(50);
    rig.counter.drain_into(rig.now, &mut rig.snapshot);
    let report = Merger::new().merge_with(rig.now, &[&rig.snapshot], keys);
    assert!(find(&report, "idle").is_none());
    let rare = find(&report, "rare").expect("counted");
    assert!(equal(rare.reads_per_second, 3.0) && equal(rare.error_per_second, 0.0), "{rare:?}");
    // Nobody follows them any more: the names go.
    rig.counter.follow([]);
    for _ in 0..25 {
        rig.tick();
    }
    assert!(rig.snapshot.entries.iter().all(|entry| rig.snapshot.key(entry) != b"rare"));
}

#[test]
fn followed_keys_leave_room_for_hot_ones() {
    let settings = Settings { table_entries: 8, ..Settings::default() };
    let mut rig = Rig::with(&settings);
    let names: Vec<String> = (0..100).map(|number| format!("followed:{number}")).collect();
    let keys: Vec<_> = names.iter().map(|name| rig.hasher.key(name.as_bytes())).collect();
    rig.counter.follow(keys.iter().copied());
    for number in 0..4 {
        rig.reads(&format!("hot:{number}"), 1000);
    }
    let report = rig.tick();
    assert_eq!(report.keys.len(), 4, "{:?}", report.keys);
    assert_eq!(rig.snapshot.entries.len(), 8);
}

#[test]
fn gathered_requests_count_like_single_ones() {
    let (mut singly, mut gathered) = (Rig::new(), Rig::new());
    for batch in [1, 64, 0, 500, 64, 3] {
        singly.reads("a", batch);
        singly.reads("b", batch / 60);
        for (name, requests) in [("a", batch), ("b", batch / 60)] {
            let key = gathered.hasher.key(name.as_bytes());
            gathered.counter.record_many(key, Kind::Read, requests as u32);
        }
        let (one, other) = (singly.tick(), gathered.tick());
        assert!(equal(one.reads_per_second, other.reads_per_second));
        let rate = |report: &Report| find(report, "a").map(|heat| heat.reads_per_second);
        assert_eq!(rate(&one), rate(&other));
        let named = |report: &Report| find(report, "b").is_some();
        assert_eq!(named(&one), named(&other));
    }
}
