//! A fleet that meets in a cluster, or behind Sentinel.

use heatsink_testkit::{RedisCluster, SentinelRig};

use crate::node::{CACHE, Node, all, assemble};
use crate::support::{PATIENCE, Place};

fn fleet_works(url: &str) {
    let place = Place::empty();
    let start = |role: &str| Node::start(&place, &["--role", role, "--upstream", url]);
    let nodes = [start("proxy"), start("all")];
    assemble(&[&nodes[0], &nodes[1]]);
    let loads: Vec<_> = nodes.iter().map(|node| node.load("hot", 700)).collect();
    all(&nodes, PATIENCE, "the hot key is listed", |node| node.entry("hot").is_some());
    nodes[0].api().promote(b"manual", CACHE).expect("promoted");
    all(&nodes, PATIENCE, "the manual key is listed", |node| node.entry("manual").is_some());
    nodes[1].api().demote(b"manual").expect("removed");
    all(&nodes, PATIENCE, "the manual key is gone", |node| node.lacks("manual"));
    for load in &loads {
        assert_eq!(load.tally().failed, 0, "{:?}", load.tally());
    }
}

#[test]
fn a_fleet_meets_in_a_cluster() {
    let cluster = RedisCluster::builder().primaries(3).replicas_per_primary(0).start();
    fleet_works(&cluster.seed_url());
}

#[test]
fn a_fleet_meets_behind_sentinel_and_survives_a_failover() {
    let mut rig = SentinelRig::builder().replicas(1).start();
    fleet_works(&rig.url());
    let place = Place::empty();
    let url = rig.url();
    let node = Node::start(&place, &["--upstream", &url, "--namespace", "second"]);
    all([&node], PATIENCE, "it is well", Node::is_well);
    rig.hand_over();
    all([&node], PATIENCE, "an operator is heard", |node| {
        node.api().promote(b"after", CACHE).is_ok()
    });
    all([&node], PATIENCE, "it is well", |node| node.is_well() && node.entry("after").is_some());
}
