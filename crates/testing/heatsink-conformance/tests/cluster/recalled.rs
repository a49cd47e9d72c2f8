//! A request is tried again although its client has sent others behind it: they are taken back,
//! and executed behind it after all.

use std::time::{Duration, Instant};

use heatsink_conformance::Heatsink;
use heatsink_testkit::{Reply, encode, eventually, key_slot};

use crate::half::{HALF_MOVED, Half, says_nothing};
use crate::open::{OPEN, before_open, orphan};

const SOON: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);
/// Passed on in pieces, if nobody minds.
const LARGE_BYTES: usize = 1 << 20;

fn patient() -> Heatsink {
    before_open(|config| config.live.timeouts.cluster_retry = 2 * SOON)
}

/// How often a node has executed a command.
fn calls(node: usize, command: &str) -> u64 {
    let stats = OPEN.node(node).client().command(&["INFO", "commandstats"]).text();
    let line = format!("cmdstat_{command}:calls=");
    let count = stats.lines().find_map(|text| text.strip_prefix(&line));
    count.map_or(0, |text| text.split(',').next().and_then(|n| n.parse().ok()).expect("a number"))
}

#[test]
fn reads_behind_a_read_are_repeated_behind_it() {
    let heatsink = patient();
    let half = Half::begin(&OPEN, "recalled reads");
    let (stayed, moved) = (&half.stayed, &half.moved);
    let mut client = heatsink.client();
    // Nobody else says it like this.
    let read = encode(&["SUBSTR", stayed, "0", "-1"]);
    let bytes =
        [half.read_both(), read.clone(), half.read_both(), encode(&["GET", moved]), read].concat();
    let before = calls(0, "substr");
    client.send_raw(&bytes);
    says_nothing(&mut client);
    // Those behind have been executed, once, and are not told: the first is still to come.
    assert_eq!(calls(0, "substr") - before, 2);
    let mut other = heatsink.client();
    for key in [stayed, moved] {
        assert_eq!(other.command(&["SET", key, "later"]), Reply::ok());
    }
    half.finish();
    let both = Reply::bulks(["later", "later"]);
    for (n, expected) in [&both, &Reply::bulk("later")].into_iter().cycle().take(4).enumerate() {
        assert_eq!(client.read_reply(), *expected, "reply {n}");
    }
    assert_eq!(client.read_reply(), Reply::bulk("later"));
    assert_eq!(client.command(&["PING"]).text(), "PONG");
}

/// The source sends those for keys that are nowhere to the target, one by one, and the target
/// refuses the first while others are still at the source.
#[test]
fn requests_are_recalled_from_where_they_are() {
    let heatsink = patient();
    let half = Half::begin(&OPEN, "recalled elsewhere");
    let [x, y] = ["x", "y"].map(|name| format!("{}{name}", half.tag));
    let mut client = heatsink.client();
    let requests = [
        encode(&["MGET", &x, &y]),
        encode(&["MSET", &x, "1", &y, "1"]),
        encode(&["MGET", &x, &y]),
        encode(&["MSET", &x, "2", &y, "2"]),
        encode(&["GET", &half.moved]),
        encode(&["MGET", &y, &x]),
    ];
    client.send_raw(&requests.concat());
    says_nothing(&mut client);
    half.finish();
    assert_eq!(client.read_reply(), Reply::Array(vec![Reply::Null, Reply::Null]));
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::bulks(["1", "1"]));
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::bulk("0"));
    assert_eq!(client.read_reply(), Reply::bulks(["2", "2"]));
}

/// 1. The source sends the first to the target, which refuses it, and refuses the second itself
/// 2. when the second could be answered, the first is still to be tried again
#[test]
fn requests_that_are_refused_in_different_places_keep_their_order() {
    let heatsink = patient();
    let half = Half::begin(&OPEN, "recalled apart");
    let [x, y] = ["x", "y"].map(|name| format!("{}{name}", half.tag));
    let mut client = heatsink.client();
    let both = half.read_both();
    let bytes = [encode(&["MGET", &x, &y]), both.clone(), encode(&["GET", &half.stayed]), both];
    client.send_raw(&bytes.concat());
    says_nothing(&mut client);
    OPEN.migrate_keys(half.slot, half.to);
    // The target has all that the second asks for, and is not sent it yet.
    says_nothing(&mut client);
    let mut other = heatsink.client();
    assert_eq!(other.command(&["SET", &half.stayed, "1"]), Reply::ok());
    OPEN.finish_move_slot(half.slot, half.to);
    assert_eq!(client.read_reply(), Reply::Array(vec![Reply::Null, Reply::Null]));
    assert_eq!(client.read_reply(), Reply::bulks(["1", "0"]));
    assert_eq!(client.read_reply(), Reply::bulk("1"));
    assert_eq!(client.read_reply(), Reply::bulks(["1", "0"]));
}

/// Only those for the same slot wait for each other.
#[test]
fn requests_for_different_slots_are_tried_again_side_by_side() {
    let heatsink = patient();
    let halves = ["recalled here", "recalled there"].map(|name| Half::begin(&OPEN, name));
    let mut client = heatsink.client();
    client.send_raw(&[halves[0].read_both(), halves[1].write_both("1")].concat());
    says_nothing(&mut client);
    halves[1].finish();
    let mut target = OPEN.node(halves[1].to).client();
    eventually(SOON, || target.command(&["GET", &halves[1].stayed]) == Reply::bulk("1"));
    says_nothing(&mut client);
    halves[0].finish();
    assert_eq!(client.read_reply(), Reply::bulks(["0", "0"]));
    assert_eq!(client.read_reply(), Reply::ok());
}

/// Requests of several slots are taken apart, and what is asked of each is recalled by itself.
#[test]
fn parts_of_requests_are_recalled() {
    let heatsink = patient();
    let half = Half::begin(&OPEN, "recalled parts");
    let other = OPEN.key_on(2, "recalled parts");
    let mut client = heatsink.client();
    assert_eq!(client.command(&["SET", &other, "o"]), Reply::ok());
    let across = encode(&["MGET", &half.stayed, &other, &half.moved]);
    let bytes = [&across[..], &across, &encode(&["GET", &other]), &half.read_both(), &across];
    client.send_raw(&bytes.concat());
    says_nothing(&mut client);
    half.finish();
    let all = Reply::bulks(["0", "o", "0"]);
    assert_eq!(client.read_reply(), all);
    assert_eq!(client.read_reply(), all);
    assert_eq!(client.read_reply(), Reply::bulk("o"));
    assert_eq!(client.read_reply(), Reply::bulks(["0", "0"]));
    assert_eq!(client.read_reply(), all);
}

#[test]
fn writes_that_are_all_refused_are_executed_in_order() {
    let heatsink = patient();
    let half = Half::begin(&OPEN, "recalled writes");
    let mut client = heatsink.client();
    let values: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
    let pairs = values.iter().map(|value| [half.write_both(value), half.read_both()].concat());
    client.send_raw(&pairs.collect::<Vec<_>>().concat());
    says_nothing(&mut client);
    half.finish();
    for value in &values {
        assert_eq!(client.read_reply(), Reply::ok(), "{value}");
        assert_eq!(client.read_reply(), Reply::bulks([value, value]), "{value}");
    }
}

/// A slot that nobody serves refuses everything, whatever the command.
#[test]
fn increments_of_a_slot_that_nobody_has_wait_for_it() {
    let heatsink = patient();
    let key = OPEN.key_on(0, "recalled orphan");
    orphan(&key);
    let mut client = heatsink.client();
    let increments: Vec<u8> = (0..100).flat_map(|_| encode(&["INCR", &key])).collect();
    client.send_raw(&increments);
    says_nothing(&mut client);
    let slot = key_slot(&key).to_string();
    for node in 0..OPEN.nodes().len() {
        let mut client = OPEN.node(node).client();
        let id = OPEN.id(0);
        let mut taken =
            || client.command(&["CLUSTER", "SETSLOT", &slot, "NODE", id]) == Reply::ok();
        eventually(SOON, &mut taken);
    }
    for n in 1..=100 {
        assert_eq!(client.read_reply(), Reply::Integer(n));
    }
}

/// 1. `MGET` of both, which is refused, and behind it `SET` of one, which is executed
/// 2. the first is not tried again: it would read what was written behind it
#[test]
fn behind_it_a_write_was_executed() {
    let heatsink = patient();
    let half = Half::begin(&OPEN, "recalled too late");
    let mut client = heatsink.client();
    let bytes = [
        half.read_both(),
        encode(&["GET", &half.stayed]),
        encode(&["SET", &half.stayed, "behind"]),
        encode(&["GET", &half.moved]),
        half.read_both(),
    ];
    client.send_raw(&bytes.concat());
    assert_eq!(client.read_reply().error(), HALF_MOVED);
    assert_eq!(client.read_reply(), Reply::bulk("0"));
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::bulk("0"));
    assert_eq!(client.read_reply().error(), HALF_MOVED);
    half.finish();
    assert_eq!(client.command(&["GET", &half.stayed]), Reply::bulk("behind"));
}

/// A script has written before it says what servers say of what they do not execute.
#[test]
fn behind_it_a_script_only_seems_refused() {
    let half = Half::begin(&OPEN, "recalled script");
    for word in ["TRYAGAIN as you like", "MOVED 1 127.0.0.1:1", "CLUSTERDOWN not at all"] {
        let script = format!("redis.call('INCR', KEYS[1]) return redis.error_reply('{word}')");
        let mut source = OPEN.node(0).client();
        let before =
            source.command(&["GET", &half.stayed]).text().parse::<u64>().expect("a number");
        // One that does not know that the slot is moving.
        let heatsink = patient();
        let mut client = heatsink.client();
        let write = encode(&["EVAL", &script, "1", &half.stayed]);
        client.send_raw(&[half.read_both(), write].concat());
        assert_eq!(client.read_reply().error(), HALF_MOVED);
        assert_eq!(client.read_reply().error(), word);
        let after = (before + 1).to_string();
        assert_eq!(source.command(&["GET", &half.stayed]), Reply::bulk(&after));
    }
    half.finish();
}

/// A message that was told cannot be taken back, although it is no write.
#[test]
fn behind_it_a_message_was_told() {
    let heatsink = patient();
    let half = Half::begin(&OPEN, "recalled message");
    let mut listener = OPEN.node(0).client();
    assert_eq!(listener.command(&["SSUBSCRIBE", &half.tag]).items()[0], Reply::bulk("ssubscribe"));
    let mut client = heatsink.client();
    client.send_raw(&[half.read_both(), encode(&["SPUBLISH", &half.tag, "once"])].concat());
    assert_eq!(client.read_reply().error(), HALF_MOVED);
    assert_eq!(client.read_reply(), Reply::Integer(1));
    assert_eq!(listener.read_reply().items()[2], Reply::bulk("once"));
    says_nothing(&mut listener);
    half.finish();
}

/// Once a slot is known to move, nothing that could not be taken back is sent behind.
#[test]
fn writes_behind_wait_while_a_slot_is_known_to_move() {
    let heatsink = patient();
    for (n, name) in ["read", "written", "read across"].into_iter().enumerate() {
        let half = Half::begin(&OPEN, &format!("recalled in time, {name}"));
        let other = OPEN.key_on(2, name);
        let first = match n {
            0 => half.read_both(),
            1 => half.write_both("0"),
            _ => encode(&["MGET", &half.stayed, &half.moved, &other]),
        };
        let mut client = heatsink.client();
        // Whoever is told, and however.
        let mut told = heatsink.client();
        if n == 0 {
            told.send_raw(&half.read_both());
            says_nothing(&mut told);
        } else {
            assert_eq!(told.command(&["GET", &half.moved]), Reply::bulk("0"));
        }
        let write = encode(&["SET", &half.stayed, "behind"]);
        client.send_raw(&[first, write, half.read_both(), half.write_both("0")].concat());
        says_nothing(&mut client);
        assert_eq!(OPEN.node(0).client().command(&["GET", &half.stayed]), Reply::bulk("0"));
        half.finish();
        let told = client.read_reply();
        assert!(!told.is_error(), "{name}: {told}");
        assert_eq!(client.read_reply(), Reply::ok(), "{name}");
        assert_eq!(client.read_reply(), Reply::bulks(["behind", "0"]), "{name}");
        assert_eq!(client.read_reply(), Reply::ok(), "{name}");
    }
}

/// Not one after the other: all that was sent together is given up together.
#[test]
fn all_are_given_up_in_time() {
    let heatsink = before_open(|config| config.live.timeouts.cluster_retry = SHORT);
    let half = Half::begin(&OPEN, "recalled in vain");
    let mut client = heatsink.client();
    let requests = [half.read_both(), encode(&["GET", &half.stayed])].concat().repeat(20);
    // The second time it is known that the slot is moving, and that it was waited for in vain.
    for _ in 0..2 {
        let begun = Instant::now();
        client.send_raw(&requests);
        for _ in 0..20 {
            assert_eq!(client.read_reply().error(), HALF_MOVED);
            assert_eq!(client.read_reply(), Reply::bulk("0"));
        }
        let took = begun.elapsed();
        assert!(took >= SHORT && took < 10 * SHORT, "{took:?}");
    }
    half.finish();
    client.send_raw(&requests);
    for _ in 0..20 {
        assert_eq!(client.read_reply(), Reply::bulks(["0", "0"]));
        assert_eq!(client.read_reply(), Reply::bulk("0"));
    }
}

#[test]
fn large_replies_are_recalled_whole() {
    let half = Half::begin(&OPEN, "recalled large");
    let [small, large] = ["s", "l"].map(|name| format!("{}{name}", half.tag));
    let value = "l".repeat(LARGE_BYTES);
    // The source makes no new key while its slot is moving.
    OPEN.abandon_move_slot(half.slot, half.to);
    let mut source = OPEN.node(0).client();
    assert_eq!(source.command(&["MSET", &small, "s", &large, &value]), Reply::ok());
    OPEN.begin_move_slot(half.slot, half.to);
    let nowhere = format!("{}n", half.tag);
    for write in [false, true] {
        // One that does not know that the slot is moving.
        let heatsink = patient();
        let mut client = heatsink.client();
        let mut requests = vec![encode(&["MGET", &small, &nowhere])];
        requests.extend((0..3).map(|_| encode(&["GET", &large])));
        requests.extend(write.then(|| encode(&["SET", &small, "s"])));
        requests.push(encode(&["GET", &small]));
        client.send_raw(&requests.concat());
        if write {
            assert_eq!(client.read_reply().error(), HALF_MOVED);
        } else {
            says_nothing(&mut client);
            OPEN.abandon_move_slot(half.slot, half.to);
            assert_eq!(client.read_reply(), Reply::Array(vec![Reply::bulk("s"), Reply::Null]));
            OPEN.begin_move_slot(half.slot, half.to);
        }
        for _ in 0..3 {
            assert_eq!(client.read_reply().text().len(), LARGE_BYTES);
        }
        if write {
            assert_eq!(client.read_reply(), Reply::ok());
        }
        assert_eq!(client.read_reply(), Reply::bulk("s"));
        assert_eq!(client.command(&["PING"]).text(), "PONG");
    }
    OPEN.abandon_move_slot(half.slot, half.to);
}

/// What is kept from a client counts like what it does not read.
#[test]
fn replies_that_are_kept_have_a_limit() {
    let half = Half::begin(&OPEN, "recalled at length");
    let (small, large) = (&half.stayed, format!("{}l", half.tag));
    OPEN.abandon_move_slot(half.slot, half.to);
    let mut source = OPEN.node(0).client();
    assert_eq!(source.command(&["SET", &large, &"l".repeat(LARGE_BYTES)]), Reply::ok());
    OPEN.begin_move_slot(half.slot, half.to);
    // One reply is too much, or three are.
    for limit in [LARGE_BYTES / 2, 2 * LARGE_BYTES] {
        let heatsink = before_open(|config| {
            config.live.timeouts.cluster_retry = 2 * SOON;
            config.live.limits.max_output_bytes = limit as u64;
        });
        let mut client = heatsink.client();
        client.set_timeout(SOON);
        let first = encode(&["MGET", small, &format!("{}n", half.tag)]);
        let reads = encode(&["GET", &large]).repeat(3);
        client.send_raw(&[first, reads, encode(&["GET", small])].concat());
        client.expect_closed();
        assert_eq!(heatsink.client().command(&["GET", small]), Reply::bulk("0"));
    }
    OPEN.abandon_move_slot(half.slot, half.to);
}

/// Whoever sends and leaves is forgotten, and others go on.
#[test]
fn those_who_leave_are_forgotten() {
    let heatsink = before_open(|config| config.live.timeouts.cluster_retry = SHORT);
    let half = Half::begin(&OPEN, "recalled and gone");
    for n in 0..20 {
        let mut client = heatsink.client();
        client.send_raw(&half.read_both().repeat(10));
        // Some are gone before anything is sent, some when all is.
        client.try_read_frame(Duration::from_millis(n % 4)).expect("open");
        drop(client);
    }
    eventually(SOON, || heatsink.proxy().client_count() == 0);
    half.finish();
    let mut client = heatsink.client();
    client.send_raw(&half.read_both().repeat(10));
    for _ in 0..10 {
        assert_eq!(client.read_reply(), Reply::bulks(["0", "0"]));
    }
    assert_eq!(client.command(&["PING"]).text(), "PONG");
}
