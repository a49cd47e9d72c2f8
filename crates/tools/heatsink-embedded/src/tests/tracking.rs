use super::Store;

const CHANGED_K: &str = ">2|$10|invalidate|*1|$1|k|";
const FLUSHED: &str = ">2|$10|invalidate|_|";

#[test]
fn a_reader_is_told_once_until_it_reads_again() {
    let mut store = Store::new();
    let (reader, writer) = (store.connect_resp3(), store.connect());
    store.ask(reader, "CLIENT TRACKING ON");
    assert_eq!(store.ask(reader, "GET k"), "_|");
    store.ask(writer, "SET k 1");
    assert_eq!(store.heard(reader), CHANGED_K, "a miss is tracked too");
    store.ask(writer, "SET k 2");
    assert_eq!(store.heard(reader), "", "told once");
    store.ask(reader, "GET k");
    store.ask(writer, "DEL k");
    assert_eq!(store.heard(reader), CHANGED_K);
}

#[test]
fn every_key_of_a_reading_command_is_tracked_and_no_other() {
    let mut store = Store::new();
    let (reader, writer) = (store.connect_resp3(), store.connect());
    store.ask(reader, "CLIENT TRACKING ON");
    store.ask(reader, "MGET a b");
    store.ask(reader, "SUNION c d");
    store.ask(reader, "SET e 1");
    for key in ["a", "b", "c", "d"] {
        store.ask(writer, &format!("SET {key} v"));
        assert_eq!(store.heard(reader), CHANGED_K.replace("|k|", &format!("|{key}|")));
    }
    store.ask(writer, "SET e 2");
    assert_eq!(store.heard(reader), "");
}

#[test]
fn opt_in_tracks_the_one_request_that_follows() {
    let mut store = Store::new();
    let (reader, writer) = (store.connect_resp3(), store.connect());
    store.ask(reader, "CLIENT TRACKING ON OPTIN");
    store.ask(reader, "GET k");
    store.ask(writer, "SET k 1");
    assert_eq!(store.heard(reader), "", "not asked for");
    assert_eq!(store.ask(reader, "CLIENT CACHING YES"), "+OK|");
    store.ask(reader, "GET k");
    store.ask(reader, "GET other");
    store.ask(writer, "SET other 1");
    assert_eq!(store.heard(reader), "", "the second request is not covered");
    store.ask(writer, "SET k 2");
    assert_eq!(store.heard(reader), CHANGED_K);
}

#[test]
fn opt_in_covers_a_whole_transaction() {
    let mut store = Store::new();
    let (reader, writer) = (store.connect_resp3(), store.connect());
    store.ask(reader, "CLIENT TRACKING ON OPTIN");
    for line in ["CLIENT CACHING YES", "MULTI", "GET j", "GET k", "EXEC", "GET l"] {
        store.ask(reader, line);
    }
    store.ask(writer, "MSET l 1 k 1");
    assert_eq!(store.heard(reader), CHANGED_K);
    store.ask(writer, "SET j 1");
    assert_eq!(store.heard(reader), CHANGED_K.replace("|k|", "|j|"));
}

#[test]
fn an_own_write_is_told_after_the_reply_unless_noloop() {
    let mut store = Store::new();
    let conn = store.connect_resp3();
    store.ask(conn, "CLIENT TRACKING ON");
    store.ask(conn, "GET k");
    assert_eq!(store.ask(conn, "SET k 1"), format!("+OK|{CHANGED_K}"));
    store.ask(conn, "GET k");
    store.ask(conn, "MULTI");
    store.ask(conn, "SET k 1");
    store.ask(conn, "PING");
    assert_eq!(store.ask(conn, "EXEC"), format!("*2|+OK|+PONG|{CHANGED_K}"));
}

#[test]
fn with_noloop_an_own_write_uses_the_entry_up() {
    let mut store = Store::new();
    let (conn, writer) = (store.connect_resp3(), store.connect());
    store.ask(conn, "CLIENT TRACKING ON NOLOOP");
    store.ask(conn, "GET k");
    assert_eq!(store.ask(conn, "SET k 1"), "+OK|");
    store.ask(writer, "SET k 2");
    assert_eq!(store.heard(conn), "", "as in Redis: the entry is gone");
    store.ask(conn, "GET k");
    store.ask(writer, "SET k 3");
    assert_eq!(store.heard(conn), CHANGED_K);
}

#[test]
fn a_flush_of_any_database_is_told_to_all() {
    let mut store = Store::new();
    let (reader, writer) = (store.connect_resp3(), store.connect());
    store.ask(reader, "CLIENT TRACKING ON");
    store.ask(writer, "SELECT 5");
    store.ask(writer, "FLUSHDB");
    assert_eq!(store.heard(reader), FLUSHED);
    assert_eq!(store.ask(reader, "FLUSHALL"), format!("+OK|{FLUSHED}"));
}

#[test]
fn expiry_is_told_whether_noticed_by_a_reader_or_by_time() {
    let mut store = Store::new();
    let (reader, writer) = (store.connect_resp3(), store.connect());
    store.ask(reader, "CLIENT TRACKING ON");
    for noticed_by_tick in [true, false] {
        store.ask(writer, "SET k v PX 10");
        store.ask(reader, "GET k");
        store.pass(11);
        if noticed_by_tick {
            store.tick();
        } else {
            store.ask(writer, "GET k");
        }
        assert_eq!(store.heard(reader), CHANGED_K);
    }
}

#[test]
fn the_older_protocol_hears_through_another_connection() {
    let mut store = Store::new();
    let (reader, listener, writer) = (store.connect(), store.connect(), store.connect());
    store.ask(listener, "SUBSCRIBE __redis__:invalidate");
    store.ask(reader, &format!("CLIENT TRACKING ON REDIRECT {}", listener.0));
    store.ask(reader, "GET k");
    store.ask(writer, "SET k 1");
    assert_eq!(store.heard(reader), "");
    assert_eq!(store.heard(listener), "*3|$7|message|$20|__redis__:invalidate|*1|$1|k|");
    store.ask(writer, "FLUSHALL");
    assert_eq!(store.heard(listener), "*3|$7|message|$20|__redis__:invalidate|$-1|");
}

#[test]
fn a_redirection_that_ends_is_told() {
    let mut store = Store::new();
    let (reader, listener, writer) = (store.connect_resp3(), store.connect(), store.connect());
    store.ask(reader, &format!("CLIENT TRACKING ON REDIRECT {}", listener.0));
    store.engine.disconnect(listener);
    store.ask(reader, "GET k");
    store.ask(writer, "SET k 1");
    assert_eq!(store.heard(reader), ">2|$21|tracking-redir-broken|:2|");
}

#[test]
fn broadcasts_go_by_prefix_without_reading() {
    let mut store = Store::new();
    let (conn, writer) = (store.connect_resp3(), store.connect());
    store.ask(conn, "CLIENT TRACKING ON BCAST PREFIX user:");
    store.ask(writer, "SET user:1 a");
    assert_eq!(store.heard(conn), ">2|$10|invalidate|*1|$6|user:1|");
    store.ask(writer, "SET session:1 a");
    assert_eq!(store.heard(conn), "");
}

#[test]
fn the_writer_is_answered_before_others_are_told() {
    let mut store = Store::new();
    let (reader, writer) = (store.connect_resp3(), store.connect());
    store.ask(reader, "CLIENT TRACKING ON");
    store.ask(reader, "GET k");
    while store.engine.next_dirty().is_some() {}
    store.engine.feed(writer, b"SET k v\r\n", store.now_ms);
    assert_eq!(store.engine.next_dirty(), Some(writer));
    assert_eq!(store.engine.next_dirty(), Some(reader));
}

#[test]
fn tracking_that_is_switched_off_is_silent() {
    let mut store = Store::new();
    let (reader, writer) = (store.connect_resp3(), store.connect());
    store.ask(reader, "CLIENT TRACKING ON");
    store.ask(reader, "GET k");
    store.ask(reader, "CLIENT TRACKING OFF");
    store.ask(writer, "SET k v");
    store.ask(writer, "FLUSHALL");
    assert_eq!(store.heard(reader), "");
}

#[test]
fn a_full_table_drops_a_key_and_tells_its_readers() {
    let mut store = Store::new();
    let reader = store.connect_resp3();
    store.engine.world.tracking.keys_max = 2;
    store.ask(reader, "CLIENT TRACKING ON");
    store.ask(reader, "MGET a b");
    let heard = store.ask(reader, "GET c");
    assert!(heard.starts_with("_|>2|$10|invalidate|*1|$1|"), "{heard}");
    assert!(store.ask(reader, "INFO stats").contains("tracking_total_keys:2|"));
}
