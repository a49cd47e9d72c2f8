//! A server that does not tell of changes: Heatsinks tell each other.

use std::time::{Duration, Instant};

use heatsink_conformance::Heatsink;
use heatsink_proxy::hot_keys::{Guard, HotKeys, Treatment};
use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, encode, eventually};

use crate::served::SOON;

fn heat(heatsink: &Heatsink, keys: &[&str]) {
    let treatment = Treatment::COHERENT;
    let hot: HotKeys = keys.iter().map(|key| (key.as_bytes().to_vec(), treatment)).collect();
    heatsink.proxy().handle().set_hot_keys(hot);
}

/// Two Heatsinks before a server at which nobody may have changes told.
fn rig(server: &RedisServer) -> [Heatsink; 2] {
    let forbid = ["ACL", "SETUSER", "default", "-client|tracking"];
    assert_eq!(server.client().command(&forbid), Reply::ok());
    [1, 2].map(|workers| {
        let heatsink = Heatsink::before_url(&server.url(), |config| config.workers = workers);
        heat(&heatsink, &["k", "n"]);
        heatsink
    })
}

/// Reads until a read is answered without the server.
fn warm(server: &RedisServer, client: &mut RawClient, key: &str) {
    eventually(SOON, || {
        let before = server.calls("get");
        let reply = client.command(&["GET", key]);
        assert!(!reply.is_error(), "{reply}");
        server.calls("get") == before
    });
}

/// The first reads wait for a link on which changes are told of, and there is none to be had.
///
/// ```text
/// 1. GET waits for that link     2. the server refuses CLIENT TRACKING     3. GET goes as usual
/// ```
#[test]
fn nobody_is_refused_because_the_server_does_not_tell_of_changes() {
    let server = RedisServer::start();
    let mut admin = server.client();
    for (user, rights) in [("reader", "+@read"), ("blind", "+@write")] {
        let rule = ["ACL", "SETUSER", user, "on", ">pw", "~*", "&*", rights, "+hello"];
        assert_eq!(admin.command(&rule), Reply::ok());
    }
    admin.command(&["SET", "k", "0"]);
    let [heatsink, _] = rig(&server);
    for user in ["default", "reader", "blind"] {
        let mut clients = [(); 4].map(|()| {
            let mut client = heatsink.client();
            if user != "default" {
                assert_eq!(client.command(&["AUTH", user, "pw"]), Reply::ok());
            }
            client
        });
        for client in &mut clients {
            client.send_raw(&encode(&["GET", "k"]).repeat(8));
        }
        for client in &mut clients {
            for _ in 0..8 {
                let reply = client.read_reply();
                if user == "blind" {
                    assert!(reply.error().starts_with("NOPERM"), "{reply}");
                } else {
                    assert_eq!(reply, Reply::bulk("0"), "{user}");
                }
            }
        }
    }
}

#[test]
fn what_one_heatsink_writes_the_others_forget() {
    let server = RedisServer::start();
    let heatsinks = rig(&server);
    let [mut one, mut other] = heatsinks.each_ref().map(Heatsink::client);
    one.command(&["SET", "k", "0"]);
    warm(&server, &mut other, "k");
    eventually(SOON, || heatsinks[1].proxy().handle().guard() == Guard::Broadcast);
    let changes: [&[&str]; 7] = [
        &["SET", "k", "1"],
        &["APPEND", "k", "x"],
        &["DEL", "k"],
        &["INCR", "k"],
        &["MSET", "k", "2", "x", "y"],
        &["EVAL", "return redis.call('set', KEYS[1], 'scripted')", "1", "k"],
        &["FLUSHALL"],
    ];
    let mut slowest = Duration::ZERO;
    for change in changes {
        warm(&server, &mut other, "k");
        one.command(change);
        let wanted = one.command(&["GET", "k"]);
        assert_eq!(server.client().command(&["GET", "k"]), wanted, "own write {change:?}");
        let since = Instant::now();
        eventually(SOON, || other.command(&["GET", "k"]) == wanted);
        slowest = slowest.max(since.elapsed());
        one.command(&["SET", "k", "again"]);
    }
    println!("the others knew after {slowest:?}");
}

#[test]
fn nothing_is_served_without_the_word_of_others() {
    let mut server = RedisServer::start();
    let heatsinks = rig(&server);
    let mut client = heatsinks[0].client();
    client.command(&["SET", "k", "1"]);
    warm(&server, &mut client, "k");
    server.pause();
    std::thread::sleep(Duration::from_millis(1100));
    client.send(&["GET", "k"]);
    assert_eq!(client.try_read_frame(Duration::from_millis(300)).ok().flatten(), None);
    server.resume();
    client.read_reply();
    // Its listeners cut off, a Heatsink asks again.
    eventually(SOON, || client.command(&["GET", "k"]) == Reply::bulk("1"));
    warm(&server, &mut client, "k");
    let before = server.calls("get");
    server.admin_client().command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually(SOON, || {
        client.command(&["GET", "k"]);
        server.calls("get") > before
    });
    warm(&server, &mut client, "k");
}

#[test]
fn so_it_is_before_a_cluster() {
    let cluster = RedisCluster::start();
    for node in cluster.nodes() {
        let forbid = ["ACL", "SETUSER", "default", "-client|tracking"];
        assert_eq!(node.client().command(&forbid), Reply::ok());
    }
    let heatsinks = [1, 1].map(|workers| {
        let heatsink = Heatsink::before_url(&cluster.seed_url(), |config| config.workers = workers);
        heat(&heatsink, &["k", "n"]);
        heatsink
    });
    let [mut one, mut other] = heatsinks.each_ref().map(Heatsink::client);
    let gets = || cluster.primaries().iter().map(|node| cluster.calls(*node, "get")).sum::<u64>();
    for key in ["k", "n"] {
        for value in ["1", "2", "3"] {
            assert_eq!(one.command(&["SET", key, value]), Reply::ok());
            eventually(SOON, || {
                let before = gets();
                other.command(&["GET", key]) == Reply::bulk(value) && gets() == before
            });
        }
    }
}
