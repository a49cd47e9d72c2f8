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
