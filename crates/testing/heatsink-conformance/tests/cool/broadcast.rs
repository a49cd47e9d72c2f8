//! A server that does not tell of changes: Heatsinks tell each other.

use std::time::{Duration, Instant};

use heatsink_conformance::Heatsink;
use heatsink_proxy::hot_keys::{Guard, Treatment};
use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, encode, eventually};

use crate::served::SOON;

/// A line of the server's settings: it does not know `CLIENT TRACKING`, nor anything like it.
const NO_CLIENT: &str = "rename-command CLIENT HIDDEN";

fn old_server() -> RedisServer {
    RedisServer::builder().line(NO_CLIENT).start()
}

/// Two Heatsinks before a server.
fn rig(server: &RedisServer) -> [Heatsink; 2] {
    [1, 2].map(|workers| {
        let heatsink = Heatsink::before_url(&server.url(), |config| config.workers = workers);
        heatsink.heat(&["k", "n"], Treatment::COHERENT);
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
    let may_not = ["ACL", "SETUSER", "default", "-client|tracking"];
    let server = RedisServer::start();
    assert_eq!(server.client().command(&may_not), Reply::ok());
    for server in [server, old_server()] {
        nobody_is_refused(&server);
    }
}

fn nobody_is_refused(server: &RedisServer) {
    let mut admin = server.client();
    for (user, rights) in [("reader", "+@read"), ("blind", "+@write")] {
        let rule = ["ACL", "SETUSER", user, "on", ">pw", "~*", "&*", rights, "+hello"];
        assert_eq!(admin.command(&rule), Reply::ok());
    }
    admin.command(&["SET", "k", "0"]);
    let [heatsink, _] = rig(server);
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
    let server = old_server();
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
    let mut server = old_server();
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
    server.admin_client().command(&["HIDDEN", "KILL", "TYPE", "pubsub"]);
    eventually(SOON, || {
        client.command(&["GET", "k"]);
        server.calls("get") > before
    });
    warm(&server, &mut client, "k");
}

#[test]
fn so_it_is_before_a_cluster() {
    let cluster = RedisCluster::builder().line(NO_CLIENT).start();
    let heatsinks = [1, 1].map(|workers| {
        let heatsink = Heatsink::before_url(&cluster.seed_url(), |config| config.workers = workers);
        heatsink.heat(&["k", "n"], Treatment::COHERENT);
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

/// ```text
/// 1. A's user may not have changes told; B's may
/// 2. A reads; if it kept the reply it would depend on what others announce
/// 3. B writes: the server tells whoever it may tell, and B announces nothing
/// 4. A reads again
/// ```
#[test]
fn what_a_user_with_more_rights_writes_is_seen_by_one_with_less() {
    for right in ["client|tracking", "client|caching"] {
        let server = RedisServer::start();
        let mut admin = server.client();
        let app = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"];
        assert_eq!(admin.command(&app), Reply::ok());
        let less = ["ACL", "SETUSER", "default", &format!("-{right}")];
        assert_eq!(admin.command(&less), Reply::ok());
        let [one, two] = rig(&server);
        let (mut less, mut more) = (one.client(), two.client());
        assert_eq!(more.command(&["AUTH", "app", "pw"]), Reply::ok());
        // The second has changes told, and both have found out what they may.
        warm(&server, &mut more, "k");
        eventually(SOON, || two.proxy().handle().guard() == Guard::Tracking);
        std::thread::sleep(Duration::from_millis(1200));
        for value in 0..20 {
            let value = value.to_string();
            less.command(&["GET", "k"]);
            assert_eq!(more.command(&["SET", "k", &value]), Reply::ok());
            assert_eq!(less.command(&["GET", "k"]), Reply::bulk(&value), "{right}");
            // What goes past Heatsink, too.
            admin.command(&["APPEND", "k", "x"]);
            assert_eq!(less.command(&["GET", "k"]), Reply::bulk(format!("{value}x")), "{right}");
        }
        assert_eq!(one.proxy().handle().guard(), Guard::Nothing, "{right}");
    }
}

/// ```text
/// 1. the reply is kept, and the server tells of changes
/// 2. the user may not say CLIENT CACHING YES any more: what is read from now on is not tracked
/// 3. the reply is read again; somebody writes past Heatsink: nobody is told
/// ```
#[test]
fn a_read_that_the_server_does_not_track_is_not_kept() {
    let server = RedisServer::start();
    let [heatsink, _other] = rig(&server);
    let (mut admin, mut client) = (server.client(), heatsink.client());
    assert_eq!(admin.command(&["SET", "k", "0"]), Reply::ok());
    warm(&server, &mut client, "k");
    eventually(SOON, || heatsink.proxy().handle().guard() == Guard::Tracking);
    assert_eq!(admin.command(&["ACL", "SETUSER", "default", "-client|caching"]), Reply::ok());
    for value in 1..20 {
        // The first is told of, what is read after it is not.
        let value = value.to_string();
        assert_eq!(admin.command(&["SET", "k", &value]), Reply::ok());
        let bound = Instant::now() + Duration::from_millis(500);
        while client.command(&["GET", "k"]) != Reply::bulk(&value) {
            assert!(Instant::now() < bound, "the write of {value} is not seen");
        }
    }
    eventually(SOON, || heatsink.proxy().handle().guard() == Guard::Nothing);
}
