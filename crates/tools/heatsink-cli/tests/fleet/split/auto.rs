//! Keys that the fleet splits of itself, under a rule that allows it, and makes whole when they
//! have cooled down.

use heatsink_testkit::{Load, RawClient, RedisCluster, RedisServer, Reply, eventually};

use crate::node::{Node, all, assemble};
use crate::split::{manifests, rests_split};
use crate::support::{PATIENCE, Place};

/// Little is hot, and little is more than one node takes; what is cold is so at once.
const RULES: &str = "[detect]\nhot_threshold = 200\nhold_seconds = 1\n\
                     [split]\nnode_writes_per_second = 500\n\
                     [[policy]]\nmatch = \"all:*\"\nmode = \"coherent\"\nwhole_traffic = true\n";

fn serve(place: &Place, role: &str, store: &RedisServer, upstream: &str) -> Node {
    let store = store.url();
    let args = ["--config", "heatsink.toml", "--coordination-url", &store, "--upstream", upstream];
    Node::start(place, &[&args[..], &["--role", role]].concat())
}

/// Writes that leave the value what it is, so that each has the same reply.
fn idle_writes(nodes: &[Node], args: &[&str], per_second: u32) -> Vec<Load> {
    let loads = nodes.iter().map(Node::clients);
    loads.map(|to| Load::start(to, args, per_second, Reply::Integer(0))).collect()
}

#[test]
fn a_key_that_is_written_a_lot_is_split_until_it_cools_down() {
    let place = Place::with_file(RULES);
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let (store, upstream) = (RedisServer::start(), cluster.seed_url());
    let nodes = ["all", "all"].map(|role| serve(&place, role, &store, &upstream));
    assemble(&[&nodes[0], &nodes[1]]);
    let mut client = nodes[0].client();
    for key in ["all:set", "other:set"] {
        client.command(&["SADD", key, "a", "b"]);
    }
    client.command(&["SET", "all:counter", "0"]);
    // About 800 writes/s each, which neither of the two sees alone.
    let mut loads = idle_writes(&nodes, &["SADD", "all:set", "a"], 400);
    loads.extend(idle_writes(&nodes, &["INCRBY", "all:counter", "0"], 400));
    loads.extend(idle_writes(&nodes, &["SADD", "other:set", "a"], 400));
    for key in ["all:set", "all:counter"] {
        all(&nodes, PATIENCE, key, |node| rests_split(node, key, 2));
        let entry = nodes[1].entry(key).expect("listed");
        assert_eq!(entry.origin, "auto", "{entry:?}");
        assert!(entry.reason.contains("writes/s, one node takes about 500"), "{entry:?}");
    }
    // Nobody has said that all clients of this one go through Heatsink.
    let other = nodes[0].entry("other:set").expect("listed");
    assert_ne!(other.mitigation_type, "split", "{other:?}");
    assert_eq!(client.command(&["SADD", "all:set", "c"]), Reply::Integer(1));
    for load in &loads {
        load.reset();
        eventually(PATIENCE, || load.tally().answered > 200);
        assert_eq!(load.tally().failed, 0, "{:?}", load.tally());
    }
    for key in ["all:set", "all:counter"] {
        assert!(rests_split(&nodes[0], key, 2), "{:?}", nodes[0].entry(key));
    }
    drop(loads);
    for key in ["all:set", "all:counter"] {
        all(&nodes, PATIENCE, "it is whole and forgotten", |node| node.lacks(key));
    }
    let mut index = cluster_client(&cluster, "heatsink:{default}:splits");
    eventually(PATIENCE, || manifests(&mut index).is_empty());
    let mut direct = cluster_client(&cluster, "all:set");
    assert_eq!(direct.command(&["SCARD", "all:set"]), Reply::Integer(3));
    let mut direct = cluster_client(&cluster, "all:counter");
    assert_eq!(direct.command(&["GET", "all:counter"]), Reply::bulk("0"));
}

/// A client of the node that has a key.
fn cluster_client(cluster: &RedisCluster, key: &str) -> RawClient {
    cluster.node(cluster.owner_of(heatsink_testkit::key_slot(key))).client()
}

/// More writes than before want more shards; fewer, but still many, leave the key as it is.
#[test]
fn a_split_grows_with_the_writes_and_does_not_waver() {
    let (place, store) = (Place::with_file(RULES), RedisServer::start());
    // One decides, the other moves.
    let nodes = [serve(&place, "proxy", &store, &store.url())];
    let aggregator = serve(&place, "aggregator", &store, &store.url());
    assemble(&[&nodes[0], &aggregator]);
    nodes[0].client().command(&["SADD", "all:set", "a"]);
    let some = idle_writes(&nodes, &["SADD", "all:set", "a"], 800);
    all(&nodes, PATIENCE, "it is split", |node| rests_split(node, "all:set", 2));
    let more = idle_writes(&nodes, &["SADD", "all:set", "a"], 800);
    all(&nodes, PATIENCE, "it has more shards", |node| rests_split(node, "all:set", 4));
    drop(more);
    // Longer than it takes to be found cold.
    let load = &some[0];
    load.reset();
    eventually(PATIENCE, || load.tally().answered > 2500);
    assert!(rests_split(&nodes[0], "all:set", 4), "{:?}", nodes[0].entry("all:set"));
    assert_eq!(load.tally().failed, 0, "{:?}", load.tally());
    // It is hot, and its writes are not too many any more.
    drop(some);
    let few = idle_writes(&nodes, &["SADD", "all:set", "a"], 210);
    all(&nodes, PATIENCE, "it is whole", |node| {
        node.entry("all:set")
            .is_some_and(|entry| entry.split.is_none() && entry.mitigation_type != "split")
    });
    assert_eq!(few[0].tally().failed, 0, "{:?}", few[0].tally());
}

/// A large value that is read a lot is copied, under the same rule, for as long as it is.
#[test]
fn a_large_value_that_is_read_a_lot_has_copies_until_it_cools_down() {
    let place = Place::with_file(RULES);
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let store = RedisServer::start();
    let node = serve(&place, "all", &store, &cluster.seed_url());
    assemble(&[&node]);
    let value = "x".repeat(80 << 10);
    let mut client = node.client();
    client.command(&["SET", "all:value", &value]);
    let read = ["GET", "all:value"];
    let load = Load::start(node.clients(), &read, 300, Reply::bulk(&value));
    all([&node], PATIENCE, "there are copies", |node| {
        node.entry("all:value").is_some_and(|entry| {
            entry.origin == "auto"
                && entry.split_phase() == Some("split")
                && entry.split.is_some_and(|split| split.kind == "copies")
        })
    });
    load.reset();
    eventually(PATIENCE, || load.tally().answered > 200);
    assert_eq!(load.tally().failed, 0, "{:?}", load.tally());
    drop(load);
    assert_eq!(client.command(&["SET", "all:value", "new"]), Reply::ok());
    for _ in 0..6 {
        assert_eq!(node.client().command(&read), Reply::bulk("new"));
    }
    all([&node], PATIENCE, "it is forgotten", |node| node.lacks("all:value"));
    assert_eq!(client.command(&read), Reply::bulk("new"));
}
