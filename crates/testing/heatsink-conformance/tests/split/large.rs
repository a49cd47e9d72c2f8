//! Large requests: what they touch is known before any of them is executed, also if it stands at
//! their end.

use std::time::Duration;

use heatsink_conformance::Rig;
use heatsink_testkit::{RawClient, RedisServer, Reply, encode, eventually};

use crate::hand::Mover;

/// More than a request may have before it is passed on in pieces.
const LARGE: usize = 300 << 10;
const SHORT: Duration = Duration::from_millis(300);

const SPLIT: [&str; 2] = ["counter", "set"];

fn fill(client: &mut RawClient) {
    client.command(&["FLUSHALL"]);
    client.command(&["SET", "counter", "5"]);
    client.command(&["SADD", "set", "a", "b"]);
}

/// `LARGE` is replaced by a large word, `MANY` by many.
fn request(words: &[&str]) -> Vec<String> {
    let large = "x".repeat(LARGE);
    let mut request = Vec::new();
    for word in words {
        match *word {
            "MANY" => request.extend((0..LARGE / 8).map(|number| format!("none{number}"))),
            word => request.push(word.replace("LARGE", &large)),
        }
    }
    request
}

#[test]
fn keys_at_the_end_of_a_large_request_are_whole() {
    let read = "return redis.call('incrby', KEYS[1], 2) -- LARGE";
    let hidden = "return redis.call('scard', 'set') -- LARGE";
    let cases: [(&[&[&str]], &[&str]); 10] = [
        (&[&["MSET", "a", "LARGE", "counter", "500"]], &["counter"]),
        (&[&["MULTI"], &["MSET", "a", "LARGE", "counter", "500"], &["EXEC"]], &["counter"]),
        (&[&["WATCH", "n"], &["MSET", "a", "LARGE", "counter", "1"], &["UNWATCH"]], &["counter"]),
        (&[&["DEL", "MANY", "set"]], &["set"]),
        (&[&["UNLINK", "LARGE", "counter", "set"]], &["counter", "set"]),
        (&[&["EVAL", read, "1", "counter"]], &["counter"]),
        (&[&["EVAL", hidden, "0", "x"]], &["counter", "set"]),
        (&[&["SUNIONSTORE", "set", "MANY", "set"]], &["set"]),
        (&[&["SADD", "set", "LARGE"], &["SISMEMBER", "set", "LARGE"]], &[]),
        (&[&["SET", "a", "LARGE"], &["MSET", "a", "LARGE", "b", "1"], &["STRLEN", "a"]], &[]),
    ];
    let (rig, plain) = (Rig::new(1), RedisServer::builder().start());
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    let (mut client, mut wanted) = (rig.client(), plain.client());
    for (commands, whole) in cases {
        fill(&mut client);
        fill(&mut wanted);
        for key in SPLIT {
            assert!(mover.split(key.as_bytes(), 3), "{key}");
        }
        for command in commands {
            let request = request(command);
            assert!(client.command(&request) == wanted.command(&request), "{command:?}");
        }
        for key in SPLIT {
            let is_whole = whole.contains(&key);
            assert_eq!(mover.is_split(key.as_bytes()), !is_whole, "{key} after {commands:?}");
        }
        for read in [&["INCR", "counter"][..], &["SCARD", "set"]] {
            assert_eq!(client.command(read), wanted.command(read), "{read:?} after {commands:?}");
        }
    }
}

/// ```text
/// 1. SET counter: the beginning of a large value, which is passed on
/// 2. the counter is to be split        3. the end of the value: the server executes SET
/// ```
#[test]
fn a_key_is_not_split_while_a_large_value_for_it_is_under_way() {
    let rig = Rig::new(1);
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    let mut client = rig.client();
    fill(&mut client);
    let bytes = encode(&["SET".to_owned(), "counter".to_owned(), "x".repeat(2 * LARGE)]);
    let mut writer = rig.client();
    let (begin, end) = bytes.split_at(LARGE);
    let read = || rig.server().info_u64("stats", "total_net_input_bytes");
    let before = read();
    writer.send_raw(begin);
    eventually(Duration::from_secs(10), || read() > before + LARGE as u64 / 2);
    assert!(!mover.try_freeze(b"counter", SHORT), "it may be overwritten");
    assert!(mover.try_freeze(b"set", Duration::from_secs(10)), "another key may be split");
    mover.release(b"set");
    writer.send_raw(end);
    assert_eq!(writer.read_reply(), Reply::ok());
    assert_eq!(client.command(&["STRLEN", "counter"]), Reply::Integer(2 * LARGE as i64));
}
