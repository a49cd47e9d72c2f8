//! What operators see of a split: what is in each shard, where it lies, and who is written to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, eventually};
use serde_json::Value;

use crate::node::{Node, all, assemble};
use crate::split::{rests_split, split};
use crate::support::{PATIENCE, Place};

struct Rig {
    node: Node,
    place: Place,
    cluster: RedisCluster,
    _store: RedisServer,
}

/// A Heatsink before a cluster of three primaries.
fn rig() -> Rig {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let store = RedisServer::start();
    let node = Node::member(&place, "all", &store.url(), &cluster.seed_url());
    assemble(&[&node]);
    Rig { node, place, cluster, _store: store }
}

impl Rig {
    fn client(&self) -> RawClient {
        self.node.client()
    }

    fn split(&self, key: &str, factor: u32) {
        self.node.api().promote(key.as_bytes(), split(factor)).expect("promoted");
        let rests = |node: &Node| rests_split(node, key, factor);
        all([&self.node], PATIENCE, "it is split", rests);
    }

    fn stats(&self, key: &str) -> Value {
        self.node.json(&format!("/hotkeys/{key}/stats")).expect("stats")
    }
}

fn shards(stats: &Value) -> &[Value] {
    stats["shards"].as_array().map_or(&[], Vec::as_slice)
}

/// A field of all shards together; none if one of them lacks it.
fn sum(stats: &Value, field: &str) -> Option<i64> {
    shards(stats).iter().map(|shard| shard[field].as_i64()).sum()
}

/// The nodes are those of the shards, and each has the writes of its own.
fn assert_nodes_add_up(stats: &Value) {
    let mut expected: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for shard in shards(stats) {
        let node = expected.entry(shard["node"].as_str().expect("a node")).or_default();
        node.0 += 1;
        node.1 += shard["writes_total"].as_u64().expect("writes");
    }
    let all_writes: u64 = expected.values().map(|(_, writes)| writes).sum();
    let nodes = stats["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), expected.len(), "{stats}");
    for node in nodes {
        let (shards, writes) = expected[node["node"].as_str().expect("a node")];
        assert_eq!(node["shards"], shards, "{stats}");
        assert_eq!(node["writes_total"], writes, "{stats}");
        let share = node["write_share"].as_f64().expect("a share");
        assert!((share - writes as f64 / all_writes as f64).abs() < 1e-9, "{stats}");
    }
}

#[test]
fn shards_of_a_counter_are_shown_with_their_numbers() {
    let rig = rig();
    let mut client = rig.client();
    client.command(&["SET", "counter", "3100"]);
    rig.split("counter", 4);
    // Where they are is known as soon as it is split.
    let stats = rig.stats("counter");
    assert_eq!(shards(&stats).len(), 4, "{stats}");
    let stats = eventually(PATIENCE, || {
        Some(rig.stats("counter")).filter(|stats| sum(stats, "value") == Some(3100))
    });
    assert_eq!(sum(&stats, "writes_total"), Some(0), "{stats}");
    assert!(stats["nodes"][0]["write_share"].is_null(), "nothing was written: {stats}");
    for round in 1..=40 {
        assert_eq!(client.command(&["INCR", "counter"]), Reply::Integer(3100 + round));
    }
    let stats = eventually(PATIENCE, || {
        let stats = rig.stats("counter");
        let is_known =
            sum(&stats, "value") == Some(3140) && sum(&stats, "writes_total") == Some(40);
        is_known.then_some(stats)
    });
    for shard in shards(&stats) {
        let name = shard["name"].as_str().expect("a name");
        let port: u16 = shard["node"]
            .as_str()
            .and_then(|node| node.rsplit(':').next()?.parse().ok())
            .expect("a port");
        let server = rig.cluster.nodes().find(|server| server.port() == port).expect("a node");
        let there = server.client().command(&["GET", name]).text();
        assert_eq!(there, shard["value"].to_string(), "{stats}");
        assert!(shard.get("count").is_none(), "a counter has no members: {stats}");
        assert_eq!(shard["writes_total"], 10, "they take turns: {stats}");
    }
    assert_nodes_add_up(&stats);
    let metrics = rig.node.metrics();
    for (name, value) in [("split_factor", 4), ("shards", 4)] {
        let start = format!("heatsink_hot_key_{name}{{key=\"counter\",");
        let line = metrics.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
        assert!(line.ends_with(&format!("}} {value}")), "{line}");
    }
    // The same on the command line.
    let run = rig.place.run(&["keys", "--admin", &rig.node.admin_url(), "stats", "counter"]);
    for shard in shards(&stats) {
        let [node, name] = ["node", "name"].map(|field| shard[field].as_str().expect("text"));
        let cells = [&shard["index"].to_string(), node, &shard["value"].to_string(), "10", name];
        let is_it = |line: &str| line.split_whitespace().eq(cells);
        assert!(run.stdout.lines().any(is_it), "{cells:?} in {}", run.stdout);
    }
    let share = |node: &Value| {
        let share = node["write_share"].as_f64().expect("a share") * 100.0;
        format!("{share:.1} %")
    };
    for node in stats["nodes"].as_array().expect("nodes") {
        let address = node["node"].as_str().expect("text");
        let is_it = |line: &str| line.starts_with(address) && line.ends_with(&share(node));
        assert!(run.stdout.lines().any(is_it), "{node} in {}", run.stdout);
    }
}

#[test]
fn shards_are_looked_into_as_soon_as_they_are_there() {
    let rig = rig();
    let begun = Instant::now();
    // Were they looked into every five seconds only, each would wait for that.
    for key in ["a", "b", "c", "d"] {
        rig.client().command(&["SET", key, "7"]);
        rig.split(key, 2);
        eventually(PATIENCE, || sum(&rig.stats(key), "value") == Some(7));
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn writes_of_members_are_counted_where_they_go() {
    let rig = rig();
    let mut client = rig.client();
    client.command(&["SADD", "set", "first"]);
    rig.split("set", 8);
    let before = eventually(PATIENCE, || {
        Some(rig.stats("set")).filter(|stats| sum(stats, "count") == Some(1))
    });
    // Each new member is one write, of the shard that it is in then: alone, in a pipeline, ...
    for member in 0..20 {
        client.command(&["SADD", "set", &format!("alone:{member}")]);
    }
    let members: Vec<String> = (0..60).map(|member| format!("piped:{member}")).collect();
    for member in &members {
        client.send(&["SADD", "set", member]);
        client.send(&["SISMEMBER", "set", member]);
    }
    for _ in &members {
        assert_eq!(client.read_reply(), Reply::Integer(1));
        assert_eq!(client.read_reply(), Reply::Integer(1));
    }
    let stats = eventually(PATIENCE, || {
        let stats = rig.stats("set");
        let is_known = sum(&stats, "count") == Some(81) && sum(&stats, "writes_total") == Some(80);
        is_known.then_some(stats)
    });
    for (shard, before) in shards(&stats).iter().zip(shards(&before)) {
        let new = shard["count"].as_u64().zip(before["count"].as_u64());
        let new = new.map(|(now, before)| now - before);
        assert_eq!(shard["writes_total"].as_u64(), new, "{stats}");
        assert!(shard.get("value").is_none(), "{stats}");
    }
    assert_nodes_add_up(&stats);
    // ... and in pieces, where each shard that takes a piece is written to once.
    let many: Vec<String> = (0..100).map(|member| format!("many:{member}")).collect();
    let mut request = vec!["SADD", "set"];
    request.extend(many.iter().map(String::as_str));
    assert_eq!(client.command(&request), Reply::Integer(100));
    let stats = eventually(PATIENCE, || {
        Some(rig.stats("set")).filter(|stats| sum(stats, "writes_total") == Some(88))
    });
    assert_nodes_add_up(&stats);
}
