//! Commands about whole keys, or several of them, and reads for many, by a proxy that is behind:
//! their clients do not see what stands where a value was moved from. What is seen all the same is
//! in `docs/splitting.md`, and in the last two tests.

use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::{Reply, eventually};

use crate::node::{CACHE, all};
use crate::split::behind::{Rig, ask_cut_off, move_these};
use crate::support::{PATIENCE, Place};

const KEYS: [&str; 4] = ["set", "counter", "list", "ranks"];

/// A rig with one more list and a sorted set.
fn start(place: Place) -> Rig {
    let rig = Rig::start_in(place);
    let mut client = rig.nodes[0].client();
    assert_eq!(client.command(&["RPUSH", "list", "a", "b", "c"]), Reply::Integer(3));
    let ranks = ["ZADD", "ranks", "1", "a", "2", "b", "3", "c"];
    assert_eq!(client.command(&ranks), Reply::Integer(3));
    rig
}

/// A reply that has no order, in one.
fn sorted(reply: Reply) -> Reply {
    let Reply::Array(items) = reply else { return reply };
    let mut items: Vec<String> = items.iter().map(Reply::text).collect();
    items.sort();
    Reply::bulks(items)
}

#[test]
fn what_tombstones_refuse_of_a_whole_key_is_asked_of_the_key() {
    let rig = start(Place::empty());
    move_these(&KEYS, true, &rig.nodes);
    rig.cut(true);
    move_these(&KEYS, false, &rig.nodes[..1]);
    let abc = || Reply::bulks(["a", "b", "c"]);
    let expected: [(&[&str], Reply); 11] = [
        (&["SMEMBERS", "set"], abc()),
        (&["SCARD", "set"], Reply::Integer(3)),
        (&["EXISTS", "set"], Reply::Integer(1)),
        (&["TYPE", "set"], Reply::Simple("set".to_owned())),
        (&["SMISMEMBER", "set", "a", "x", "c"], Reply::Array([1, 0, 1].map(Reply::Integer).into())),
        (&["GET", "counter"], Reply::bulk("10")),
        (&["STRLEN", "counter"], Reply::Integer(2)),
        (&["LRANGE", "list", "0", "-1"], abc()),
        (&["LLEN", "list"], Reply::Integer(3)),
        // This one takes more than one round.
        (&["ZRANK", "ranks", "c"], Reply::Integer(2)),
        (&["ZRANGE", "ranks", "0", "-1"], abc()),
    ];
    let requests: Vec<_> = expected.iter().map(|(request, _)| *request).collect();
    let replies = ask_cut_off(&rig, &requests);
    for ((request, expected), reply) in expected.into_iter().zip(replies) {
        let reply = if request[0] == "SMEMBERS" { sorted(reply) } else { reply };
        assert_eq!(reply, expected, "{request:?}");
    }
}

#[test]
fn what_all_tombstones_refuse_is_carried_out_once_at_the_key() {
    let rig = start(Place::empty());
    move_these(&KEYS, true, &rig.nodes);
    rig.cut(true);
    move_these(&KEYS, false, &rig.nodes[..1]);
    let requests: [&[&str]; 5] = [
        // In pieces, to several shards.
        &["SADD", "set", "d", "e", "f", "g", "h", "i", "j", "k"],
        &["ZADD", "ranks", "4", "d", "5", "e", "6", "f", "7", "g"],
        // One shard takes it, the others are read.
        &["RPUSH", "list", "d"],
        &["INCRBY", "counter", "5"],
        &["INCRBY", "counter", "5"],
    ];
    let replies = ask_cut_off(&rig, &requests);
    assert_eq!(replies[..3], [8, 4, 4].map(Reply::Integer));
    let mut sums: Vec<i64> = replies[3..].iter().map(Reply::integer).collect();
    sums.sort_unstable();
    assert_eq!(sums, [15, 20]);
    let mut client = rig.nodes[0].client();
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(11));
    assert_eq!(client.command(&["ZCARD", "ranks"]), Reply::Integer(7));
    let list = client.command(&["LRANGE", "list", "0", "-1"]);
    assert_eq!(list, Reply::bulks(["a", "b", "c", "d"]));
    assert_eq!(client.command(&["GET", "counter"]), Reply::bulk("20"));
}

/// A worker that caches a key and has not heard that it was split.
#[test]
fn reads_for_many_are_asked_of_the_shards() {
    // They would wait for a second otherwise, which may be too short here.
    let rig = start(Place::with_file("[coalesce]\nmax_wait_ms = 10000\n"));
    for key in KEYS {
        rig.nodes[0].api().promote(key.as_bytes(), CACHE).expect("promoted");
        all(&rig.nodes, PATIENCE, "it is hot", |node| {
            node.entry(key).is_some_and(|entry| entry.status == "active")
        });
    }
    let abc = || Reply::bulks(["a", "b", "c"]);
    let expected: [(&[&str], Reply); 11] = [
        (&["SMEMBERS", "set"], abc()),
        (&["SMEMBERS", "set"], abc()),
        (&["SCARD", "set"], Reply::Integer(3)),
        (&["SISMEMBER", "set", "a"], Reply::Integer(1)),
        (&["SISMEMBER", "set", "a"], Reply::Integer(1)),
        (&["GET", "counter"], Reply::bulk("10")),
        (&["GET", "counter"], Reply::bulk("10")),
        (&["LRANGE", "list", "0", "-1"], abc()),
        (&["ZCARD", "ranks"], Reply::Integer(3)),
        (&["ZRANK", "ranks", "c"], Reply::Integer(2)),
        (
            &["ZRANGE", "ranks", "0", "-1", "WITHSCORES"],
            Reply::bulks(["a", "1", "b", "2", "c", "3"]),
        ),
    ];
    let requests: Vec<_> = expected.iter().map(|(request, _)| *request).collect();
    // They are of the kind that is answered from the cache.
    let mut client = rig.nodes[1].client();
    let begun = Instant::now();
    let is_cached = || {
        let stats = rig.nodes[1].json("/hotkeys/set/stats");
        stats.is_some_and(|stats| stats["own"]["cache_hits_total"].as_u64() > Some(0))
    };
    while !is_cached() {
        assert!(begun.elapsed() < PATIENCE, "nothing is cached");
        for request in &requests {
            client.command(request);
        }
        thread::sleep(Duration::from_millis(20));
    }
    // A refusal that is deserved is passed on.
    for _ in 0..2 {
        assert!(client.command(&["HLEN", "set"]).error().starts_with("WRONGTYPE"));
    }
    rig.cut(true);
    move_these(&KEYS, true, &rig.nodes[..1]);
    let replies = ask_cut_off(&rig, &requests);
    for ((request, expected), reply) in expected.into_iter().zip(replies) {
        let reply = if request[0] == "SMEMBERS" { sorted(reply) } else { reply };
        assert_eq!(reply, expected, "{request:?}");
    }
    // A newer value is seen from then on.
    assert_eq!(rig.nodes[0].client().command(&["SADD", "set", "d"]), Reply::Integer(1));
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(4));
}

#[test]
fn commands_of_several_keys_wait_until_all_are_whole() {
    let rig = start(Place::empty());
    let mut client = rig.nodes[0].client();
    client.command(&["SADD", "{set}other", "b", "x"]);
    client.command(&["RPUSH", "{list}other", "x"]);
    client.command(&["PFADD", "log", "a", "b"]);
    client.command(&["PFADD", "{log}other", "c"]);
    client.command(&["SET", "{set}text", "x"]);
    rig.cut(true);
    move_these(&["set", "list", "log"], true, &rig.nodes[..1]);
    let requests: [&[&str]; 5] = [
        &["SINTER", "set", "{set}other"],
        &["SUNIONSTORE", "{set}union", "{set}other", "set"],
        &["LMOVE", "list", "{list}other", "RIGHT", "LEFT"],
        &["PFCOUNT", "{log}other", "log"],
        // This one is refused in any case.
        &["SINTER", "set", "{set}text"],
    ];
    let replies = ask_cut_off(&rig, &requests);
    let expected = [Reply::bulks(["b"]), Reply::Integer(4), Reply::bulk("c"), Reply::Integer(3)];
    assert_eq!(replies[..4], expected);
    assert!(replies[4].error().starts_with("WRONGTYPE"), "{:?}", replies[4]);
    assert_eq!(client.command(&["LRANGE", "list", "0", "-1"]), Reply::bulks(["a", "b"]));
    assert_eq!(client.command(&["LRANGE", "{list}other", "0", "-1"]), Reply::bulks(["c", "x"]));
}

/// What the other commands of a transaction have done cannot be undone, so it is not sent again.
#[test]
fn a_transaction_by_a_proxy_that_is_behind_shows_a_refusal() {
    let rig = Rig::start();
    let mut client = rig.nodes[1].client();
    client.set_timeout(PATIENCE);
    rig.cut(true);
    // Watched before the value is moved: nothing of it is executed.
    let mut watcher = rig.nodes[1].client();
    assert_eq!(watcher.command(&["WATCH", "set"]), Reply::ok());
    move_these(&["set"], true, &rig.nodes[..1]);
    let queued = Reply::Simple("QUEUED".to_owned());
    for client in [&mut watcher, &mut client] {
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["SADD", "set", "x"]), queued);
        assert_eq!(client.command(&["INCR", "{set}count"]), queued);
    }
    assert_eq!(watcher.command(&["EXEC"]), Reply::Null);
    let reply = client.command(&["EXEC"]);
    let [refused, count] = reply.items() else { panic!("{reply:?}") };
    assert!(refused.error().starts_with("WRONGTYPE"), "{refused:?}");
    assert_eq!(*count, Reply::Integer(1));
    rig.cut(false);
    // Nothing of the value has changed; and one that is not behind has the key made whole first.
    let mut client = rig.nodes[0].client();
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(3));
    client.command(&["MULTI"]);
    client.command(&["SADD", "set", "x"]);
    client.command(&["INCR", "{set}count"]);
    let executed = client.command(&["EXEC"]);
    assert_eq!(executed, Reply::Array([1, 2].map(Reply::Integer).into()));
}

/// What a marker answers is not refused, so nobody looks into it.
#[test]
fn what_a_marker_answers_is_seen_by_clients_of_a_proxy_that_is_behind() {
    let rig = Rig::start();
    rig.cut(true);
    move_these(&["set", "counter"], true, &rig.nodes[..1]);
    let mut client = rig.nodes[1].client();
    assert_eq!(client.command(&["SET", "other", "x"]), Reply::ok());
    let values = client.command(&["MGET", "counter", "other"]);
    assert_eq!(values, Reply::Array(vec![Reply::Null, Reply::bulk("x")]));
    assert_eq!(client.command(&["EXISTS", "counter", "other"]), Reply::Integer(2));
    assert_eq!(client.command(&["TYPE", "counter"]), Reply::Simple("list".to_owned()));
    assert!(client.command(&["GET", "set"]).text().starts_with("heatsink:split "));
    let script = "return redis.call('SCARD', KEYS[1])";
    let refused: [&[&str]; 2] = [&["EVAL", script, "1", "set"], &["BRPOP", "set", "1"]];
    for request in refused {
        assert!(client.command(request).error().starts_with("WRONGTYPE"), "{request:?}");
    }
    rig.cut(false);
    // It has caught up: they find the value.
    eventually(PATIENCE, || client.command(&["TYPE", "counter"]).text() == "string");
    let values = client.command(&["MGET", "counter", "other"]);
    assert_eq!(values, Reply::bulks(["10", "x"]));
}
