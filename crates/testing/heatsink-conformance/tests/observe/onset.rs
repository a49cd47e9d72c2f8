//! From the first request of a key that gets hot to its report, with real traffic and time.

use std::time::{Duration, Instant};

use heatsink_conformance::Rig;
use heatsink_detect::config::Settings;
use heatsink_detect::heat::HeatKind;
use heatsink_detect::tracker::{Event, Tracker};
use heatsink_testkit::encode;

#[test]
fn a_key_that_gets_hot_is_reported_at_the_next_tick_and_cools_down() {
    let settings = Settings { hold_seconds: 1, ..Settings::default() };
    let mut rig = Rig::new(2);
    let mut detector = rig.heatsink_mut().take_detector().expect("it counts");
    let mut tracker = Tracker::new(&settings);
    let mut client = rig.client();
    client.command(&["SET", "viral", "x"]);
    let began = Instant::now();
    client.send_raw(&encode(&["GET", "viral"]).repeat(1200));
    for _ in 0..1200 {
        client.read_frame();
    }
    let sent = began.elapsed();
    let mut next = |events: &mut Vec<Event>| {
        let wait = detector.next_tick().saturating_duration_since(Instant::now());
        std::thread::sleep(wait);
        let report = detector.tick();
        events.extend(tracker.tick(detector.now(), &report));
    };
    let mut events = Vec::new();
    while events.is_empty() {
        next(&mut events);
        assert!(began.elapsed() < Duration::from_secs(5), "not found");
    }
    let found = began.elapsed();
    let [Event::Hot { heat, kind: HeatKind::Rate, level, .. }] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(heat.key, b"viral");
    assert!((1200.0..1300.0).contains(level), "{level}");
    // Two ticks at most, and a machine that has other things to do.
    assert!(found < sent + Duration::from_millis(400), "found after {found:?}, sent {sent:?}");

    events.clear();
    while events.is_empty() {
        next(&mut events);
        assert!(began.elapsed() < Duration::from_secs(10), "not cooled down");
    }
    assert!(matches!(&events[..], [Event::Cooled { key, .. }] if key == b"viral"), "{events:?}");
}
