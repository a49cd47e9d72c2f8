//! Several processes on one store: what is hot in the sum, on all of them.

use std::time::Duration;

use heatsink_testkit::{RedisServer, eventually};
use serde_json::Value;

use crate::node::{CACHE, Node, all, assemble};
use crate::support::{PATIENCE, Place};

/// What a change may take to reach everybody; 50 ms is usual.
const SOON: Duration = Duration::from_secs(1);

fn fleet(place: &Place, store: &RedisServer, roles: &[&str]) -> Vec<Node> {
    let nodes: Vec<Node> =
        roles.iter().map(|role| Node::member(place, role, &store.url(), &store.url())).collect();
    assemble(&nodes.iter().collect::<Vec<_>>());
    nodes
}

#[test]
fn what_is_hot_only_in_the_sum_is_found_on_all() {
    let (place, store) = (Place::empty(), RedisServer::start());
    let nodes = fleet(&place, &store, &["proxy", "proxy", "all"]);
    let warm: Vec<_> = nodes.iter().map(|node| node.load("warm", 100)).collect();
    let hot: Vec<_> = nodes.iter().map(|node| node.load("hot", 400)).collect();
    let took = all(&nodes, PATIENCE, "the hot key is listed", |node| node.entry("hot").is_some());
    println!("hot in the sum: listed by all after {took:?}");
    for node in &nodes {
        let entry = node.entry("hot").expect("listed");
        assert_eq!((entry.origin.as_str(), entry.status.as_str()), ("auto", "active"));
        let reason = entry.reason;
        assert!(reason.contains("over 3 proxies, threshold 1 000"), "{reason}");
    }
    // One that knows the sum tells it.
    eventually(PATIENCE, || {
        nodes[2].entry("hot").is_some_and(|entry| (1000.0..1400.0).contains(&entry.frequency))
    });
    for load in &warm {
        load.reset();
        eventually(PATIENCE, || load.tally().answered > 200);
    }
    for node in &nodes {
        assert!(node.lacks("warm"), "{:?}", node.entry("warm"));
    }
    for load in warm.iter().chain(&hot) {
        assert_eq!(load.tally().failed, 0, "{:?}", load.tally());
    }
}

#[test]
fn what_is_hot_on_one_is_known_to_all() {
    let (place, store) = (Place::empty(), RedisServer::start());
    let nodes = fleet(&place, &store, &["all", "all", "all"]);
    let load = nodes[1].load("k", 1500);
    let took = all(&nodes, PATIENCE, "the hot key is listed", |node| node.entry("k").is_some());
    println!("hot on one: listed by all after {took:?}");
    // Three aggregators decide alike: there is one entry, written once.
    let epochs = || store.client().command(&["HGET", "heatsink:{default}:registry", "k"]).text();
    let epoch = |record: &str| record.split(' ').next().map(str::to_owned);
    let first = epoch(&epochs());
    load.reset();
    eventually(PATIENCE, || load.tally().answered > 3000);
    assert_eq!(epoch(&epochs()), first);
    assert_eq!(load.tally().failed, 0, "{:?}", load.tally());
}

#[test]
fn what_an_operator_says_to_one_is_known_to_all() {
    let (place, store) = (Place::empty(), RedisServer::start());
    let nodes = fleet(&place, &store, &["proxy", "proxy", "all"]);
    let mut slowest = Duration::ZERO;
    for round in 0..10 {
        let (here, key) = (&nodes[round % 3], format!("manual:{round}"));
        here.api().promote(key.as_bytes(), CACHE).expect("promoted");
        slowest = slowest.max(all(&nodes, SOON, "the key is listed", |node| {
            node.entry(&key).is_some_and(|entry| entry.origin == "manual")
        }));
        let there = &nodes[(round + 1) % 3];
        there.api().demote(key.as_bytes()).expect("removed");
        slowest = slowest.max(all(&nodes, SOON, "the key is gone", |node| node.lacks(&key)));
    }
    println!("an operator's word reached all within {slowest:?} in each of 20 cases");
    // Everybody has the same version, and says so.
    let versions = |node: &Node| -> Vec<Value> {
        let fleet = node.json("/proxies").unwrap_or_default();
        let items = fleet["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().map(|item| item["registry_version"].clone()).collect()
    };
    all(&nodes, PATIENCE, "all have one version", |node| {
        let versions = versions(node);
        versions.len() == 3 && versions[0].is_u64() && versions.iter().all(|it| *it == versions[0])
    });
}

#[test]
fn aggregators_need_not_take_clients() {
    let (place, store) = (Place::empty(), RedisServer::start());
    let nodes = fleet(&place, &store, &["aggregator", "proxy", "proxy"]);
    assert!(nodes[0].clients.is_none());
    let _loads: Vec<_> = nodes[1..].iter().map(|node| node.load("k", 600)).collect();
    all(&nodes, PATIENCE, "the hot key is listed", |node| node.entry("k").is_some());
    nodes[1].api().demote(b"k").expect("removed");
    all(&nodes, SOON, "the key is gone", |node| node.lacks("k"));
    nodes[0].api().promote(b"other", CACHE).expect("promoted");
    all(&nodes, SOON, "the key is listed", |node| node.entry("other").is_some());
    assert!(nodes[0].metrics().contains("role=\"aggregator\""));
}

#[test]
fn fleets_of_other_names_on_the_same_store_are_strangers() {
    let (place, store) = (Place::empty(), RedisServer::start());
    let url = store.url();
    let start = |name: &str| Node::start(&place, &["--upstream", &url, "--namespace", name]);
    let (one, other) = (start("one"), start("other"));
    assemble(&[&one]);
    assemble(&[&other]);
    one.api().promote(b"k", CACHE).expect("promoted");
    assert!(one.entry("k").is_some());
    assert!(other.lacks("k"));
}
