//! A process that is alone writes nothing to the server; one that is not is a member like others.

mod support;

use std::time::Duration;

use heatsink_coordination::{Channel, Expects, Notice, Put, Settings, Store};
use heatsink_testkit::{RedisCluster, RedisServer, SentinelRig};
use support::{
    applied, body, contents, eventually, is_connected, is_lost, listen, next, settings, skip_to,
    url,
};

const MINUTE: Duration = Duration::from_secs(60);

fn quiet_at(place: &str, settings: &Settings) -> Store {
    Store::quiet(&url(place), None, settings.clone()).expect("a store")
}

fn surviving(text: &str) -> Put {
    Put { survives: true, ..body(text) }
}

/// The number of keys on a server.
fn size(server: &RedisServer) -> i64 {
    server.client().command(&["DBSIZE"]).integer()
}

async fn members(store: &Store, id: &str) -> usize {
    store.heartbeat(id, b"", MINUTE).await.expect("a heartbeat").len()
}

/// Both beat until they see each other. Once is not enough: one that begins while the other's
/// connection is lost takes itself for alone, and keeps its first heartbeats in memory.
async fn have_met(one: &Store, other: &Store) {
    let beats = eventually(async || match (members(one, "a").await, members(other, "b").await) {
        (2, 2) => Ok(()),
        counts => Err(counts),
    });
    beats.await;
}

/// Everything that a process does that finds keys by counting.
async fn work(store: &Store) {
    assert_eq!(members(store, "a").await, 1);
    applied(store.put(b"k", body("1")).await.expect("a put"));
    store.publish(Channel::Reports, b"seen".to_vec()).await.expect("a report");
    store.remove(b"other", Expects::Any, Some(MINUTE)).await.expect("a block");
    store.acknowledge("topic", "a", MINUTE).await.expect("an acknowledgement");
    store.sweep().await.expect("a sweep");
    let snapshot = store.snapshot().await.expect("a snapshot");
    assert_eq!(contents(&snapshot).into_keys().collect::<Vec<_>>(), [b"k"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_alone_writes_nothing() {
    let server = RedisServer::start();
    let store = quiet_at(&server.url(), &settings());
    let mut subscription = listen(&store, &[Channel::Reports]).await;
    work(&store).await;
    let told =
        skip_to(&mut subscription, |told| matches!(told, Notice::Report(_)).then(|| told.clone()))
            .await;
    assert_eq!(told, Notice::Report(b"seen".to_vec()));
    assert_eq!(size(&server), 0);
    store.leave("a").await.expect("a farewell");
    assert_eq!(size(&server), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_meets_others_shares_what_it_knows() {
    let server = RedisServer::start();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let sentinel = SentinelRig::start();
    for place in [server.url(), cluster.seed_url(), sentinel.url()] {
        let settings = settings();
        let (one, other) = (quiet_at(&place, &settings), quiet_at(&place, &settings));
        let mut first = listen(&one, &[]).await;
        work(&one).await;
        let mut second = listen(&other, &[]).await;
        assert_eq!(members(&other, "b").await, 1);
        // The first one notices by itself, and brings along what it has found.
        skip_to(&mut first, is_connected).await;
        have_met(&one, &other).await;
        for store in [&one, &other] {
            let snapshot = store.snapshot().await.expect("a snapshot");
            assert_eq!(contents(&snapshot).into_keys().collect::<Vec<_>>(), [b"k"], "{place}");
            assert_eq!(snapshot.blocked.len(), 1, "{place}");
        }
        let version = applied(one.put(b"l", body("1")).await.expect("a put"));
        for subscription in [&mut first, &mut second] {
            skip_to(subscription, |told| {
                matches!(told, Notice::Change { version: told, .. } if *told == version)
                    .then_some(())
            })
            .await;
        }
    }
}

/// The other one begins while the first one's connection is lost, so that both are alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_took_themselves_for_alone_meet() {
    let server = RedisServer::start();
    let settings = settings();
    let (one, other) = (quiet_at(&server.url(), &settings), quiet_at(&server.url(), &settings));
    let mut first = listen(&one, &[]).await;
    work(&one).await;
    server.client().command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    skip_to(&mut first, is_lost).await;
    let _second = listen(&other, &[]).await;
    have_met(&one, &other).await;
    for store in [&one, &other] {
        let snapshot = store.snapshot().await.expect("a snapshot");
        assert_eq!(contents(&snapshot).into_keys().collect::<Vec<_>>(), [b"k"]);
        assert_eq!(snapshot.blocked.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_to_survive_is_written() {
    let server = RedisServer::start();
    let settings = settings();
    let store = quiet_at(&server.url(), &settings);
    let mut subscription = listen(&store, &[]).await;
    work(&store).await;
    applied(store.put(b"manual", surviving("1")).await.expect("a put"));
    skip_to(&mut subscription, is_connected).await;
    assert_eq!(contents(&store.snapshot().await.expect("a snapshot")).len(), 2);
    drop((store, subscription));
    // The next process finds it.
    let store = quiet_at(&server.url(), &settings);
    let _subscription = listen(&store, &[]).await;
    let snapshot = store.snapshot().await.expect("a snapshot");
    assert!(contents(&snapshot).contains_key(&b"manual"[..]), "{snapshot:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_lost_takes_nothing_along() {
    let mut server = RedisServer::start();
    let store = quiet_at(&server.url(), &settings());
    let mut subscription = listen(&store, &[]).await;
    work(&store).await;
    let incarnation = store.snapshot().await.expect("a snapshot").incarnation;
    server.kill();
    skip_to(&mut subscription, is_lost).await;
    assert!(store.heartbeat("a", b"", MINUTE).await.is_err(), "nobody knows who is there");
    server.start_again();
    assert!(is_connected(&next(&mut subscription).await).is_some());
    let snapshot = store.snapshot().await.expect("a snapshot");
    assert_eq!(snapshot.incarnation, incarnation);
    assert_eq!((snapshot.records.len(), size(&server)), (1, 0));
}

/// Nothing is left of a fleet that has nothing to say any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_one_to_leave_tidies_up() {
    let server = RedisServer::start();
    let settings = settings();
    let store = quiet_at(&server.url(), &settings);
    let _subscription = listen(&store, &[]).await;
    applied(store.put(b"k", surviving("1")).await.expect("a put"));
    members(&store, "a").await;
    members(&store, "b").await;
    store.acknowledge("topic", "a", MINUTE).await.expect("an acknowledgement");
    store.leave("b").await.expect("a farewell");
    assert!(size(&server) > 5, "there is one left");
    store.leave("a").await.expect("a farewell");
    assert!(size(&server) > 1, "what has to survive does");
    store.remove(b"k", Expects::Any, None).await.expect("a removal");
    members(&store, "a").await;
    store.leave("a").await.expect("a farewell");
    assert_eq!(size(&server), 0);
}
