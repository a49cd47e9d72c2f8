//! Until it has logged in, a client gets nothing but the words for that.

use heatsink_testkit::{RawClient, Reply, encode};

use crate::support::{Fixture, same, same_frame};

/// Commands of each kind that is treated in its own way.
const COMMANDS: [&[&str]; 42] = [
    &["GET", "a"],
    &["SET", "a", "1"],
    &["MGET", "a", "b", "c"],
    &["PING"],
    &["ECHO", "x"],
    &["INFO"],
    &["DBSIZE"],
    &["SCAN", "0"],
    &["COMMAND"],
    &["COMMAND", "COUNT"],
    &["CONFIG", "GET", "*"],
    &["ACL", "WHOAMI"],
    &["ACL", "LIST"],
    &["CLIENT", "ID"],
    &["CLIENT", "LIST"],
    &["CLIENT", "SETNAME", "x"],
    &["CLIENT", "KILL", "TYPE", "normal"],
    &["CLIENT", "REPLY", "OFF"],
    &["SELECT", "1"],
    &["MULTI"],
    &["EXEC"],
    &["DISCARD"],
    &["WATCH", "a"],
    &["UNWATCH"],
    &["SUBSCRIBE", "x"],
    &["PSUBSCRIBE", "x*"],
    &["SSUBSCRIBE", "x"],
    &["UNSUBSCRIBE"],
    &["PUBLISH", "x", "y"],
    &["MONITOR"],
    &["BLPOP", "l", "0"],
    &["XREAD", "BLOCK", "0", "STREAMS", "x", "$"],
    &["WAIT", "0", "0"],
    &["EVAL", "return 1", "0"],
    &["SCRIPT", "KILL"],
    &["FUNCTION", "LIST"],
    &["CLUSTER", "SLOTS"],
    &["READONLY"],
    &["DEBUG", "SLEEP", "0"],
    &["SHUTDOWN", "NOSAVE"],
    &["SYNC"],
    &["FLUSHALL"],
];

#[test]
fn every_command_is_refused_as_a_server_would() {
    let fixture = Fixture::new();
    let mut pair = fixture.pair();
    for command in COMMANDS {
        let frame = same(&mut pair, command);
        assert!(frame.contains("NOAUTH Authentication required."), "{command:?}: {frame}");
        let inline = format!("{}\r\n", command.join(" "));
        if !command.contains(&"return 1") {
            let frame = same_frame(&mut pair, inline.as_bytes());
            assert!(frame.contains("NOAUTH Authentication required."), "{inline}: {frame}");
        }
    }
    // All at once, as a client does that does not wait for answers.
    let burst: Vec<u8> = COMMANDS.iter().flat_map(|command| encode(command)).collect();
    for client in &mut pair {
        client.send_raw(&burst);
        for command in COMMANDS {
            assert!(client.read_reply().error().contains("NOAUTH"), "{command:?}");
        }
    }
    for command in ["get", "set", "multi", "subscribe", "monitor", "blpop", "eval", "flushall"] {
        assert_eq!(fixture.server.calls(command), 0, "{command} reached the server");
    }
}

#[test]
fn words_about_the_connection_are_heard() {
    let fixture = Fixture::new();
    let mut pair = fixture.pair();
    // Its advice at the end is another in each version.
    let refusal = "NOAUTH HELLO must be called with the client already authenticated, otherwise";
    for command in
        [&["HELLO"][..], &["HELLO", "2"], &["HELLO", "3"], &["HELLO", "3", "SETNAME", "n"]]
    {
        for client in &mut pair {
            let error = client.command(command).error();
            assert!(error.starts_with(refusal), "{command:?}: {error}");
        }
    }
    for command in
        [&["HELLO", "4"][..], &["HELLO", "x"], &["AUTH"], &["AUTH", "a", "b", "c"], &["RESET"]]
    {
        same(&mut pair, command);
    }
    // Still on RESP2, and nobody.
    assert!(same(&mut pair, &["GET", "a"]).starts_with("-NOAUTH"));
    assert_eq!(same(&mut pair, &["QUIT"]), "+OK\r\n");
    for client in &mut pair {
        client.expect_closed();
    }
}

#[test]
fn requests_stay_small() {
    let fixture = Fixture::new();
    for (bytes, error) in [
        (&b"*11\r\n"[..], "unauthenticated multibulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let mut pair = fixture.pair();
        assert_eq!(same_frame(&mut pair, bytes), format!("-ERR Protocol error: {error}\r\n"));
        for client in &mut pair {
            client.expect_closed();
        }
    }
    let many = ["MGET", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
    let large = "x".repeat(100_000);
    let mut client = fixture.app();
    assert_eq!(client.command(&many).items().len(), 10);
    assert_eq!(client.command(&["SET", "large", &large]), Reply::ok());
    // As small as before once it is nobody again.
    assert_eq!(client.command(&["RESET"]).text(), "RESET");
    refused_and_closed(&mut client, &encode(&many), "multibulk");
    let mut client = fixture.app();
    client.command(&["RESET"]);
    refused_and_closed(&mut client, &encode(&["SET", "large", &large]), "bulk");
}

#[track_caller]
fn refused_and_closed(client: &mut RawClient, bytes: &[u8], what: &str) {
    client.send_raw(bytes);
    let expected = format!("ERR Protocol error: unauthenticated {what} length");
    assert_eq!(client.read_reply().error(), expected);
    client.expect_closed();
}

#[test]
fn names_that_no_server_knows_get_no_further() {
    let fixture = Fixture::new();
    let mut client = fixture.heatsink.client();
    for command in [&["NOSUCH", "a"][..], &["GET"], &["CLIENT", "NOSUCH"]] {
        assert!(client.command(command).is_error(), "{command:?}");
    }
    assert!(client.command(&["GET", "a"]).error().starts_with("NOAUTH"));
    // What a browser can be made to send ends the connection, as at a server.
    client.send_raw(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.read_to_close(), b"");
}
