use super::Store;
use crate::Engine;

#[test]
fn requests_split_at_any_byte_are_understood() {
    let bytes =
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\r\n\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let expected = b"+OK\r\n+PONG\r\n$4\r\n\r\n\r\n\r\n";
    for split in 0..bytes.len() {
        let mut engine = Engine::new(0, 0);
        let conn = engine.connect(0);
        engine.feed(conn, &bytes[..split], 0);
        engine.feed(conn, &bytes[split..], 0);
        assert_eq!(engine.take_output(conn), expected, "split at {split}");
    }
    let mut engine = Engine::new(0, 0);
    let conn = engine.connect(0);
    for byte in bytes {
        engine.feed(conn, &[*byte], 0);
    }
    assert_eq!(engine.take_output(conn), expected, "byte by byte");
}

#[test]
fn what_the_store_cannot_do_is_said_by_name() {
    let mut store = Store::new();
    let conn = store.connect();
    for (line, name) in [
        ("XADD s * f v", "xadd"),
        ("EVAL return 0", "eval"),
        ("blpop l 0", "blpop"),
        ("GEOADD g 1 1 a", "geoadd"),
        ("CLUSTER NODES", "cluster"),
        ("CONFIG SET save x", "config set"),
        ("CLIENT PAUSE 10", "client pause"),
    ] {
        let error = format!(
            "-ERR heatsink: the embedded store does not support '{name}'; use --upstream \
             redis://... for a full server|"
        );
        assert_eq!(store.ask(conn, line), error);
    }
}

#[test]
fn a_killed_connection_is_closed_and_serves_no_more() {
    let mut store = Store::new();
    let (a, b) = (store.connect(), store.connect());
    assert_eq!(store.ask(a, &format!("CLIENT KILL ID {}", b.0)), ":1|");
    assert!(store.engine.is_dropped(b));
    assert!(!store.engine.is_closing(a));
    assert_eq!(store.ask(b, "SET k v"), "");
    assert_eq!(store.ask(a, "EXISTS k"), ":0|");
}

#[test]
fn a_reader_that_falls_too_far_behind_is_dropped() {
    let mut store = Store::new();
    let conn = store.connect();
    let value = "x".repeat(60_000);
    store.ask(conn, &format!("SET k {value}"));
    let request = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(Engine::OUTPUT_BYTES_MAX / 60_000 + 1);
    store.engine.feed(conn, request.as_bytes(), store.now_ms);
    assert!(store.engine.is_dropped(conn));
    assert!(store.engine.take_output(conn).is_empty());
}

#[test]
fn the_same_seed_makes_the_same_choices() {
    let run = || {
        let mut store = Store::new();
        let conn = store.connect();
        store.ask(conn, "SADD s a b c d e f g h");
        let lines = ["SRANDMEMBER s 3", "SPOP s 2", "SRANDMEMBER s -9", "SMEMBERS s"];
        lines.map(|line| store.ask(conn, line))
    };
    assert_eq!(run(), run());
}

#[test]
fn random_picks_cover_everything_and_stay_within() {
    let mut store = Store::new();
    let conn = store.connect();
    store.ask(conn, "SADD s a b c");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        seen.insert(store.ask(conn, "SRANDMEMBER s"));
    }
    let expected = ["$1|a|", "$1|b|", "$1|c|"].map(str::to_owned);
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    let picked = store.ask(conn, "SRANDMEMBER s 2");
    assert!(picked.starts_with("*2|"), "{picked}");
    let error = "-ERR value is out of range|";
    assert_eq!(store.ask(conn, "SRANDMEMBER s -9223372036854775807"), error);
}

#[test]
fn info_counts_what_happened() {
    let mut store = Store::new();
    let conn = store.connect();
    store.ask(conn, "SET a 1 EX 100");
    store.ask(conn, "SET b 1");
    let info = store.ask(conn, "INFO");
    assert!(info.contains("|db0:keys=2,expires=1,avg_ttl=100000|"), "{info}");
    assert!(info.contains("|total_commands_processed:3|"), "{info}");
    assert!(info.contains("|connected_clients:1|"), "{info}");
}
