//! Copies of a value on several nodes, as an operator has them made and removed.

use std::time::{Duration, Instant};

use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;
use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, eventually};

use crate::node::{Node, all, assemble};
use crate::support::{PATIENCE, Place};

const KEY: &str = "{hot}value";
const COPIES: Promotion =
    Promotion { mitigation: Mitigation::Copies, split_factor: None, ttl_seconds: None };

fn is_copied(node: &Node) -> bool {
    node.entry(KEY).is_some_and(|entry| {
        entry.status == "active"
            && entry.split_phase() == Some("split")
            && entry.split.is_some_and(|split| split.kind == "copies")
    })
}

fn reads(cluster: &RedisCluster) -> Vec<u64> {
    (0..3).map(|node| cluster.calls(node, "get")).collect()
}

#[test]
fn reads_of_a_large_value_are_spread_and_writes_are_seen_at_once() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let store = RedisServer::start();
    let (store_url, upstream) = (store.url(), cluster.seed_url());
    let serve =
        || Node::start(&place, &["--coordination-url", &store_url, "--upstream", &upstream]);
    let nodes = [serve(), serve()];
    assemble(&[&nodes[0], &nodes[1]]);
    let value = "x".repeat(100 << 10);
    let mut clients: Vec<RawClient> = (0..30).map(|number| nodes[number % 2].client()).collect();
    clients[0].command(&["SET", KEY, &value]);
    nodes[0].api().promote(KEY.as_bytes(), COPIES).expect("promoted");
    all(&nodes, PATIENCE, "there are copies", is_copied);
    // Each client of each of the two reads the key or one of the copies, always the same.
    let balance = eventually(PATIENCE, || {
        let before = reads(&cluster);
        for client in &mut clients {
            for _ in 0..4 {
                assert_eq!(client.command(&["GET", KEY]), Reply::bulk(&value));
            }
        }
        let counts: Vec<_> = reads(&cluster).iter().zip(before).map(|(a, b)| a - b).collect();
        let most = *counts.iter().max().expect("three") as f64;
        let mean = counts.iter().sum::<u64>() as f64 / 3.0;
        (most / mean <= 1.10).then_some(counts)
    });
    println!("reads by node: {balance:?}");
    for round in 0..20 {
        let new = round.to_string();
        let writer = &mut clients[round % 30];
        assert_eq!(writer.command(&["SET", KEY, &new]), Reply::ok());
        for client in &mut clients {
            assert_eq!(client.command(&["GET", KEY]), Reply::bulk(&new));
        }
    }
    // A transaction does not remove copies: there are none while it is executed.
    clients[0].command(&["MULTI"]);
    clients[0].command(&["SET", KEY, "by a transaction"]);
    assert_eq!(clients[0].command(&["EXEC"]), Reply::Array(vec![Reply::ok()]));
    for client in &mut clients {
        assert_eq!(client.command(&["GET", KEY]), Reply::bulk("by a transaction"));
    }
    let entry = nodes[1].entry(KEY).expect("it is registered");
    assert!(entry.reason.contains("does not remove them"), "{entry:?}");
    nodes[1].api().demote(KEY.as_bytes()).expect("removed");
    all(&nodes, PATIENCE, "it is gone", |node| node.lacks(KEY));
    assert_eq!(clients[3].command(&["GET", KEY]), Reply::bulk("by a transaction"));
    eventually(PATIENCE, || {
        (0..3).all(|node| {
            let keys = cluster.node(node).client().command(&["KEYS", "heatsink:*"]);
            keys.items().is_empty()
        })
    });
}

#[test]
fn one_server_has_no_place_for_copies() {
    let place = Place::empty();
    let servers = crate::node::Servers::start();
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    node.client().command(&["SET", KEY, "v"]);
    node.api().promote(KEY.as_bytes(), COPIES).expect("promoted");
    all([&node], PATIENCE, "it says why not", |node| {
        node.entry(KEY).is_some_and(|entry| entry.reason.contains("no other node"))
    });
    assert_eq!(node.client().command(&["GET", KEY]), Reply::bulk("v"));
}

/// The first writes wait until the copy that they cannot remove has expired. Then there are no
/// copies, for as long as their nodes do not answer.
#[test]
fn a_node_that_is_down_does_not_make_every_write_late() {
    let place = Place::empty();
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let mut cluster = settings.line("cluster-require-full-coverage no").start();
    let store = RedisServer::start();
    let (store_url, upstream) = (store.url(), cluster.seed_url());
    let serve =
        || Node::start(&place, &["--coordination-url", &store_url, "--upstream", &upstream]);
    let nodes = [serve(), serve()];
    assemble(&[&nodes[0], &nodes[1]]);
    let key = cluster.key_on(0, "value");
    let mut clients: Vec<RawClient> = (0..12).map(|number| nodes[number % 2].client()).collect();
    clients[0].command(&["SET", &key, "first"]);
    nodes[0].api().promote(key.as_bytes(), COPIES).expect("promoted");
    all(&nodes, PATIENCE, "there are copies", |node| {
        node.entry(&key).is_some_and(|entry| entry.split_phase() == Some("split"))
    });
    cluster.kill(1);
    let mut took = Vec::new();
    for round in 0..6 {
        let (begun, value) = (Instant::now(), round.to_string());
        assert_eq!(clients[0].command(&["SET", &key, &value]), Reply::ok());
        took.push(begun.elapsed());
        for client in &mut clients {
            assert_eq!(client.command(&["GET", &key]), Reply::bulk(&value));
        }
    }
    println!("{took:?}");
    assert!(took[2..].iter().all(|took| *took < Duration::from_secs(1)), "{took:?}");
    let entry = nodes[1].entry(&key).expect("it is registered");
    assert!(entry.reason.contains("no copies: a write that does not reach"), "{entry:?}");
    // Where nobody answers, none are begun.
    let other = cluster.key_on(0, "other");
    nodes[0].api().promote(other.as_bytes(), COPIES).expect("promoted");
    all(&nodes, PATIENCE, "it says why not", |node| {
        node.entry(&other).is_some_and(|entry| entry.reason.contains("no copies yet"))
    });
    let begun = Instant::now();
    assert_eq!(clients[1].command(&["SET", &other, "v"]), Reply::ok());
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// What keeps copies from growing old expires by itself: a server could evict it earlier.
#[test]
fn there_are_no_copies_where_a_server_may_evict_what_guards_them() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let store = RedisServer::start();
    let node = Node::member(&place, "all", &store.url(), &cluster.seed_url());
    assemble(&[&node]);
    node.client().command(&["SET", KEY, "value"]);
    let limit = |policy: &str| {
        for server in cluster.nodes() {
            let mut direct = server.client();
            direct.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
            direct.command(&["CONFIG", "SET", "maxmemory", "1gb"]);
        }
    };
    let says = |node: &Node, why: &str| {
        let entry = node.entry(KEY).unwrap_or_default();
        entry.reason.contains(why) && entry.split.is_none()
    };
    limit("volatile-lru");
    node.api().promote(KEY.as_bytes(), COPIES).expect("promoted");
    let why = "no copies: maxmemory-policy volatile-lru may evict what guards them";
    all([&node], PATIENCE, "it says why", |node| says(node, why));
    limit("noeviction");
    node.api().promote(KEY.as_bytes(), COPIES).expect("promoted");
    all([&node], PATIENCE, "there are copies", is_copied);
    // The setting changes, and they go.
    limit("allkeys-lru");
    let why = "no copies: maxmemory-policy allkeys-lru may evict what guards them";
    all([&node], PATIENCE, "it says why", |node| says(node, why));
    assert_eq!(node.client().command(&["GET", KEY]), Reply::bulk("value"));
}
