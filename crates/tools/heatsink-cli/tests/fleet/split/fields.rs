//! Hashes whose fields end by themselves (Redis 7.4, Valkey 9): no field's end is lost because of a
//! split. With an older `redis-server` in PATH these tests say so, and do nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use heatsink_testkit::{RawClient, Reply, eventually};

use crate::node::{Node, Servers, all};
use crate::split::{is_split, rests_split, split};
use crate::support::{PATIENCE, Place};

const LIFE_S: &str = "100000";

/// One process before a server that knows of fields that end; none if it does not.
fn start(place: &Place) -> Option<(Servers, Node)> {
    let servers = Servers::start();
    if !servers.upstream.knows("HPEXPIRE") {
        eprintln!("SKIPPED: the redis-server in PATH does not know HPEXPIRE (Redis 7.4, Valkey 9)");
        return None;
    }
    let node = servers.member(place, "all", &[]);
    Some((servers, node))
}

fn fill(direct: &mut RawClient, key: &str) {
    let fields: Vec<String> = (0..50).map(|number| format!("f{number}")).collect();
    let mut request = vec!["HSET", key];
    request.extend(fields.iter().flat_map(|field| [field.as_str(), "1"]));
    assert_eq!(direct.command(&request), Reply::Integer(50));
}

/// Seconds that a field has left, as the server says itself.
fn left(direct: &mut RawClient, key: &str, field: &str) -> i64 {
    direct.command(&["HTTL", key, "FIELDS", "1", field]).items()[0].integer()
}

#[test]
fn a_hash_of_which_a_field_ends_is_not_split() {
    let place = Place::empty();
    let Some((servers, node)) = start(&place) else { return };
    let mut direct = servers.upstream.client();
    fill(&mut direct, "hash");
    direct.command(&["HEXPIRE", "hash", LIFE_S, "FIELDS", "1", "f7"]);
    node.api().promote(b"hash", split(4)).expect("promoted");
    all([&node], PATIENCE, "it says why", |node| {
        let entry = node.entry("hash").unwrap_or_default();
        entry.reason.contains("a field of it has a time to live")
    });
    assert!(!is_split(&mut direct, "hash"));
    assert!(left(&mut direct, "hash", "f7") > 0);
}

/// Every command that gives a field an end, or asks about one, finds the whole hash.
#[test]
fn a_split_hash_is_whole_before_a_field_is_given_an_end() {
    let place = Place::empty();
    let Some((servers, node)) = start(&place) else { return };
    let (mut direct, mut client) = (servers.upstream.client(), node.client());
    let commands: [&[&str]; 8] = [
        &["HEXPIRE", "hash", LIFE_S, "FIELDS", "1", "f7"],
        &["HPEXPIRE", "hash", "100000000", "FIELDS", "1", "f7"],
        &["HEXPIREAT", "hash", "4000000000", "FIELDS", "1", "f7"],
        &["HTTL", "hash", "FIELDS", "1", "f7"],
        &["HPERSIST", "hash", "FIELDS", "1", "f7"],
        &["HSETEX", "hash", "EX", LIFE_S, "FIELDS", "1", "f7", "2"],
        &["HGETEX", "hash", "EX", LIFE_S, "FIELDS", "1", "f7"],
        &["HGETDEL", "hash", "FIELDS", "1", "f7"],
    ];
    for command in commands {
        if !servers.upstream.knows(command[0]) {
            continue;
        }
        direct.command(&["DEL", "hash", "plain"]);
        fill(&mut direct, "hash");
        fill(&mut direct, "plain");
        node.api().promote(b"hash", split(4)).expect("promoted");
        all([&node], PATIENCE, "it is split", |node| rests_split(node, "hash", 4));
        let reply = client.command(command);
        let of_plain: Vec<&str> =
            command.iter().map(|arg| if *arg == "hash" { "plain" } else { arg }).collect();
        assert_eq!(reply, direct.command(&of_plain), "{command:?}");
        assert!(!is_split(&mut direct, "hash"), "{command:?}");
        let ends = |direct: &mut RawClient, key| left(direct, key, "f7").min(1);
        assert_eq!(ends(&mut direct, "hash"), ends(&mut direct, "plain"), "{command:?}");
        node.api().demote(b"hash").expect("removed");
        all([&node], PATIENCE, "it is gone", |node| node.lacks("hash"));
    }
}

/// ```text
/// mover                          client, through Heatsink or past it
/// WATCH hash; HGETALL; HPEXPIRETIME: -1 ...
///                                HEXPIRE hash 100000 FIELDS 1 f7: 1
/// MULTI; ...; EXEC: nil, or it is made whole before the HEXPIRE
/// ```
#[test]
fn a_field_that_is_given_an_end_while_its_hash_is_split_keeps_it() {
    let place = Place::empty();
    let Some((servers, node)) = start(&place) else { return };
    let mut direct = servers.upstream.client();
    for round in 0..12 {
        let key = format!("hash{round}");
        fill(&mut direct, &key);
        // Half of the rounds past Heatsink, which the mover's watch alone can notice.
        let mut client = if round % 2 == 0 { node.client() } else { servers.upstream.client() };
        let told = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // As soon as anything is done about it, and a little later in each round.
                eventually(PATIENCE, || node.entry(&key).is_some_and(|it| it.split.is_some()));
                for _ in 0..round {
                    client.command(&["PING"]);
                }
                let expire = ["HEXPIRE", &key, LIFE_S, "FIELDS", "1", "f7"];
                let reply = client.command(&expire);
                // Past Heatsink there may be a marker already: then nothing was said to be done.
                told.store(reply == Reply::Array(vec![Reply::Integer(1)]), Ordering::Release);
                assert!(told.load(Ordering::Acquire) || round % 2 == 1, "{reply:?}");
            });
            node.api().promote(key.as_bytes(), split(4)).expect("promoted");
        });
        node.api().demote(key.as_bytes()).expect("removed");
        all([&node], PATIENCE, "it is gone", |node| node.lacks(&key));
        assert!(!is_split(&mut direct, &key));
        assert_eq!(direct.command(&["HLEN", &key]), Reply::Integer(50));
        if told.load(Ordering::Acquire) {
            assert!(left(&mut direct, &key, "f7") > 0, "the end of a field of {key} is lost");
        }
    }
}
