//! What `heatsink drain` says of each key, beside proxies that do the same.

use std::collections::BTreeMap;

use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;
use heatsink_testkit::{RedisCluster, RedisServer, Reply};

use crate::node::{Node, all, assemble};
use crate::split::{rests_split, split};
use crate::support::{PATIENCE, Place};

const SPLIT: usize = 12;
const COPIED: usize = 3;
const COPIES: Promotion =
    Promotion { mitigation: Mitigation::Copies, split_factor: None, ttl_seconds: None };

/// How each key was told of, by its name; what was told with `n of m` must count up.
fn told(output: &str) -> BTreeMap<String, String> {
    let mut told = BTreeMap::new();
    for line in output.lines().filter(|line| line.ends_with(')')) {
        let (how, rest) = line.split_once(": ").expect("how, and of which key");
        let (key, count) = rest.rsplit_once(" (").expect("a count");
        let expected = format!("{} of {})", told.len() + 1, SPLIT + COPIED);
        assert_eq!(count, expected, "{output}");
        assert_eq!(told.insert(key.to_owned(), how.to_owned()), None, "{key}: {output}");
    }
    told
}

#[test]
fn drain_names_every_key_once_whoever_is_faster() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let store = RedisServer::start();
    let (store_url, upstream) = (store.url(), cluster.seed_url());
    let flags = ["--coordination-url", store_url.as_str(), "--upstream", upstream.as_str()];
    let nodes = [Node::start(&place, &flags), Node::start(&place, &flags)];
    assemble(&[&nodes[0], &nodes[1]]);
    let mut client = nodes[0].client();
    let keys: Vec<String> = (0..SPLIT).map(|number| format!("set:{number}")).collect();
    for key in &keys {
        client.command(&["SADD", key, "a", "b", "c"]);
        nodes[0].api().promote(key.as_bytes(), split(4)).expect("promoted");
    }
    let copied: Vec<String> = (0..COPIED).map(|number| format!("value:{number}")).collect();
    for key in &copied {
        client.command(&["SET", key, "v"]);
        nodes[0].api().promote(key.as_bytes(), COPIES).expect("promoted");
    }
    for key in &keys {
        all(&nodes, PATIENCE, "it is split", |node| rests_split(node, key, 4));
    }
    for key in &copied {
        all(&nodes, PATIENCE, "there are copies", |node| {
            node.entry(key).is_some_and(|entry| entry.split_phase() == Some("split"))
        });
    }
    let drained = place.run(&[&["drain"], &flags[..]].concat());
    assert_eq!(drained.code, Some(0), "{drained:?}");
    let output = &drained.stdout;
    let told = told(output);
    assert_eq!(told.len(), SPLIT + COPIED, "{output}");
    for key in &keys {
        let how = told.get(key).map(String::as_str);
        assert!(matches!(how, Some("whole" | "whole, by a proxy")), "{key}: {output}");
        assert_eq!(client.command(&["SCARD", key]), Reply::Integer(3));
    }
    for key in &copied {
        assert_eq!(told.get(key).map(String::as_str), Some("copies removed"), "{output}");
    }
    let count = |how: &str| told.values().filter(|told| *told == how).count();
    let summary = format!(
        "{} made whole, {} by proxies meanwhile, {COPIED} rid of copies, 0 had ended before, 0 left",
        count("whole"),
        count("whole, by a proxy"),
    );
    assert_eq!(output.lines().last(), Some(summary.as_str()), "{output}");
    all(&nodes, PATIENCE, "nothing is registered", |node| {
        keys.iter().chain(&copied).all(|key| node.lacks(key))
    });
    let again = place.run(&[&["drain"], &flags[..]].concat());
    let nothing =
        "0 made whole, 0 by proxies meanwhile, 0 rid of copies, 0 had ended before, 0 left";
    assert_eq!((again.code, again.stdout.trim_end()), (Some(0), nothing), "{again:?}");
}

/// Nobody is left who would end the copies' entries.
#[test]
fn drain_ends_copies_that_a_lost_fleet_has_left() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let store = RedisServer::start();
    let (store_url, upstream) = (store.url(), cluster.seed_url());
    let flags = ["--coordination-url", store_url.as_str(), "--upstream", upstream.as_str()];
    let mut node = Node::start(&place, &flags);
    assemble(&[&node]);
    node.client().command(&["SET", "value", "v"]);
    node.api().promote(b"value", COPIES).expect("promoted");
    all([&node], PATIENCE, "there are copies", |node| {
        node.entry("value").is_some_and(|entry| entry.split_phase() == Some("split"))
    });
    node.process.terminate();
    node.process.wait_exit(PATIENCE);
    let drained = place.run(&[&["drain"], &flags[..]].concat());
    assert_eq!(drained.code, Some(0), "{drained:?}");
    assert!(drained.stdout.contains("copies removed: value (1 of 1)"), "{drained:?}");
    let registry = store.client().command(&["HLEN", "heatsink:{default}:registry"]);
    assert_eq!(registry, Reply::Integer(0));
}
