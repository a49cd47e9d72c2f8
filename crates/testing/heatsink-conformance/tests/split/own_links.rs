//! Clients that have a connection to the server of their own, for what cannot be shared: to them a
//! split key looks as it does to others.

use std::time::Duration;

use heatsink_conformance::Rig;
use heatsink_testkit::{RawClient, Reply};

use crate::hand::Mover;

const SOON: Duration = Duration::from_secs(10);

/// What gives a client a connection of its own.
const WAYS: [&[&str]; 4] = [
    &["SUBSCRIBE", "channel"],
    &["BLPOP", "nothing", "0.01"],
    &["WATCH", "another"],
    &["CLIENT", "NO-EVICT", "ON"],
];

/// What gives it one on which the server names keys, or which has a database of its own.
const HIDDEN: [&[&[&str]]; 3] = [
    &[&["CLIENT", "TRACKING", "ON"]],
    &[&["WATCH", "another"], &["SELECT", "0"]],
    &[&["CLIENT", "NO-EVICT", "ON"], &["AUTH", "default", "any"]],
];

/// What the server, or Heatsink, refuses.
const REFUSED: [&[&[&str]]; 6] = [
    &[&["MONITOR", "x"]],
    &[&["SYNC"]],
    &[&["CLIENT", "REPLY", "NONE"]],
    &[&["HELLO", "3", "NOSUCH", "option"]],
    &[&["READONLY"]],
    &[&["WATCH", "another"], &["SELECT", "99"], &["AUTH", "nobody", "x"], &["UNWATCH"]],
];

fn client(rig: &Rig) -> RawClient {
    let mut client = rig.client();
    assert!(!client.command(&["HELLO", "3"]).is_error());
    client
}

/// The reply to a command, whatever is told unasked before it.
fn ask(client: &mut RawClient, args: &[&str]) -> Reply {
    client.send(args);
    loop {
        match client.read_reply() {
            Reply::Push(_) => {}
            other => return other,
        }
    }
}

fn open(client: &mut RawClient, commands: &[&[&str]]) {
    for command in commands {
        client.command(command);
    }
}

/// A set of two and a counter at 5: changes both, and puts them back.
fn use_both(client: &mut RawClient, way: &[&str]) {
    assert_eq!(ask(client, &["SCARD", "set"]), Reply::Integer(2), "{way:?}");
    assert_eq!(ask(client, &["SADD", "set", "c"]), Reply::Integer(1), "{way:?}");
    assert_eq!(ask(client, &["SREM", "set", "c"]), Reply::Integer(1), "{way:?}");
    assert_eq!(ask(client, &["INCRBY", "counter", "2"]), Reply::Integer(7), "{way:?}");
    assert_eq!(ask(client, &["GET", "counter"]), Reply::bulk("7"), "{way:?}");
    assert_eq!(ask(client, &["DECRBY", "counter", "2"]), Reply::Integer(5), "{way:?}");
}

fn rig() -> Rig {
    let rig = Rig::new(1);
    let mut direct = rig.server().client();
    direct.command(&["SADD", "set", "a", "b"]);
    direct.command(&["SET", "counter", "5"]);
    rig
}

#[test]
fn clients_with_a_connection_of_their_own_see_the_whole_key() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    for way in WAYS {
        // The key is split when they have it, or before.
        for before in [true, false] {
            let mut own = client(&rig);
            if before {
                open(&mut own, &[way]);
            }
            for key in [&b"set"[..], b"counter"] {
                assert!(mover.split(key, 3) || mover.is_split(key), "{way:?}");
            }
            if !before {
                open(&mut own, &[way]);
            }
            use_both(&mut own, way);
        }
    }
}

/// Nobody sees which keys are asked for there: there are no split keys while there is such a connection.
#[test]
fn no_key_is_split_while_a_client_has_a_connection_that_hides_keys() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    for way in HIDDEN {
        assert!(mover.split(b"set", 3) && mover.split(b"counter", 3), "{way:?}");
        let mut own = client(&rig);
        open(&mut own, way);
        use_both(&mut own, way[0]);
        assert!(!mover.is_split(b"set") && !mover.is_split(b"counter"), "{way:?}");
        assert!(!mover.try_freeze(b"set", Duration::from_millis(50)), "{way:?}");
        assert_eq!(ask(&mut own, &["SCARD", "set"]), Reply::Integer(2), "{way:?}");
        drop(own);
        assert!(mover.try_freeze(b"set", SOON), "{way:?}");
        mover.release(b"set");
    }
}

/// Nor does what was refused keep keys from being split, or what changes no key's name.
#[test]
fn what_is_refused_keeps_no_key_from_being_split() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    for way in REFUSED.into_iter().chain([&[&["MONITOR"][..]][..]]) {
        let mut own = client(&rig);
        open(&mut own, way);
        assert!(mover.try_freeze(b"set", SOON), "{way:?}");
        mover.release(b"set");
    }
}

/// Whoever wants to be told of changes is told of those of a key that was split when it asked.
#[test]
fn whoever_tracks_a_key_is_told_of_its_changes() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    assert!(mover.split(b"set", 3));
    let mut own = client(&rig);
    own.command(&["CLIENT", "TRACKING", "ON"]);
    assert_eq!(own.command(&["SCARD", "set"]), Reply::Integer(2));
    assert_eq!(rig.client().command(&["SADD", "set", "c"]), Reply::Integer(1));
    let told = own.try_read_frame(SOON).expect("no error").expect("it is told");
    assert!(told.starts_with(b">2\r\n$10\r\ninvalidate"), "{}", told.escape_ascii());
}
