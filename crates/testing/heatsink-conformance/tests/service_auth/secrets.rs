//! What Heatsink is at the server stays between the two.

use std::time::Duration;

use heatsink_testkit::{RawClient, Reply, encode, eventually};

use crate::support::{Fixture, UPSTREAM_SECRET, UPSTREAM_USER};

const SOON: Duration = Duration::from_secs(5);

/// The login of the server, tried on a connection of some state: an error, or the end.
#[track_caller]
fn is_refused(client: &mut RawClient, state: &str) {
    let reply = client.try_command(&["AUTH", UPSTREAM_USER, UPSTREAM_SECRET]);
    assert!(reply.as_ref().map_or(true, Reply::is_error), "{state}: {reply:?}");
}

#[test]
fn the_servers_own_users_are_nobody_here() {
    let fixture = Fixture::new();
    let mut client = fixture.heatsink.client();
    is_refused(&mut client, "at first");
    let hello = ["HELLO", "3", "AUTH", UPSTREAM_USER, UPSTREAM_SECRET];
    assert!(client.command(&hello).error().starts_with("WRONGPASS"));
    assert_eq!(client.command(&["AUTH", "app", "app-pw"]), Reply::ok());
    is_refused(&mut client, "logged in");
}

/// In these states a client has a connection to the server for itself.
const STATES: [(&str, &[&[&str]]); 3] = [
    ("watching", &[&["WATCH", "k"]]),
    ("subscribed, RESP3", &[&["HELLO", "3"], &["SUBSCRIBE", "x"]]),
    ("unknown command", &[&["NOSUCH"]]),
];

#[test]
fn logins_are_checked_here_in_every_state() {
    let fixture = Fixture::new();
    for (state, commands) in STATES {
        let enter = || {
            let mut client = fixture.app();
            for command in commands {
                client.command(command);
            }
            client
        };
        assert_eq!(enter().command(&["AUTH", "app", "app-pw"]), Reply::ok(), "{state}");
        is_refused(&mut enter(), state);
        let mut client = enter();
        let reply = client.command(&["AUTH", "app", "wrong"]);
        assert!(reply.error().starts_with("WRONGPASS"), "{state}: {reply}");
        assert!(!client.command(&["GET", "none"]).is_error(), "{state}: still logged in");
    }
}

#[test]
fn a_transaction_does_not_become_another_user() {
    let fixture = Fixture::new();
    let mut admin = fixture.server.admin_client();
    let rule = ["ACL", "SETUSER", "other", "on", ">other-pw", "~*", "&*", "+@all"];
    assert_eq!(admin.command(&rule), Reply::ok());
    let mut client = fixture.app();
    let told = [&["MULTI"][..], &["AUTH", "other", "other-pw"], &["ACL", "WHOAMI"], &["EXEC"]]
        .map(|command| {
            client.try_command(command).map_or_else(|_| String::new(), |it| it.to_string())
        })
        .concat();
    assert!(!told.contains("\"other\""), "{told}");
    // Nor does whoever comes to that connection later.
    assert_eq!(fixture.app().command(&["ACL", "WHOAMI"]), Reply::bulk(UPSTREAM_USER));
}

#[test]
fn a_monitor_does_not_become_another_user() {
    let fixture = Fixture::new();
    let mut client = fixture.app();
    assert_eq!(client.command(&["MONITOR"]), Reply::ok());
    let words =
        [&["RESET"][..], &["AUTH", UPSTREAM_USER, UPSTREAM_SECRET], &["SET", "told", "yes"]];
    client.send_raw(&words.iter().flat_map(|command| encode(command)).collect::<Vec<_>>());
    // Whatever it is told, and be it the end: nobody of that name is known here.
    while let Ok(Some(frame)) = client.try_read_frame(Duration::from_millis(500)) {
        assert_ne!(frame, b"+OK\r\n", "logged in at the server");
    }
    assert_eq!(fixture.app().command(&["EXISTS", "told"]).integer(), 0);
}

#[test]
fn nothing_that_a_client_is_told_holds_the_credential() {
    let fixture = Fixture::new();
    let mut client = fixture.app();
    let mut told = String::new();
    for command in [
        &["CLIENT", "LIST"][..],
        &["CLIENT", "INFO"],
        &["HELLO", "3"],
        &["HELLO", "2"],
        &["INFO", "everything"],
        &["ACL", "LOG"],
    ] {
        told += &client.command(command).to_string();
    }
    // The server refuses Heatsink: clients are told that, and not what it tried.
    let mut admin = fixture.server.admin_client();
    let rule = ["ACL", "SETUSER", UPSTREAM_USER, "resetpass", ">rotated"];
    assert_eq!(admin.command(&rule), Reply::ok());
    assert!(admin.command(&["CLIENT", "KILL", "TYPE", "normal"]).integer() > 0);
    let mut refused = fixture.heatsink.client();
    let login = encode(&["AUTH", "app", "app-pw"]);
    refused.send_raw(&login);
    told += &refused.read_reply().to_string();
    let error = eventually(SOON, || {
        let reply = refused.command(&["GET", "a"]);
        reply.is_error().then(|| reply.text()).filter(|text| text.contains("refused by the server"))
    });
    assert!(error.contains("unavailable"), "{error}");
    told += &error;
    for command in [&["BLPOP", "l", "0"][..], &["HELLO", "3"], &["SELECT", "1"], &["MULTI"]] {
        told += &refused.command(command).to_string();
    }
    assert!(!told.contains(UPSTREAM_SECRET), "{told}");
    // And it gets better when the password does.
    let rule = ["ACL", "SETUSER", UPSTREAM_USER, &format!(">{UPSTREAM_SECRET}")];
    let mut admin = RawClient::connect(fixture.server.addr());
    assert_eq!(admin.command(&["AUTH", UPSTREAM_USER, "rotated"]), Reply::ok());
    assert_eq!(admin.command(&rule), Reply::ok());
    eventually(SOON, || refused.command(&["DISCARD"]) == Reply::ok());
    eventually(SOON, || refused.command(&["SET", "a", "1"]) == Reply::ok());
}
