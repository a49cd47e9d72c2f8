//! The stream of events.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use heatsink_admin::control::{Change, Readiness};
use heatsink_admin::{Limits, Privacy, Settings};
use serde_json::Value;

use crate::rig::{Rig, hot};

pub(crate) struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(rig: &Rig) -> Self {
        Self::open_at(rig, "/events")
    }

    pub(crate) fn open_at(rig: &Rig, path: &str) -> Self {
        let mut stream = rig.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.to_ascii_lowercase().contains("content-type: text/event-stream"));
        Self(reader)
    }

    /// The next chunk, or nothing at the end of the stream.
    fn chunk(&mut self) -> Option<String> {
        let mut length = String::new();
        self.0.read_line(&mut length).unwrap();
        let length = usize::from_str_radix(length.trim(), 16).unwrap();
        let mut chunk = vec![0; length + 2];
        self.0.read_exact(&mut chunk).unwrap();
        (length > 0).then(|| String::from_utf8(chunk).unwrap().trim().to_owned())
    }

    /// The next event: its name, id and data.
    pub(crate) fn event(&mut self) -> (String, Option<u64>, Value) {
        let text = self.chunk().unwrap();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.strip_prefix(' ').unwrap_or(rest).to_owned())
        };
        let data = serde_json::from_str(&field("data:").unwrap()).unwrap();
        (field("event:").unwrap(), field("id:").map(|id| id.parse().unwrap()), data)
    }
}

#[test]
fn changes_arrive_with_names_ids_and_data() {
    let rig = Rig::start(Settings::default());
    let mut stream = Stream::open(&rig);
    assert_eq!(stream.event().0, "hello");
    rig.fake.tell(1, Change::HotKey(Box::new(hot(b"user:1", 5000.0))));
    rig.fake.tell(2, Change::Removed { key: b"\xff".to_vec(), reason: "retired".into() });
    let readiness = Readiness { ready: true, degraded: true, ..Readiness::default() };
    rig.fake.tell(3, Change::Readiness(readiness));
    let (name, id, data) = stream.event();
    assert_eq!((name.as_str(), id), ("hotkey", Some(1)));
    assert_eq!(data["hotkey"]["key"], "user:1");
    assert_eq!(data["at"], "2026-01-01T00:00:00.000Z");
    let (name, id, data) = stream.event();
    assert_eq!((name.as_str(), id), ("removed", Some(2)));
    assert_eq!(data["removed"]["key"], "%FF");
    let (name, id, data) = stream.event();
    assert_eq!((name.as_str(), id), ("readiness", Some(3)));
    assert_eq!(data["readiness"]["degraded"], true);
}

#[test]
fn a_line_break_in_a_key_cannot_forge_an_event() {
    let rig = Rig::start(Settings::default());
    let mut stream = Stream::open(&rig);
    stream.event();
    let key = b"a\n\nevent: hello\ndata: {}\n\n".to_vec();
    rig.fake.tell(1, Change::Removed { key: key.clone(), reason: "x\r\ny".into() });
    let (name, _, data) = stream.event();
    assert_eq!(name, "removed");
    assert_eq!(data["removed"]["key"].as_str().unwrap().as_bytes(), key);
}

#[test]
fn a_reader_that_is_too_slow_is_told_what_it_missed() {
    let rig = Rig::start(Settings::default());
    let mut stream = Stream::open(&rig);
    stream.event();
    // More than the sockets and the channel hold, in large events, before anything is read.
    let key = vec![b'k'; 4000];
    let sent = 20_000;
    for id in 1..=sent {
        rig.fake.tell(id, Change::Removed { key: key.clone(), reason: String::new() });
    }
    let (mut seen, mut missed, mut last) = (0, 0, 0);
    while last < sent {
        let (name, id, data) = stream.event();
        match (name.as_str(), id) {
            ("lagged", None) => missed += data["missed"].as_u64().unwrap(),
            ("removed", Some(id)) => {
                assert!(id > last);
                (seen, last) = (seen + 1, id);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(missed > 0);
    assert_eq!(seen + missed, sent);
}

#[test]
fn a_quiet_stream_shows_signs_of_life() {
    let limits = Limits {
        event_keep_alive: Duration::from_millis(20),
        read_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let rig = Rig::start(Settings { limits, ..Settings::default() });
    let mut stream = Stream::open(&rig);
    stream.event();
    // Far beyond the time that a client has for its next request.
    for _ in 0..10 {
        assert_eq!(stream.chunk().unwrap(), ":");
    }
}

#[test]
fn listeners_are_bounded_and_their_places_are_given_back() {
    let limits = Limits {
        event_clients: 2,
        event_keep_alive: Duration::from_millis(10),
        ..Limits::default()
    };
    let rig = Rig::start(Settings { limits, ..Settings::default() });
    let first = Stream::open(&rig);
    let _second = Stream::open(&rig);
    let reply = rig.get("/events");
    reply.problem(429, "too-many-requests");
    assert!(reply.header("retry-after").is_some());
    assert_eq!(rig.get("/hotkeys").status, 200);
    drop(first);
    // The server notices at its next sign of life; asking again is all that can be done here.
    let given_back = (0..500).any(|_| {
        let mut stream = rig.connect();
        stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        head.ends_with(b"200")
    });
    assert!(given_back);
}

#[test]
fn the_stream_ends_when_the_server_stops() {
    let mut rig = Rig::start(Settings::default());
    let mut stream = Stream::open(&rig);
    stream.event();
    let start = std::time::Instant::now();
    rig.join();
    assert!(start.elapsed() < Limits::default().shutdown_grace, "it need not wait for streams");
    assert_eq!(stream.chunk(), None);
}

#[test]
fn hidden_keys_are_hidden_in_events() {
    let rig = Rig::start(Settings { privacy: Privacy::Hash, ..Settings::default() });
    let mut stream = Stream::open(&rig);
    stream.event();
    rig.fake.tell(1, Change::HotKey(Box::new(hot(b"user:1", 5000.0))));
    let reason = "user:1 was retired".to_owned();
    rig.fake.tell(2, Change::Removed { key: b"user:1".to_vec(), reason });
    for _ in 0..2 {
        let text = stream.chunk().unwrap();
        assert!(text.contains("hash:") && !text.contains("user:1"), "{text}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_listener_that_takes_nothing_loses_its_place() {
    let limits =
        Limits { event_clients: 1, read_timeout: Duration::from_millis(300), ..Limits::default() };
    let rig = Rig::start(Settings { limits, ..Settings::default() });
    let stalled = Stream::open(&rig);
    // The stream and the recorder of the history.
    assert_eq!(rig.fake.events.receiver_count(), 2);
    let key = vec![b'k'; 4000];
    let mut id = 0;
    let given_back = (0..2000).any(|_| {
        // Enough to fill the buffers between, as often as it takes.
        for _ in 0..8 {
            id += 1;
            rig.fake.tell(id, Change::Removed { key: key.clone(), reason: String::new() });
        }
        std::thread::sleep(Duration::from_millis(5));
        rig.fake.events.receiver_count() == 1
    });
    assert!(given_back);
    drop(stalled);
}
