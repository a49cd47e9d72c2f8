use super::{Pause, Phase, SplitRecord};
use crate::entry::{Entry, Mitigation, Origin, Status};
use crate::wire;

fn entry(mitigation: Mitigation, factor: u32) -> Entry {
    Entry {
        mitigation,
        split_factor: factor,
        ttl_seconds: None,
        origin: Origin::Manual,
        status: Status::Active,
        reason: "why".to_owned(),
        dry_run: false,
        frequency: 0.0,
        reads_per_second: 0.0,
        writes_per_second: 0.0,
        detected_at_ms: 0,
        split: None,
        pause: None,
    }
}

fn split(factor: u32, phase: Phase) -> Entry {
    let record = SplitRecord {
        id: "id".to_owned(),
        kind: "set".to_owned(),
        tags: (0..factor).map(|shard| shard.to_string()).collect(),
        expires: true,
        phase,
        mover: "me".to_owned(),
        ends_at_ms: None,
        removal: None,
    };
    Entry { split: Some(record), ..entry(Mitigation::Split, factor) }
}

fn phase(entry: &Entry) -> Option<Phase> {
    entry.split.as_ref().map(|split| split.phase)
}

#[test]
fn an_entry_of_an_older_release_is_read_and_one_without_a_split_looks_like_it() {
    let plain = entry(Mitigation::Coalesce, 1);
    let body = wire::encode_entry(&plain);
    let text = String::from_utf8(body.clone()).expect("JSON");
    assert!(!text.contains("\"split\"") && !text.contains("\"pause\""), "{text}");
    assert_eq!(wire::decode_entry(&body), Ok(plain));
    let mut full = split(2, Phase::Draining).leaving(5).expect("it has a split");
    full.pause = Some(Pause { until_ms: 1, length_ms: 2, why: "so".to_owned() });
    assert_eq!(wire::decode_entry(&wire::encode_entry(&full)), Ok(full));
}

#[test]
fn what_is_wanted_does_not_change_where_the_value_is() {
    // The same again: nothing to do.
    let kept = split(4, Phase::Split).replaced_by(entry(Mitigation::Split, 4), 0);
    assert_eq!((phase(&kept), kept.status), (Some(Phase::Split), Status::Active));
    // Another factor, or something else: it has to be made whole first.
    for wanted in [entry(Mitigation::Split, 8), entry(Mitigation::LocalCache, 1)] {
        let replaced = split(4, Phase::Split).replaced_by(wanted.clone(), 0);
        assert_eq!(phase(&replaced), Some(Phase::Draining), "{wanted:?}");
        assert_eq!(replaced.split.as_ref().map(|split| split.tags.len()), Some(4));
        assert_eq!(replaced.split.as_ref().map(|split| split.mover.as_str()), Some(""));
        assert_eq!(replaced.mitigation, wanted.mitigation);
    }
    // While it is moved, the mover goes on; it sees afterwards what is wanted.
    for under_way in [Phase::Freezing, Phase::Draining] {
        let replaced = split(4, under_way).replaced_by(entry(Mitigation::Coalesce, 1), 0);
        assert_eq!(phase(&replaced), Some(under_way));
        assert!(replaced.outgrew_split(0));
    }
}

#[test]
fn a_removal_waits_until_the_value_is_whole_and_a_later_promote_takes_it_back() {
    let leaving = split(4, Phase::Split).leaving(300_000).expect("it has a split");
    assert_eq!(phase(&leaving), Some(Phase::Draining));
    assert!(!leaving.wants_split());
    let back = leaving.replaced_by(entry(Mitigation::Split, 4), 0);
    assert_eq!(back.split.as_ref().and_then(|split| split.removal), None);
    assert!(back.wants_split());
    // It is on its way, and is split anew afterwards.
    assert_eq!(phase(&back), Some(Phase::Draining));
    let frozen = split(4, Phase::Freezing).leaving(0).expect("it has a split");
    assert_eq!(phase(&frozen), Some(Phase::Freezing));
    assert!(frozen.outgrew_split(0));
    assert_eq!(entry(Mitigation::Split, 4).leaving(0), None);
}

#[test]
fn the_end_of_a_manual_entry_is_kept_in_it() {
    let wanted = Entry { ttl_seconds: Some(10), ..entry(Mitigation::Split, 4) };
    let kept = split(4, Phase::Split).replaced_by(wanted, 1_000);
    assert!(!kept.outgrew_split(10_999));
    assert!(kept.outgrew_split(11_000));
}

#[test]
fn pauses_grow_while_they_follow_each_other() {
    let first = Pause::after(None, 0, 60, 600, String::new());
    assert_eq!((first.until_ms, first.length_ms), (60, 60));
    let second = Pause::after(Some(&first), 100, 60, 600, String::new());
    assert_eq!((second.until_ms, second.length_ms), (220, 120));
    let long = Pause { length_ms: 500, ..second.clone() };
    assert_eq!(Pause::after(Some(&long), 230, 60, 600, String::new()).length_ms, 600);
    assert_eq!(Pause::after(Some(&second), 820, 60, 600, String::new()).length_ms, 60);
}
