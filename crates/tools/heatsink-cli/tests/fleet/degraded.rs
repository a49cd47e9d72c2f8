//! Without the store, or without anybody who adds up: requests go on, and it is said.
//!
//! The store is another server than the upstream, so that it can fail alone.

use std::time::Duration;

use heatsink_testkit::{Load, Reply, eventually};
use serde_json::Value;

use crate::http;
use crate::node::{CACHE, Node, Servers, all, assemble};
use crate::support::{PATIENCE, Place};

/// What a request takes at most on a machine that has much else to do.
const LONGEST: Duration = Duration::from_secs(2);
/// A request of so many may be slow, because the machine did something else. If requests waited
/// for the store, whose calls take 500 ms before they are given up, nearly all would be.
const ONE_OF: u64 = 20;

fn degraded(node: &Node, words: &str) -> bool {
    let Some(state) = node.json("/readyz") else { return false };
    let says = |reason: &Value| reason.as_str().is_some_and(|text| text.contains(words));
    let reasons = state["reasons"].as_array();
    state["degraded"] == Value::Bool(true)
        && state["ready"] == Value::Bool(true)
        && reasons.is_some_and(|reasons| reasons.iter().any(says))
        && node.metrics().contains("\nheatsink_degraded 1")
}

fn readyz(node: &Node) -> Option<u16> {
    http::get(node.admin, "/readyz", None).map(|(status, _)| status)
}

fn is_local(node: &Node, key: &str) -> bool {
    node.entry(key).is_some_and(|entry| entry.origin == "local")
}

fn is_auto(node: &Node, key: &str) -> bool {
    node.entry(key).is_some_and(|entry| entry.origin == "auto")
}

#[track_caller]
fn assert_undisturbed(loads: &[Load]) {
    for load in loads {
        let tally = load.tally();
        assert!(tally.failed == 0 && tally.answered > 0, "{tally:?}");
        assert!(tally.slowest < LONGEST && tally.slow <= tally.answered / ONE_OF, "{tally:?}");
        println!("slowest of {} requests: {:?}", tally.answered, tally.slowest);
    }
}

/// `lose` makes the store go away, `find` brings it back.
fn store_lost(lose: fn(&mut Servers), find: fn(&mut Servers)) {
    let place = Place::empty();
    let mut servers = Servers::start();
    servers.upstream.client().command(&["SET", "data", "value"]);
    let args = ["--detect-hot-threshold", "500"];
    let nodes = [servers.member(&place, "all", &args), servers.member(&place, "proxy", &args)];
    let aggregator = servers.member(&place, "aggregator", &args);
    assemble(&[&nodes[0], &nodes[1], &aggregator]);
    nodes[0].api().promote(b"manual", CACHE).expect("promoted");
    all(&nodes, PATIENCE, "the manual key is listed", |node| node.entry("manual").is_some());

    let loads: Vec<Load> = nodes
        .iter()
        .map(|node| Load::start(node.clients(), &["GET", "data"], 100, Reply::bulk("value")))
        .collect();
    lose(&mut servers);
    let words = "the coordination store cannot be reached";
    all(&nodes, PATIENCE, "it says that it is degraded", |node| degraded(node, words));
    // One that only adds up is of no use meanwhile.
    all([&aggregator], PATIENCE, "it says that it is not ready", |node| readyz(node) == Some(503));
    assert!(aggregator.metrics().contains("\nheatsink_degraded 1"));
    // An operator is told at once, rather than made to wait.
    let refused = nodes[1].api().promote(b"other", CACHE).expect_err("there is no store");
    assert!(refused.to_string().contains("503"), "{refused}");

    // Hot on one proxy: it helps itself, the other one does not hear of it.
    let hot = nodes[1].load("hot", 1500);
    all([&nodes[1]], PATIENCE, "the hot key is treated locally", |node| is_local(node, "hot"));
    let entry = nodes[1].entry("hot").expect("listed");
    assert_eq!(entry.mitigation_type, "local_cache");
    let found_at = entry.detected_at;
    assert!(!found_at.starts_with("1970"), "{found_at}");
    assert!(nodes[0].lacks("hot"));
    // What was agreed on before still holds.
    all(&nodes, PATIENCE, "the manual key is listed", |node| node.entry("manual").is_some());
    assert_undisturbed(&loads);

    find(&mut servers);
    all(nodes.iter().chain([&aggregator]), PATIENCE, "it is well again", Node::is_well);
    all(&nodes, PATIENCE, "the key is the fleet's", |node| is_auto(node, "hot"));
    all(&nodes, PATIENCE, "the manual key is listed", |node| {
        node.entry("manual").is_some_and(|entry| entry.origin == "manual")
    });
    assert!(nodes[1].metrics().contains("\nheatsink_degraded 0"));
    assert_undisturbed(&loads);
    assert_eq!(hot.tally().failed, 0, "{:?}", hot.tally());
}

#[test]
fn a_store_that_hangs_disturbs_no_request() {
    store_lost(|servers| servers.store.pause(), |servers| servers.store.resume());
}

#[test]
fn a_store_that_is_gone_and_comes_back_empty_disturbs_no_request() {
    store_lost(|servers| servers.store.kill(), |servers| servers.store.start_again());
}

#[test]
fn without_an_aggregator_each_proxy_helps_itself() {
    let place = Place::empty();
    let servers = Servers::start();
    let args = ["--detect-hot-threshold", "500"];
    let proxy = servers.member(&place, "proxy", &args);
    let aggregator = servers.member(&place, "aggregator", &args);
    assemble(&[&proxy, &aggregator]);
    drop(aggregator);
    let words = "no aggregator is alive";
    all([&proxy], PATIENCE, "it says that it is degraded", |node| degraded(node, words));
    let loads = [proxy.load("hot", 1500)];
    all([&proxy], PATIENCE, "the hot key is treated locally", |node| is_local(node, "hot"));
    // The store is there: an operator is heard.
    proxy.api().promote(b"manual", CACHE).expect("promoted");
    assert!(proxy.entry("manual").is_some());
    let aggregator = servers.member(&place, "aggregator", &args);
    assemble(&[&proxy, &aggregator]);
    all([&proxy, &aggregator], PATIENCE, "the key is the fleet's", |node| is_auto(node, "hot"));
    assert!(aggregator.entry("manual").is_some());
    assert_undisturbed(&loads);
}

#[test]
fn an_operator_ends_what_a_proxy_does_on_its_own() {
    let place = Place::empty();
    let servers = Servers::start();
    let proxy = servers.member(&place, "proxy", &["--detect-hot-threshold", "500"]);
    let words = "no aggregator is alive";
    all([&proxy], PATIENCE, "it says that it is degraded", |node| degraded(node, words));
    let load = proxy.load("hot", 1500);
    all([&proxy], PATIENCE, "the hot key is treated locally", |node| is_local(node, "hot"));
    proxy.api().demote(b"hot").expect("removed");
    all([&proxy], PATIENCE, "the key is gone", |node| node.lacks("hot"));
    load.reset();
    eventually(PATIENCE, || load.tally().answered > 2000);
    assert!(proxy.lacks("hot"));
}

#[test]
fn a_fleet_starts_before_its_store() {
    let place = Place::empty();
    let mut servers = Servers::start();
    servers.store.kill();
    let nodes = [servers.member(&place, "all", &[]), servers.member(&place, "aggregator", &[])];
    assert_eq!(nodes[0].client().command(&["SET", "k", "v"]), Reply::ok());
    let words = "the coordination store cannot be reached";
    all([&nodes[0]], PATIENCE, "it says that it is degraded", |node| degraded(node, words));
    assert_eq!(readyz(&nodes[1]), Some(503));
    servers.store.start_again();
    assemble(&[&nodes[0], &nodes[1]]);
    assert_eq!(readyz(&nodes[1]), Some(200));
}
