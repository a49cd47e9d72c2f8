//! Proxies that do not answer while a key is to be split, and proxies that know less than others.

use std::time::Duration;

use heatsink_admin::HotKeyView;
use heatsink_testkit::{RawClient, Reply, eventually};

use crate::node::{Node, Servers, all, assemble};
use crate::split::{is_split, rests_split, split};
use crate::support::{PATIENCE, Place};

/// For about half of these a given proxy is the first to try.
const KEYS: [&str; 8] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"];

fn promote_all(node: &Node) {
    for key in KEYS {
        node.api().promote(key.as_bytes(), split(4)).expect("promoted");
    }
}

/// A proxy that is asleep says nothing: keys are split when it has said so, or is gone.
#[test]
fn a_split_is_put_off_until_every_proxy_holds_writes() {
    let (place, servers) = (Place::empty(), Servers::start());
    let (awake, mut asleep) =
        (servers.member(&place, "all", &[]), servers.member(&place, "all", &[]));
    assemble(&[&awake, &asleep]);
    let mut direct = servers.upstream.client();
    for key in KEYS {
        direct.command(&["SADD", key, "a", "b"]);
    }
    asleep.process.pause();
    promote_all(&awake);
    let put_off = |entry: &HotKeyView| {
        let why = "not split yet: 1 proxy did not hold writes in time";
        entry.split.is_none() && entry.reason.contains(why)
    };
    let key = eventually(PATIENCE, || {
        let listed = awake.api().list(&[]).unwrap_or_default();
        listed.into_iter().find(put_off).map(|entry| entry.key)
    });
    let key = key.as_str();
    // It has not been moved, and nobody waits for long.
    assert!(!is_split(&mut direct, key));
    assert_eq!(awake.client().command(&["SADD", key, "c"]), Reply::Integer(1));
    asleep.process.resume();
    for key in KEYS {
        all([&awake, &asleep], PATIENCE, "it is split", |node| rests_split(node, key, 4));
    }
    assert_eq!(asleep.client().command(&["SCARD", key]), Reply::Integer(3));
    for key in KEYS {
        awake.api().demote(key.as_bytes()).expect("removed");
        all([&awake, &asleep], PATIENCE, "it is gone", |node| node.lacks(key));
    }
    // Without one that has gone for good.
    asleep.process.pause();
    promote_all(&awake);
    for key in KEYS {
        all([&awake], PATIENCE, "it is split without it", |node| rests_split(node, key, 4));
    }
    assert_eq!(awake.client().command(&["SCARD", key]), Reply::Integer(3));
}

/// A pipeline that a client's own connection has to the server is executed as it was sent:
///
/// ```text
/// client: BLPOP nobody; SET counter 1000 (both are with the server, which executes none)
/// mover:  freezes counter, reads it, commits
/// server: BLPOP is over; SET counter overwrites the marker, and with it what others wrote
/// ```
///
/// So a key is not split while there is anything behind a command that blocks.
#[test]
fn a_split_waits_for_what_stands_behind_a_command_that_blocks() {
    let (place, servers) = (Place::empty(), Servers::start());
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    let mut client = node.client();
    client.command(&["SET", "counter", "8"]);
    let mut blocked = node.client();
    blocked.send(&["BLPOP", "nobody", "0"]);
    blocked.send(&["SET", "counter", "1000"]);
    eventually(PATIENCE, || servers.upstream.info_u64("clients", "blocked_clients") == 1);
    node.api().promote(b"counter", split(4)).expect("promoted");
    eventually(PATIENCE, || {
        let entry = node.entry("counter").unwrap_or_default();
        entry.reason.contains("did not hold writes in time")
    });
    assert_eq!(client.command(&["INCR", "counter"]), Reply::Integer(9));
    client.command(&["RPUSH", "nobody", "x"]);
    assert_eq!(blocked.read_reply().items().len(), 2);
    assert_eq!(blocked.read_reply(), Reply::ok());
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "counter", 4));
    assert_eq!(client.command(&["INCR", "counter"]), Reply::Integer(1001));
    // What the fleet keeps for that is not counted.
    assert_eq!(client.command(&["DBSIZE"]), Reply::Integer(1));
}

/// Whether a write of this member is answered; one that waits is left behind. A machine that is
/// busy may take a second for it.
fn writes(client: &mut RawClient, member: &str) -> bool {
    client.send(&["SADD", "set", member]);
    client.try_read_frame(Duration::from_secs(2)).expect("no error").is_some()
}

/// A proxy that cannot hear the others, and finds that the marker is gone:
///
/// 1. the key is split; the store is out of reach for this proxy
/// 2. others make the key whole: they take the marker away
/// 3. this proxy goes on at the shards, where tombstones refuse it, for ten minutes
/// 4. the tombstones expire: what it writes then, nobody would see
///
/// So it believes in the split until it looks at the marker, and not for longer.
#[test]
fn a_split_whose_marker_is_gone_is_not_believed_in_for_long() {
    let (place, mut servers) = (Place::empty(), Servers::start());
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    let mut direct = servers.upstream.client();
    direct.command(&["SADD", "set", "a", "b"]);
    node.api().promote(b"set", split(2)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 2));
    servers.store.pause();
    assert!(writes(&mut node.client(), "early"));
    direct.command(&["DEL", "set"]);
    // What was written to the shards goes with them; the key is what is there now.
    eventually(PATIENCE, || {
        writes(&mut node.client(), "late");
        direct.command(&["SISMEMBER", "set", "late"]) == Reply::Integer(1)
    });
    servers.store.resume();
    all([&node], PATIENCE, "it is whole", |node| {
        node.entry("set").is_some_and(|entry| entry.split.is_none())
    });
    assert_eq!(direct.command(&["SISMEMBER", "set", "late"]), Reply::Integer(1));
}
