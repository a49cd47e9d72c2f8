//! What the store promises, shown on each kind of store.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heatsink_coordination::{
    Channel, Expects, Member, Notice, Put, PutOutcome, RemoveOutcome, RenewOutcome, StoreError,
};
use support::{Backend, applied, body, contents, eventually, expecting, listen, next, settings};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(40);

/// Every function here is a test on every kind of store.
macro_rules! on_each_store {
    ($($name:ident)*) => {
        mod memory { $(
            #[tokio::test(start_paused = true)]
            async fn $name() { super::$name(super::Backend::Memory).await }
        )* }
        mod server { $(
            #[tokio::test]
            async fn $name() { super::$name(super::Backend::Server).await }
        )* }
        mod cluster { $(
            #[tokio::test]
            async fn $name() { super::$name(super::Backend::Cluster).await }
        )* }
        mod sentinel { $(
            #[tokio::test]
            async fn $name() { super::$name(super::Backend::Sentinel).await }
        )* }
    };
}

on_each_store! {
    a_put_is_applied_only_on_what_it_expects
    the_creation_time_is_kept_when_asked
    a_removed_key_is_blocked_for_automatic_puts
    blocks_are_bounded
    a_full_registry_takes_known_keys_only
    a_removal_is_applied_only_on_what_it_expects
    a_renewal_is_no_change
    records_expire_by_the_clock_of_the_store
    changes_are_told_in_order_and_add_up_to_the_snapshot
    of_two_writers_on_one_epoch_one_is_applied
    any_bytes_are_keys_and_bodies
    members_are_there_while_they_say_so
    members_come_and_go_for_all_handles
    acknowledgements_count_for_their_topic_and_their_time
    a_block_of_an_absent_key_is_told
    a_subscription_knows_the_version
    messages_reach_those_who_listen
    what_is_too_large_is_not_sent
    the_incarnation_stays
}

async fn a_put_is_applied_only_on_what_it_expects(backend: Backend) {
    let [one, two] = backend.handles(&settings());
    let first = applied(one.put(b"k", expecting(Expects::ABSENT, "1")).await.unwrap());
    let again = two.put(b"k", expecting(Expects::ABSENT, "2")).await.unwrap();
    assert_eq!(again, PutOutcome::Stale { epoch: first });
    let wrong = two.put(b"k", expecting(Expects::Epoch(first + 1), "2")).await.unwrap();
    assert_eq!(wrong, PutOutcome::Stale { epoch: first });
    let absent = two.put(b"other", expecting(Expects::Epoch(first), "2")).await.unwrap();
    assert_eq!(absent, PutOutcome::Stale { epoch: 0 });
    let second = applied(two.put(b"k", expecting(Expects::Epoch(first), "2")).await.unwrap());
    assert_eq!(second, first + 1, "refused puts are no changes");
    let third = applied(one.put(b"k", body("3")).await.unwrap());
    let snapshot = two.snapshot().await.unwrap();
    assert_eq!(snapshot.version, third);
    assert_eq!(contents(&snapshot), BTreeMap::from([(b"k".to_vec(), (third, b"3".to_vec()))]));
}

async fn the_creation_time_is_kept_when_asked(backend: Backend) {
    let [store] = backend.handles(&settings());
    let created = async || {
        let snapshot = store.snapshot().await.unwrap();
        (snapshot.records[0].created_at_ms, snapshot.server_time_ms)
    };
    store.put(b"k", body("1")).await.unwrap();
    let (first, now) = created().await;
    assert!(now - first < 10_000, "{first} is not now, {now}");
    eventually(async || match created().await {
        (_, now) if now > first => Ok(()),
        times => Err(times),
    })
    .await;
    let keep_created = true;
    store.put(b"k", Put { keep_created, ..body("2") }).await.unwrap();
    assert_eq!(created().await.0, first);
    store.put(b"k", body("3")).await.unwrap();
    assert!(created().await.0 > first);
    store.put(b"new", Put { keep_created, ..body("1") }).await.unwrap();
}

async fn a_removed_key_is_blocked_for_automatic_puts(backend: Backend) {
    let [store] = backend.handles(&settings());
    let automatic = Put { respects_block: true, ..body("auto") };
    store.put(b"k", automatic.clone()).await.unwrap();
    let removal = store.remove(b"k", Expects::Any, Some(LONG)).await.unwrap();
    assert!(matches!(removal, RemoveOutcome::Applied { .. }), "{removal:?}");
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.blocked.len(), 1);
    assert_eq!(snapshot.blocked[0].key, b"k");
    assert!(snapshot.blocked[0].remaining <= LONG);
    match store.put(b"k", automatic.clone()).await.unwrap() {
        PutOutcome::Blocked { remaining } => {
            assert!(remaining <= LONG && remaining > LONG / 2, "{remaining:?}");
        }
        other => panic!("{other:?}"),
    }
    // A manual put goes through and ends the block.
    let epoch = applied(store.put(b"k", body("manual")).await.unwrap());
    store.remove(b"k", Expects::Epoch(epoch), None).await.unwrap();
    applied(store.put(b"k", automatic.clone()).await.unwrap());

    // What is not there is blocked too, but not by one who believes in a certain record.
    let absent = store.remove(b"gone", Expects::Any, Some(LONG)).await.unwrap();
    assert_eq!(absent, RemoveOutcome::Absent);
    let blocked = store.put(b"gone", automatic.clone()).await.unwrap();
    assert!(matches!(blocked, PutOutcome::Blocked { .. }), "{blocked:?}");
    store.remove(b"free", Expects::Epoch(epoch), Some(LONG)).await.unwrap();
    applied(store.put(b"free", automatic.clone()).await.unwrap());

    // Blocks end by themselves.
    store.remove(b"soon", Expects::Any, Some(SHORT)).await.unwrap();
    eventually(async || match store.put(b"soon", automatic.clone()).await.unwrap() {
        PutOutcome::Applied { .. } => Ok(()),
        other => Err(other),
    })
    .await;
}

async fn blocks_are_bounded(backend: Backend) {
    let mut settings = settings();
    settings.max_records = 3;
    let [store] = backend.handles(&settings);
    for (key, seconds) in [(b"a", 30), (b"b", 20), (b"c", 40), (b"d", 50)] {
        store.remove(key, Expects::Any, Some(Duration::from_secs(seconds))).await.unwrap();
    }
    let snapshot = store.snapshot().await.unwrap();
    let blocked: BTreeSet<&[u8]> = snapshot.blocked.iter().map(|one| &one.key[..]).collect();
    assert_eq!(blocked, BTreeSet::from([&b"a"[..], b"c", b"d"]));
}

async fn a_full_registry_takes_known_keys_only(backend: Backend) {
    let mut settings = settings();
    settings.max_records = 2;
    let [store] = backend.handles(&settings);
    applied(store.put(b"a", body("1")).await.unwrap());
    applied(store.put(b"b", Put { ttl: Some(SHORT), ..body("1") }).await.unwrap());
    eventually(async || match store.snapshot().await.unwrap().records.len() {
        1 => Ok(()),
        count => Err(count),
    })
    .await;
    // The expired one makes room without a sweep.
    let version = applied(store.put(b"c", body("1")).await.unwrap());
    assert_eq!(store.put(b"d", body("1")).await.unwrap(), PutOutcome::Full);
    assert_eq!(store.snapshot().await.unwrap().version, version);
    applied(store.put(b"a", body("2")).await.unwrap());
    store.remove(b"a", Expects::Any, None).await.unwrap();
    applied(store.put(b"d", body("1")).await.unwrap());
}

async fn a_removal_is_applied_only_on_what_it_expects(backend: Backend) {
    let [one, two] = backend.handles(&settings());
    let old = applied(one.put(b"k", body("1")).await.unwrap());
    let new = applied(two.put(b"k", body("2")).await.unwrap());
    let stale = one.remove(b"k", Expects::Epoch(old), Some(LONG)).await.unwrap();
    assert_eq!(stale, RemoveOutcome::Stale { epoch: new });
    assert!(one.snapshot().await.unwrap().blocked.is_empty());
    assert_eq!(one.remove(b"k", Expects::ABSENT, None).await.unwrap(), stale);
    let done = one.remove(b"k", Expects::Epoch(new), None).await.unwrap();
    assert_eq!(done, RemoveOutcome::Applied { version: new + 1 });
    let late = two.remove(b"k", Expects::Epoch(new), None).await.unwrap();
    assert_eq!(late, RemoveOutcome::Absent);
    assert_eq!(two.remove(b"k", Expects::Any, None).await.unwrap(), RemoveOutcome::Absent);
    let snapshot = two.snapshot().await.unwrap();
    assert_eq!((snapshot.version, snapshot.records.len()), (new + 1, 0));
}

async fn a_renewal_is_no_change(backend: Backend) {
    let [store] = backend.handles(&settings());
    let ttl = Some(Duration::from_secs(5));
    let epoch = applied(store.put(b"k", Put { ttl, ..body("\0 1 2 3 ") }).await.unwrap());
    assert_eq!(store.renew(b"k", epoch, LONG).await.unwrap(), RenewOutcome::Applied);
    let wrong = store.renew(b"k", epoch - 1, LONG).await.unwrap();
    assert_eq!(wrong, RenewOutcome::Stale { epoch });
    let absent = store.renew(b"other", epoch, LONG).await.unwrap();
    assert_eq!(absent, RenewOutcome::Stale { epoch: 0 });
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.version, epoch);
    assert_eq!(
        (snapshot.records[0].epoch, &snapshot.records[0].body[..]),
        (epoch, &b"\0 1 2 3 "[..])
    );
    let left = snapshot.records[0].expires_in.unwrap();
    assert!(left > LONG / 2 && left <= LONG, "{left:?}");
    // One that never expires can be made to.
    let epoch = applied(store.put(b"ever", body("")).await.unwrap());
    store.renew(b"ever", epoch, SHORT).await.unwrap();
    eventually(async || match store.renew(b"ever", epoch, SHORT / 40).await.unwrap() {
        RenewOutcome::Stale { epoch: 0 } => Ok(()),
        other => Err(other),
    })
    .await;
}

async fn records_expire_by_the_clock_of_the_store(backend: Backend) {
    let [store] = backend.handles(&settings());
    let ever = applied(store.put(b"ever", body("1")).await.unwrap());
    assert_eq!(store.sweep().await.unwrap(), 0);
    let mut changes = listen(&store, &[]).await;
    let epoch = applied(store.put(b"k", Put { ttl: Some(SHORT), ..body("1") }).await.unwrap());
    let start_ms = match next(&mut changes).await {
        Notice::Change { record: Some(record), .. } => {
            assert_eq!(record.expires_in, Some(SHORT));
            record.created_at_ms
        }
        other => panic!("{other:?}"),
    };
    let gone_ms = eventually(async || {
        let snapshot = store.snapshot().await.unwrap();
        match snapshot.records.len() {
            1 => Ok(snapshot.server_time_ms),
            _ => Err(snapshot),
        }
    })
    .await;
    assert!(gone_ms >= start_ms + SHORT.as_millis() as u64, "{gone_ms} {start_ms}");
    assert_eq!(store.sweep().await.unwrap(), 1);
    assert_eq!(store.sweep().await.unwrap(), 0);
    assert_eq!(epoch, ever + 1);
    let removal = Notice::Change { version: epoch + 1, key: b"k".to_vec(), record: None };
    assert_eq!(next(&mut changes).await, removal);

    // Without a sweep it counts as absent, and whoever finds it so tells.
    let old = applied(store.put(b"k", Put { ttl: Some(SHORT), ..body("1") }).await.unwrap());
    let new = eventually(async || {
        match store.put(b"k", expecting(Expects::ABSENT, "2")).await.unwrap() {
            PutOutcome::Applied { version } => Ok(version),
            other => Err(other),
        }
    })
    .await;
    assert_eq!(new, old + 2, "the removal and the put");
    for (version, has_record) in [(old, true), (old + 1, false), (new, true)] {
        match next(&mut changes).await {
            Notice::Change { version: told, key, record } => {
                assert_eq!((told, &key[..], record.is_some()), (version, &b"k"[..], has_record));
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn changes_are_told_in_order_and_add_up_to_the_snapshot(backend: Backend) {
    let stores: [_; 3] = backend.handles(&settings());
    let mut subscription = listen(&stores[0], &[]).await;
    let start = stores[0].snapshot().await.unwrap();
    let mut writers = Vec::new();
    for (index, store) in stores.iter().enumerate() {
        let store = store.clone();
        writers.push(tokio::spawn(async move {
            for turn in 0..60_u32 {
                let key = format!("key {}", (turn * 7 + index as u32) % 10);
                let ttl = (turn % 4 == 0).then_some(Duration::from_millis(3));
                store.put(key.as_bytes(), Put { ttl, ..body(turn.to_string()) }).await.unwrap();
                if turn % 5 == 0 {
                    store.remove(key.as_bytes(), Expects::Any, None).await.unwrap();
                }
                if turn % 9 == 0 {
                    store.sweep().await.unwrap();
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    // The expired ones are told when they are swept.
    let end = eventually(async || {
        let snapshot = stores[1].snapshot().await.unwrap();
        let expiring = snapshot.records.iter().any(|record| record.expires_in.is_some());
        let swept = stores[2].sweep().await.unwrap();
        if expiring || swept > 0 { Err(snapshot.version) } else { Ok(snapshot) }
    })
    .await;
    assert!(end.version >= start.version + 180, "{} {}", start.version, end.version);
    let mut copy = BTreeMap::new();
    for expected in start.version + 1..=end.version {
        match next(&mut subscription).await {
            Notice::Change { version, key, record: Some(record) } => {
                assert_eq!((version, record.epoch, &record.key), (expected, expected, &key));
                copy.insert(key, (record.epoch, record.body));
            }
            Notice::Change { version, key, record: None } => {
                assert_eq!(version, expected);
                assert!(copy.remove(&key).is_some(), "removed what was not there");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(copy, contents(&end));
}

async fn of_two_writers_on_one_epoch_one_is_applied(backend: Backend) {
    let stores: [_; 2] = backend.handles(&settings());
    let mut epoch = 0;
    for round in 0..40 {
        let race = |store: &heatsink_coordination::Store, who: &str| {
            let (store, put) = (store.clone(), expecting(Expects::Epoch(epoch), who));
            tokio::spawn(async move { store.put(b"k", put).await.unwrap() })
        };
        let (one, two) = (race(&stores[0], "one"), race(&stores[1], "two"));
        let outcomes = [one.await.unwrap(), two.await.unwrap()];
        let (winner, version) = match outcomes {
            [PutOutcome::Applied { version }, PutOutcome::Stale { epoch }] => {
                assert_eq!(epoch, version, "round {round}");
                ("one", version)
            }
            [PutOutcome::Stale { epoch }, PutOutcome::Applied { version }] => {
                assert_eq!(epoch, version, "round {round}");
                ("two", version)
            }
            other => panic!("round {round}: {other:?}"),
        };
        let snapshot = stores[round % 2].snapshot().await.unwrap();
        assert_eq!(
            contents(&snapshot),
            BTreeMap::from([(b"k".to_vec(), (version, winner.as_bytes().to_vec()))])
        );
        epoch = version;
    }
}

async fn any_bytes_are_keys_and_bodies(backend: Backend) {
    let [store] = backend.handles(&settings());
    let mut subscription = listen(&store, &[Channel::Reports]).await;
    let all: Vec<u8> = (0..=255).collect();
    let large = vec![0xff; 70_000];
    let odd = [&b""[..], b"\0", b" ", b"\r\n", b"12 34 ", b"{}", b"%d", &all, &large];
    let mut written = BTreeMap::new();
    for key in odd {
        for value in odd {
            let epoch = applied(store.put(key, body(value)).await.unwrap());
            written.insert(key.to_vec(), (epoch, value.to_vec()));
            match next(&mut subscription).await {
                Notice::Change { key: told, record: Some(record), .. } => {
                    assert_eq!((&told[..], &record.body[..]), (key, value));
                }
                other => panic!("{other:?}"),
            }
        }
        store.publish(Channel::Reports, key.to_vec()).await.unwrap();
        assert_eq!(next(&mut subscription).await, Notice::Report(key.to_vec()));
        store.heartbeat("m", key, LONG).await.unwrap();
    }
    assert_eq!(contents(&store.snapshot().await.unwrap()), written);
    for key in odd {
        let epoch = written[key].0;
        let removal = store.remove(key, Expects::Epoch(epoch), Some(LONG)).await.unwrap();
        assert!(matches!(removal, RemoveOutcome::Applied { .. }), "{removal:?}");
    }
    let snapshot = store.snapshot().await.unwrap();
    assert!(snapshot.records.is_empty());
    let blocked: BTreeSet<Vec<u8>> = snapshot.blocked.into_iter().map(|one| one.key).collect();
    assert_eq!(blocked, written.into_keys().collect());
}

async fn members_are_there_while_they_say_so(backend: Backend) {
    let mut settings = settings();
    settings.max_members = 3;
    let [one, two] = backend.handles(&settings);
    let member = |id: &str, body: &[u8]| Member { id: id.to_owned(), body: body.to_vec() };
    let sorted = |mut members: Vec<Member>| {
        members.sort_by(|a, b| a.id.cmp(&b.id));
        members
    };
    assert_eq!(one.heartbeat("a", b"1", LONG).await.unwrap(), [member("a", b"1")]);
    one.heartbeat("short", b"", SHORT).await.unwrap();
    let both = two.heartbeat("b", b"\0\xff", LONG).await.unwrap();
    assert_eq!(sorted(both)[..2], [member("a", b"1"), member("b", b"\0\xff")]);
    // Full, until the one that said no more is gone; a known one is never too many.
    one.heartbeat("a", b"1", LONG).await.unwrap();
    let with_new = eventually(async || match two.heartbeat("c", b"", LONG).await {
        Err(StoreError::TooManyMembers { limit: 3 }) => Err("full"),
        other => Ok(other.unwrap()),
    })
    .await;
    let expected = [member("a", b"1"), member("b", b"\0\xff"), member("c", b"")];
    assert_eq!(sorted(with_new), expected);
    one.leave("a").await.unwrap();
    one.leave("nobody").await.unwrap();
    let rest = one.heartbeat("b", b"new", LONG).await.unwrap();
    assert_eq!(sorted(rest), [member("b", b"new"), member("c", b"")]);
}

async fn acknowledgements_count_for_their_topic_and_their_time(backend: Backend) {
    let settings = settings();
    let [one, two] = backend.handles(&settings);
    let of = async |topic: &str| {
        let mut members = one.acknowledged(topic).await.unwrap();
        members.sort();
        members
    };
    assert!(of("freeze").await.is_empty());
    one.acknowledge("freeze", "a", LONG).await.unwrap();
    two.acknowledge("freeze", "b", LONG).await.unwrap();
    two.acknowledge("freeze", "b", LONG).await.unwrap();
    // Neither a part of the name nor a name that goes on is the same topic.
    two.acknowledge("freeze b", "c", LONG).await.unwrap();
    two.acknowledge("free", "d", LONG).await.unwrap();
    assert_eq!(of("freeze").await, ["a", "b"]);
    assert_eq!(of("freeze b").await, ["c"]);
    assert_eq!(of("free").await, ["d"]);
    one.acknowledge("soon", "a", SHORT).await.unwrap();
    eventually(async || match of("soon").await {
        none if none.is_empty() => Ok(()),
        some => Err(some),
    })
    .await;
    let [elsewhere] = backend.handles(&support::settings());
    assert!(elsewhere.acknowledged("freeze").await.unwrap().is_empty(), "another fleet's");
}

async fn messages_reach_those_who_listen(backend: Backend) {
    let settings = settings();
    let [one, two] = backend.handles(&settings);
    let mut aggregator = listen(&one, &[Channel::Reports]).await;
    let mut proxy = listen(&two, &[Channel::Watch]).await;
    one.publish(Channel::Watch, b"w1".to_vec()).await.unwrap();
    two.publish(Channel::Reports, b"r1".to_vec()).await.unwrap();
    two.publish(Channel::Reports, b"r2".to_vec()).await.unwrap();
    let [elsewhere] = backend.handles(&support::settings());
    elsewhere.publish(Channel::Reports, b"another fleet's".to_vec()).await.unwrap();
    let version = applied(one.put(b"k", body("1")).await.unwrap());
    assert_eq!(next(&mut aggregator).await, Notice::Report(b"r1".to_vec()));
    assert_eq!(next(&mut aggregator).await, Notice::Report(b"r2".to_vec()));
    assert_eq!(next(&mut proxy).await, Notice::Watch(b"w1".to_vec()));
    for subscription in [&mut aggregator, &mut proxy] {
        let told = next(subscription).await;
        assert!(
            matches!(told, Notice::Change { version: told, .. } if told == version),
            "{told:?}"
        );
    }
}

async fn what_is_too_large_is_not_sent(backend: Backend) {
    let mut settings = settings();
    settings.max_bytes = 100;
    let [store] = backend.handles(&settings);
    let large = vec![0; 101];
    let error = StoreError::TooLarge { bytes: 101, limit_bytes: 100 };
    assert_eq!(store.put(&large, body("")).await, Err(error.clone()));
    assert_eq!(store.put(b"", body(&large)).await, Err(error.clone()));
    assert_eq!(store.heartbeat("a", &large, LONG).await, Err(error.clone()));
    assert_eq!(store.publish(Channel::Watch, large.clone()).await, Err(error));
    applied(store.put(&large[..100], body(&large[..100])).await.unwrap());
}

async fn the_incarnation_stays(backend: Backend) {
    let [one, two] = backend.handles(&settings());
    let before = one.snapshot().await.unwrap();
    assert!(!before.incarnation.is_empty());
    two.put(b"k", body("1")).await.unwrap();
    two.remove(b"k", Expects::Any, None).await.unwrap();
    let after = two.snapshot().await.unwrap();
    assert_eq!((after.incarnation, after.version), (before.incarnation, before.version + 2));
    let [other] = backend.handles(&settings());
    assert_ne!(
        other.snapshot().await.unwrap().incarnation,
        one.snapshot().await.unwrap().incarnation
    );
}

/// Each handle keeps a list of its own, which follows who joins, leaves and dies at once, and
/// what the others say of themselves a little later.
async fn members_come_and_go_for_all_handles(backend: Backend) {
    let [one, two] = backend.handles(&settings());
    let ids = |members: &[Member]| {
        let mut ids: Vec<String> = members.iter().map(|member| member.id.clone()).collect();
        ids.sort();
        ids
    };
    for round in 0..3 {
        let visitor = format!("visitor-{round}");
        one.heartbeat("a", b"a", LONG).await.unwrap();
        two.heartbeat("b", b"b", LONG).await.unwrap();
        assert_eq!(ids(&one.heartbeat("a", b"a", LONG).await.unwrap()), ["a", "b"]);
        two.heartbeat(&visitor, b"hello", LONG).await.unwrap();
        let three = one.heartbeat("a", b"a", LONG).await.unwrap();
        assert_eq!(ids(&three), ["a", "b", visitor.as_str()]);
        let body = three.iter().find(|member| member.id == visitor).map(|member| &member.body);
        assert_eq!(body.map(Vec::as_slice), Some(b"hello".as_slice()));
        two.leave(&visitor).await.unwrap();
        assert_eq!(ids(&one.heartbeat("a", b"a", LONG).await.unwrap()), ["a", "b"]);
        two.heartbeat("short", b"", SHORT).await.unwrap();
        eventually(async || match one.heartbeat("a", b"a", LONG).await.unwrap().len() {
            2 => Ok(()),
            other => Err(other),
        })
        .await;
    }
    two.heartbeat("b", b"other words", LONG).await.unwrap();
    eventually(async || {
        let members = one.heartbeat("a", b"a", LONG).await.unwrap();
        match members.into_iter().find(|member| member.id == "b") {
            Some(member) if member.body == b"other words" => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

async fn a_block_of_an_absent_key_is_told(backend: Backend) {
    let [one, two] = backend.handles(&settings());
    let mut subscription = listen(&two, &[]).await;
    let before = one.snapshot().await.unwrap().version;
    let nothing = one.remove(b"k", Expects::Any, None).await.unwrap();
    assert_eq!(nothing, RemoveOutcome::Absent);
    assert_eq!(one.snapshot().await.unwrap().version, before, "nothing happened");
    assert_eq!(one.remove(b"k", Expects::Any, Some(LONG)).await.unwrap(), RemoveOutcome::Absent);
    let told = Notice::Change { version: before + 1, key: b"k".to_vec(), record: None };
    assert_eq!(next(&mut subscription).await, told);
    let snapshot = one.snapshot().await.unwrap();
    assert_eq!((snapshot.version, snapshot.blocked.len()), (before + 1, 1));
}

async fn a_subscription_knows_the_version(backend: Backend) {
    let [one, two] = backend.handles(&settings());
    let subscription = listen(&two, &[]).await;
    for text in ["1", "2"] {
        let version = applied(one.put(b"k", body(text)).await.unwrap());
        eventually(async || match subscription.version() {
            Some(known) if known == version => Ok(()),
            other => Err(other),
        })
        .await;
    }
}
