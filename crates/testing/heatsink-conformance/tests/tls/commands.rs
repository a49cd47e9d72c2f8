//! What is asked of any path on which TLS lies: every kind of command, small and large.
//!
//! Called by: the tests of each side, with a reference to compare with.

use std::time::Duration;

use heatsink_testkit::{RawClient, RedisServer, Reply, encode, eventually};

use crate::support::noise;

const SOON: Duration = Duration::from_secs(10);

/// Replies that depend on nothing but the commands before.
const COMMANDS: [&[&str]; 40] = [
    &["FLUSHALL"],
    &["SET", "s", "v", "EX", "1000"],
    &["GET", "s"],
    &["GET", "none"],
    &["APPEND", "s", "\r\n$5\r\n"],
    &["GETRANGE", "s", "0", "-1"],
    &["INCR", "s"],
    &["INCRBYFLOAT", "f", "1.5"],
    &["MSET", "a", "1", "b", "2"],
    &["MGET", "a", "b", "c"],
    &["HSET", "h", "f", "v"],
    &["HGETALL", "h"],
    &["RPUSH", "l", "x", "y", "z"],
    &["LRANGE", "l", "0", "-1"],
    &["SADD", "set", "m"],
    &["SMEMBERS", "set"],
    &["ZADD", "z", "1.5", "m"],
    &["ZRANGE", "z", "0", "-1", "WITHSCORES"],
    &["XADD", "x", "1-1", "f", "v"],
    &["XRANGE", "x", "-", "+"],
    &["EVAL", "return {1, 'two', {3}, false}", "0"],
    &["OBJECT", "ENCODING", "a"],
    &["MULTI"],
    &["INCR", "a"],
    &["GET", "a"],
    &["NOSUCH"],
    &["EXEC"],
    &["MULTI"],
    &["INCR", "a"],
    &["EXEC"],
    &["WATCH", "a"],
    &["MULTI"],
    &["DISCARD"],
    &["BLPOP", "l", "1"],
    &["SELECT", "1"],
    &["DBSIZE"],
    &["SELECT", "0"],
    &["DBSIZE"],
    &["NOSUCH", "command"],
    &["CLIENT", "GETNAME"],
];

/// `connect` gives clients of the path under test.
pub(crate) fn all_work(connect: &dyn Fn() -> RawClient) {
    let reference = RedisServer::start();
    for protocol in ["2", "3"] {
        let (mut client, mut plain) = (connect(), reference.client());
        for one in [&mut client, &mut plain] {
            assert!(!one.command(&["HELLO", protocol]).is_error());
        }
        for command in COMMANDS {
            let bytes = encode(command);
            client.send_raw(&bytes);
            plain.send_raw(&bytes);
            let [frame, expected] =
                [&mut client, &mut plain].map(|one| one.read_frame().escape_ascii().to_string());
            assert_eq!(frame, expected, "{command:?}, protocol {protocol}");
        }
        assert_eq!(client.command(&["RESET"]).text(), "RESET");
        assert_eq!(client.command(&["GET", "none"]), Reply::Null);
    }
    let mut client = connect();
    large_values(&mut client);
    deep_pipelines(&mut client);
    messages(connect);
    blocking(connect);
}

fn large_values(client: &mut RawClient) {
    let value = noise(20 << 20);
    client.set_timeout(Duration::from_secs(30));
    client.send(&[&b"SET"[..], b"big", &value]);
    client.send(&["STRLEN", "big"]);
    client.send(&["GET", "big"]);
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply().integer(), 20 << 20);
    assert!(client.read_reply() == Reply::bulk(&value), "another value");
    assert_eq!(client.command(&["DEL", "big"]).integer(), 1);
}

fn deep_pipelines(client: &mut RawClient) {
    client.command(&["DEL", "n"]);
    client.send_raw(&encode(&["INCR", "n"]).repeat(10_000));
    for n in 1..=10_000 {
        assert_eq!(client.read_reply().integer(), n);
    }
}

fn messages(connect: &dyn Fn() -> RawClient) {
    let (mut sender, mut old, mut modern) = (connect(), connect(), connect());
    modern.command(&["HELLO", "3"]);
    for subscriber in [&mut old, &mut modern] {
        subscriber.command(&["SUBSCRIBE", "news"]);
    }
    let text = "x".repeat(40_000);
    for _ in 0..50 {
        sender.send(&["PUBLISH", "news", &text]);
    }
    for _ in 0..50 {
        assert_eq!(sender.read_reply().integer(), 2);
        for subscriber in [&mut old, &mut modern] {
            assert_eq!(subscriber.read_reply().items()[2].text().len(), 40_000);
        }
    }
    assert_eq!(modern.command(&["GET", "none"]), Reply::Null);
    assert_eq!(old.command(&["RESET"]).text(), "RESET");
    assert_eq!(old.command(&["GET", "none"]), Reply::Null);
}

fn blocking(connect: &dyn Fn() -> RawClient) {
    let (mut waiter, mut other) = (connect(), connect());
    waiter.send(&["BLPOP", "queue", "0"]);
    eventually(SOON, || {
        other.command(&["INFO", "clients"]).text().contains("blocked_clients:1\r\n")
    });
    assert_eq!(other.command(&["RPUSH", "queue", "x"]).integer(), 1);
    assert_eq!(waiter.read_reply(), Reply::bulks(["queue", "x"]));
}
