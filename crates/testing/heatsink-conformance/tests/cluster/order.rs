//! What one client sends is executed in its order, whatever becomes of the first of it.

use std::time::Duration;

use heatsink_conformance::Heatsink;
use heatsink_testkit::{LUA_NOW_MS, RawClient, RedisCluster, Reply, encode, key_slot};

use crate::open::{OPEN, before_open, elsewhere, send_all};

/// Long enough for what is wrong to happen.
const MOMENT: Duration = Duration::from_millis(150);
/// Takes a while to send.
const LARGE_BYTES: usize = 16 << 20;

#[test]
fn a_request_that_is_tried_again_is_not_overtaken() {
    let heatsink = before_open(|config| {
        config.live.timeouts.cluster_retry = Duration::from_secs(10);
    });
    // All at once, and the second when the first is known to have failed.
    for (name, pause, watches) in [
        ("at once", None, false),
        ("later", Some(MOMENT), false),
        ("at once, watching", None, true),
        ("later, watching", Some(MOMENT), true),
    ] {
        let tag = OPEN.key_on(0, name);
        let (a, b) = (format!("{tag}1"), format!("{tag}2"));
        let (slot, to) = (key_slot(&a), elsewhere(&a));
        let mut client = heatsink.client();
        assert_eq!(client.command(&["SET", &a, "0"]), Reply::ok());
        if watches {
            assert_eq!(client.command(&["WATCH", &a]), Reply::ok());
        }
        OPEN.begin_move_slot(slot, to);
        let (first, second) =
            (encode(&["MSET", &a, "first", &b, "first"]), encode(&["SET", &a, "second"]));
        match pause {
            None => client.send_raw(&[first, second].concat()),
            Some(pause) => {
                client.send_raw(&first);
                assert_eq!(client.try_read_frame(pause).expect("open"), None, "{name}");
                client.send_raw(&second);
            }
        }
        let early = client.try_read_frame(MOMENT).expect("open");
        OPEN.abandon_move_slot(slot, to);
        let set_both = match early {
            Some(frame) => String::from_utf8_lossy(&frame).into_owned(),
            None => client.read_reply().to_string(),
        };
        let allowed = set_both.contains("OK") || (pause.is_none() && set_both.contains("TRYAGAIN"));
        assert!(allowed, "{name}: {set_both}");
        assert_eq!(client.read_reply(), Reply::ok(), "{name}");
        assert_eq!(client.command(&["GET", &a]), Reply::bulk("second"), "{name}");
    }
}

#[test]
fn a_watching_client_is_not_overtaken_by_itself_either() {
    let heatsink = before_open(|config| {
        config.live.timeouts.cluster_retry = Duration::from_secs(10);
    });
    let tag = OPEN.key_on(0, "watching");
    let (watched, a, b) = (format!("{tag}w"), format!("{tag}1"), format!("{tag}2"));
    let (slot, to) = (key_slot(&a), elsewhere(&a));
    let mut client = heatsink.client();
    assert_eq!(client.command(&["MSET", &a, "0", &watched, "0"]), Reply::ok());
    assert_eq!(client.command(&["WATCH", &watched]), Reply::ok());
    OPEN.begin_move_slot(slot, to);
    let commands = [
        &["MSET", &a, "first", &b, "first"][..],
        &["WATCH", &a],
        &["MULTI"],
        &["GET", &a],
        &["EXEC"],
    ];
    send_all(&mut client, &commands);
    let early = client.try_read_frame(MOMENT).expect("open");
    OPEN.abandon_move_slot(slot, to);
    let set_both = match early {
        Some(frame) => String::from_utf8_lossy(&frame).into_owned(),
        None => client.read_reply().to_string(),
    };
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply().text(), "QUEUED");
    let done = client.read_reply();
    let last = client.command(&["GET", &a]);
    if set_both.contains("OK") {
        // Nil if the slot is thought to have been touched.
        assert!(done == Reply::bulks(["first"]) || done == Reply::Null, "{set_both}: {done}");
        assert_eq!(last, Reply::bulk("first"));
    } else {
        assert!(set_both.contains("TRYAGAIN"), "{set_both}");
        assert!(done == Reply::bulks(["0"]) || done == Reply::Null, "{set_both}: {done}");
        assert_eq!(last, Reply::bulk("0"));
    }
}

#[test]
fn a_transaction_waits_for_what_was_sent_before_it() {
    let heatsink = before_open(|_| {});
    let tag = OPEN.key_on(1, "before");
    let (watched, key) = (format!("{tag}w"), format!("{tag}k"));
    let large = "x".repeat(LARGE_BYTES);
    for watches in [false, true] {
        let mut client = heatsink.client();
        assert_eq!(client.command(&["SET", &key, "0"]), Reply::ok());
        if watches {
            assert_eq!(client.command(&["WATCH", &watched]), Reply::ok());
        }
        let commands = [
            &["SET", &key, &large][..],
            &["WATCH", &key],
            &["MULTI"],
            &["STRLEN", &key],
            &["EXEC"],
        ];
        send_all(&mut client, &commands);
        for _ in 0..3 {
            assert_eq!(client.read_reply(), Reply::ok());
        }
        assert_eq!(client.read_reply().text(), "QUEUED");
        assert_eq!(client.read_reply(), Reply::Array(vec![Reply::Integer(LARGE_BYTES as i64)]));
    }
    assert_eq!(heatsink.client().command(&["DEL", &key]).integer(), 1);
}

/// Has a node do nothing else for so long.
fn keep_busy(cluster: &RedisCluster, node: usize, milliseconds: u32) -> RawClient {
    let mut client = cluster.node(node).client();
    let script =
        format!("{LUA_NOW_MS} local till = now() + {milliseconds} repeat until now() > till");
    client.send(&["EVAL", &script, "0"]);
    let mut other = cluster.node(node).client();
    other.send(&["PING"]);
    assert_eq!(other.try_read_frame(Duration::from_millis(20)).expect("open"), None);
    client
}

/// How many requests a node has sent to others.
fn moved_by(cluster: &RedisCluster, node: usize) -> u64 {
    let stats = cluster.node(node).client().command(&["INFO", "errorstats"]).text();
    let count = stats.lines().find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
    count.map_or(0, |count| count.trim_end().parse().expect("a number"))
}

/// 1. `SET k 1`, a lot of others, `SET k 2` -> A, which is busy
/// 2. A: `MOVED` to B for the first, which goes there; B is busy, too
/// 3. A is told that the slot is C's now: `MOVED` to C for the last
/// 4. the last must not be executed there before the first, which B sends to C in the end
#[test]
fn requests_whose_ways_part_keep_their_order() {
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let heatsink = Heatsink::before_url(&cluster.seed_url(), |_| {});
    // A node believes that of two the one with the later number has a slot.
    let (a, b, c) = (0, 2, 1);
    let key = cluster.key_on(a, "parting");
    let other = cluster.key_on(a, "other");
    assert_ne!(key_slot(&key), key_slot(&other));
    let mut client = heatsink.client();
    assert_eq!(client.command(&["GET", &key]), Reply::Null);
    let slot = key_slot(&key).to_string();
    let assign = |at: usize, to: usize| {
        let command = ["CLUSTER", "SETSLOT", &slot, "NODE", cluster.id(to)];
        assert_eq!(cluster.node(at).client().command(&command), Reply::ok());
    };
    assign(c, c);
    assign(b, c);
    assign(a, b);
    let before = [a, b].map(|node| moved_by(&cluster, node));
    let mut busy = [keep_busy(&cluster, b, 900), keep_busy(&cluster, a, 300)];
    // A server takes 16 KiB of a connection, then of the next.
    let many = encode(&["SET", &other, &"x".repeat(8 << 10)]).repeat(60);
    let (first, last) = (encode(&["SET", &key, "1"]), encode(&["SET", &key, "2"]));
    client.send_raw(&[first, many, last].concat());
    let mut admin = cluster.node(a).client();
    let pings = encode(&["PING"]).repeat(6000);
    let assigned = encode(&["CLUSTER", "SETSLOT", &slot, "NODE", cluster.id(c)]);
    admin.send_raw(&[pings, assigned].concat());
    for _ in 0..62 {
        assert_eq!(client.read_reply(), Reply::ok());
    }
    for client in &mut busy {
        assert_eq!(client.read_reply(), Reply::Null);
    }
    let after = [a, b].map(|node| moved_by(&cluster, node));
    assert_eq!([after[0] - before[0], after[1] - before[1]], [2, 1], "each went its way");
    assert_eq!(cluster.node(c).client().command(&["GET", &key]), Reply::bulk("2"));
}
