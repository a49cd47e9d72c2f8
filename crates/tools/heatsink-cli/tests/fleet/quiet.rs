//! What of a Heatsink is seen in the server that it stands before: nothing, if it is alone.

use heatsink_testkit::{RedisServer, Reply, poll_until};

use crate::node::{CACHE, Node, all, assemble};
use crate::support::{PATIENCE, Place};

fn size(server: &RedisServer) -> i64 {
    server.client().command(&["DBSIZE"]).integer()
}

#[test]
fn a_process_that_is_alone_shows_and_leaves_nothing() {
    let server = RedisServer::start();
    let place = Place::empty();
    let mut node = Node::start(&place, &["--upstream", &server.url()]);
    all([&node], PATIENCE, "it is well", Node::is_well);
    assert_eq!(node.client().command(&["DBSIZE"]), Reply::Integer(0));
    assert_eq!(size(&server), 0);
    // A key that is found hot is nobody else's business.
    let load = node.load("hot", 4000);
    all([&node], PATIENCE, "it is found", |node| node.entry("hot").is_some());
    assert_eq!(size(&server), 1);
    drop(load);
    node.client().command(&["FLUSHALL"]);
    assert!(node.entry("hot").is_some() && node.is_well());
    assert_eq!(size(&server), 0);
    node.process.terminate();
    node.process.wait_exit(PATIENCE);
    assert_eq!(size(&server), 0);
}

#[test]
fn what_a_fleet_keeps_is_not_seen_and_comes_back_after_a_flush() {
    let server = RedisServer::start();
    let place = Place::empty();
    let nodes = [(); 2].map(|()| Node::start(&place, &["--upstream", &server.url()]));
    assemble(&[&nodes[0], &nodes[1]]);
    nodes[0].api().promote(b"wanted", CACHE).expect("promoted");
    all(&nodes, PATIENCE, "both know it", |node| node.entry("wanted").is_some());
    assert!(size(&server) > 3);
    let mut client = nodes[1].client();
    for _ in 0..2 {
        assert_eq!(client.command(&["DBSIZE"]), Reply::Integer(0));
        assert_eq!(client.command(&["KEYS", "*"]).items(), []);
        assert_eq!(client.command(&["SCAN", "0", "COUNT", "1000"]).items()[1].items(), []);
        assert_eq!(client.command(&["RANDOMKEY"]), Reply::Null);
        assert_eq!(client.command(&["FLUSHALL"]), Reply::ok());
        let again = poll_until(PATIENCE, || {
            let record =
                server.client().command(&["HGET", "heatsink:{default}:registry", "wanted"]);
            record != Reply::Null
        });
        assert!(again.is_some(), "{}", nodes[0].process.tail());
        all(&nodes, PATIENCE, "both still know it", |node| node.entry("wanted").is_some());
        assemble(&[&nodes[0], &nodes[1]]);
    }
}

/// Nothing is split, so nobody asks what is; the user may not even be allowed to.
#[test]
fn a_user_with_few_rights_is_not_refused_again_and_again() {
    let server = RedisServer::start();
    let mut direct = server.client();
    direct.command(&["ACL", "SETUSER", "app", "on", ">secret", "~app:*", "+@all"]);
    let upstream = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let place = Place::empty();
    let node = Node::start(&place, &["--upstream", &upstream, "--coordination-url", "embedded://"]);
    assert_eq!(node.client().command(&["SET", "app:k", "1"]), Reply::ok());
    assert_eq!(node.client().command(&["DBSIZE"]), Reply::Integer(1));
    let looks = |node: &Node| {
        let metrics = node.metrics();
        let line = metrics.lines().find(|line| line.starts_with("heatsink_split_reconciled"));
        line.and_then(|line| line.rsplit_once(' ')).map(|(_, at)| at.to_owned())
    };
    let first = poll_until(PATIENCE, || looks(&node)).expect("it looks");
    let refused = |server: &RedisServer| {
        let stats = server.client().command(&["INFO", "commandstats"]).text();
        let line = stats.lines().find(|line| line.starts_with("cmdstat_hgetall:"));
        let count = line.and_then(|line| line.split_once("rejected_calls="));
        count.map_or(0, |(_, rest)| {
            let digits = rest.split(',').next().unwrap_or_default();
            digits.parse::<u64>().expect("a number")
        })
    };
    // So many looks that two of them would have asked.
    let mut seen = std::collections::BTreeSet::from([first]);
    let enough = poll_until(PATIENCE, || {
        seen.extend(looks(&node));
        seen.len() > 7
    });
    assert!(enough.is_some(), "it goes on looking: {seen:?}");
    assert!(refused(&server) <= 1, "{}", refused(&server));
}
