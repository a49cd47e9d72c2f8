//! Keys that are split while the coordination store is away: the data says where values are.

use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, eventually, eventually_ok};

use crate::node::{Node, Servers, all, assemble};
use crate::splits::{manifests, rests_split, split};
use crate::support::{PATIENCE, Place};

/// A client that waits for longer is told to try again.
const SOON: Duration = Duration::from_secs(4);

const KEYS: [&str; 6] = ["{k}del", "{k}expire", "{k}union", "{k}rename", "{k}script", "{k}multi"];

fn fill(client: &mut RawClient) {
    for key in KEYS {
        assert_eq!(client.command(&["SADD", key, "a", "b", "c"]), Reply::Integer(3));
    }
}

fn split_all(nodes: &[Node]) {
    for key in KEYS {
        nodes[0].api().promote(key.as_bytes(), split(4)).expect("promoted");
        all(nodes, PATIENCE, "it is split", |node| rests_split(node, key, 4));
    }
}

/// Commands that need a key whole are carried out.
fn use_whole(client: &mut RawClient) {
    let begun = Instant::now();
    let mut ask = |command: &[&str]| {
        let asked = Instant::now();
        let reply = client.command(command);
        assert!(asked.elapsed() < SOON, "{command:?}: {:?}", asked.elapsed());
        reply
    };
    assert_eq!(ask(&["DEL", "{k}del"]), Reply::Integer(1));
    assert_eq!(ask(&["EXPIRE", "{k}expire", "1000"]), Reply::Integer(1));
    assert_eq!(ask(&["SUNION", "{k}union", "{k}other"]).items().len(), 3);
    assert_eq!(ask(&["RENAME", "{k}rename", "{k}renamed"]), Reply::ok());
    let script = "return redis.call('SCARD', KEYS[1])";
    assert_eq!(ask(&["EVAL", script, "1", "{k}script"]), Reply::Integer(3));
    assert_eq!(ask(&["MULTI"]), Reply::ok());
    ask(&["SREM", "{k}multi", "a"]);
    assert_eq!(ask(&["EXEC"]), Reply::Array(vec![Reply::Integer(1)]));
    // Written to as any other.
    assert_eq!(ask(&["SADD", "{k}del", "x"]), Reply::Integer(1));
    assert_eq!(ask(&["SADD", "{k}union", "x"]), Reply::Integer(1));
    assert!(begun.elapsed() < PATIENCE);
}

/// What the values are afterwards, through whichever proxy.
fn check(client: &mut RawClient) -> Result<(), String> {
    for (key, count) in
        [("del", 1), ("expire", 3), ("union", 4), ("rename", 0), ("renamed", 3), ("multi", 2)]
    {
        let reply = client.command(&["SCARD", &format!("{{k}}{key}")]);
        if reply != Reply::Integer(count) {
            return Err(format!("{key}: {reply:?}"));
        }
    }
    Ok(())
}

#[test]
fn commands_that_need_a_key_whole_do_not_need_the_store() {
    let (place, mut servers) = (Place::empty(), Servers::start());
    let nodes = [servers.member(&place, "all", &[]), servers.member(&place, "all", &[])];
    assemble(&[&nodes[0], &nodes[1]]);
    fill(&mut nodes[0].client());
    split_all(&nodes);
    servers.store.kill();
    use_whole(&mut nodes[0].client());
    // Who was not told finds out.
    eventually_ok(PATIENCE, || check(&mut nodes[1].client()));
    check(&mut nodes[0].client()).expect("as it was left");
    // The store comes back without its data, and is told.
    servers.store.start_again();
    eventually(PATIENCE, || manifests(&mut servers.upstream.client()).is_empty());
    for node in &nodes {
        check(&mut node.client()).expect("as it was left");
    }
}

#[test]
fn nor_before_a_cluster() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let mut store = RedisServer::start();
    let member = || Node::member(&place, "all", &store.url(), &cluster.seed_url());
    let nodes = [member(), member()];
    assemble(&[&nodes[0], &nodes[1]]);
    fill(&mut nodes[0].client());
    split_all(&nodes);
    store.kill();
    let mut late = nodes[1].client();
    use_whole(&mut nodes[0].client());
    // One that was not told waits until it has found out.
    assert_eq!(late.command(&["SADD", "{k}expire", "y"]), Reply::Integer(1));
    assert_eq!(late.command(&["SREM", "{k}expire", "y"]), Reply::Integer(1));
    eventually_ok(PATIENCE, || check(&mut nodes[1].client()));
    check(&mut nodes[0].client()).expect("as it was left");
}
