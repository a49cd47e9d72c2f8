//! Keys that are split and made whole: by operators, by commands, by whoever finds them.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use heatsink_testkit::{RedisCluster, RedisServer, Reply, eventually};
use serde_json::Value;

use crate::http::Events;
use crate::node::{Node, Servers, all, assemble};
use crate::split::{is_marker, is_split, manifests, rests_split, split};
use crate::support::{PATIENCE, Place};

/// What was told of a key's status, one after the other.
fn statuses(events: &Events, key: &str) -> Vec<String> {
    let text = events.text();
    let told = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let told = told.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let of_key = told.filter(|event| event["hotkey"]["key"] == key);
    of_key.map(|event| event["hotkey"]["status"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn an_operator_splits_a_key_and_makes_it_whole() {
    let (place, servers) = (Place::empty(), Servers::start());
    let nodes = [servers.member(&place, "all", &[]), servers.member(&place, "proxy", &[])];
    assemble(&[&nodes[0], &nodes[1]]);
    let mut direct = servers.upstream.client();
    direct.command(&["SET", "counter", "41", "EX", "100000"]);
    direct.command(&["SADD", "set", "a", "b", "c"]);
    direct.command(&["HSET", "hash", "f", "1", "g", "2"]);
    let events = Events::of(nodes[0].admin);
    for key in ["counter", "set", "hash"] {
        nodes[0].api().promote(key.as_bytes(), split(4)).expect("promoted");
        all(&nodes, PATIENCE, "it is split", |node| rests_split(node, key, 4));
        assert!(is_split(&mut direct, key), "{key}");
        // Said to be in force once it is, and not before.
        eventually(PATIENCE, || statuses(&events, key).last().is_some_and(|it| it == "active"));
        let told = statuses(&events, key);
        assert_eq!(told.iter().filter(|it| *it == "active").count(), 1, "{key}: {told:?}");
    }
    // Through either of them nothing is different.
    for (round, node) in nodes.iter().enumerate() {
        let mut client = node.client();
        assert_eq!(client.command(&["INCR", "counter"]), Reply::Integer(42 + round as i64));
        assert_eq!(client.command(&["SADD", "set", &format!("m{round}")]), Reply::Integer(1));
        assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(4 + round as i64));
        assert_eq!(client.command(&["HGET", "hash", "g"]), Reply::bulk("2"));
        let left = client.command(&["TTL", "counter"]).integer();
        assert!((99_900..=100_000).contains(&left), "{left}");
    }
    let metrics = nodes[0].metrics();
    assert!(metrics.contains("heatsink_splits_active 3"), "{metrics}");
    // Another factor: made whole, and split anew.
    nodes[1].api().promote(b"set", split(8)).expect("promoted");
    all(&nodes, PATIENCE, "it is split by 8", |node| rests_split(node, "set", 8));
    assert_eq!(nodes[0].client().command(&["SCARD", "set"]), Reply::Integer(5));
    for key in ["counter", "set", "hash"] {
        nodes[1].api().demote(key.as_bytes()).expect("removed");
        all(&nodes, PATIENCE, "it is gone", |node| node.lacks(key));
    }
    assert_eq!(direct.command(&["GET", "counter"]), Reply::bulk("43"));
    let left = direct.command(&["TTL", "counter"]).integer();
    assert!((99_900..=100_000).contains(&left), "{left}");
    assert_eq!(direct.command(&["SCARD", "set"]), Reply::Integer(5));
    assert_eq!(direct.command(&["HGETALL", "hash"]).items().len(), 4);
    eventually(PATIENCE, || manifests(&mut direct).is_empty());
    // The removal blocks the key, as any other.
    let registry =
        |key: &str| servers.store.client().command(&["ZSCORE", "heatsink:{default}:blocked", key]);
    assert_ne!(registry("set"), Reply::Null);
}

#[test]
fn on_a_cluster_shards_lie_on_all_primaries() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let store = RedisServer::start();
    let node = Node::member(&place, "all", &store.url(), &cluster.seed_url());
    assemble(&[&node]);
    let mut client = node.client();
    for member in 0..100 {
        client.command(&["SADD", "set", &member.to_string()]);
    }
    node.api().promote(b"set", split(6)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 6));
    let counts: Vec<i64> = cluster
        .nodes()
        .map(|server| server.client().command(&["KEYS", "heatsink:{*}:*"]).items().len() as i64)
        .collect();
    assert!(counts.iter().all(|count| *count >= 2), "{counts:?}");
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(100));
    let stats = eventually(PATIENCE, || {
        let stats = node.json("/hotkeys/set/stats")?;
        let shards = stats["shards"].as_array()?.clone();
        let members: u64 = shards.iter().filter_map(|shard| shard["count"].as_u64()).sum();
        (shards.len() == 6 && members == 100).then_some(shards)
    });
    let places: BTreeSet<String> =
        stats.iter().filter_map(|shard| shard["node"].as_str()).map(str::to_owned).collect();
    assert_eq!(places.len(), 3, "{stats:?}");
    node.api().demote(b"set").expect("removed");
    all([&node], PATIENCE, "it is gone", |node| node.lacks("set"));
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(100));
}

#[test]
fn a_command_that_needs_the_key_whole_gets_it() {
    let (place, servers) = (Place::empty(), Servers::start());
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    let mut client = node.client();
    client.command(&["SADD", "set", "a", "b"]);
    client.command(&["SADD", "other", "b", "c"]);
    node.api().promote(b"set", split(2)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 2));
    assert_eq!(client.command(&["SINTER", "set", "other"]), Reply::bulks(["b"]));
    // It is not split again at once, and says why.
    let entry = node.entry("set").expect("registered");
    let reason = &entry.reason;
    assert!(reason.contains("not split: SINTER needs the key whole"), "{reason}");
    assert_eq!(entry.split, None);
    assert!(!is_marker(&mut servers.upstream.client(), "set"));
    // Unless an operator says so.
    node.api().promote(b"set", split(2)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 2));
}

#[test]
fn what_cannot_be_split_says_why() {
    let (place, servers) = (Place::empty(), Servers::start());
    let node = servers.member(&place, "all", &["--split-max-members", "2"]);
    assemble(&[&node]);
    let mut direct = servers.upstream.client();
    direct.command(&["SET", "text", "words"]);
    direct.command(&["SADD", "large", "a", "b", "c"]);
    for (key, why) in [
        ("text", "not split: a string that is neither a number nor a HyperLogLog"),
        ("large", "not split: 3 members, split.max_members is 2"),
        ("nothing", "not split: there is no value"),
    ] {
        node.api().promote(key.as_bytes(), split(2)).expect("promoted");
        all([&node], PATIENCE, why, |node| {
            let entry = node.entry(key);
            entry.is_some_and(|entry| {
                // Nothing is in force.
                entry.status == "candidate" && entry.reason.contains(why)
            })
        });
        assert!(!is_marker(&mut direct, key));
    }
    assert_eq!(direct.command(&["GET", "text"]), Reply::bulk("words"));
}

#[test]
fn who_promotes_and_who_removes_a_split_at_once_end_in_one_state() {
    let (place, servers) = (Place::empty(), Servers::start());
    let nodes = [servers.member(&place, "all", &[]), servers.member(&place, "all", &[])];
    assemble(&[&nodes[0], &nodes[1]]);
    let mut direct = servers.upstream.client();
    direct.command(&["SADD", "set", "a", "b", "c"]);
    let barrier = Barrier::new(2);
    for round in 0..15 {
        thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                nodes[0].api().promote(b"set", split(2 + round % 3 * 2)).expect("promoted");
            });
            scope.spawn(|| {
                barrier.wait();
                thread::sleep(Duration::from_millis(u64::from(round % 5) * 3));
                let _ = nodes[1].api().demote(b"set");
            });
        });
        // Either it is split as was asked, or it is whole and nobody knows it.
        eventually(PATIENCE, || {
            let split = is_marker(&mut direct, "set");
            let factor = 2 + round % 3 * 2;
            let kept = nodes.iter().all(|node| rests_split(node, "set", factor));
            let gone = nodes.iter().all(|node| node.lacks("set"));
            kept && split || gone && !split
        });
        assert_eq!(nodes[0].client().command(&["SCARD", "set"]), Reply::Integer(3));
    }
}

#[test]
fn whoever_overwrites_the_marker_wins() {
    let (place, servers) = (Place::empty(), Servers::start());
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    let mut direct = servers.upstream.client();
    direct.command(&["SADD", "set", "a", "b"]);
    node.api().promote(b"set", split(2)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 2));
    direct.command(&["DEL", "set"]);
    direct.command(&["SADD", "set", "mine"]);
    all([&node], PATIENCE, "it is whole", |node| {
        node.entry("set").is_some_and(|entry| entry.split.is_none())
    });
    // The API knows of it a moment before the workers do.
    let mut client = node.client();
    eventually(PATIENCE, || client.command(&["SMEMBERS", "set"]) == Reply::bulks(["mine"]));
    eventually(PATIENCE, || manifests(&mut direct).is_empty());
    assert!(node.metrics().contains("heatsink_split_drift_total 1"), "{}", node.metrics());
}

/// One pushes when the other was answered: their clocks are one and the same.
#[test]
fn pushes_through_two_proxies_stand_in_their_order() {
    let (place, servers) = (Place::empty(), Servers::start());
    let nodes = [servers.member(&place, "all", &[]), servers.member(&place, "all", &[])];
    assemble(&[&nodes[0], &nodes[1]]);
    let mut clients = [nodes[0].client(), nodes[1].client()];
    clients[0].command(&["RPUSH", "list", "first"]);
    nodes[0].api().promote(b"list", split(4)).expect("promoted");
    all(&nodes, PATIENCE, "it is split", |node| rests_split(node, "list", 4));
    let mut expected = vec!["first".to_owned()];
    for number in 0..300 {
        // The first pushes far more.
        let client = &mut clients[usize::from(number % 20 == 0)];
        let element = number.to_string();
        expected.push(element.clone());
        let length = Reply::Integer(expected.len() as i64);
        assert_eq!(client.command(&["RPUSH", "list", &element]), length);
    }
    assert_eq!(clients[1].command(&["LRANGE", "list", "0", "-1"]), Reply::bulks(&expected));
    nodes[1].api().demote(b"list").expect("removed");
    all(&nodes, PATIENCE, "it is gone", |node| node.lacks("list"));
    assert_eq!(clients[0].command(&["LRANGE", "list", "0", "-1"]), Reply::bulks(&expected));
}

/// How many shards that are in use each node has.
fn shards_by_node(cluster: &RedisCluster) -> Vec<usize> {
    let live = |node: usize| {
        let keys = cluster.node(node).client().command(&["KEYS", "heatsink:{*}:*:*"]);
        let names: Vec<String> = keys.items().iter().map(Reply::text).collect();
        let mut client = cluster.node(node).client();
        let is_set = |name: &&String| client.command(&["TYPE", name.as_str()]).text() == "set";
        let shards = names.iter().filter(|name| !name.ends_with("sealed"));
        shards.filter(is_set).count()
    };
    (0..3).map(live).collect()
}

/// Slots of shards were moved to one node: the key is split anew, evenly.
#[test]
fn shards_that_have_ended_up_on_one_node_are_spread_again() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let store = RedisServer::start();
    let args = ["--coordination-url", &store.url(), "--upstream", &cluster.seed_url()];
    let node = Node::start(&place, &args);
    assemble(&[&node]);
    let mut client = node.client();
    let members: Vec<String> = (0..200).map(|number| format!("m{number}")).collect();
    let mut add = vec!["SADD".to_owned(), "set".to_owned()];
    add.extend(members.iter().cloned());
    client.command(&add);
    node.api().promote(b"set", split(8)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 8));
    assert_eq!(shards_by_node(&cluster).iter().max(), Some(&3));
    for of in 1..3 {
        let keys = cluster.node(of).client().command(&["KEYS", "heatsink:{*}:*:*"]);
        for name in keys.items().iter().map(Reply::text) {
            let slot = heatsink_cluster::slot::of_key(name.as_bytes());
            if cluster.owner_of(slot) == of {
                cluster.move_slot(slot, 0);
            }
        }
    }
    assert_eq!(shards_by_node(&cluster), [8, 0, 0]);
    eventually(2 * PATIENCE, || {
        client.command(&["SCARD", "set"]);
        shards_by_node(&cluster).iter().max() == Some(&3)
    });
    all([&node], PATIENCE, "it is split again", |node| rests_split(node, "set", 8));
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(200));
}
