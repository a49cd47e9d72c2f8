//! Operators who do not know of each other.

use std::sync::Barrier;
use std::thread;

use heatsink_admin::client::ClientError;
use heatsink_testkit::{RedisServer, eventually};

use crate::node::{CACHE, Node, all, assemble};
use crate::split::split;
use crate::support::{PATIENCE, Place};

const ROUNDS: usize = 50;

/// A fleet whose members or registry were moved into shards could not be told to move them back.
#[test]
fn keys_of_heatsink_itself_are_refused() {
    let place = Place::empty();
    // The store is the upstream, so that the keys are really there.
    let server = RedisServer::start();
    let node = Node::member(&place, "all", &server.url(), &server.url());
    assemble(&[&node]);
    let own = ["members", "registry", "presence", "splits", "anything"];
    for key in own.map(|name| format!("heatsink:{{default}}:{name}")) {
        for promotion in [split(4), CACHE] {
            match node.api().promote(key.as_bytes(), promotion) {
                Err(ClientError::Refused { status: 403, .. }) => {}
                other => panic!("{key}: {other:?}"),
            }
        }
        assert!(node.lacks(&key));
    }
    let (key, url) = ("heatsink:{default}:members", node.admin_url());
    let promote = ["keys", "--admin", &url, "promote", key, "--mitigation", "split"];
    let refused = place.run(&promote);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.contains("key of Heatsink itself"), "{refused:?}");
    let policy = node.json(&format!("/policy?key={key}")).expect("a policy");
    assert_eq!(policy["allowed_mitigations"], serde_json::json!([]), "{policy}");
    // Others may look like them.
    node.api().promote(b"heatsink:load:1", CACHE).expect("promoted");
}

/// What the others agreed on meanwhile is newer than what it wants to do.
#[test]
fn an_aggregator_that_slept_undoes_nothing() {
    let (place, store) = (Place::empty(), RedisServer::start());
    let start = |role: &str| Node::member(&place, role, &store.url(), &store.url());
    let (proxy, awake, mut asleep) = (start("proxy"), start("aggregator"), start("aggregator"));
    assemble(&[&proxy, &awake, &asleep]);
    proxy.api().promote(b"old", CACHE).expect("promoted");
    let load = proxy.load("hot", 1500);
    all([&proxy, &awake, &asleep], PATIENCE, "both are listed", |node| {
        node.entry("hot").is_some() && node.entry("old").is_some()
    });
    asleep.process.pause();
    all([&proxy, &awake], PATIENCE, "it is not counted on", |node| node.sees(2));
    proxy.api().demote(b"old").expect("removed");
    proxy.api().demote(b"hot").expect("removed");
    proxy.api().promote(b"new", CACHE).expect("promoted");
    asleep.process.resume();
    assemble(&[&proxy, &awake, &asleep]);
    load.reset();
    eventually(PATIENCE, || load.tally().answered > 2000);
    for node in [&proxy, &awake, &asleep] {
        assert!(node.lacks("old") && node.lacks("hot"), "{:?}", node.api().list(&[]));
        assert!(node.entry("new").is_some());
    }
}

#[test]
fn who_promotes_and_who_removes_at_once_end_in_one_state() {
    let (place, store) = (Place::empty(), RedisServer::start());
    let start = || Node::member(&place, "all", &store.url(), &store.url());
    let nodes = [start(), start(), start()];
    assemble(&[&nodes[0], &nodes[1], &nodes[2]]);
    let barrier = Barrier::new(2);
    let mut outcomes = (0, 0);
    for round in 0..ROUNDS {
        let key = format!("contended:{}", round % 5);
        let key = key.as_bytes();
        thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                nodes[0].api().promote(key, CACHE).expect("promoted");
            });
            scope.spawn(|| {
                barrier.wait();
                match nodes[1].api().demote(key) {
                    Ok(_) | Err(ClientError::Refused { status: 404, .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            });
        });
        // The store's word, which both have been told.
        let registry = "heatsink:{default}:registry";
        let key = String::from_utf8_lossy(key);
        let kept = store.client().command(&["HEXISTS", registry, &key]).integer() == 1;
        all(&nodes, PATIENCE, "all say what the store says", |node| {
            if kept { node.entry(&key).is_some() } else { node.lacks(&key) }
        });
        if kept {
            outcomes.0 += 1;
        } else {
            outcomes.1 += 1;
        }
    }
    println!("the promotion came last {} times, the removal {} times", outcomes.0, outcomes.1);
    let lists: Vec<_> =
        nodes.iter().map(|node| node.api().list(&[]).expect("a list").len()).collect();
    assert!(lists.iter().all(|len| *len == lists[0]), "{lists:?}");
}
