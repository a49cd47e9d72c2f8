//! Splits and copies that end by themselves: with the time that an operator gave them, before
//! their key ends, and when they are forbidden.

use std::time::{Duration, Instant};

use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;
use heatsink_testkit::{RedisCluster, RedisServer, Reply, eventually};

use crate::node::{Node, Servers, all, assemble};
use crate::split::{is_split, manifests, rests_split, split};
use crate::support::{PATIENCE, Place};

#[test]
fn a_split_ends_with_the_time_that_an_operator_gave_it() {
    let (place, servers) = (Place::empty(), Servers::start());
    let nodes = [servers.member(&place, "all", &[]), servers.member(&place, "proxy", &[])];
    assemble(&[&nodes[0], &nodes[1]]);
    let mut direct = servers.upstream.client();
    direct.command(&["SADD", "short", "a", "b"]);
    direct.command(&["SADD", "long", "a", "b"]);
    for (key, seconds) in [("long", 1000), ("short", 3)] {
        let promotion = Promotion { ttl_seconds: Some(seconds), ..split(2) };
        nodes[1].api().promote(key.as_bytes(), promotion).expect("promoted");
        all(&nodes, PATIENCE, "it is split", |node| rests_split(node, key, 2));
    }
    let begun = Instant::now();
    assert_eq!(nodes[0].client().command(&["SADD", "short", "c"]), Reply::Integer(1));
    all(&nodes, PATIENCE, "it is gone", |node| node.lacks("short"));
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    assert_eq!(direct.command(&["SCARD", "short"]), Reply::Integer(3));
    // The other has its time, and still has it when it is made whole for a command.
    assert!(is_split(&mut direct, "long"));
    assert_eq!(nodes[0].client().command(&["SINTER", "long", "short"]).items().len(), 2);
    all(&nodes, PATIENCE, "it is whole", |node| {
        node.entry("long").is_some_and(|entry| {
            entry.split.is_none() && entry.ttl_seconds.is_some_and(|left| left > 900)
        })
    });
    let mut store = servers.store.client();
    let lives = store.command(&["ZSCORE", "heatsink:{default}:expiry", "long"]);
    assert_ne!(lives, Reply::Null);
    eventually(PATIENCE, || manifests(&mut direct).is_empty());
}

#[test]
fn copies_end_with_the_time_that_an_operator_gave_them() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let store = RedisServer::start();
    let node = Node::member(&place, "all", &store.url(), &cluster.seed_url());
    assemble(&[&node]);
    let mut client = node.client();
    client.command(&["SET", "value", "v"]);
    let promotion =
        Promotion { mitigation: Mitigation::Copies, split_factor: None, ttl_seconds: Some(2) };
    node.api().promote(b"value", promotion).expect("promoted");
    all([&node], PATIENCE, "there are copies", |node| {
        node.entry("value").is_some_and(|entry| entry.split_phase() == Some("split"))
    });
    all([&node], PATIENCE, "it is gone", |node| node.lacks("value"));
    assert_eq!(client.command(&["GET", "value"]), Reply::bulk("v"));
    eventually(PATIENCE, || {
        let of = |node: usize| cluster.node(node).client().command(&["KEYS", "heatsink:*"]);
        (0..3).all(|node| of(node).items().is_empty())
    });
}

/// A marker that expires takes the value with it in one moment, as a plain key would; but shards
/// would be left, and the last reads of some of them come too late.
#[test]
fn a_key_is_made_whole_before_its_last_seconds() {
    let (place, servers) = (Place::empty(), Servers::start());
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    let mut direct = servers.upstream.client();
    for (key, command) in [("set", ["SADD", "set", "a"]), ("counter", ["SET", "counter", "5"])] {
        direct.command(&command);
        direct.command(&["EXPIRE", key, "1000"]);
        node.api().promote(key.as_bytes(), split(4)).expect("promoted");
        all([&node], PATIENCE, "it is split", |node| rests_split(node, key, 4));
        // Past Heatsink, so that it is not made whole for the command.
        assert_eq!(direct.command(&["PEXPIRE", key, "29000"]), Reply::Integer(1));
        all([&node], PATIENCE, "it is whole", |node| {
            node.entry(key).is_some_and(|entry| {
                entry.split.is_none()
                    && entry.reason.contains("not split: its time to live ends soon")
            })
        });
        let left = direct.command(&["PTTL", key]).integer();
        assert!((15_000..29_000).contains(&left), "{key}: {left}");
    }
    assert_eq!(direct.command(&["SMEMBERS", "set"]), Reply::bulks(["a"]));
    assert_eq!(direct.command(&["GET", "counter"]), Reply::bulk("5"));
}

/// A marker that has expired is a value that has expired.
#[test]
fn a_key_that_has_expired_while_split_is_gone() {
    let (place, servers) = (Place::empty(), Servers::start());
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    let mut direct = servers.upstream.client();
    direct.command(&["SADD", "set", "a"]);
    direct.command(&["EXPIRE", "set", "1000"]);
    node.api().promote(b"set", split(4)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
    assert_eq!(direct.command(&["PEXPIRE", "set", "1"]), Reply::Integer(1));
    all([&node], PATIENCE, "it is whole", |node| {
        node.entry("set").is_some_and(|entry| entry.split.is_none())
    });
    let mut client = node.client();
    assert_eq!(client.command(&["EXISTS", "set"]), Reply::Integer(0));
    assert_eq!(client.command(&["SADD", "set", "b"]), Reply::Integer(1));
    assert_eq!(client.command(&["SMEMBERS", "set"]), Reply::bulks(["b"]));
    eventually(PATIENCE, || manifests(&mut direct).is_empty());
}

/// What is split is made whole when splits are switched off, or a rule comes that forbids them.
#[test]
fn a_split_ends_when_it_is_forbidden() {
    let servers = Servers::start();
    let rule = "[[policy]]\nmatch = \"*\"\nmode = \"exact\"\n";
    for (number, forbids) in ["[split]\nenabled = false\n", rule].into_iter().enumerate() {
        let place = Place::with_file("log = \"info\"\n");
        let namespace = format!("n{number}");
        let args = ["--config", "heatsink.toml", "--namespace", &namespace];
        let node = servers.member(&place, "all", &args);
        assemble(&[&node]);
        let mut direct = servers.upstream.client();
        let key = format!("set{number}");
        direct.command(&["SADD", &key, "a", "b"]);
        node.api().promote(key.as_bytes(), split(2)).expect("promoted");
        all([&node], PATIENCE, "it is split", |node| rests_split(node, &key, 2));
        place.replace("heatsink.toml", &format!("log = \"info\"\n{forbids}"));
        node.process.wait_for_line("configuration reloaded", PATIENCE);
        all([&node], PATIENCE, "it is whole", |node| {
            node.entry(&key).is_some_and(|entry| entry.split.is_none())
        });
        assert_eq!(direct.command(&["SCARD", &key]), Reply::Integer(2));
    }
}
