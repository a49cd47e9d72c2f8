//! The store against a real server: the same random requests, the same bytes back.
//!
//! Left out by name:
//! - `RANDOMKEY`, `SRANDMEMBER`, `SPOP` without a large count: the choice is random;
//! - `TTL`, `PTTL`, `TIME`: the clocks of two processes; deadlines are compared as points in
//!   time instead (`EXPIRETIME`), and the engine's own tests cover durations;
//! - `CLIENT LIST`, `INFO`, `COMMAND`: they describe the server itself;
//! - `GET` and the like on `HyperLogLog` keys: the packed form differs.

mod requests;

use heatsink_embedded::{ConnId, Engine};
use heatsink_testkit::{RawClient, RedisServer, encode};

use requests::Requests;

const NOW_MS: u64 = 1_900_000_000_000;

/// Both sides of the comparison.
struct Pair {
    real: RawClient,
    engine: Engine,
    conn: ConnId,
    /// Found so far; shown together, since one cause often explains many.
    differences: Vec<String>,
}

impl Pair {
    fn new(server: &RedisServer) -> Self {
        let mut engine = Engine::new(1, NOW_MS);
        let conn = engine.connect(NOW_MS);
        let mut pair = Self { real: server.client(), engine, conn, differences: Vec::new() };
        pair.compare(&["FLUSHALL"]);
        pair
    }

    /// Replies of both to one request.
    fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> (Vec<u8>, Vec<u8>) {
        self.real.send(args);
        let expected = self.real.read_frame();
        self.engine.feed(self.conn, &encode(args), NOW_MS);
        (expected, self.engine.take_output(self.conn))
    }

    fn compare<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        let (expected, got) = self.ask(args);
        if got != expected {
            self.note_difference(args, &got, &expected);
        }
    }

    fn compare_unordered<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        let (expected, got) = self.ask(args);
        if sorted_lines(&got) != sorted_lines(&expected) {
            self.note_difference(args, &got, &expected);
        }
    }

    fn note_difference<A: AsRef<[u8]>>(&mut self, args: &[A], got: &[u8], expected: &[u8]) {
        let (got, expected) = (text(got), text(expected));
        self.differences.push(format!("{}\n  got      {got}\n  expected {expected}", shown(args)));
    }

    fn compare_random(&mut self, seed: u64, count: usize) {
        let mut requests = Requests::new(seed);
        for at in 0..count {
            let request = requests.next_request();
            if request.is_unordered {
                self.compare_unordered(&request.args);
            } else {
                self.compare(&request.args);
            }
            if at % 500 == 499 {
                self.compare(&["DBSIZE"]);
                self.compare_unordered(&["KEYS", "*"]);
                self.compare(&["FLUSHDB"]);
            }
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let count = self.differences.len();
        self.differences.truncate(20);
        let shown = self.differences.join("\n");
        assert!(count == 0 || std::thread::panicking(), "{count} differences:\n{shown}");
    }
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn shown<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words: Vec<String> = args.iter().map(|arg| text(arg.as_ref())).collect();
    words.join(" ")
}

/// The lines of a reply in sorted order: equal for replies that differ in order alone.
fn sorted_lines(reply: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = reply.split(|byte| *byte == b'\n').map(text).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn random_requests_get_the_same_replies_in_resp2() {
    let server = RedisServer::start();
    let mut pair = Pair::new(&server);
    pair.compare_random(1, 12_000);
}

#[test]
fn random_requests_get_the_same_replies_in_resp3() {
    let server = RedisServer::start();
    let mut pair = Pair::new(&server);
    pair.ask(&["HELLO", "3"]);
    pair.compare_random(2, 12_000);
}

#[test]
fn requests_and_errors_of_a_connection_are_the_same() {
    let server = RedisServer::start();
    for proto in ["2", "3"] {
        let mut pair = Pair::new(&server);
        pair.ask(&["HELLO", proto]);
        for line in requests::CONNECTION_REQUESTS {
            let args: Vec<&str> = line.split(' ').collect();
            pair.compare(&args);
        }
    }
}

#[test]
fn distinct_counts_are_the_same() {
    let server = RedisServer::start();
    let mut pair = Pair::new(&server);
    for at in 0..3000 {
        let key = format!("p{}", at % 3);
        pair.compare(&["PFADD", &key, &format!("element:{at}")]);
    }
    for request in [
        &["PFCOUNT", "p0"][..],
        &["PFCOUNT", "p0", "p1", "p2", "missing"],
        &["PFMERGE", "all", "p0", "p1"],
        &["PFCOUNT", "all"],
        &["PFMERGE", "all", "p2"],
        &["PFCOUNT", "all"],
    ] {
        pair.compare(request);
    }
}

#[test]
fn a_whole_scan_finds_the_same_keys() {
    let server = RedisServer::start();
    let mut pair = Pair::new(&server);
    for at in 0..500 {
        pair.compare(&["SET", &format!("key:{at}"), "v"]);
        pair.compare(&["HSET", "hash", &format!("field:{at}"), &"v".repeat(65)]);
        pair.compare(&["SADD", "set", &format!("member:{at}")]);
    }
    for (command, key) in [("SCAN", None), ("HSCAN", Some("hash")), ("SSCAN", Some("set"))] {
        let mut found = [Vec::new(), Vec::new()];
        for (side, found) in found.iter_mut().enumerate() {
            let mut cursor = "0".to_owned();
            loop {
                let mut args = vec![command];
                args.extend(key);
                args.extend([cursor.as_str(), "COUNT", "7", "MATCH", "*:1*"]);
                let (real, own) = pair.ask(&args);
                let reply = String::from_utf8(if side == 0 { real } else { own }).expect("text");
                let lines: Vec<&str> = reply.split("\r\n").collect();
                found.extend(
                    lines.iter().filter(|line| line.contains(':')).map(|line| (*line).to_owned()),
                );
                lines[2].clone_into(&mut cursor);
                if cursor == "0" {
                    break;
                }
            }
            found.sort_unstable();
            found.dedup();
        }
        assert_eq!(found[1], found[0], "{command}");
    }
}

#[test]
fn malformed_requests_are_refused_alike() {
    let server = RedisServer::start();
    for bytes in [
        b"*1\r\n:3\r\n".as_slice(),
        b"*x\r\n",
        b"*1\r\n$-5\r\n",
        b"*1\r\n$9999999999\r\n",
        b"GET \"unbalanced\r\n",
    ] {
        let mut pair = Pair::new(&server);
        pair.real.send_raw(bytes);
        let expected = pair.real.read_to_close();
        pair.engine.feed(pair.conn, bytes, NOW_MS);
        assert_eq!(text(&pair.engine.take_output(pair.conn)), text(&expected));
        assert!(pair.engine.is_closing(pair.conn));
    }
}

#[test]
fn inline_requests_are_understood_alike() {
    let server = RedisServer::start();
    let mut pair = Pair::new(&server);
    for line in ["PING\r\n", "SET a \"x\\x41\\n\"\r\n", "GET a\n", "\r\nECHO 'it\\'s'\r\n"] {
        pair.real.send_raw(line.as_bytes());
        let expected = pair.real.read_frame();
        pair.engine.feed(pair.conn, line.as_bytes(), NOW_MS);
        assert_eq!(text(&pair.engine.take_output(pair.conn)), text(&expected), "{line}");
    }
}
