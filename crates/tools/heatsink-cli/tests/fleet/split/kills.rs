//! Movers that die, one after each step, and whoever comes after them; `heatsink drain` when
//! nobody does.

use std::collections::BTreeSet;

use heatsink_testkit::{RawClient, RedisServer, Reply, eventually};

use crate::node::{Node, Servers, all, assemble};
use crate::split::{is_split, manifests, rests_split, split};
use crate::support::{PATIENCE, Place};

/// One that ends at a labelled place.
fn doomed(place: &Place, servers: &Servers, label: &str) -> Node {
    let (store, upstream) = (servers.store.url(), servers.upstream.url());
    let args = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "1",
        "--coordination-url",
        &store,
        "--upstream",
        &upstream,
    ];
    Node::of(place.heatsink(&args).env("HEATSINK_FAULT", label))
}

fn fill(direct: &mut RawClient) -> BTreeSet<String> {
    let members: BTreeSet<String> = (0..300).map(|number| format!("m{number}")).collect();
    let mut command = vec!["SADD".to_owned(), "set".to_owned()];
    command.extend(members.iter().cloned());
    assert_eq!(direct.command(&command), Reply::Integer(300));
    members
}

fn members(client: &mut RawClient) -> BTreeSet<String> {
    client.command(&["SMEMBERS", "set"]).items().iter().map(Reply::text).collect()
}

/// A mover dies while it splits, and another follows.
fn dies_splitting(label: &str) {
    let (place, servers) = (Place::empty(), Servers::start());
    let mut direct = servers.upstream.client();
    let value = fill(&mut direct);
    let mut first = doomed(&place, &servers, label);
    assemble(&[&first]);
    // The answer may or may not come before the end.
    let _ = first.api().promote(b"set", split(4));
    assert!(!first.process.wait_exit(PATIENCE).success(), "{label}");
    let second = servers.member(&place, "all", &[]);
    all([&second], PATIENCE, label, |node| rests_split(node, "set", 4));
    assert!(is_split(&mut direct, "set"), "{label}");
    let mut client = second.client();
    assert_eq!(members(&mut client), value, "{label}");
    assert_eq!(client.command(&["SADD", "set", "new"]), Reply::Integer(1), "{label}");
    assert_eq!(client.command(&["SREM", "set", "m1"]), Reply::Integer(1), "{label}");
    second.api().demote(b"set").expect("removed");
    all([&second], PATIENCE, label, |node| node.lacks("set"));
    let mut after = value.clone();
    after.insert("new".to_owned());
    after.remove("m1");
    assert_eq!(members(&mut direct), after, "{label}");
    // Nothing of any attempt is left for good.
    eventually(PATIENCE, || manifests(&mut direct).is_empty());
}

/// A mover dies while it makes a key whole, and another follows.
fn dies_making_whole(label: &str) {
    let (place, servers) = (Place::empty(), Servers::start());
    let mut direct = servers.upstream.client();
    let value = fill(&mut direct);
    direct.command(&["EXPIRE", "set", "100000"]);
    let mut first = doomed(&place, &servers, label);
    assemble(&[&first]);
    first.api().promote(b"set", split(4)).expect("promoted");
    all([&first], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
    let _ = first.api().demote(b"set");
    assert!(!first.process.wait_exit(PATIENCE).success(), "{label}");
    let second = servers.member(&place, "all", &[]);
    assemble(&[&second]);
    // By the store's word: a process that has just begun knows no key yet.
    let mut store = servers.store.client();
    let mut is_gone =
        || store.command(&["HEXISTS", "heatsink:{default}:registry", "set"]).integer() == 0;
    all([&second], PATIENCE, label, |node| is_gone() && node.lacks("set"));
    assert_eq!(members(&mut direct), value, "{label}");
    let left = direct.command(&["TTL", "set"]).integer();
    assert!((99_900..=100_000).contains(&left), "{label}: {left}");
    eventually(PATIENCE, || manifests(&mut direct).is_empty());
    assert_eq!(second.client().command(&["SADD", "set", "m1", "n"]), Reply::Integer(1));
}

/// A test for each place: most of its time it waits until a mover that has died is missed.
macro_rules! followed {
    ($($name:ident: $dies:ident at $label:literal;)+) => {
        $(
            #[test]
            fn $name() {
                $dies($label);
            }
        )+
    };
}

// The places where a split may end, in their order, and those of its end.
followed! {
    a_mover_dies_when_it_has_frozen: dies_splitting at "split:frozen";
    a_mover_dies_when_it_has_entered: dies_splitting at "split:entered";
    a_mover_dies_when_it_watches: dies_splitting at "split:watched";
    a_mover_dies_when_it_has_copied: dies_splitting at "split:copied";
    a_mover_dies_when_it_has_split: dies_splitting at "split:committed";
    a_mover_dies_when_it_has_told_of_the_split: dies_splitting at "split:told";
    a_mover_dies_when_it_drains: dies_making_whole at "unsplit:draining";
    a_mover_dies_when_it_begins_to_seal: dies_making_whole at "unsplit:sealing";
    a_mover_dies_when_it_has_sealed: dies_making_whole at "unsplit:sealed";
    a_mover_dies_when_it_has_built: dies_making_whole at "unsplit:built";
    a_mover_dies_when_it_has_made_whole: dies_making_whole at "unsplit:committed";
    a_mover_dies_when_it_has_told_of_the_whole: dies_making_whole at "unsplit:told";
    a_mover_dies_when_it_has_retired: dies_making_whole at "unsplit:retired";
}

/// A key whose mover has ended at a labelled place, and a proxy that has to do with that.
pub(crate) fn left_behind(place: &Place, servers: &Servers, label: &str) -> (Node, String) {
    let other = servers.member(place, "all", &[]);
    let mut first = doomed(place, servers, label);
    assemble(&[&other, &first]);
    let mut direct = servers.upstream.client();
    let splits = label.starts_with("split");
    // Who moves a key depends on its name.
    let key = (0..64).map(|number| format!("zset{number}")).find(|key| {
        direct.command(&["ZADD", key, "1", "a", "1", "b", "1", "c", "2", "d"]);
        other.api().promote(key.as_bytes(), split(4)).expect("promoted");
        eventually(PATIENCE, || rests_split(&other, key, 4) || !first.process.is_running());
        if !splits {
            other.api().demote(key.as_bytes()).expect("removed");
            eventually(PATIENCE, || other.lacks(key) || !first.process.is_running());
        }
        !first.process.is_running()
    });
    (other, key.expect("the other moves one of them"))
}

/// A mover that dies leaves writes held until somebody follows it. Reads are answered.
#[test]
fn reads_do_not_wait_for_whoever_follows_a_mover_that_died() {
    for (label, phase) in [
        ("split:frozen", "freezing"),
        ("split:copied", "freezing"),
        ("split:committed", "freezing"),
        ("unsplit:sealing", "draining"),
        ("unsplit:built", "draining"),
    ] {
        let (place, servers) = (Place::empty(), Servers::start());
        let (other, key) = left_behind(&place, &servers, label);
        let mut client = other.client();
        assert_eq!(client.command(&["TYPE", &key]).text(), "zset", "{label}");
        assert_eq!(client.command(&["EXISTS", &key]), Reply::Integer(1), "{label}");
        assert_eq!(client.command(&["ZRANK", &key, "c"]), Reply::Integer(2), "{label}");
        assert_eq!(client.command(&["ZREVRANK", &key, "c"]), Reply::Integer(1), "{label}");
        let all = client.command(&["ZRANGE", &key, "0", "-1"]);
        assert_eq!(all, Reply::bulks(["a", "b", "c", "d"]), "{label}");
        if ["split:frozen", "split:copied"].contains(&label) {
            let encoding = client.command(&["OBJECT", "ENCODING", &key]);
            assert_eq!(encoding.text(), "listpack", "{label}");
            assert_eq!(client.command(&["MGET", &key, "x"]).items().len(), 2, "{label}");
        }
        // All of it before anybody has gone on with the move.
        let entry = other.entry(&key).unwrap_or_default();
        assert_eq!(entry.split_phase(), Some(phase), "{label}: {entry:?}");
    }
}

/// What is left of a fleet that split three keys and is gone, with its store.
fn ruins(place: &Place, servers: &Servers) -> BTreeSet<String> {
    let mut direct = servers.upstream.client();
    let value = fill(&mut direct);
    direct.command(&["SET", "counter", "5"]);
    direct.command(&["HSET", "hash", "f", "v"]);
    let mut node = servers.member(place, "all", &[]);
    assemble(&[&node]);
    for key in ["set", "counter", "hash"] {
        node.api().promote(key.as_bytes(), split(4)).expect("promoted");
        all([&node], PATIENCE, "it is split", |node| rests_split(node, key, 4));
    }
    assert_eq!(node.client().command(&["INCRBY", "counter", "10"]), Reply::Integer(15));
    node.process.kill();
    assert_eq!(manifests(&mut direct).len(), 3);
    value
}

fn drain(place: &Place, upstream: &RedisServer, store: &str) -> String {
    let upstream = upstream.url();
    let drained = place.run(&["drain", "--upstream", &upstream, "--coordination-url", store]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    drained.stdout
}

#[test]
fn drain_makes_whole_what_a_lost_fleet_has_left() {
    for store_is_there in [true, false] {
        let (place, mut servers) = (Place::empty(), Servers::start());
        let value = ruins(&place, &servers);
        if store_is_there {
            servers.store.client().command(&["FLUSHALL"]);
        } else {
            servers.store.kill();
        }
        let store = servers.store.url();
        let mut direct = servers.upstream.client();
        for round in 0..2 {
            let output = drain(&place, &servers.upstream, &store);
            let whole = if round == 0 { 3 } else { 0 };
            assert!(output.contains(&format!("{whole} made whole")), "{output}");
            assert!(output.contains("0 left"), "{output}");
            assert_eq!(members(&mut direct), value);
            assert_eq!(direct.command(&["GET", "counter"]), Reply::bulk("15"));
            assert_eq!(direct.command(&["HGETALL", "hash"]), Reply::bulks(["f", "v"]));
            assert!(manifests(&mut direct).is_empty());
        }
    }
}

#[test]
fn drain_beside_a_running_fleet_leaves_nothing_split() {
    let (place, servers) = (Place::empty(), Servers::start());
    let mut direct = servers.upstream.client();
    let value = fill(&mut direct);
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    node.api().promote(b"set", split(4)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
    drain(&place, &servers.upstream, &servers.store.url());
    all([&node], PATIENCE, "it is gone", |node| node.lacks("set"));
    assert_eq!(members(&mut direct), value);
    assert_eq!(members(&mut node.client()), value);
    assert!(manifests(&mut direct).is_empty());
}

#[test]
fn a_fleet_that_lost_its_store_finds_what_is_split() {
    let (place, servers) = (Place::empty(), Servers::start());
    let value = ruins(&place, &servers);
    servers.store.client().command(&["FLUSHALL"]);
    let node = servers.member(&place, "all", &[]);
    for key in ["set", "counter", "hash"] {
        all([&node], PATIENCE, "it is found", |node| {
            node.entry(key).is_some_and(|entry| entry.split_phase() == Some("split"))
        });
    }
    let mut client = node.client();
    assert_eq!(members(&mut client), value);
    assert_eq!(client.command(&["INCR", "counter"]), Reply::Integer(16));
}

/// A proxy that sleeps through a whole split, and through its end.
#[test]
fn a_proxy_that_slept_through_a_split_does_no_harm() {
    let (place, servers) = (Place::empty(), Servers::start());
    let mut direct = servers.upstream.client();
    let mut value = fill(&mut direct);
    let (awake, mut asleep) =
        (servers.member(&place, "all", &[]), servers.member(&place, "all", &[]));
    assemble(&[&awake, &asleep]);
    let mut late = asleep.client();
    for wanted in [true, false] {
        asleep.process.pause();
        if wanted {
            awake.api().promote(b"set", split(4)).expect("promoted");
            all([&awake], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
        } else {
            awake.api().demote(b"set").expect("removed");
            all([&awake], PATIENCE, "it is gone", |node| node.lacks("set"));
        }
        let member = format!("late {wanted}");
        late.send(&["SADD", "set", &member]);
        asleep.process.resume();
        // What it did not know of is refused, or it has heard of it by then; never lost.
        let reply = late.read_reply();
        if reply.is_error() {
            let refused = ["WRONGTYPE", "TRYAGAIN"];
            assert!(refused.iter().any(|word| reply.error().starts_with(word)), "{reply:?}");
        } else {
            assert_eq!(reply, Reply::Integer(1));
            value.insert(member);
        }
        assemble(&[&awake, &asleep]);
        eventually(PATIENCE, || {
            members(&mut awake.client()) == value && members(&mut late) == value
        });
    }
}
