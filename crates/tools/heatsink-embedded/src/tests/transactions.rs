use super::Store;

#[test]
fn a_queue_runs_as_a_whole_and_errors_stay_where_they_are() {
    let mut store = Store::new();
    let conn = store.connect();
    assert_eq!(store.ask(conn, "MULTI"), "+OK|");
    assert_eq!(store.ask(conn, "SET k text"), "+QUEUED|");
    assert_eq!(store.ask(conn, "INCR k"), "+QUEUED|");
    assert_eq!(store.ask(conn, "GET k"), "+QUEUED|");
    let replies = "*3|+OK|-ERR value is not an integer or out of range|$4|text|";
    assert_eq!(store.ask(conn, "EXEC"), replies);
}

#[test]
fn a_request_that_cannot_be_queued_aborts() {
    let mut store = Store::new();
    let conn = store.connect();
    for bad in ["NOSUCH", "GET", "XADD s * f v"] {
        store.ask(conn, "MULTI");
        store.ask(conn, "SET k v");
        assert!(store.ask(conn, bad).starts_with("-ERR "));
        let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
        assert_eq!(store.ask(conn, "EXEC"), aborted);
        assert_eq!(store.ask(conn, "EXISTS k"), ":0|");
    }
}

#[test]
fn a_watched_key_that_changes_stops_the_transaction() {
    let mut store = Store::new();
    let (a, b) = (store.connect(), store.connect());
    for change in ["SET k 2", "DEL k", "FLUSHDB", "RENAME k other", "EXPIRE k 9"] {
        store.ask(b, "FLUSHALL");
        store.ask(b, "SET k 1");
        store.ask(a, "WATCH k");
        store.ask(b, change);
        store.ask(a, "MULTI");
        store.ask(a, "SET done yes");
        assert_eq!(store.ask(a, "EXEC"), "*-1|", "{change}");
        assert_eq!(store.ask(a, "EXISTS done"), ":0|", "{change}");
    }
}

#[test]
fn a_watch_ends_with_exec_discard_or_unwatch() {
    let mut store = Store::new();
    let (a, b) = (store.connect(), store.connect());
    for end in [&["MULTI", "EXEC"][..], &["MULTI", "DISCARD"], &["UNWATCH"]] {
        store.ask(a, "WATCH k");
        for line in end {
            store.ask(a, line);
        }
        store.ask(b, "SET k v");
        store.ask(a, "MULTI");
        assert_eq!(store.ask(a, "EXEC"), "*0|");
    }
}

#[test]
fn changes_that_do_not_concern_the_watch_do_not_stop_it() {
    let mut store = Store::new();
    let (a, b) = (store.connect(), store.connect());
    store.ask(a, "WATCH k");
    for line in ["SET other v", "SELECT 1", "SET k v", "GET k", "FLUSHDB", "DEL missing"] {
        store.ask(b, line);
    }
    store.ask(a, "MULTI");
    assert_eq!(store.ask(a, "EXEC"), "*0|");
}

#[test]
fn a_watched_key_that_expires_stops_the_transaction() {
    let mut store = Store::new();
    let conn = store.connect();
    store.ask(conn, "SET k v PX 10");
    store.ask(conn, "WATCH k");
    store.pass(11);
    store.ask(conn, "MULTI");
    assert_eq!(store.ask(conn, "EXEC"), "*-1|");
    // It was gone already when the next watch began: that is no change.
    store.ask(conn, "SET k v PX 10");
    store.pass(11);
    store.ask(conn, "WATCH k");
    store.tick();
    store.ask(conn, "MULTI");
    assert_eq!(store.ask(conn, "EXEC"), "*0|");
}

#[test]
fn reset_leaves_nothing_of_a_transaction() {
    let mut store = Store::new();
    let (a, b) = (store.connect_resp3(), store.connect());
    store.ask(a, "WATCH k");
    store.ask(a, "MULTI");
    store.ask(a, "SELECT 3");
    assert_eq!(store.ask(a, "RESET"), "+RESET|");
    store.ask(b, "SET k v");
    assert_eq!(store.ask(a, "GET missing"), "$-1|");
    assert_eq!(store.ask(a, "EXEC"), "-ERR EXEC without MULTI|");
}
