//! Servers that are short of memory, or may evict a part of a value.

use heatsink_testkit::{RawClient, Reply};

use crate::node::{Node, Servers, all, assemble};
use crate::split::{is_split, rests_split, split};
use crate::support::{PATIENCE, Place};

const MEMBERS: i64 = 60_000;

fn fill(direct: &mut RawClient) -> u64 {
    for from in (0..MEMBERS).step_by(1000) {
        let mut command = vec!["SADD".to_owned(), "set".to_owned()];
        command.extend((from..from + 1000).map(|number| format!("member:{number}")));
        assert_eq!(direct.command(&command).integer(), 1000);
    }
    direct.command(&["MEMORY", "USAGE", "set", "SAMPLES", "0"]).integer() as u64
}

fn limit(direct: &mut RawClient, policy: &str, max: &str) {
    assert_eq!(direct.command(&["CONFIG", "SET", "maxmemory-policy", policy]), Reply::ok());
    assert_eq!(direct.command(&["CONFIG", "SET", "maxmemory", max]), Reply::ok());
}

fn says(node: &Node, why: &str) -> bool {
    let entry = node.entry("set").unwrap_or_default();
    entry.reason.contains(why)
}

#[test]
fn a_value_without_room_at_its_key_stays_split_until_there_is_some() {
    let (place, servers) = (Place::empty(), Servers::start());
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    let mut direct = servers.upstream.client();
    let bytes = fill(&mut direct);
    node.api().promote(b"set", split(4)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
    let used = servers.upstream.info_u64("memory", "used_memory");
    limit(&mut direct, "noeviction", &(used + bytes * 3 / 4).to_string());
    node.api().demote(b"set").expect("removed");
    let why = "not made whole yet: its value takes about";
    all([&node], PATIENCE, "it says why", |node| says(node, why));
    // It is as good as before, and writes do not wait.
    let mut client = node.client();
    assert_eq!(client.command(&["SADD", "set", "new"]), Reply::Integer(1));
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(MEMBERS + 1));
    assert!(is_split(&mut direct, "set"));
    limit(&mut direct, "noeviction", "0");
    all([&node], PATIENCE, "it is whole", |node| node.lacks("set"));
    assert_eq!(direct.command(&["SCARD", "set"]), Reply::Integer(MEMBERS + 1));
    let left = direct.command(&["KEYS", "heatsink:{*:whole:*"]);
    assert!(left.items().is_empty(), "{left:?}");
}

/// A server that evicts nothing yet must not evict anything for a value that is made whole.
#[test]
fn a_value_stays_split_where_its_parts_would_be_evicted_to_make_room_for_it() {
    let (place, servers) = (Place::empty(), Servers::start());
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    let mut direct = servers.upstream.client();
    let bytes = fill(&mut direct);
    node.api().promote(b"set", split(4)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
    let used = servers.upstream.info_u64("memory", "used_memory");
    limit(&mut direct, "allkeys-lru", &(used + bytes * 3 / 4).to_string());
    let why = "not made whole yet: its value takes about";
    all([&node], PATIENCE, "it says why", |node| says(node, why));
    let mut client = node.client();
    let Reply::Error(error) = client.command(&["SINTERCARD", "1", "set"]) else {
        panic!("the key is whole");
    };
    assert!(error.starts_with("TRYAGAIN"), "{error}");
    let (url, store) = (servers.upstream.url(), servers.store.url());
    let drain = ["drain", "--upstream", &url, "--coordination-url", &store];
    let drained = place.run(&drain);
    assert_eq!(drained.code, Some(1), "{drained:?}");
    let why = "not yet: set: its value takes about";
    assert!(drained.stdout.contains(why), "{drained:?}");
    assert_eq!(client.command(&["SADD", "set", "new"]), Reply::Integer(1));
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(MEMBERS + 1));
    assert!(is_split(&mut direct, "set"));
    limit(&mut direct, "allkeys-lru", "1gb");
    all([&node], PATIENCE, "it is whole", |_| !is_split(&mut direct, "set"));
    assert_eq!(direct.command(&["SCARD", "set"]), Reply::Integer(MEMBERS + 1));
    assert_eq!(servers.upstream.info_u64("stats", "evicted_keys"), 0);
}

/// Nobody has made whole what was evicted, and drain does not say so.
#[test]
fn drain_names_what_was_evicted() {
    let (place, servers) = (Place::empty(), Servers::start());
    let mut node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    let mut direct = servers.upstream.client();
    let mut shards = Vec::new();
    for key in ["evicted", "kept"] {
        let members = (0..100).map(|number| number.to_string());
        let add = ["SADD", key].map(str::to_owned).into_iter().chain(members);
        direct.command(&add.collect::<Vec<_>>());
        node.api().promote(key.as_bytes(), split(2)).expect("promoted");
        all([&node], PATIENCE, "it is split", |node| rests_split(node, key, 2));
        shards.push(direct.command(&["KEYS", "heatsink:*:0"]));
    }
    node.process.terminate();
    node.process.wait_exit(PATIENCE);
    // The server has evicted something, so what it has lost may have been evicted.
    direct.command(&["SET", "filler", &"f".repeat(1_000_000), "EX", "1000"]);
    let used = servers.upstream.info_u64("memory", "used_memory");
    limit(&mut direct, "volatile-lru", &used.to_string());
    direct.command(&["SET", "another", &"f".repeat(100_000)]);
    assert_eq!(servers.upstream.info_u64("stats", "evicted_keys"), 1);
    limit(&mut direct, "allkeys-lru", "1gb");
    let shard = shards[0].items().first().expect("the first of two shards").text();
    assert_eq!(direct.command(&["DEL", &shard]), Reply::Integer(1));
    let (url, store) = (servers.upstream.url(), servers.store.url());
    let drained = place.run(&["drain", "--upstream", &url, "--coordination-url", &store]);
    assert_eq!(drained.code, Some(1), "{drained:?}");
    let says = |what: &str| drained.stdout.lines().any(|line| line.starts_with(what));
    assert!(says("evicted: evicted ("), "{drained:?}");
    assert!(says("whole: kept ("), "{drained:?}");
    let summary = "1 made whole, 0 by proxies meanwhile, 1 evicted, ";
    assert!(says(summary), "{drained:?}");
    assert!(drained.stderr.contains("1 key was evicted"), "{drained:?}");
    assert_eq!(direct.command(&["EXISTS", "evicted"]), Reply::Integer(0));
    assert_eq!(direct.command(&["SCARD", "kept"]), Reply::Integer(100));
    let again = place.run(&["drain", "--upstream", &url, "--coordination-url", &store]);
    assert_eq!(again.code, Some(0), "{again:?}");
}

#[test]
fn a_key_is_not_split_where_a_part_of_it_may_be_evicted() {
    let (place, servers) = (Place::empty(), Servers::start());
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    let mut direct = servers.upstream.client();
    direct.command(&["SADD", "set", "a", "b", "c"]);
    limit(&mut direct, "allkeys-lru", "1gb");
    node.api().promote(b"set", split(4)).expect("promoted");
    let why = "not split: maxmemory-policy allkeys-lru may evict a part of it";
    all([&node], PATIENCE, "it says why", |node| says(node, why));
    assert!(!is_split(&mut direct, "set"));
    limit(&mut direct, "volatile-lru", "1gb");
    node.api().promote(b"set", split(4)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
    // The setting changes, and the value goes back.
    limit(&mut direct, "allkeys-random", "1gb");
    let why = "not split: maxmemory-policy allkeys-random may evict a part of it";
    all([&node], PATIENCE, "it says why", |node| says(node, why) && !is_split(&mut direct, "set"));
    assert_eq!(direct.command(&["SCARD", "set"]), Reply::Integer(3));
}
