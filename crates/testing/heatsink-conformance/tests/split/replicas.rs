//! Split keys and copies where a rule lets reads go to replicas, which may be behind.

use std::sync::Arc;
use std::time::Duration;

use heatsink_conformance::ClusterRig;
use heatsink_proxy::config::{Config, Rule};
use heatsink_proxy::hot_keys::{Copies, HotKeys};
use heatsink_split::layout;
use heatsink_testkit::{RawClient, RedisCluster, Reply, eventually, key_slot};

use crate::hand::Mover;

const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "set";

fn rig() -> ClusterRig {
    ClusterRig::with(RedisCluster::builder(), |config: &mut Config| {
        config.workers = 1;
        let rule = Rule { pattern: b"*".as_slice().into(), replica_reads: true, counted: true };
        config.live.policy = Arc::from([rule]);
    })
}

/// The primary and the replica that have a key.
fn nodes_of(rig: &ClusterRig, key: &str) -> (usize, usize) {
    let primary = rig.cluster.owner_of(key_slot(key));
    (primary, rig.cluster.replicas_of(primary)[0])
}

/// A client of a replica, past Heatsink.
fn at_replica(rig: &ClusterRig, replica: usize) -> RawClient {
    let mut client = rig.cluster.node(replica).client();
    assert_eq!(client.command(&["READONLY"]), Reply::ok());
    client
}

/// Waits until clients that may read from replicas do: Heatsink has to hear of them first.
fn wait_for_replicas(rig: &ClusterRig, key: &str) {
    let (_, replica) = nodes_of(rig, key);
    eventually(SOON, || {
        let before = rig.cluster.calls(replica, "scard");
        rig.client().command(&["SCARD", key]);
        rig.cluster.calls(replica, "scard") > before
    });
}

fn calls(rig: &ClusterRig, commands: &[&str]) -> u64 {
    let replicas = rig.cluster.primaries().into_iter().map(|node| rig.cluster.replicas_of(node)[0]);
    replicas
        .map(|replica| {
            let stats = rig.cluster.node(replica).commandstats();
            let of = |name: &&str| stats.get(*name).map_or(0, |stats| stats.calls);
            commands.iter().map(of).sum::<u64>()
        })
        .sum()
}

/// What a mover, or whoever fills a copy, reads there may be older than what was acknowledged.
#[test]
fn whoever_moves_values_reads_from_primaries() {
    const READS: [&str; 10] = [
        "smembers", "scard", "type", "get", "pttl", "exists", "dump", "lrange", "strlen", "lindex",
    ];
    let rig = rig();
    let mut client = rig.client();
    client.command(&["SADD", KEY, "a", "b", "c"]);
    client.command(&["SET", "counter", "5"]);
    wait_for_replicas(&rig, KEY);
    let handle = rig.heatsink.proxy().handle();
    let before = calls(&rig, &READS);
    let mover = Mover::new(&handle);
    for key in [KEY.as_bytes(), b"counter"] {
        assert!(mover.split(key, 6));
        assert!(mover.make_whole(key));
    }
    let mut within = RawClient::over_stream(handle.connect().expect("a connection within"));
    for key in [KEY, "counter", "heatsink:{default}:splits", "heatsink:{a}:id:copy0"] {
        within.command(&["DUMP", key]);
        within.command(&["PTTL", key]);
        within.command(&["TYPE", key]);
    }
    // What is Heatsink's own is nobody's to read late.
    for key in ["heatsink:{default}:splits", "heatsink:{a}:id:copy0"] {
        rig.client().command(&["EXISTS", key]);
    }
    assert_eq!(calls(&rig, &READS), before, "a replica was asked");
}

/// What a client wrote to a key that was split, or had copies, it reads from the primary after.
#[test]
fn who_has_written_to_shards_or_beside_copies_sees_that_afterwards() {
    let rig = rig();
    let handle = rig.heatsink.proxy().handle();
    let mut others = rig.client();
    others.command(&["SADD", KEY, "a"]);
    wait_for_replicas(&rig, KEY);
    let mover = Mover::new(&handle);
    assert!(mover.split(KEY.as_bytes(), 4));
    let mut client = rig.client();
    assert_eq!(client.command(&["SADD", KEY, "b"]), Reply::Integer(1));
    assert!(mover.make_whole(KEY.as_bytes()));
    let (_, replica) = nodes_of(&rig, KEY);
    let before = rig.cluster.calls(replica, "scard");
    assert_eq!(client.command(&["SCARD", KEY]), Reply::Integer(2));
    assert_eq!(rig.cluster.calls(replica, "scard"), before, "a replica was asked");
    drop(mover);
    let names = vec![layout::copy_name("t", "test", 0)];
    let copies = Copies { names, read: true, life: Duration::from_secs(1) };
    let hot = HotKeys::default().with_copies([(KEY.as_bytes().to_vec(), copies)]);
    let version = handle.set_hot_keys(hot);
    eventually(SOON, || handle.settled_version() >= version);
    let mut client = rig.client();
    assert_eq!(client.command(&["SADD", KEY, "c"]), Reply::Integer(1));
    let version = handle.set_hot_keys(HotKeys::default());
    eventually(SOON, || handle.settled_version() >= version);
    let before = rig.cluster.calls(replica, "scard");
    assert_eq!(client.command(&["SCARD", KEY]), Reply::Integer(3));
    assert_eq!(rig.cluster.calls(replica, "scard"), before, "a replica was asked");
}

/// Whoever has read a copy must not be given less by a replica of the key.
#[test]
fn while_there_are_copies_replicas_of_the_key_are_not_asked() {
    let rig = rig();
    let handle = rig.heatsink.proxy().handle();
    rig.client().command(&["SADD", KEY, "a"]);
    wait_for_replicas(&rig, KEY);
    let names = vec![layout::copy_name("t", "test", 0)];
    let copies = Copies { names, read: true, life: Duration::from_secs(1) };
    let hot = HotKeys::default().with_copies([(KEY.as_bytes().to_vec(), copies)]);
    let version = handle.set_hot_keys(hot);
    eventually(SOON, || handle.settled_version() >= version);
    let before = calls(&rig, &["scard"]);
    // Some of them read the copy, which is not there, some the key.
    for _ in 0..6 {
        let mut client = rig.client();
        for _ in 0..3 {
            assert_eq!(client.command(&["SCARD", KEY]), Reply::Integer(1));
        }
    }
    assert_eq!(calls(&rig, &["scard"]), before, "a replica was asked");
}

/// A replica that is behind still has the marker, when the key is long whole:
///
/// ```text
/// 1. the key is split; its replica has the marker
/// 2. the replica falls behind
/// 3. the key is made whole
/// 4. a read that may go to the replica finds the marker
/// ```
#[test]
fn nobody_is_told_of_a_marker_by_a_replica_that_is_behind() {
    let rig = rig();
    rig.client().command(&["SADD", KEY, "a", "b"]);
    wait_for_replicas(&rig, KEY);
    let (primary, replica) = nodes_of(&rig, KEY);
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    assert!(mover.split(KEY.as_bytes(), 4));
    let mut behind = at_replica(&rig, replica);
    eventually(SOON, || behind.command(&["TYPE", KEY]).text() == "string");
    // It may not log in at its primary any more.
    assert_eq!(behind.command(&["CONFIG", "SET", "masterauth", "wrong"]), Reply::ok());
    rig.cluster.node(primary).client().command(&["CLIENT", "KILL", "TYPE", "REPLICA"]);
    assert!(mover.make_whole(KEY.as_bytes()));
    assert_eq!(behind.command(&["TYPE", KEY]).text(), "string", "it is not behind");
    for _ in 0..4 {
        assert_eq!(rig.client().command(&["SCARD", KEY]), Reply::Integer(2));
    }
}
