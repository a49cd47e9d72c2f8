use super::*;

fn sample(at_ms: u64, keys: impl Iterator<Item = u64>) -> Sample {
    let figures = KeySample { reads_per_second: at_ms as f64, ..KeySample::default() };
    let keys = keys.map(|key| (key.to_be_bytes().to_vec(), figures)).collect();
    Sample { at_ms, keys, ..Sample::default() }
}

fn removed(id: u64, key: &[u8]) -> Event {
    let change = Change::Removed { key: key.to_vec(), reason: id.to_string() };
    Event { id, at_ms: id, change }
}

#[test]
fn all_of_it_is_bounded() {
    let mut history = History::default();
    for tick in 0..1000_u64 {
        // A hundred new keys each time.
        history.keep(&sample(tick, tick * 100..tick * 100 + 100));
        history.decided(removed(tick, b"a"));
    }
    assert_eq!(history.fleet(usize::MAX).count(), SAMPLES);
    assert_eq!(
        history.fleet(5).map(|(at_ms, _)| *at_ms).collect::<Vec<_>>(),
        [995, 996, 997, 998, 999]
    );
    assert!(history.keys.len() <= SERIES, "{}", history.keys.len());
    assert_eq!(history.keys(1).count(), 100, "the newest are there");
    assert_eq!(history.decisions(b"a").count(), DECISIONS);
    assert_eq!(history.decisions(b"a").last().map(|decision| decision.at_ms), Some(999));
    assert_eq!(history.decisions(b"b").count(), 0);
}

#[test]
fn a_key_is_forgotten_with_its_last_sample() {
    let mut history = History::default();
    history.keep(&sample(0, 7..8));
    for tick in 1..SAMPLES as u64 {
        history.keep(&sample(tick, 0..0));
    }
    assert_eq!(history.key(&7_u64.to_be_bytes()).count(), 1);
    assert_eq!(history.keys(1).count(), 0, "it is not in the last sample");
    assert_eq!(history.keys(SAMPLES).count(), 1);
    history.keep(&sample(SAMPLES as u64, 0..0));
    assert_eq!(history.key(&7_u64.to_be_bytes()).count(), 0);
}
