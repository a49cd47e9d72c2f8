//! Clients that shut their side of the connection, or leave, with requests under way: what they
//! sent is carried out, and answered to whoever still reads, as by a plain server.

use std::net::SocketAddr;
use std::time::Duration;

use heatsink_conformance::{ClusterRig, Rig};
use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, encode, eventually};

const SOON: Duration = Duration::from_secs(10);
const ROUNDS: usize = 20;

fn bytes(pipeline: &[&[&str]]) -> Vec<u8> {
    pipeline.iter().flat_map(|command| encode(command)).collect()
}

/// Everything that a client is told that sends this and then shuts its side.
#[track_caller]
fn told_half_closed(addr: SocketAddr, pipeline: &[&[&str]]) -> String {
    let mut client = RawClient::connect(addr);
    client.send_raw(&bytes(pipeline));
    client.shutdown_write();
    String::from_utf8(client.read_to_close()).unwrap()
}

/// Pipelines with every kind of command that has a way, or an end, of its own.
const PIPELINES: &[&[&[&str]]] = &[
    // The element is there.
    &[&["RPUSH", "{a}l", "x"], &["SET", "{a}s", "1"], &["BLPOP", "{a}l", "0"], &["INCR", "{a}n"]],
    // It is not: the client leaves the queue, and what follows is not carried out.
    &[&["SET", "{a}s", "2"], &["BLPOP", "{a}none", "0"], &["INCR", "{a}n"]],
    &[&["SET", "{a}s", "3"], &["BLPOP", "{a}none", "0"], &["CLIENT", "GETNAME"]],
    // What follows waits for the answer.
    &[&["RPUSH", "{a}l", "x"], &["BLPOP", "{a}l", "0"], &["CLIENT", "GETNAME"], &["INCR", "{a}n"]],
    &[&["RPUSH", "{a}l", "x"], &["BLPOP", "{a}l", "0"], &["SELECT", "0"], &["INCR", "{a}n"]],
    &[&["SET", "{a}s", "4"], &["WAIT", "0", "0"], &["INCR", "{a}n"]],
    &[
        &["DEL", "{a}y"],
        &["XADD", "{a}y", "1-1", "f", "v"],
        &["XREAD", "BLOCK", "0", "STREAMS", "{a}y", "0"],
        &["INCR", "{a}n"],
    ],
    &[
        &["WATCH", "{a}n"],
        &["MULTI"],
        &["INCR", "{a}n"],
        &["BLPOP", "{a}none", "0"],
        &["EXEC"],
        &["INCR", "{a}n"],
    ],
    // What follows needs what the connection remembers.
    &[
        &["RPUSH", "{a}l", "x"],
        &["BLPOP", "{a}l", "0"],
        &["WATCH", "{a}w"],
        &["CLIENT", "GETNAME"],
        &["MULTI"],
        &["INCR", "{a}n"],
        &["EXEC"],
    ],
    &[
        &["WATCH", "{a}w"],
        &["WAIT", "0", "0"],
        &["CLIENT", "GETNAME"],
        &["MULTI"],
        &["INCR", "{a}n"],
        &["EXEC"],
    ],
    &[&["SET", "{a}s", "5"], &["SUBSCRIBE", "news", "more"], &["PING"]],
    &[&["INCR", "{a}n"], &["NOSUCH"], &["INCR", "{a}n"]],
    &[&["INCR", "{a}n"], &["SELECT", "0"], &["INCR", "{a}n"], &["QUIT"], &["INCR", "{a}n"]],
];

/// Those that are refused before a cluster, or leave out replies.
const OTHERS: &[&[&[&str]]] = &[
    &[&["INCR", "n"], &["CLIENT", "REPLY", "SKIP"], &["INCR", "n"], &["INCR", "n"]],
    &[&["INCR", "n"], &["CLIENT", "REPLY", "OFF"], &["INCR", "n"], &["INCR", "n"]],
    &[&["INCR", "n"], &["CLIENT", "NO-EVICT", "ON"], &["INCR", "n"], &["BLPOP", "none", "0"]],
    &[
        &["CLIENT", "NO-EVICT", "ON"],
        &["RPUSH", "l", "x"],
        &["BLPOP", "l", "0"],
        &["CLIENT", "GETNAME"],
        &["INCR", "n"],
    ],
    &[
        &["CLIENT", "TRACKING", "ON"],
        &["RPUSH", "l", "x"],
        &["BLPOP", "l", "0"],
        &["CLIENT", "GETNAME"],
        &["INCR", "n"],
    ],
];

#[test]
fn a_half_closed_client_is_told_what_a_server_tells_it() {
    let (rig, plain) = (Rig::new(1), RedisServer::start());
    for _ in 0..ROUNDS {
        for pipeline in PIPELINES.iter().chain(OTHERS) {
            let expected = told_half_closed(plain.addr(), pipeline);
            assert_eq!(told_half_closed(rig.addr(), pipeline), expected, "{pipeline:?}");
        }
    }
    eventually(SOON, || rig.heatsink().proxy().client_count() == 0);
}

#[test]
fn before_a_cluster_too() {
    let cluster = RedisCluster::builder().primaries(3).replicas_per_primary(0);
    let (rig, plain) =
        (ClusterRig::with(cluster, |config| config.workers = 1), RedisServer::start());
    for _ in 0..ROUNDS {
        for pipeline in PIPELINES {
            let expected = told_half_closed(plain.addr(), pipeline);
            assert_eq!(told_half_closed(rig.heatsink.addr(), pipeline), expected, "{pipeline:?}");
        }
    }
    // A `WAIT` that waits is over when its client shuts its side, as on a server.
    let waiting: &[&[&str]] = &[&["SET", "{a}s", "1"], &["WAIT", "9", "0"], &["INCR", "{a}n"]];
    let told = told_half_closed(rig.heatsink.addr(), waiting);
    assert!(told.starts_with("+OK\r\n-ERR heatsink: upstream"), "{told}");
    eventually(SOON, || rig.heatsink.proxy().client_count() == 0);
}

/// The server is told that the client has left, whatever the connection remembers.
#[test]
fn who_leaves_while_it_blocks_does_not_take_an_element_later() {
    let rig = Rig::new(1);
    for pipeline in [
        &[&["WATCH", "w"][..], &["BLPOP", "none", "0"], &["CLIENT", "GETNAME"], &["INCR", "n"]][..],
        &[&["BLPOP", "none", "0"], &["MULTI"], &["CLIENT", "REPLY", "ON"], &["INCR", "n"]],
    ] {
        let mut client = rig.client();
        client.send_raw(&bytes(pipeline));
        let blocked = |rig: &Rig| {
            let info = rig.server().client().command(&["INFO", "clients"]).text();
            info.contains("blocked_clients:1")
        };
        eventually(SOON, || blocked(&rig));
        drop(client);
        eventually(SOON, || !blocked(&rig));
        assert_eq!(rig.client().command(&["RPUSH", "none", "x"]), Reply::Integer(1));
        assert_eq!(rig.client().command(&["LPOP", "none"]), Reply::bulk("x"));
        assert_eq!(rig.client().command(&["EXISTS", "n"]), Reply::Integer(0));
    }
}

#[test]
fn a_subscriber_on_resp3_leaves_behind_a_command_that_blocks() {
    let (rig, plain) = (Rig::new(1), RedisServer::start());
    let pipeline: &[&[&str]] = &[
        &["RPUSH", "l", "x"],
        &["SUBSCRIBE", "news"],
        &["BLPOP", "l", "0"],
        &["CLIENT", "GETNAME"],
        &["INCR", "n"],
    ];
    for _ in 0..ROUNDS {
        let [through, direct] = [rig.addr(), plain.addr()].map(|addr| {
            let mut client = RawClient::connect(addr);
            assert!(!client.command(&["HELLO", "3"]).is_error());
            client.send_raw(&bytes(pipeline));
            client.shutdown_write();
            String::from_utf8(client.read_to_close()).unwrap()
        });
        assert_eq!(through, direct);
    }
}

#[test]
fn the_end_of_a_large_request_that_never_comes_takes_no_answer_along() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    let mut sent = bytes(&[&["SET", "a", "1"], &["INCR", "a"]]);
    sent.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$900000\r\n");
    sent.resize(sent.len() + 400_000, b'x');
    client.send_raw(&sent);
    client.shutdown_write();
    assert_eq!(client.read_to_close(), b"+OK\r\n:2\r\n");
    assert_eq!(rig.client().command(&["EXISTS", "big"]).integer(), 0);
}

/// 45 increments, behind everything that has to be answered before the next can be sent.
fn increments(counter: &str) -> Vec<u8> {
    let (mut sent, key) = (Vec::new(), format!("{{c}}{counter}"));
    for _ in 0..5 {
        for before in [&["SELECT", "0"][..], &["WATCH", "{c}w"], &["MULTI"]] {
            sent.extend(encode(before));
            sent.extend((0..3).flat_map(|_| encode(&["INCR", &key])));
        }
        sent.extend(encode(&["EXEC"]));
    }
    sent
}

#[track_caller]
fn expect_all_carried_out(addr: SocketAddr) {
    let mut other = RawClient::connect(addr);
    for round in 0..ROUNDS {
        let counter = format!("n{round}");
        let mut client = RawClient::connect(addr);
        client.send_raw(&increments(&counter));
        drop(client);
        let key = format!("{{c}}{counter}");
        eventually(SOON, || other.command(&["GET", &key]) == Reply::bulk("45"));
    }
}

#[test]
fn what_was_sent_before_a_client_left_is_carried_out() {
    let rig = Rig::new(1);
    expect_all_carried_out(rig.server().addr());
    rig.client().command(&["FLUSHALL"]);
    expect_all_carried_out(rig.addr());
    eventually(SOON, || rig.heatsink().proxy().client_count() == 0);
}

#[test]
fn and_before_a_cluster() {
    let cluster = RedisCluster::builder().primaries(3).replicas_per_primary(0);
    let rig = ClusterRig::with(cluster, |config| config.workers = 1);
    expect_all_carried_out(rig.heatsink.addr());
    eventually(SOON, || rig.heatsink.proxy().client_count() == 0);
}
