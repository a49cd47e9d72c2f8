//! Onset, hold, hovering, silence.

use std::time::Duration;

use super::{Event, Tracker};
use crate::config::Settings;
use crate::heat::{HeatKind, KeyHeat};
use crate::report::Report;

fn reads(key: &str, reads_per_second: f64) -> KeyHeat {
    KeyHeat { key: key.into(), reads_per_second, ..KeyHeat::default() }
}

fn report(keys: impl IntoIterator<Item = KeyHeat>) -> Report {
    Report { keys: keys.into_iter().collect(), ..Report::default() }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn tracker() -> Tracker {
    Tracker::new(&Settings { hold_seconds: 2, ..Settings::default() })
}

#[test]
fn a_crossing_is_told_once_and_at_once() {
    let mut tracker = tracker();
    assert_eq!(tracker.tick(ms(50), &report([reads("a", 999.0)])), []);
    let events = tracker.tick(ms(100), &report([reads("a", 1000.0), reads("b", 10.0)]));
    let [Event::Hot { heat, kind, level, threshold }] = events.as_slice() else {
        panic!("one onset, not {events:?}");
    };
    assert_eq!((heat.key.as_slice(), *kind), (b"a".as_slice(), HeatKind::Rate));
    assert!((level - threshold).abs() < f64::EPSILON);
    assert_eq!(tracker.tick(ms(150), &report([reads("a", 5000.0)])), []);
    assert!(tracker.is_hot(b"a") && !tracker.is_hot(b"b"));
}

#[test]
fn an_estimate_without_half_of_it_certain_is_not_heat() {
    let mut tracker = tracker();
    let heat = KeyHeat { error_per_second: 501.0, ..reads("a", 1000.0) };
    assert_eq!(tracker.tick(ms(50), &report([heat.clone()])), []);
    let heat = KeyHeat { error_per_second: 500.0, ..heat };
    assert_eq!(tracker.tick(ms(100), &report([heat])).len(), 1);
}

#[test]
fn hovering_between_the_limits_changes_nothing() {
    let mut tracker = tracker();
    assert_eq!(tracker.tick(ms(0), &report([reads("a", 1500.0)])).len(), 1);
    for tick in 1..400_u32 {
        let rate = [1100.0, 900.0, 501.0, 1001.0][tick as usize % 4];
        assert_eq!(tracker.tick(ms(50) * tick, &report([reads("a", rate)])), []);
    }
}

#[test]
fn dips_shorter_than_the_hold_do_not_cool_a_key() {
    let mut tracker = tracker();
    assert_eq!(tracker.tick(ms(0), &report([reads("a", 1500.0)])).len(), 1);
    // 1.95 s below, one tick at the retire fraction, again and again.
    for tick in 1..400_u32 {
        let rate = if tick % 40 == 0 { 500.0 } else { 100.0 };
        assert_eq!(tracker.tick(ms(50) * tick, &report([reads("a", rate)])), []);
    }
}

#[test]
fn a_key_that_stops_is_retired_after_the_hold_and_can_come_back() {
    let mut tracker = tracker();
    assert_eq!(tracker.tick(ms(0), &report([reads("a", 1500.0)])).len(), 1);
    for tick in 1..=40_u32 {
        assert_eq!(tracker.tick(ms(50) * tick, &report([])), [], "tick {tick}");
    }
    let cooled = Event::Cooled {
        key: b"a".to_vec(),
        kind: HeatKind::Rate,
        hot_for: ms(2050),
        still_hot: false,
    };
    assert_eq!(tracker.tick(ms(2050), &report([])), [cooled]);
    assert_eq!(tracker.hot_keys().count(), 0);
    assert_eq!(tracker.tick(ms(2100), &report([])), []);
    assert_eq!(tracker.tick(ms(2150), &report([reads("a", 1500.0)])).len(), 1);
}

#[test]
fn absorbed_requests_keep_a_key_hot() {
    let mut tracker = tracker();
    let absorbed = KeyHeat { absorbed_per_second: 1490.0, ..reads("a", 1500.0) };
    assert_eq!(tracker.tick(ms(0), &report([absorbed.clone()])).len(), 1);
    for tick in 1..400_u32 {
        assert_eq!(tracker.tick(ms(50) * tick, &report([absorbed.clone()])), []);
    }
}

#[test]
fn each_kind_of_heat_has_its_own_beginning_and_end() {
    let mut tracker = tracker();
    let all = KeyHeat {
        bytes_per_second: 1e9,
        misses_per_second: 600.0,
        writes_in_flight: 16,
        ..reads("a", 2000.0)
    };
    let kinds: Vec<HeatKind> = tracker
        .tick(ms(0), &report([all.clone()]))
        .iter()
        .map(|event| match event {
            Event::Hot { kind, .. } => *kind,
            Event::Cooled { .. } => panic!("nothing has cooled"),
        })
        .collect();
    assert_eq!(kinds, HeatKind::ALL);
    let rate_only = reads("a", 2000.0);
    assert_eq!(tracker.tick(ms(50), &report([rate_only.clone()])), []);
    let events = tracker.tick(ms(2050), &report([rate_only]));
    assert_eq!(events.len(), 3);
    for event in &events {
        assert!(
            matches!(event, Event::Cooled { kind, still_hot: true, .. } if *kind != HeatKind::Rate),
            "{event:?}"
        );
    }
    assert!(tracker.is_hot(b"a"));
}

#[test]
fn the_number_of_hot_keys_is_bounded() {
    let mut tracker = Tracker::new(&Settings { max_hot_keys: 2, ..Settings::default() });
    let keys = || ["a", "b", "c"].map(|key| reads(key, 2000.0));
    assert_eq!(tracker.tick(ms(0), &report(keys())).len(), 2);
    assert_eq!((tracker.hot_keys().count(), tracker.left_out()), (2, 1));
    assert!(!tracker.is_hot(b"c"));
}
