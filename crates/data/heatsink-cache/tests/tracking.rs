//! What the rules of coherence take for granted of a server, asked of a real one.

use heatsink_testkit::{RawClient, RedisServer, Reply};

/// A client with opt-in tracking, as a tracked link is.
fn tracked(server: &RedisServer) -> RawClient {
    let mut client = server.client();
    client.command(&["HELLO", "3"]);
    assert_eq!(client.command(&["CLIENT", "TRACKING", "ON", "OPTIN"]), Reply::ok());
    client
}

/// Sends a fill: opting in, the read, the time to live.
fn send_fill(client: &mut RawClient, read: &[&str]) {
    client.send(&["CLIENT", "CACHING", "YES"]);
    client.send(read);
    client.send(&["PTTL", read[1]]);
}

/// The frames of a fill without pushes in between.
fn fill(client: &mut RawClient, read: &[&str]) -> (String, String) {
    send_fill(client, read);
    assert_eq!(text(client), "+OK\r\n");
    (text(client), text(client))
}

fn text(client: &mut RawClient) -> String {
    String::from_utf8(client.read_frame()).expect("plain text")
}

const PUSH: &str = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
const FLUSH: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";

#[test]
fn a_push_stands_before_the_reply_of_a_read_that_was_executed_after_the_write() {
    let server = RedisServer::start();
    let (mut link, mut writer) = (tracked(&server), server.client());
    for write in [
        ["SET", "k", "2"].as_slice(),
        &["APPEND", "k", "x"],
        &["EVAL", "redis.call('SET', KEYS[1], 'x')", "1", "k"],
        &["RENAME", "k", "l"],
        &["COPY", "l", "k"],
        &["SORT", "list", "STORE", "k"],
        &["PEXPIRE", "k", "100000"],
        &["DEL", "k"],
    ] {
        writer.command(&["RPUSH", "list", "1"]);
        fill(&mut link, &["TYPE", "k"]);
        let reply = writer.command(write);
        assert!(!matches!(reply, Reply::Error(_)), "{write:?}: {reply:?}");
        link.send(&["TYPE", "k"]);
        assert_eq!(text(&mut link), PUSH, "{write:?}");
        assert!(text(&mut link).starts_with('+'), "{write:?}");
    }
}

#[test]
fn a_miss_is_tracked_and_tracking_is_for_one_push() {
    let server = RedisServer::start();
    let (mut link, mut writer) = (tracked(&server), server.client());
    assert_eq!(fill(&mut link, &["GET", "k"]), ("_\r\n".into(), ":-2\r\n".into()));
    writer.command(&["SET", "k", "1"]);
    writer.command(&["SET", "k", "2"]);
    link.send(&["GET", "k"]); // not opted in, so not tracked
    assert_eq!(text(&mut link), PUSH);
    assert_eq!(text(&mut link), "$1\r\n2\r\n");
    writer.command(&["SET", "k", "3"]);
    link.send(&["GET", "k"]);
    assert_eq!(text(&mut link), "$1\r\n3\r\n");
}

#[test]
fn a_transaction_and_a_flush_push_too() {
    let server = RedisServer::start();
    let (mut link, mut writer) = (tracked(&server), server.client());
    writer.command(&["SET", "k", "1"]);
    assert_eq!(fill(&mut link, &["GET", "k"]), ("$1\r\n1\r\n".into(), ":-1\r\n".into()));
    for part in [["MULTI"].as_slice(), &["SET", "k", "2"], &["EXEC"]] {
        writer.command(part);
    }
    link.send(&["PING"]);
    assert_eq!((text(&mut link), text(&mut link)), (PUSH.into(), "+PONG\r\n".into()));
    for flush in ["FLUSHDB", "FLUSHALL"] {
        fill(&mut link, &["GET", "k"]);
        writer.command(&[flush]);
        link.send(&["PING"]);
        assert_eq!((text(&mut link), text(&mut link)), (FLUSH.into(), "+PONG\r\n".into()));
    }
}

#[test]
fn a_key_that_expires_is_pushed() {
    let server = RedisServer::start();
    let (mut link, mut writer) = (tracked(&server), server.client());
    writer.command(&["SET", "k", "1", "PX", "30"]);
    let (value, ttl) = fill(&mut link, &["GET", "k"]);
    assert_eq!(value, "$1\r\n1\r\n");
    assert!(ttl.starts_with(':') && !ttl.starts_with(":-"), "{ttl}");
    assert_eq!(text(&mut link), PUSH);
}
