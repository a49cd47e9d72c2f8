//! `MONITOR` shows what clients do, and what the server refuses leaves nothing behind.

use std::time::Duration;

use heatsink_conformance::Rig;
use heatsink_testkit::{RawClient, Reply, eventually};

const SOON: Duration = Duration::from_secs(5);

/// Everything that is shown before a command that says `word`.
fn shown_before(monitor: &mut RawClient, word: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let line = monitor.read_reply().text();
        if line.contains(word) {
            return lines;
        }
        lines.push(line);
    }
}

#[test]
fn names_that_are_given_to_connections_are_not_shown() {
    let rig = Rig::new(1);
    let (mut monitor, mut client) = (rig.client(), rig.client());
    let mut direct = rig.server().client();
    client.command(&["CLIENT", "SETNAME", "somebody"]);
    assert_eq!(monitor.command(&["MONITOR"]), Reply::ok());
    for command in [&["MULTI"][..], &["INCR", "n"], &["CLIENT", "ID"], &["EXEC"]] {
        assert!(!client.command(command).is_error());
    }
    direct.command(&["CLIENT", "SETNAME", "else"]);
    direct.command(&["CLIENT", "ID"]);
    client.command(&["ECHO", "the end"]);
    let lines = shown_before(&mut monitor, "the end");
    let shown = |words: &str| lines.iter().any(|line| line.contains(words));
    assert!(shown("\"MULTI\"") && shown("\"INCR\" \"n\"") && shown("\"EXEC\""), "{lines:?}");
    assert!(!shown("somebody"), "{lines:?}");
    let asked = lines.iter().filter(|line| line.to_lowercase().contains("\"client\" \"id\""));
    assert_eq!(asked.count(), 2, "by clients, not by Heatsink: {lines:?}");
    assert!(shown("\"CLIENT\" \"SETNAME\" \"else\""), "others' are: {lines:?}");
}

/// A connection that is opened for a client meanwhile greets the server, which no client has said.
#[test]
fn how_dedicated_connections_begin_is_not_shown() {
    let rig = Rig::new(1);
    let (mut monitor, mut client) = (rig.client(), rig.client());
    for client in [&mut monitor, &mut client] {
        assert!(!client.command(&["HELLO", "3"]).is_error());
        assert_eq!(client.command(&["GET", "k"]), Reply::Null);
    }
    assert_eq!(monitor.command(&["MONITOR"]), Reply::ok());
    assert_eq!(client.command(&["BLPOP", "list", "0.01"]), Reply::Null);
    client.command(&["ECHO", "the end"]);
    let lines = shown_before(&mut monitor, "the end");
    let shown = |word: &str| lines.iter().any(|line| line.contains(word));
    assert!(shown("\"BLPOP\"") && !shown("\"HELLO\""), "{lines:?}");
}

#[test]
fn a_monitor_is_answered_and_can_be_ended() {
    let rig = Rig::new(1);
    let (mut monitor, mut client) = (rig.client(), rig.client());
    monitor.send_raw(b"MONITOR\r\nMONITOR\r\nPING hey\r\n");
    assert_eq!(monitor.read_reply(), Reply::ok());
    // A server answers before it shows what was asked.
    loop {
        match monitor.read_reply() {
            Reply::Simple(_) => {}
            reply => break assert_eq!(reply, Reply::bulk("hey")),
        }
    }
    shown_before(&mut monitor, "\"hey\"");
    client.command(&["SET", "seen", "1"]);
    shown_before(&mut monitor, "\"seen\"");
    assert_eq!(monitor.command(&["RESET"]).text(), "RESET");
    assert_eq!(monitor.command(&["GET", "seen"]), Reply::bulk("1"));
    client.command(&["SET", "seen", "2"]);
    assert_eq!(monitor.command(&["GET", "seen"]), Reply::bulk("2"));
}

/// A client that was refused has no connection of its own.
#[test]
fn what_is_refused_leaves_no_connection_behind() {
    let rig = Rig::new(1);
    let mut direct = rig.server().client();
    let rule =
        ["ACL", "SETUSER", "app", "on", "nopass", "~*", "+@all", "-monitor", "-client|reply"];
    assert_eq!(direct.command(&rule), Reply::ok());
    let mut client = rig.client();
    let id = client.command(&["CLIENT", "ID"]);
    assert_eq!(client.command(&["AUTH", "app", "x"]), Reply::ok());
    for request in [
        &["MONITOR"][..],
        &["MONITOR", "x"],
        &["CLIENT", "REPLY", "OFF"],
        &["CLIENT", "REPLY", "SKIP"],
        &["CLIENT", "REPLY", "NONE"],
        &["SYNC"],
        &["PSYNC", "?", "-1"],
        &["REPLCONF", "capa", "eof"],
        &["SCRIPT", "DEBUG", "YES"],
        &["READONLY"],
        &["HELLO", "3", "NOSUCH", "option"],
    ] {
        let refused = client.command(request);
        assert!(refused.is_error(), "{request:?}: {refused:?}");
        assert_eq!(client.command(&["CLIENT", "ID"]), id, "{request:?}");
        assert_eq!(client.command(&["SELECT", "1"]), Reply::ok(), "{request:?}");
        assert_eq!(client.command(&["SELECT", "0"]), Reply::ok(), "{request:?}");
    }
    drop(client);
    eventually(SOON, || rig.server().info_u64("clients", "connected_clients") <= 6);
}
