use super::Store;

#[test]
fn a_key_is_there_up_to_its_deadline_and_not_after() {
    let mut store = Store::new();
    let conn = store.connect();
    assert_eq!(store.ask(conn, "SET k v PX 100"), "+OK|");
    store.pass(100);
    assert_eq!(store.ask(conn, "GET k"), "$1|v|");
    assert_eq!(store.ask(conn, "PTTL k"), ":0|");
    store.pass(1);
    assert_eq!(store.ask(conn, "GET k"), "$-1|");
    assert_eq!(store.ask(conn, "PTTL k"), ":-2|");
    assert_eq!(store.ask(conn, "DBSIZE"), ":0|");
}

#[test]
fn durations_are_rounded_to_the_nearest_second() {
    let mut store = Store::new();
    let conn = store.connect();
    store.ask(conn, "SETEX k 10 v");
    assert_eq!(store.ask(conn, "TTL k"), ":10|");
    store.pass(500);
    assert_eq!(store.ask(conn, "TTL k"), ":10|");
    store.pass(1);
    assert_eq!(store.ask(conn, "TTL k"), ":9|");
    assert_eq!(store.ask(conn, "PTTL k"), ":9499|");
    assert_eq!(store.ask(conn, "PERSIST k"), ":1|");
    assert_eq!(store.ask(conn, "TTL k"), ":-1|");
}

#[test]
fn writes_keep_or_clear_the_deadline_as_in_redis() {
    let mut store = Store::new();
    let conn = store.connect();
    store.ask(conn, "SET n 1 EX 10");
    store.ask(conn, "INCR n");
    assert_eq!(store.ask(conn, "TTL n"), ":10|");
    store.ask(conn, "SET n 5 KEEPTTL");
    assert_eq!(store.ask(conn, "TTL n"), ":10|");
    store.ask(conn, "RENAME n m");
    assert_eq!(store.ask(conn, "TTL m"), ":10|");
    store.ask(conn, "SET m 5");
    assert_eq!(store.ask(conn, "TTL m"), ":-1|");
}

#[test]
fn a_tick_removes_a_bounded_number_of_keys_that_nobody_asks_for() {
    let mut store = Store::new();
    let conn = store.connect();
    for at in 0..1500 {
        store.ask(conn, &format!("SET k{at} v PX 10"));
    }
    store.ask(conn, "SET stays v");
    store.pass(11);
    store.tick();
    assert_eq!(store.ask(conn, "DBSIZE"), ":501|");
    store.tick();
    assert_eq!(store.ask(conn, "DBSIZE"), ":1|");
    assert!(store.ask(conn, "INFO stats").contains("expired_keys:1500|"));
}

#[test]
fn keys_past_their_deadline_are_not_listed() {
    let mut store = Store::new();
    let conn = store.connect();
    store.ask(conn, "SET gone v PX 10");
    store.ask(conn, "SET here v");
    store.pass(11);
    assert_eq!(store.ask(conn, "KEYS *"), "*1|$4|here|");
    assert_eq!(store.ask(conn, "SCAN 0"), "*2|$1|0|*1|$4|here|");
    assert_eq!(store.ask(conn, "RANDOMKEY"), "$4|here|");
    assert_eq!(store.ask(conn, "RENAME gone x"), "-ERR no such key|");
    assert_eq!(store.ask(conn, "SUNIONSTORE s gone"), ":0|");
}
