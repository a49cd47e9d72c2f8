//! The raw client against a real `redis-server`: every type of RESP2 and RESP3.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use heatsink_testkit::{RawClient, RedisServer, Reply, encode};

/// What `DEBUG PROTOCOL kind` sends, as bytes and as a tree.
fn protocol(client: &mut RawClient, kind: &str) -> (Vec<u8>, Reply) {
    client.send(&["DEBUG", "PROTOCOL", kind]);
    let frame = client.read_frame();
    (frame, client.command(&["DEBUG", "PROTOCOL", kind]))
}

#[test]
fn every_type_of_resp3() {
    let server = RedisServer::start();
    let mut client = server.client();
    let hello = client.command(&["HELLO", "3"]);
    assert_eq!(hello.get("proto"), Some(Reply::Integer(3)));
    let integers = |range: std::ops::Range<i64>| range.map(Reply::Integer).collect::<Vec<_>>();
    let flags = |count: i64| {
        (0..count).map(|i| (Reply::Integer(i), Reply::Bool(i == 1))).collect::<Vec<_>>()
    };
    let cases = [
        ("string", &b"$11\r\nHello World\r\n"[..], Reply::bulk("Hello World")),
        ("integer", b":12345\r\n", Reply::Integer(12345)),
        ("double", b",3.141\r\n", Reply::Double(3141.0 / 1000.0)),
        ("null", b"_\r\n", Reply::Null),
        ("array", b"*3\r\n:0\r\n:1\r\n:2\r\n", Reply::Array(integers(0..3))),
        ("set", b"~3\r\n:0\r\n:1\r\n:2\r\n", Reply::Set(integers(0..3))),
        ("map", b"%3\r\n:0\r\n#f\r\n:1\r\n#t\r\n:2\r\n#f\r\n", Reply::Map(flags(3))),
        (
            "bignum",
            b"(1234567999999999999999999999999999999\r\n",
            Reply::BigNumber("1234567999999999999999999999999999999".into()),
        ),
        ("true", b"#t\r\n", Reply::Bool(true)),
        ("false", b"#f\r\n", Reply::Bool(false)),
        (
            "verbatim",
            b"=29\r\ntxt:This is a verbatim\nstring\r\n",
            Reply::Verbatim { format: "txt".into(), text: b"This is a verbatim\nstring".to_vec() },
        ),
    ];
    for (kind, bytes, tree) in cases {
        let (frame, reply) = protocol(&mut client, kind);
        assert_eq!(frame.escape_ascii().to_string(), bytes.escape_ascii().to_string(), "{kind}");
        assert_eq!(reply, tree, "{kind}");
    }
    let (frame, reply) = protocol(&mut client, "attrib");
    assert!(frame.starts_with(b"|1\r\n") && frame.ends_with(b"\r\n"));
    match reply {
        Reply::Attribute { pairs, reply } => {
            assert_eq!(pairs.len(), 1);
            assert!(reply.text().contains("following the attribute"));
        }
        other => panic!("{other}"),
    }
    assert!(client.command(&["NOSUCH"]).error().starts_with("ERR unknown command"));
    assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".into()));
}

#[test]
fn pushes_come_as_pushes() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.command(&["HELLO", "3"]);
    let subscribed = client.command(&["SUBSCRIBE", "news"]);
    assert_eq!(
        subscribed,
        Reply::Push(vec![Reply::bulk("subscribe"), Reply::bulk("news"), Reply::Integer(1)])
    );
    assert_eq!(server.client().command(&["PUBLISH", "news", "x"]), Reply::Integer(1));
    assert_eq!(client.read_reply().to_string(), r#">["message", "news", "x"]"#);
}

#[test]
fn resp2_spells_null_twice_and_both_are_null() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.send_raw(b"GET none\r\nBLPOP none 0.001\r\n*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n");
    assert_eq!(client.read_frame(), b"$-1\r\n");
    assert_eq!(client.read_frame(), b"*-1\r\n");
    assert_eq!(client.read_reply(), Reply::Null);
}

#[test]
fn any_bytes_and_large_values_go_both_ways() {
    let server = RedisServer::start();
    let mut client = server.client();
    let value: Vec<u8> = (0..10_000_000_u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(client.command(&[&b"SET"[..], b"\r\n\0", &value]), Reply::ok());
    assert_eq!(client.command(&[&b"GET"[..], b"\r\n\0"]).bytes(), Some(&*value));
    assert_eq!(encode(&["GET", ""]), b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n");
    client.send_raw(b"PING\r\n");
    assert_eq!(client.read_exact_bytes(3), b"+PO");
    assert_eq!(client.read_exact_bytes(4), b"NG\r\n");
}

#[test]
fn the_end_of_a_connection_is_seen_from_both_sides() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.send_raw(b"PING\r\n");
    client.shutdown_write();
    assert_eq!(client.read_to_close(), b"+PONG\r\n");

    let mut client = server.client();
    assert_eq!(client.command(&["QUIT"]), Reply::ok());
    client.expect_closed();
    assert_eq!(client.try_read_reply().expect_err("closed").kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_reply_in_pieces_survives_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let mut client = RawClient::connect(listener.local_addr().expect("address"));
    let (mut peer, _) = listener.accept().expect("accept");
    for (piece, whole) in [(&b"*2\r\n$3\r\nab"[..], false), (b"c\r\n:", false), (b"7\r\n+n", true)]
    {
        peer.write_all(piece).expect("send");
        let frame = client.try_read_frame(Duration::from_millis(30)).expect("open");
        assert_eq!(frame.is_some(), whole);
    }
    peer.write_all(b"ext\r\n?\r\n").expect("send");
    assert_eq!(client.read_reply(), Reply::Simple("next".into()));
    assert_eq!(client.try_read_reply().expect_err("nonsense").kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_client_that_is_too_patient_can_be_told_otherwise() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let mut client = RawClient::connect(listener.local_addr().expect("address"));
    client.set_timeout(Duration::from_millis(20));
    let echo = thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("accept");
        let mut seen = Vec::new();
        peer.read_to_end(&mut seen).expect("read");
        seen
    });
    let error = client.try_command(&["PING"]).expect_err("no answer");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(client);
    assert_eq!(echo.join().expect("no panic"), encode(&["PING"]));
}
