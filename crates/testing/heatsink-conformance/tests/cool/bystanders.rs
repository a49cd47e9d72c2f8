//! What one client does, or leaves undone, does not take the cache from the others; and it sees what
//! it did itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use heatsink_conformance::{Rig, Way};
use heatsink_proxy::hot_keys::{HotKeys, Treatment};
use heatsink_testkit::{RawClient, Reply, encode, eventually};

use crate::interleavings::Arranged;
use crate::served::{SOON, make_hot, rig, warm};

const READS: u64 = 2000;
const A_MOMENT: Duration = Duration::from_millis(200);

/// Of many reads of `k` hardly any reaches the server.
#[track_caller]
fn assert_cached(rig: &Rig, what: &str) {
    let mut client = rig.client();
    warm(rig, "k");
    let before = rig.server().calls("get");
    for _ in 0..READS {
        client.command(&["GET", "k"]);
    }
    let asked = rig.server().calls("get") - before;
    assert!(asked < READS / 10, "{what}: {asked} of {READS} reads reached the server");
}

/// The beginning of a `SET` that is too large to be held.
fn unfinished(key: &str) -> Vec<u8> {
    let mut bytes = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$600000\r\n", key.len());
    bytes.extend(std::iter::repeat_n('x', 300_000));
    bytes.into_bytes()
}

#[test]
fn an_idle_client_does_not_take_the_cache_from_the_others() {
    let rig = rig(&["k", "list"], 1);
    rig.client().command(&["SET", "k", "v"]);
    let mut idle: Vec<RawClient> = Vec::new();
    let mut leave = |bytes: &[u8]| {
        let mut client = rig.client();
        client.send_raw(bytes);
        idle.push(client);
    };
    for key in ["other", "k"] {
        leave(&unfinished(key));
        assert_cached(&rig, "an unfinished request");
    }
    // It waits for a hot key, which others read.
    leave(&encode(&["BLPOP", "list", "0"]));
    let mut client = rig.client();
    eventually(SOON, || {
        let before = rig.server().calls("llen");
        client.command(&["LLEN", "list"]);
        rig.server().calls("llen") == before
    });
    // It waited when the key became hot.
    leave(&encode(&["BLPOP", "somewhere", "0"]));
    make_hot(&rig, &["list"]);
    make_hot(&rig, &["k", "list"]);
    assert_cached(&rig, "a client that waits");
}

/// How many of many reads of `k` reach the server while somebody sends commands in a loop.
fn asked_beside(rig: &Rig, commands: &'static [&'static [&'static str]]) -> u64 {
    warm(rig, "k");
    let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let busy = {
        let (addr, stop, sent) = (rig.addr(), Arc::clone(&stop), Arc::clone(&sent));
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let mut client = RawClient::connect(addr);
                for command in commands.iter().cycle().take(20) {
                    client.command(command);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    };
    eventually(SOON, || sent.load(Ordering::Relaxed) >= 20);
    let mut client = rig.client();
    let before = rig.server().calls("get");
    for _ in 0..READS {
        client.command(&["GET", "k"]);
    }
    let asked = rig.server().calls("get") - before;
    stop.store(true, Ordering::Relaxed);
    busy.join().expect("it is served");
    asked
}

/// Those of the cases beside which the others lost the cache.
#[track_caller]
fn assert_none_takes_it(
    rig: impl Fn() -> Rig,
    cases: &[(&str, &'static [&'static [&'static str]])],
) {
    let mut taken = Vec::new();
    for (what, commands) in cases {
        let asked = asked_beside(&rig(), commands);
        println!("{what}: {asked} of {READS} reads reached the server");
        if asked >= READS / 10 {
            taken.push((what, asked));
        }
    }
    assert!(taken.is_empty(), "of {READS} reads reached the server: {taken:?}");
}

#[test]
fn a_busy_client_does_not_take_the_cache_from_the_others() {
    let with_value = || {
        let rig = rig(&["k"], 2);
        rig.client().command(&["SET", "k", "v"]);
        rig
    };
    assert_none_takes_it(
        with_value,
        &[
            ("unknown commands", &[&["NOSUCHCOMMAND", "x"]]),
            ("empty transactions", &[&["MULTI"], &["EXEC"]]),
            ("transactions", &[&["MULTI"], &["SET", "other", "1"], &["EXEC"]]),
            ("scripts", &[&["EVAL", "return 1", "0"]]),
            ("flushes that are refused", &[&["FLUSHDB", "NEVER"], &["FLUSHALL", "NEVER"]]),
        ],
    );
}

/// What the server refuses changes nothing, and what changes nothing takes nothing from anybody.
#[test]
fn a_client_whose_writes_change_nothing_does_not_take_the_cache_from_the_others() {
    let with_users = || {
        let rig = rig(&["k"], 2);
        let mut admin = rig.server().client();
        admin.command(&["SET", "k", "v"]);
        let rules = ["+@all", "-@write", "-swapdb", "-script", "-publish"];
        let weak = [&["ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*"][..], &rules].concat();
        assert_eq!(admin.command(&weak), Reply::ok());
        rig
    };
    assert_none_takes_it(
        with_users,
        &[
            ("SET without the right", &[&["AUTH", "weak", "pw"], &["SET", "k", "x"]]),
            ("APPEND without the right", &[&["AUTH", "weak", "pw"], &["APPEND", "k", "x"]]),
            ("INCR without the right", &[&["AUTH", "weak", "pw"], &["INCR", "k"]]),
            ("GETSET without the right", &[&["AUTH", "weak", "pw"], &["GETSET", "k", "x"]]),
            ("SWAPDB without the right", &[&["AUTH", "weak", "pw"], &["SWAPDB", "0", "1"]]),
            (
                "transactions without the right",
                &[&["AUTH", "weak", "pw"], &["MULTI"], &["APPEND", "k", "x"], &["EXEC"]],
            ),
            ("the wrong type", &[&["LPUSH", "k", "x"]]),
            ("no number", &[&["INCR", "k"]]),
            ("too few arguments", &[&["APPEND", "k"]]),
            ("SET NX", &[&["SET", "k", "x", "NX"]]),
            ("SETNX", &[&["SETNX", "k", "x"]]),
            ("a script that fails", &[&["EVAL", "return nothing", "1", "k"]]),
            ("SWAPDB of none", &[&["SWAPDB", "0", "99999"]]),
            ("MGET", &[&["MGET", "k", "other"]]),
            ("transactions that read", &[&["MULTI"], &["STRLEN", "k"], &["EXEC"]]),
            ("watches", &[&["WATCH", "k"], &["UNWATCH"]]),
        ],
    );
}

/// ```text
/// 1. k is cached       2. C changes it by a request of which nobody knows what it changes
/// 3. C is answered; word of the change is still on its way
/// 4. C reads k: it has to wait for what it wrote
/// ```
#[test]
fn a_client_sees_what_it_did_before_word_of_it_has_come() {
    let large = "y".repeat(600_000);
    let flush = [encode(&["MULTI"]), encode(&["FLUSHALL"]), encode(&["EXEC"])].concat();
    for (write, replies, length) in [(encode(&["SET", "k", &large]), 1, 600_000), (flush, 3, 0)] {
        let rig = Arranged::new(Treatment::COHERENT);
        let (mut client, mut other) = (rig.client(), rig.client());
        eventually(SOON, || {
            let before = rig.server.calls("strlen");
            assert_eq!(other.command(&["STRLEN", "k"]), Reply::Integer(3));
            rig.server.calls("strlen") == before
        });
        rig.relay.set(Way::HoldTracked);
        client.send_raw(&write);
        for _ in 0..replies {
            assert!(!client.read_reply().is_error());
        }
        client.send(&["STRLEN", "k"]);
        // Either it waits, or it is answered by now.
        thread::sleep(Duration::from_millis(20));
        rig.relay.set(Way::Open);
        assert_eq!(client.read_reply(), Reply::Integer(length));
        eventually(SOON, || other.command(&["STRLEN", "k"]) == Reply::Integer(length));
    }
}

/// ```text
/// 1. k is cached       2. C changes it, or is told what somebody else has made of it
/// 3. word of the change is still on its way: others are served what is cached
/// 4. C reads k: it must not go back
/// ```
#[test]
fn a_client_is_not_served_what_it_knows_to_be_old() {
    let script = "return redis.call('set', KEYS[1], 'new')";
    let cases: [&[&[&str]]; 7] = [
        &[&["SET", "k", "new"]],
        &[&["GETSET", "k", "new"]],
        &[&["SET", "k", ""], &["APPEND", "k", "new"]],
        &[&["MSET", "k", "new", "other", "1"]],
        &[&["EVAL", script, "1", "k"]],
        &[&["MULTI"], &["SET", "k", "new"], &["EXEC"]],
        &[&["MGET", "k", "other"]],
    ];
    for commands in cases {
        let rig = Arranged::new(Treatment::COHERENT);
        let (mut client, mut other) = (rig.client(), rig.client());
        rig.relay.set(Way::HoldTracked);
        if commands[0][0] == "MGET" {
            assert_eq!(rig.server.client().command(&["SET", "k", "new"]), Reply::ok());
        }
        for command in commands {
            assert!(!client.command(command).is_error(), "{command:?}");
        }
        client.send(&["GET", "k"]);
        assert_eq!(other.command(&["GET", "k"]), Reply::bulk("old"), "{commands:?}");
        rig.relay.set(Way::Open);
        assert_eq!(client.read_reply(), Reply::bulk("new"), "{commands:?}");
        eventually(SOON, || other.command(&["GET", "k"]) == Reply::bulk("new"));
        // It is served here again, like everybody.
        let cached = || {
            let before = rig.server.calls("get");
            assert_eq!(client.command(&["GET", "k"]), Reply::bulk("new"));
            rig.server.calls("get") == before
        };
        eventually(SOON, cached);
    }
}

/// ```text
/// 1. C writes k, which is not hot; the request is stuck on its way
/// 2. k becomes hot, is read and cached       3. C's write is executed, and answered
/// 4. word of it is still on its way; C reads k: it has to see its write
/// ```
#[test]
fn a_client_sees_what_was_under_way_when_the_key_became_hot() {
    for write in [&["SET", "k", "late"][..], &["APPEND", "k", "late"]] {
        let rig = Arranged::new(Treatment::COHERENT);
        let heat = |treatment: Option<Treatment>| {
            let hot: HotKeys =
                treatment.map(|treatment| (b"k".to_vec(), treatment)).into_iter().collect();
            rig.heatsink.proxy().handle().set_hot_keys(hot);
        };
        heat(None);
        // The link of the cache is closed once nothing is hot.
        let mut direct = rig.server.client();
        eventually(SOON, || !direct.command(&["CLIENT", "LIST"]).text().contains("flags=t"));
        let (mut client, mut other) = (rig.client(), rig.client());
        rig.relay.set(Way::HoldRequest(b"late".to_vec()));
        client.send(write);
        rig.relay.wait_request_held();
        heat(Some(Treatment::COHERENT));
        // Until the cache has its connection, reads go behind the request that is held. Each is
        // another one, so that none joins one that is stuck.
        let mut last = 0;
        eventually(SOON, || {
            last += 1;
            let mut reader = rig.client();
            reader.set_timeout(A_MOMENT);
            reader.try_command(&["GETRANGE", "k", "0", &last.to_string()]).is_ok()
        });
        rig.warm();
        assert_eq!(other.command(&["GET", "k"]), Reply::bulk("old"));
        rig.relay.set(Way::HoldTracked);
        let written = client.read_reply();
        assert!(!written.is_error(), "{written}, after {last} reads");
        client.send(&["GET", "k"]);
        // Either it waits, or it is answered by now.
        thread::sleep(Duration::from_millis(20));
        rig.relay.set(Way::Open);
        let now = direct.command(&["GET", "k"]);
        assert_ne!(now, Reply::bulk("old"));
        assert_eq!(client.read_reply(), now, "{write:?}");
    }
}
