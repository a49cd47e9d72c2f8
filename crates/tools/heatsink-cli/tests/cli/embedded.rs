//! `heatsink serve` without a server: everything on the embedded store.

use heatsink_testkit::{Process, RawClient, Reply};

use crate::support::{PATIENCE, Place};

/// Starts it on a free port and returns where clients connect.
fn start(place: &Place) -> (Process, String) {
    let process = place.heatsink(&["serve", "--listen", "127.0.0.1:0"]).spawn();
    let ready = process.wait_for_line(" ready: ", PATIENCE);
    assert!(ready.contains("(upstream embedded, "), "{ready}");
    let (_, rest) = ready.split_once("redis://").expect("an address");
    (process, rest.split_once(' ').expect("an address").0.to_owned())
}

#[test]
fn every_supported_kind_of_command_works_through_the_proxy() {
    let place = Place::empty();
    let (_process, address) = start(&place);
    let mut client = RawClient::connect(&*address);
    for command in [
        &["SET", "s", "1", "EX", "100"][..],
        &["INCR", "s"],
        &["TTL", "s"],
        &["HSET", "h", "f", "v"],
        &["SADD", "set", "a"],
        &["ZADD", "z", "1", "a"],
        &["RPUSH", "l", "a", "b"],
        &["PFADD", "p", "a"],
        &["SCAN", "0"],
        &["INFO"],
        &["CLIENT", "SETNAME", "me"],
        &["CLIENT", "LIST"],
        &["SELECT", "3"],
        &["SELECT", "0"],
    ] {
        let reply = client.command(command);
        assert!(!reply.is_error(), "{command:?}: {reply}");
    }
    assert_eq!(client.command(&["GET", "s"]), Reply::bulk("2"));
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    client.command(&["INCR", "s"]);
    assert_eq!(client.command(&["EXEC"]).items(), [Reply::Integer(3)]);
    let error = client.command(&["XADD", "stream", "*", "f", "v"]).error();
    assert!(error.contains("the embedded store does not support 'xadd'"), "{error}");
    assert!(client.command(&["NOSUCH"]).error().starts_with("ERR unknown command"));
}

#[test]
fn messages_and_invalidations_reach_other_clients() {
    let place = Place::empty();
    let (_process, address) = start(&place);
    let (mut one, mut two) = (RawClient::connect(&*address), RawClient::connect(&*address));
    one.command(&["HELLO", "3"]);
    one.command(&["SUBSCRIBE", "news"]);
    assert_eq!(two.command(&["PUBLISH", "news", "m"]).integer(), 1);
    assert_eq!(one.read_frame(), b">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nm\r\n");
    let mut tracker = RawClient::connect(&*address);
    tracker.command(&["HELLO", "3"]);
    assert_eq!(tracker.command(&["CLIENT", "TRACKING", "ON", "OPTIN"]), Reply::ok());
    tracker.command(&["CLIENT", "CACHING", "YES"]);
    tracker.command(&["GET", "k"]);
    two.command(&["SET", "k", "1"]);
    assert_eq!(tracker.read_frame(), b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n");
}
