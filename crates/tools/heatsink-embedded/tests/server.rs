//! The store on its thread, over real sockets.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use heatsink_embedded::Server;
use heatsink_testkit::encode;

/// Longest wait for bytes that must come.
const PATIENCE: Duration = Duration::from_secs(20);

fn connect(server: &Server) -> UnixStream {
    let stream = server.dialer().dial().expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

fn send(stream: &mut UnixStream, args: &[&[u8]]) {
    stream.write_all(&encode(args)).expect("sent");
}

fn expect(stream: &mut UnixStream, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).expect("a reply");
    assert_eq!(got.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

#[test]
fn many_connections_count_together() {
    let server = Server::start().expect("a store");
    let mut streams: Vec<UnixStream> = (0..200).map(|_| connect(&server)).collect();
    for round in 0..5 {
        for stream in &mut streams {
            send(stream, &[b"INCR", b"n"]);
        }
        // Each has an answer of its own; together they are all the numbers.
        let mut numbers: Vec<usize> = Vec::new();
        for stream in &mut streams {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a reply");
                line.extend(byte);
            }
            let text = String::from_utf8(line).expect("text");
            numbers.push(text.trim_start_matches(':').trim_end().parse().expect("a number"));
        }
        numbers.sort_unstable();
        let first = round * streams.len() + 1;
        assert_eq!(numbers, (first..first + streams.len()).collect::<Vec<_>>());
    }
}

#[test]
fn a_large_value_comes_back_whole_to_a_slow_reader() {
    let server = Server::start().expect("a store");
    let mut slow = connect(&server);
    let value: Vec<u8> = (0..32_u32 << 20).map(|at| (at % 251) as u8).collect();
    send(&mut slow, &[b"SET", b"k", &value]);
    expect(&mut slow, b"+OK\r\n");
    for _ in 0..3 {
        send(&mut slow, &[b"GET", b"k"]);
    }
    // Nobody reads the replies yet: others are served all the same.
    let mut other = connect(&server);
    send(&mut other, &[b"PING"]);
    expect(&mut other, b"+PONG\r\n");
    let reply = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    for _ in 0..3 {
        let mut got = vec![0; reply.len()];
        slow.read_exact(&mut got).expect("a reply");
        assert!(got == reply, "the value came back changed");
    }
}

#[test]
fn a_connection_that_is_killed_closes_without_its_unread_output() {
    let server = Server::start().expect("a store");
    let (mut slow, mut other) = (connect(&server), connect(&server));
    send(&mut slow, &[b"SETRANGE", b"k", b"33554431", b"x"]);
    expect(&mut slow, b":33554432\r\n");
    send(&mut slow, &[b"GET", b"k"]);
    // Killed once, whenever that is; the second attempt finds nobody.
    heatsink_testkit::eventually(PATIENCE, || {
        send(&mut other, &[b"CLIENT", b"KILL", b"ID", b"1"]);
        let mut reply = [0; 4];
        other.read_exact(&mut reply).expect("a reply");
        &reply == b":0\r\n"
    });
    let mut unread = Vec::new();
    slow.read_to_end(&mut unread).expect("the end");
    assert!(unread.len() < 33_554_432, "{} bytes", unread.len());
}

#[test]
fn replies_reach_a_client_that_has_stopped_sending() {
    let server = Server::start().expect("a store");
    let mut stream = connect(&server);
    stream.write_all(b"PING a\r\nPING b\r\n").expect("sent");
    stream.shutdown(std::net::Shutdown::Write).expect("half closed");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the end");
    assert_eq!(all, b"$1\r\na\r\n$1\r\nb\r\n");
}

#[test]
fn a_deep_pipeline_is_answered_in_order() {
    let server = Server::start().expect("a store");
    let mut stream = connect(&server);
    let mut writer = stream.try_clone().expect("a second handle");
    let count = 50_000;
    let sender = std::thread::spawn(move || {
        for at in 0..count {
            send(&mut writer, &[b"ECHO", format!("{at}").as_bytes()]);
        }
    });
    for at in 0..count {
        let text = format!("{at}");
        expect(&mut stream, format!("${}\r\n{text}\r\n", text.len()).as_bytes());
    }
    sender.join().expect("all sent");
}

#[test]
fn a_reply_is_written_before_the_close_that_follows() {
    let server = Server::start().expect("a store");
    let mut stream = connect(&server);
    stream.write_all(b"PING\r\nQUIT\r\nPING\r\n").expect("sent");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the end");
    assert_eq!(all, b"+PONG\r\n+OK\r\n");
}

#[test]
fn a_client_that_closes_is_forgotten_even_with_requests_unread() {
    let server = Server::start().expect("a store");
    let mut stream = connect(&server);
    send(&mut stream, &[b"SUBSCRIBE", b"c"]);
    expect(&mut stream, b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    stream.write_all(b"PING\r\nPING").expect("sent");
    drop(stream);
    let mut other = connect(&server);
    heatsink_testkit::eventually(PATIENCE, || {
        send(&mut other, &[b"PUBSUB", b"NUMSUB", b"c"]);
        let mut reply = [0; 15];
        other.read_exact(&mut reply).expect("a reply");
        reply.ends_with(b":0\r\n")
    });
}

#[test]
fn keys_end_by_themselves() {
    let server = Server::start().expect("a store");
    let (mut reader, mut writer) = (connect(&server), connect(&server));
    send(&mut reader, &[b"HELLO", b"3"]);
    let mut greeting = [0; 4096];
    assert!(reader.read(&mut greeting).expect("a greeting") > 0);
    send(&mut reader, &[b"CLIENT", b"TRACKING", b"ON"]);
    expect(&mut reader, b"+OK\r\n");
    send(&mut writer, &[b"SET", b"k", b"v", b"PX", b"30"]);
    expect(&mut writer, b"+OK\r\n");
    send(&mut reader, &[b"STRLEN", b"k"]);
    expect(&mut reader, b":1\r\n");
    // Nobody asks for the key: the tick notices.
    expect(&mut reader, b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n");
}

#[test]
fn a_stopped_store_closes_its_connections_and_refuses_new_ones() {
    let server = Server::start().expect("a store");
    let mut stream = connect(&server);
    let dialer = server.dialer();
    send(&mut stream, &[b"PING"]);
    expect(&mut stream, b"+PONG\r\n");
    drop(server);
    assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
    let error = dialer.dial().expect_err("no store");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}
