//! Order, gaps, snapshots, blocks, and what becomes of a lost store.

use std::time::Duration;

use super::{Change, MAX_WAITING, Registry, Snapshot, Stored, What};
use crate::entry::{Entry, Mitigation, Origin, Status};

const RETRY: Duration = Duration::from_millis(500);

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn entry(origin: Origin) -> Entry {
    Entry {
        mitigation: Mitigation::LocalCache,
        split_factor: 1,
        ttl_seconds: None,
        origin,
        status: Status::Active,
        reason: String::new(),
        dry_run: false,
        frequency: 0.0,
        reads_per_second: 0.0,
        writes_per_second: 0.0,
        detected_at_ms: 0,
        split: None,
        pause: None,
    }
}

fn put(version: u64, key: &str, origin: Origin) -> Change {
    let what = What::Put { entry: entry(origin), remaining: None };
    Change { version, key: key.into(), what }
}

fn removed(version: u64, key: &str, blocked_ms: Option<u64>) -> Change {
    let what = What::Removed { blocked_for: blocked_ms.map(at) };
    Change { version, key: key.into(), what }
}

fn snapshot(incarnation: &str, version: u64, records: &[(&str, u64, Origin)]) -> Snapshot {
    let stored = |epoch, origin| Stored { epoch, entry: entry(origin), remaining: None };
    Snapshot {
        incarnation: incarnation.into(),
        version,
        records: records
            .iter()
            .map(|&(key, epoch, origin)| (key.into(), stored(epoch, origin)))
            .collect(),
        blocked: Vec::new(),
    }
}

fn read(registry: &mut Registry, now: Duration, snapshot: Snapshot) {
    registry.begin_snapshot();
    registry.on_snapshot(now, snapshot);
}

fn synced(version: u64, records: &[(&str, u64, Origin)]) -> Registry {
    let mut registry = Registry::new();
    assert!(registry.wants_snapshot() && registry.incarnation().is_none());
    read(&mut registry, at(0), snapshot("one", version, records));
    assert!(registry.is_synced());
    registry
}

fn epochs(registry: &Registry) -> Vec<(String, u64)> {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let mut all: Vec<_> = registry.iter().map(|(key, record)| (text(key), record.epoch)).collect();
    all.sort();
    all
}

fn reclaimed(registry: &mut Registry, now: Duration) -> Vec<(String, u64)> {
    let text = |key: Vec<u8>| String::from_utf8_lossy(&key).into_owned();
    let lost = registry.reclaims(now, RETRY);
    let mut lost: Vec<_> =
        lost.into_iter().map(|lost| (text(lost.key), lost.expects_epoch)).collect();
    lost.sort();
    lost
}

#[test]
fn changes_in_order_are_applied() {
    let mut registry = synced(3, &[("a", 3, Origin::Auto)]);
    let generation = registry.generation();
    registry.on_change(at(1), put(4, "b", Origin::Auto));
    registry.on_change(at(2), removed(5, "a", None));
    assert_eq!(epochs(&registry), [("b".into(), 4)]);
    assert_eq!((registry.version(), registry.is_synced()), (5, true));
    assert!(registry.generation() > generation);
}

#[test]
fn after_a_gap_nothing_is_applied_until_a_snapshot() {
    let mut registry = synced(3, &[]);
    registry.on_change(at(1), put(5, "b", Origin::Auto));
    assert!(registry.wants_snapshot() && registry.is_empty());
    registry.begin_snapshot();
    assert!(!registry.wants_snapshot());
    // While the snapshot of version 5 is read, 5 comes again and 6 is made.
    registry.on_change(at(2), put(6, "c", Origin::Auto));
    assert!(registry.is_empty());
    let records = [("a", 4, Origin::Auto), ("b", 5, Origin::Auto)];
    registry.on_snapshot(at(3), snapshot("one", 5, &records));
    assert_eq!(epochs(&registry), [("a".into(), 4), ("b".into(), 5), ("c".into(), 6)]);
    assert!(registry.is_synced());
}

#[test]
fn what_a_snapshot_held_already_is_not_applied_again() {
    let mut registry = synced(3, &[("a", 2, Origin::Auto)]);
    registry.on_change(at(10), removed(2, "a", None));
    assert_eq!(epochs(&registry), [("a".into(), 2)]);
    assert!(registry.is_synced(), "right after a snapshot that is ordinary");
    registry.on_change(at(5000), put(1, "x", Origin::Auto));
    assert!(registry.wants_snapshot(), "much later it may be a store that counts anew");
}

#[test]
fn messages_of_an_earlier_store_do_not_linger() {
    let mut registry = synced(500, &[]);
    registry.on_change(at(1), put(502, "old", Origin::Auto));
    read(&mut registry, at(2), snapshot("two", 1, &[("new", 1, Origin::Auto)]));
    assert_eq!(epochs(&registry), [("new".into(), 1)]);
    assert!(registry.is_synced());
    registry.on_change(at(3), put(2, "next", Origin::Auto));
    assert_eq!(registry.len(), 2);
}

#[test]
fn too_many_waiting_changes_lead_to_another_snapshot() {
    let mut registry = synced(0, &[]);
    registry.begin_snapshot();
    for version in 1..=MAX_WAITING as u64 + 1 {
        registry.on_change(at(1), put(version, "a", Origin::Auto));
    }
    registry.on_snapshot(at(2), snapshot("one", 0, &[]));
    assert!(registry.wants_snapshot());
}

#[test]
fn a_failed_read_is_wanted_again() {
    let mut registry = synced(1, &[("a", 1, Origin::Auto)]);
    registry.desync();
    registry.begin_snapshot();
    registry.snapshot_failed();
    assert!(registry.wants_snapshot());
    assert_eq!(registry.len(), 1, "the last copy is kept");
    registry.begin_snapshot();
    registry.desync();
    registry.on_snapshot(at(1), snapshot("one", 1, &[("a", 1, Origin::Auto)]));
    assert!(registry.wants_snapshot(), "a reconnect while it was read");
}

#[test]
fn a_snapshot_that_changes_nothing_keeps_the_generation() {
    let mut registry = synced(1, &[("a", 1, Origin::Auto)]);
    let generation = registry.generation();
    read(&mut registry, at(9), snapshot("one", 1, &[("a", 1, Origin::Auto)]));
    assert_eq!(registry.generation(), generation);
    read(&mut registry, at(9), snapshot("one", 2, &[("a", 2, Origin::Auto)]));
    assert_ne!(registry.generation(), generation);
}

#[test]
fn blocks_end_by_time_or_by_a_put() {
    let mut registry = synced(0, &[]);
    registry.on_change(at(0), put(1, "a", Origin::Auto));
    registry.on_change(at(0), removed(2, "a", Some(300)));
    assert_eq!(registry.blocked_for(at(100), b"a"), Some(at(200)));
    assert_eq!(registry.blocked_for(at(300), b"a"), None);
    registry.on_change(at(100), put(3, "a", Origin::Manual));
    assert_eq!(registry.blocked_for(at(100), b"a"), None);
    let blocked = vec![(b"b".to_vec(), at(50))];
    read(&mut registry, at(100), Snapshot { blocked, ..snapshot("one", 3, &[]) });
    assert_eq!(registry.blocked_for(at(100), b"b"), Some(at(50)));
    // A store that lost its data knows of no block; this process does.
    read(&mut registry, at(110), snapshot("two", 0, &[]));
    assert_eq!(registry.blocked_for(at(110), b"b"), Some(at(40)));
}

#[test]
fn times_are_this_process_s_own() {
    let mut registry = synced(0, &[]);
    let what = What::Put { entry: entry(Origin::Auto), remaining: Some(at(1000)) };
    registry.on_change(at(5000), Change { version: 1, key: b"a".to_vec(), what });
    let left = |registry: &Registry, now| registry.get(b"a").expect("there").remaining(now);
    assert_eq!(left(&registry, at(5400)), Some(at(600)));
    registry.renewed(at(5500), b"a", 9, at(9000));
    assert_eq!(left(&registry, at(5500)), Some(at(500)), "another epoch was renewed");
    registry.renewed(at(5500), b"a", 1, at(9000));
    assert_eq!(left(&registry, at(5500)), Some(at(9000)));
    assert!(!registry.get(b"a").expect("there").is_expired(at(14_499)));
    assert!(registry.get(b"a").expect("there").is_expired(at(14_500)));
}

#[test]
fn an_own_change_holds_at_once_and_its_message_changes_nothing() {
    let mut registry = synced(1, &[("a", 1, Origin::Auto)]);
    registry.acknowledge(at(1), put(3, "a", Origin::Manual));
    assert_eq!(epochs(&registry), [("a".into(), 3)]);
    assert_eq!(registry.version(), 1);
    // Version 2 was somebody else's change of the same key, and is older.
    registry.on_change(at(2), put(2, "a", Origin::Auto));
    assert_eq!(epochs(&registry), [("a".into(), 3)]);
    registry.on_change(at(3), put(3, "a", Origin::Manual));
    registry.on_change(at(4), removed(4, "a", None));
    assert!(registry.is_empty() && registry.is_synced());
    registry.acknowledge(at(5), put(3, "a", Origin::Manual));
    assert!(registry.is_empty(), "the message was faster than the answer");
}

#[test]
fn an_own_removal_is_not_undone_by_an_older_message() {
    let mut registry = synced(1, &[("a", 1, Origin::Auto)]);
    registry.acknowledge(at(1), removed(3, "a", Some(1000)));
    registry.on_change(at(2), put(2, "a", Origin::Auto));
    assert!(registry.is_empty());
    assert!(registry.blocked_for(at(2), b"a").is_some());
}

#[test]
fn an_own_change_outlives_a_snapshot_that_was_asked_for_before_it() {
    let mut registry = synced(1, &[]);
    registry.begin_snapshot();
    registry.acknowledge(at(1), put(2, "a", Origin::Manual));
    registry.on_snapshot(at(2), snapshot("one", 1, &[]));
    assert_eq!(epochs(&registry), [("a".into(), 2)]);
    assert!(registry.wants_snapshot(), "the next one tells");
    // The next one was asked for after it and does not have it: it is lost.
    read(&mut registry, at(3), snapshot("one", 1, &[]));
    assert!(registry.is_empty());
    assert_eq!(reclaimed(&mut registry, at(3)), [("a".into(), 0)]);
}

#[test]
fn a_lost_store_gets_manual_records_back() {
    let records = [("mine", 1, Origin::Manual), ("auto", 2, Origin::Auto)];
    let mut registry = synced(2, &records);
    assert!(reclaimed(&mut registry, at(1)).is_empty());
    read(&mut registry, at(2), snapshot("two", 1, &[("mine", 1, Origin::Auto)]));
    assert_eq!(reclaimed(&mut registry, at(2)), [("mine".into(), 1)], "over an automatic one");
    assert!(reclaimed(&mut registry, at(100)).is_empty(), "not at every tick");
    assert_eq!(reclaimed(&mut registry, at(502)), [("mine".into(), 1)]);
    registry.on_change(at(600), put(2, "mine", Origin::Manual));
    assert!(reclaimed(&mut registry, at(2000)).is_empty());
}

#[test]
fn a_later_word_of_an_operator_ends_a_reclaim() {
    let lost = || {
        let mut registry = synced(1, &[("mine", 1, Origin::Manual)]);
        read(&mut registry, at(2), snapshot("two", 0, &[]));
        registry
    };
    let mut registry = lost();
    registry.on_change(at(3), put(1, "mine", Origin::Auto));
    assert_eq!(reclaimed(&mut registry, at(4)), [("mine".into(), 1)]);
    registry.on_change(at(5), removed(2, "mine", Some(1000)));
    assert!(reclaimed(&mut registry, at(2000)).is_empty());

    let mut registry = lost();
    let blocked = vec![(b"mine".to_vec(), at(1000))];
    read(&mut registry, at(3), Snapshot { blocked, ..snapshot("two", 2, &[]) });
    assert!(reclaimed(&mut registry, at(4)).is_empty());

    let mut registry = lost();
    read(&mut registry, at(3), snapshot("two", 1, &[("mine", 1, Origin::Manual)]));
    assert!(reclaimed(&mut registry, at(4)).is_empty());

    let mut registry = synced(1, &[("mine", 1, Origin::Manual)]);
    read(&mut registry, at(3), snapshot("two", 1, &[("mine", 1, Origin::Manual)]));
    assert!(reclaimed(&mut registry, at(4)).is_empty(), "somebody else was faster");
}

#[test]
fn a_store_that_went_back_gets_only_what_it_lost() {
    let records = [("early", 1, Origin::Manual), ("late", 3, Origin::Manual)];
    let mut registry = synced(3, &records);
    read(&mut registry, at(1), snapshot("one", 2, &[("late", 2, Origin::Manual)]));
    // `early` was removed by change 2, which this process had not missed: it was synced.
    assert_eq!(reclaimed(&mut registry, at(1)), [("late".into(), 2)]);
}

/// A block of a store that is gone says nothing of a key that the next one has.
#[test]
fn a_block_of_a_lost_store_does_not_outlive_a_promote() {
    let mut registry = synced(1, &[("mine", 1, Origin::Manual)]);
    registry.on_change(at(1), removed(2, "mine", Some(300_000)));
    read(&mut registry, at(2), snapshot("two", 0, &[]));
    assert!(registry.blocked_for(at(2), b"mine").is_some(), "kept, nobody has said otherwise");
    assert!(reclaimed(&mut registry, at(2)).is_empty());
    // Promoted while this process did not listen.
    read(&mut registry, at(3), snapshot("three", 1, &[("mine", 1, Origin::Manual)]));
    assert_eq!(registry.blocked_for(at(3), b"mine"), None);
    read(&mut registry, at(4), snapshot("four", 0, &[]));
    assert_eq!(reclaimed(&mut registry, at(4)), [("mine".into(), 0)]);
    assert!(!registry.outlives_block(b"mine"), "the new store has none");
}

/// The interleaving at the head of `orphans`.
#[test]
fn a_block_that_is_older_than_a_lost_promote_does_not_end_it() {
    let blocked = |left_ms| vec![(b"mine".to_vec(), at(left_ms))];
    let mut registry = synced(9, &[]);
    registry.on_change(at(1), removed(10, "mine", Some(60_000)));
    registry.acknowledge(at(2), put(11, "mine", Origin::Manual));
    let back = Snapshot { blocked: blocked(59_990), ..snapshot("one", 10, &[]) };
    read(&mut registry, at(3), back.clone());
    assert!(registry.outlives_block(b"mine"));
    assert_eq!(reclaimed(&mut registry, at(3)), [("mine".into(), 0)]);
    read(&mut registry, at(600), Snapshot { blocked: blocked(59_500), ..back.clone() });
    assert_eq!(reclaimed(&mut registry, at(600)), [("mine".into(), 0)], "the same block");
    read(&mut registry, at(5000), Snapshot { blocked: blocked(60_000), ..back });
    assert!(reclaimed(&mut registry, at(9000)).is_empty(), "an operator removed it since");
    assert!(!registry.outlives_block(b"mine"));
}

#[test]
fn a_copy_is_current_while_a_snapshot_would_tell_nothing_new() {
    const SOON: Duration = Duration::from_secs(7);
    let mut registry = synced(4, &[("mine", 3, Origin::Manual)]);
    assert!(registry.is_current(at(0), Some(4), SOON));
    assert!(!registry.is_current(at(0), None, SOON), "the store has not said");
    assert!(!registry.is_current(at(0), Some(5), SOON), "something was missed");
    // What is renewed is not told: before its time seems to be over, it has to be read.
    let what = What::Put { entry: entry(Origin::Auto), remaining: Some(at(60_000)) };
    registry.on_change(at(1), Change { version: 5, key: b"auto".to_vec(), what });
    assert!(registry.is_current(at(50_000), Some(5), SOON));
    assert!(!registry.is_current(at(54_000), Some(5), SOON));
    // For how long a removed key is blocked is not told either.
    registry.on_change(at(2), removed(6, "auto", None));
    assert!(!registry.is_current(at(3), Some(6), SOON));
    read(&mut registry, at(4), snapshot("one", 6, &[("mine", 3, Origin::Manual)]));
    assert!(registry.is_current(at(4), Some(6), SOON));
    registry.desync();
    assert!(!registry.is_current(at(5), Some(6), SOON));
}
