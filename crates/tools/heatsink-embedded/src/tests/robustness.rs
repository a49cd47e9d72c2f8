//! No request, however odd, makes the engine panic or lose count of its replies.

use heatsink_resp::encode;

use super::Store;
use crate::table;

/// Odd arguments; the first is empty.
const WORDS: &str = " 0 1 -1 2 10 9223372036854775807 -9223372036854775808 1.5 inf -inf nan x (1 [a - + * [ \
    \\ COUNT MATCH LIMIT WITHSCORES WITHVALUES BYSCORE BYLEX REV LEFT RIGHT MIN MAX NX XX \
    GET EX PXAT KEEPTTL ON OFF YES ID REDIRECT BCAST PREFIX AGGREGATE WEIGHTS REPLACE DB \
    string hash list set sorted hll missing";

#[test]
fn every_command_survives_odd_arguments() {
    let mut rng = fastrand::Rng::with_seed(3);
    let words: Vec<&str> = WORDS.split(' ').collect();
    for command in table::all() {
        // Not heard from again after these.
        if matches!(command.name, "quit" | "client|reply" | "client|kill") {
            continue;
        }
        let mut store = Store::new();
        let conn = store.connect_resp3();
        for round in 0..300 {
            if round % 30 == 0 {
                for line in [
                    "RESET",
                    "FLUSHALL",
                    "SET string text",
                    "HSET hash a 1 b 2",
                    "RPUSH list a b c",
                    "SADD set a b 1",
                    "ZADD sorted 1 a 2 b",
                    "PFADD hll a",
                ] {
                    store.ask(conn, line);
                }
            }
            let fewest = usize::from(command.arity.unsigned_abs());
            let count = if command.arity < 0 { fewest + rng.usize(..6) } else { fewest };
            let mut args: Vec<&str> = command.name.split('|').collect();
            while args.len() < count {
                args.push(words[rng.usize(..words.len())]);
            }
            let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
            let mut bytes = Vec::new();
            encode::command(&mut bytes, &args);
            store.engine.feed(conn, &bytes, store.now_ms);
            let reply = store.engine.take_output(conn);
            assert!(reply.ends_with(b"\r\n"), "{}: {args:?}", command.name);
            store.engine.feed(conn, b"PING end\r\n", store.now_ms);
            let after = store.engine.take_output(conn);
            let answered = after.windows(3).any(|w| w == b"end") || after == b"+QUEUED\r\n";
            assert!(answered, "{}: {args:?}: {}", command.name, after.escape_ascii());
            store.pass(1);
            store.tick();
        }
    }
}

#[test]
fn random_bytes_are_refused_or_understood_but_never_panic() {
    let mut rng = fastrand::Rng::with_seed(4);
    let seed =
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\nGET k\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n";
    for _ in 0..20_000 {
        let mut store = Store::new();
        let conn = store.connect();
        let mut bytes = seed.to_vec();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            match rng.u8(..3) {
                0 => bytes[at] = rng.u8(..),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\r\n*$0919-\" "[rng.usize(..11)]),
            }
        }
        let split = rng.usize(..bytes.len());
        store.engine.feed(conn, &bytes[..split], store.now_ms);
        store.engine.feed(conn, &bytes[split..], store.now_ms);
        let output = store.engine.take_output(conn);
        assert!(output.is_empty() || output.ends_with(b"\r\n"));
    }
}
