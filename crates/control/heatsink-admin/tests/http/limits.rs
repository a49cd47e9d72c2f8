//! What a client can use of the server: bytes, requests, connections, time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use heatsink_admin::{Limits, Settings, Token};

use crate::rig::{Reply, Rig};

fn limited(limits: Limits) -> Rig {
    Rig::start(Settings { limits, ..Settings::default() })
}

/// Reads until the server closes.
fn closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut bytes = Vec::new();
    // A reset is a close as well; only a timeout is not.
    stream
        .read_to_end(&mut bytes)
        .map_or_else(|error| !matches!(error.kind(), std::io::ErrorKind::WouldBlock), |_| true)
}

#[test]
fn a_body_that_is_too_large_is_refused_and_heard() {
    let rig = Rig::start(Settings::default());
    for length in [16 * 1024 + 1, 700_000] {
        let reply = rig.promote("k", &" ".repeat(length));
        assert!(reply.problem(413, "too-large").contains("16384"));
    }
    let fits = format!("{}{{\"mitigation_type\":\"split\"}}", " ".repeat(16_000));
    assert_eq!(rig.promote("k", &fits).status, 200);
    // The length alone is enough to refuse, before anything is sent.
    let announced = b"POST /hotkeys/k/promote HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                      Content-Length: 9999999999\r\n\r\n";
    rig.raw(announced).problem(413, "too-large");
    // Without a length.
    let mut chunked = b"POST /hotkeys/k/promote HTTP/1.1\r\nHost: localhost\r\n\
                        Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        .to_vec();
    for _ in 0..5 {
        chunked.extend_from_slice(format!("1000\r\n{}\r\n", " ".repeat(4096)).as_bytes());
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    rig.raw(&chunked).problem(413, "too-large");
}

#[test]
fn too_many_requests_are_told_to_wait_and_health_is_not() {
    let rig = limited(Limits { requests_per_second: 1, burst: 3, ..Limits::default() });
    let replies: Vec<Reply> = (0..4).map(|_| rig.get("/hotkeys")).collect();
    let served = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(served, 3);
    let refused = replies.last().unwrap();
    refused.problem(429, "too-many-requests");
    assert_eq!(refused.header("retry-after"), Some("1"));
    for _ in 0..20 {
        assert_eq!(rig.get("/healthz").status, 200);
        assert_eq!(rig.get("/readyz").status, 200);
    }
}

#[test]
fn strangers_cannot_use_up_what_operators_need() {
    let limits = Limits { requests_per_second: 1, burst: 3, ..Limits::default() };
    let rig = Rig::start(Settings { token: Token::new("t"), limits, ..Settings::default() });
    let wrong: Vec<u16> = (0..10).map(|_| rig.get("/hotkeys").status).collect();
    assert_eq!(wrong[..3], [401; 3]);
    assert!(wrong.contains(&429), "guessing is slowed down: {wrong:?}");
    let own = rig.send("GET", "/hotkeys", &["Authorization: Bearer t"], b"");
    assert_eq!(own.status, 200);
}

#[test]
fn slow_headers_and_idle_connections_are_closed() {
    let rig = limited(Limits { read_timeout: Duration::from_millis(100), ..Limits::default() });
    let start = Instant::now();
    let mut silent = rig.connect();
    let mut slow = rig.connect();
    slow.write_all(b"GET /hotkeys HTTP/1.1\r\nHost: loc").unwrap();
    let mut idle = rig.connect();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    for stream in [&mut silent, &mut slow, &mut idle] {
        assert!(closed(stream));
    }
    assert!(start.elapsed() < Duration::from_secs(10));
    // One byte after the other does not help.
    let mut dripping = rig.connect();
    let dripped = (0..10_000).take_while(|_| {
        std::thread::sleep(Duration::from_millis(5));
        dripping.write_all(b"x").is_ok()
    });
    assert!(dripped.count() < 2000);
}

#[test]
fn a_slow_body_is_not_waited_for() {
    let rig = limited(Limits { read_timeout: Duration::from_millis(50), ..Limits::default() });
    let mut stream = rig.connect();
    stream
        .write_all(b"POST /hotkeys/k/promote HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 9\r\n\r\n{")
        .unwrap();
    Reply::read(&mut stream).problem(408, "too-slow");
}

/// Asks on a connection that stays open.
fn ask(stream: &mut TcpStream, path: &str, header: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "closed");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap();
    stream.read_exact(&mut vec![0; length.parse().unwrap()]).unwrap();
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

const TOKEN: &str = "Authorization: Bearer t\r\n";

#[test]
fn silent_strangers_make_room_for_those_who_ask() {
    let limits = Limits { strangers: 3, connections: 2, ..Limits::default() };
    let rig = Rig::start(Settings { token: Token::new("t"), limits, ..Settings::default() });
    let mut operator = rig.connect();
    assert_eq!(ask(&mut operator, "/hotkeys", TOKEN), 200);
    let mut silent: Vec<TcpStream> = (0..20).map(|_| rig.connect()).collect();
    let mut probe = rig.connect();
    assert_eq!(ask(&mut probe, "/healthz", ""), 200);
    assert_eq!(ask(&mut probe, "/readyz", ""), 200);
    for stranger in &mut silent[..17] {
        assert!(closed(stranger));
    }
    // Who has shown the token stays, and others with it come in, as far as there are places.
    assert_eq!(ask(&mut operator, "/hotkeys", TOKEN), 200);
    let mut another = rig.connect();
    assert_eq!(ask(&mut another, "/hotkeys", TOKEN), 200);
    let mut one_more = rig.connect();
    assert_eq!(ask(&mut one_more, "/hotkeys", TOKEN), 429);
    drop(another);
    let freed = || ask(&mut one_more, "/hotkeys", TOKEN) == 200;
    assert!(std::iter::repeat_with(freed).take(1000).any(|freed| freed));
}

#[test]
fn large_heads_are_refused() {
    let rig = Rig::start(Settings::default());
    let long = format!("X: {}", "x".repeat(64 * 1024));
    let mut stream = rig.connect();
    let _ = stream.write_all(
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{long}\r\n\r\n").as_bytes(),
    );
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&answer));
    // A key of 8000 bytes, each of them encoded, fits.
    let key = "%FF".repeat(8000);
    rig.get(&format!("/hotkeys/{key}")).problem(404, "unknown-key");
    assert_eq!(rig.get("/healthz").status, 200);
}

#[test]
fn open_requests_end_before_the_server_does() {
    let mut rig =
        limited(Limits { request_timeout: Duration::from_millis(300), ..Limits::default() });
    let told = rig.fake.hang();
    let mut open = rig.connect();
    let body = r#"{"mitigation_type":"split"}"#;
    let request = format!(
        "POST /hotkeys/k/promote HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    open.write_all(request.as_bytes()).unwrap();
    told.recv().unwrap();
    rig.begin_stop();
    Reply::read(&mut open).problem(503, "timeout");
    let address = rig.address;
    rig.join();
    assert!(TcpStream::connect(address).is_err(), "nothing listens any more");
}

#[test]
fn the_server_does_not_wait_longer_than_its_grace() {
    let limits = Limits { shutdown_grace: Duration::from_millis(50), ..Limits::default() };
    let mut rig = limited(limits);
    let told = rig.fake.hang();
    let mut open = rig.connect();
    let body = r#"{"mitigation_type":"split"}"#;
    let request = format!(
        "POST /hotkeys/k/promote HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    open.write_all(request.as_bytes()).unwrap();
    told.recv().unwrap();
    let start = Instant::now();
    rig.join();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(closed(&mut open));
}
