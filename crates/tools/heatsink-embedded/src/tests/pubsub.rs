use super::Store;

#[test]
fn messages_reach_channels_and_patterns() {
    let mut store = Store::new();
    let (listener, sender) = (store.connect(), store.connect());
    assert_eq!(store.ask(listener, "SUBSCRIBE news"), "*3|$9|subscribe|$4|news|:1|");
    assert_eq!(store.ask(listener, "PSUBSCRIBE n*s"), "*3|$10|psubscribe|$3|n*s|:2|");
    assert_eq!(store.ask(sender, "PUBLISH news hi"), ":2|");
    let heard = "*3|$7|message|$4|news|$2|hi|*4|$8|pmessage|$3|n*s|$4|news|$2|hi|";
    assert_eq!(store.heard(listener), heard);
    assert_eq!(store.ask(sender, "PUBSUB NUMSUB news"), "*2|$4|news|:1|");
    assert_eq!(store.ask(sender, "PUBLISH other hi"), ":0|");
}

#[test]
fn resp3_pushes_and_goes_on_serving() {
    let mut store = Store::new();
    let conn = store.connect_resp3();
    assert_eq!(store.ask(conn, "SUBSCRIBE c"), ">3|$9|subscribe|$1|c|:1|");
    assert_eq!(store.ask(conn, "PUBLISH c m"), ">3|$7|message|$1|c|$1|m|:1|");
    assert_eq!(store.ask(conn, "PING"), "+PONG|");
}

#[test]
fn the_older_protocol_is_restricted_while_subscribed() {
    let mut store = Store::new();
    let conn = store.connect();
    store.ask(conn, "SUBSCRIBE s");
    assert!(store.ask(conn, "GET k").starts_with("-ERR Can't execute 'get': only (P|S)SUB"));
    assert_eq!(store.ask(conn, "PING"), "*2|$4|pong|$0||");
    store.ask(conn, "UNSUBSCRIBE");
    assert_eq!(store.ask(conn, "GET k"), "$-1|");
}

#[test]
fn a_connection_that_ends_is_no_listener_any_more() {
    let mut store = Store::new();
    let (listener, sender) = (store.connect(), store.connect());
    for line in ["SUBSCRIBE c", "PSUBSCRIBE *"] {
        store.ask(listener, line);
    }
    assert_eq!(store.ask(sender, "PUBLISH c m"), ":2|");
    store.engine.disconnect(listener);
    assert_eq!(store.ask(sender, "PUBLISH c m"), ":0|");
    assert_eq!(store.ask(sender, "PUBSUB CHANNELS"), "*0|");
}

#[test]
fn the_sender_is_written_to_before_its_listeners() {
    let mut store = Store::new();
    let (listener, sender) = (store.connect(), store.connect());
    store.ask(listener, "SUBSCRIBE c");
    while store.engine.next_dirty().is_some() {}
    store.engine.feed(sender, b"PUBLISH c m\r\n", store.now_ms);
    assert_eq!(store.engine.next_dirty(), Some(sender));
    assert_eq!(store.engine.next_dirty(), Some(listener));
    assert_eq!(store.engine.next_dirty(), None);
}
