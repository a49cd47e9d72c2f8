//! What waits while a value is moved, and what does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::{ClusterRig, Rig};
use heatsink_testkit::{RawClient, Reply, eventually};

use crate::hand::Mover;

fn rig() -> ClusterRig {
    Rig::cluster().servers(|cluster| cluster.replicas_per_primary(0)).workers(2).start()
}

#[test]
fn writes_wait_while_a_key_freezes_and_reads_do_not() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut writer = rig.client();
    let mut reader = rig.client();
    writer.command(&["SADD", "key", "a"]);
    mover.freeze(b"key");
    writer.send(&["SADD", "key", "b"]);
    assert_eq!(reader.command(&["SCARD", "key"]), Reply::Integer(1));
    assert_eq!(reader.command(&["SISMEMBER", "key", "b"]), Reply::Integer(0));
    assert!(writer.try_read_frame(Duration::from_millis(100)).expect("no error").is_none());
    mover.release(b"key");
    assert_eq!(writer.read_reply(), Reply::Integer(1));
    assert_eq!(reader.command(&["SCARD", "key"]), Reply::Integer(2));
}

/// Writes of a key that freezes for too long go on, but not behind a read that waits:
///
/// ```text
/// SRANDMEMBER key 9   refused: the value has been moved; it waits for the key to be whole
/// SADD key c          refused, too; it waits
///                     registry: split
/// SADD shard c        executed
///                     registry: split no more
/// SRANDMEMBER key 9   executed last: it tells of what was sent behind it
/// ```
#[test]
fn a_write_that_freezing_holds_no_more_does_not_pass_a_read_that_waits() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let (mut client, mut other) = (rig.client(), rig.client());
    client.command(&["SADD", "key", "a"]);
    mover.freeze(b"key");
    // It is answered when writes go on.
    assert_eq!(other.command(&["SADD", "key", "b"]), Reply::Integer(1));
    mover.commit(b"key");
    let a_while = Duration::from_millis(100);
    client.send(&["SRANDMEMBER", "key", "9"]);
    assert!(client.try_read_frame(a_while).expect("no error").is_none());
    client.send(&["SADD", "key", "c"]);
    assert!(client.try_read_frame(a_while).expect("no error").is_none());
    mover.tell_split(b"key");
    let Reply::Array(mut members) = client.read_reply() else { panic!("members") };
    members.sort_by_key(|member| member.clone().text());
    assert_eq!(members, ["a", "b"].map(Reply::bulk));
    assert_eq!(client.read_reply(), Reply::Integer(1));
    assert_eq!(client.command(&["SCARD", "key"]), Reply::Integer(3));
}

/// Each wait has its own patience: an increment that is combined, or goes to the plain key
/// afterwards, ends one as well.
#[test]
fn who_has_waited_before_waits_again() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut writer = rig.client();
    writer.command(&["SET", "key", "0"]);
    let begun = Instant::now();
    let mut count = 0;
    // Longer than anybody waits for one value.
    while begun.elapsed() < Duration::from_millis(5_500) {
        mover.freeze(b"key");
        writer.send(&["INCR", "key"]);
        let early = writer.try_read_frame(Duration::from_millis(50)).expect("no error");
        assert!(early.is_none(), "{early:?} after {:?}", begun.elapsed());
        mover.release(b"key");
        count += 1;
        assert_eq!(writer.read_reply(), Reply::Integer(count));
    }
}

/// A transaction, a watch and a script are about the plain key.
#[test]
fn transactions_watches_and_scripts_find_the_key_whole() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    client.command(&["SADD", "key", "a", "b", "c"]);
    let count = |reply: Reply| match reply {
        Reply::Array(items) => items.len(),
        other => panic!("{other:?}"),
    };
    assert!(mover.split(b"key", 4));
    assert_eq!(client.command(&["MULTI"]), Reply::Simple("OK".into()));
    assert_eq!(client.command(&["SMEMBERS", "key"]), Reply::Simple("QUEUED".into()));
    assert_eq!(client.command(&["SADD", "key", "d"]), Reply::Simple("QUEUED".into()));
    match client.command(&["EXEC"]) {
        Reply::Array(items) => {
            assert_eq!(count(items[0].clone()), 3);
            assert_eq!(items[1], Reply::Integer(1));
        }
        other => panic!("{other:?}"),
    }
    // Queued on the plain key, executed when it is split.
    client.command(&["MULTI"]);
    client.command(&["SADD", "key", "e"]);
    assert!(mover.split(b"key", 8));
    assert_eq!(client.command(&["EXEC"]), Reply::Array(vec![Reply::Integer(1)]));
    assert!(mover.split(b"key", 2));
    let script = "return redis.call('SCARD', KEYS[1])";
    assert_eq!(client.command(&["EVAL", script, "1", "key"]), Reply::Integer(5));
    assert!(mover.split(b"key", 2));
    assert_eq!(client.command(&["WATCH", "key"]), Reply::Simple("OK".into()));
    assert_eq!(client.command(&["SCARD", "key"]), Reply::Integer(5));
    client.command(&["UNWATCH"]);
    assert!(mover.forced() >= 4);
}

/// What was queued before is executed on the value, not on what takes its place.
#[test]
fn a_transaction_waits_while_a_key_freezes() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    client.command(&["SADD", "{k}set", "a"]);
    client.command(&["MULTI"]);
    client.command(&["RENAME", "{k}set", "{k}other"]);
    mover.freeze(b"{k}set");
    client.send(&["EXEC"]);
    assert!(client.try_read_frame(Duration::from_millis(100)).expect("no error").is_none());
    mover.release(b"{k}set");
    assert_eq!(client.read_reply(), Reply::Array(vec![Reply::ok()]));
    assert_eq!(client.command(&["SCARD", "{k}other"]), Reply::Integer(1));
}

/// A flush names no key, and changes all.
#[test]
fn a_flush_makes_split_keys_whole_first() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    client.command(&["SADD", "set", "a", "b"]);
    client.command(&["SET", "counter", "5"]);
    assert!(mover.split(b"set", 4) && mover.split(b"counter", 4));
    assert_eq!(client.command(&["FLUSHALL"]), Reply::ok());
    assert_eq!(mover.forced(), 2);
    assert_eq!(client.command(&["INCR", "counter"]), Reply::Integer(1));
    assert_eq!(client.command(&["SADD", "set", "a"]), Reply::Integer(1));
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(1));
}

/// Two increments, each of which a shard would take, and their sum not.
#[test]
fn increments_that_are_too_large_together_go_to_the_plain_key() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut clients: Vec<_> = (0..8).map(|_| rig.client()).collect();
    clients[0].command(&["SET", "counter", "0"]);
    assert!(mover.split(b"counter", 4));
    let step = 1_i64 << 40;
    for client in &mut clients {
        client.send(&["INCRBY", "counter", &step.to_string()]);
    }
    let done = |client: &mut RawClient| match client.read_reply() {
        Reply::Integer(_) => 1,
        Reply::Error(text) if text.starts_with("TRYAGAIN") => 0,
        other => panic!("{other:?}"),
    };
    let done: i64 = clients.iter_mut().map(done).sum();
    let value = clients[0].command(&["GET", "counter"]).text();
    assert_eq!(value, (done * step).to_string());
}

/// What a worker that has not heard of the split sends, the server refuses; nothing is lost.
#[test]
fn a_client_past_heatsink_is_refused_and_harms_nothing() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    client.command(&["INCRBY", "{k}counter", "40"]);
    client.command(&["SADD", "{k}set", "a"]);
    assert!(mover.split(b"{k}counter", 4) && mover.split(b"{k}set", 4));
    let slot = heatsink_cluster::slot::of_key(b"{k}");
    let mut direct = rig.cluster.node(rig.cluster.owner_of(slot)).client();
    for command in [&["INCR", "{k}counter"][..], &["GET", "{k}counter"], &["SADD", "{k}set", "b"]] {
        match direct.command(command) {
            Reply::Error(text) => assert!(text.starts_with("WRONGTYPE"), "{text}"),
            other => panic!("{command:?}: {other:?}"),
        }
    }
    assert_eq!(client.command(&["INCR", "{k}counter"]), Reply::Integer(41));
    assert_eq!(client.command(&["SCARD", "{k}set"]), Reply::Integer(1));
}

/// Several clients increment and read while the counter is split and made whole all the time:
/// no increment is lost, and nobody sees the counter go back.
#[test]
fn increments_are_conserved_while_a_counter_is_moved() {
    conserve(
        |client, number| {
            let reply = match number % 4 {
                0 => client.command(&["GET", "counter"]),
                _ => client.command(&["INCR", "counter"]),
            };
            match reply {
                Reply::Integer(value) => (1, value),
                Reply::Bulk(text) => {
                    let text = String::from_utf8(text).expect("a number");
                    (0, text.parse().expect("a number"))
                }
                Reply::Null => (0, 0),
                other => panic!("{other:?}"),
            }
        },
        b"counter",
        &["INCRBY", "counter", "0"],
        &["GET", "counter"],
    );
}

/// The same for the members of a set.
#[test]
fn members_are_conserved_while_a_set_is_moved() {
    conserve(
        |client, number| {
            let member = format!("{}:{number}", client.local_addr().port());
            match client.command(&["SADD", "set", &member]) {
                Reply::Integer(added) => assert_eq!(added, 1),
                other => panic!("{other:?}"),
            }
            assert_eq!(client.command(&["SISMEMBER", "set", &member]), Reply::Integer(1));
            match client.command(&["SCARD", "set"]) {
                Reply::Integer(size) => (1, size),
                other => panic!("{other:?}"),
            }
        },
        b"set",
        &["SADD", "set", "first"],
        &["SCARD", "set"],
    );
}

/// `act` returns how much it has added, and a size that never shrinks for one client.
fn conserve(
    act: impl Fn(&mut RawClient, u64) -> (u64, i64) + Sync,
    key: &[u8],
    first: &[&str],
    total: &[&str],
) {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    client.command(first);
    let over = AtomicBool::new(false);
    let added = AtomicU64::new(0);
    let done = Arc::new(AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = rig.client();
                let mut last = i64::MIN;
                let mut number = 0;
                while !over.load(Ordering::Acquire) {
                    number += 1;
                    let (more, size) = act(&mut client, number);
                    assert!(size >= last, "it was {last} and is {size}");
                    last = size;
                    added.fetch_add(more, Ordering::AcqRel);
                    done.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(5);
        let mut rounds = 0;
        while Instant::now() < until {
            let before = done.load(Ordering::Acquire);
            assert!(mover.split(key, [2, 3, 8][rounds % 3]), "it can be split");
            eventually(Duration::from_secs(5), || done.load(Ordering::Acquire) > before + 50);
            assert!(mover.make_whole(key));
            rounds += 1;
        }
        over.store(true, Ordering::Release);
        assert!(rounds > 5, "{rounds} rounds");
    });
    let added = added.load(Ordering::Acquire);
    let total = match client.command(total) {
        Reply::Integer(total) => total as u64 - 1,
        Reply::Bulk(text) => String::from_utf8(text).expect("a number").parse().expect("a number"),
        other => panic!("{other:?}"),
    };
    assert_eq!(total, added);
}

/// One client pushes when another was answered, whichever worker has it: what came later stands
/// behind it, or before it, as in a plain list.
#[test]
fn pushes_of_many_clients_stand_in_their_order() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut clients: Vec<_> = (0..8).map(|_| rig.client()).collect();
    let mut expected = vec!["first".to_owned()];
    clients[0].command(&["RPUSH", "list", "first"]);
    let mut rng = fastrand::Rng::with_seed(7);
    for round in 0..3 {
        assert!(mover.split(b"list", 4));
        for number in 0..60 {
            // Now and then one pushes a lot, and far more often than the others.
            let client = if rng.bool() { 0 } else { rng.usize(..8) };
            let elements: Vec<String> = (0..[1, 1, 1, 50][rng.usize(..4)])
                .map(|part| format!("{round}:{number}:{part}"))
                .collect();
            let (command, right) = if rng.bool() { ("RPUSH", true) } else { ("LPUSH", false) };
            let words = [command, "list"].into_iter().chain(elements.iter().map(String::as_str));
            let words: Vec<&str> = words.collect();
            if right {
                expected.extend(elements.iter().cloned());
            } else {
                expected.splice(..0, elements.iter().rev().cloned());
            }
            let length = expected.len() as i64;
            assert_eq!(clients[client].command(&words), Reply::Integer(length));
        }
        assert_eq!(clients[1].command(&["LRANGE", "list", "0", "-1"]), Reply::bulks(&expected));
        assert!(mover.make_whole(b"list"));
        assert_eq!(clients[1].command(&["LRANGE", "list", "0", "-1"]), Reply::bulks(&expected));
    }
}
