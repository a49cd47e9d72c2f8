//! Reads that came to a key just after its value had been moved: they are answered, by whoever has
//! the value then, and with the rights of whoever asked. They wait only if they need the whole key,
//! or if their client has rights of its own and none on the shards.
//!
//! ```text
//! 1. the proxy knows that the key is about to be split: reads go to the key
//! 2. the value is moved; the marker is in its place
//! 3. a read finds the marker
//! 4. the proxy is told that the key is split
//! ```

use std::time::Duration;

use heatsink_conformance::{Heatsink, Relay, Rig, Way};
use heatsink_testkit::{RawClient, RedisServer, Reply, encode, eventually};

use crate::hand::Mover;

const SOON: Duration = Duration::from_secs(10);

/// `ann` may do anything with the key, and nothing with a shard; `eve` may not even read the key.
fn rig() -> Rig {
    let rig = Rig::new(1);
    let mut admin = rig.server().client();
    for rule in [
        &["ACL", "SETUSER", "ann", "on", ">ann-pw", "~set", "&*", "+@all"][..],
        &["ACL", "SETUSER", "eve", "on", ">eve-pw", "~e:*", "&*", "+@all"],
    ] {
        assert_eq!(admin.command(rule), Reply::ok());
    }
    rig
}

fn login(rig: &Rig, user: &str) -> RawClient {
    let mut client = rig.client();
    assert_eq!(client.command(&["AUTH", user, &format!("{user}-pw")]), Reply::ok());
    client
}

/// Sends a read, which finds the marker.
fn read_too_late(rig: &Rig, client: &mut RawClient, args: &[&str]) {
    let command = args[0].to_lowercase();
    let before = rig.server().calls(&command);
    client.send(args);
    eventually(SOON, || rig.server().calls(&command) > before);
    assert_waits(client);
}

/// It gets no reply for a while.
fn assert_waits(client: &mut RawClient) {
    let early = client.try_read_frame(Duration::from_millis(50)).expect("no error");
    assert!(early.is_none(), "{:?}", early.map(String::from_utf8));
}

#[test]
fn a_read_that_came_too_late_is_answered_by_the_shards() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    let mut client = rig.client();
    client.command(&["SADD", "set", "a", "b", "c"]);
    let untold = mover.move_away(b"set", 4);
    // Before anybody tells that it is split, and behind that.
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(3));
    mover.tell(b"set", &untold);
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(3));
    assert_eq!(mover.forced(), 0);
}

/// No shard can answer it: the key is made whole for it, as it would be for one that came later.
#[test]
fn a_read_that_came_too_late_and_no_shard_can_answer_waits_for_the_whole_key() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    let mut client = rig.client();
    client.command(&["SADD", "set", "a"]);
    let untold = mover.move_away(b"set", 4);
    read_too_late(&rig, &mut client, &["SRANDMEMBER", "set"]);
    // What is asked behind it waits for its turn.
    client.send(&["SCARD", "set"]);
    mover.tell(b"set", &untold);
    assert_eq!(client.read_reply(), Reply::bulk("a"));
    assert_eq!(client.read_reply(), Reply::Integer(1));
    assert_eq!(mover.forced(), 1);
    assert!(!mover.is_split(b"set"));
}

/// ```text
/// 1. - 3. as above; the reply that tells of the marker is under way
/// 4. the proxy is told that the key is made whole again
/// 5. the reply comes; the key still holds the marker, and keeps it for now
/// ```
#[test]
fn a_read_that_finds_the_marker_while_the_key_is_made_whole_is_answered_by_the_shards() {
    let server = RedisServer::start();
    let relay = Relay::before(server.addr());
    let heatsink = Heatsink::before_url(&relay.url(), |config| config.workers = 1);
    let mover = Mover::new(&heatsink.proxy().handle());
    let mut client = heatsink.client();
    client.command(&["SADD", "set", "a", "b", "c"]);
    let untold = mover.move_away(b"set", 4);
    relay.set(Way::HoldReplies);
    client.send(&["SCARD", "set"]);
    relay.wait_held(b"WRONGTYPE");
    mover.tell_draining(b"set", &untold);
    relay.set(Way::Open);
    assert_eq!(client.read_reply(), Reply::Integer(3));
    assert!(mover.make_whole(b"set"));
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(3));
}

/// Its rights are those on the key. On a shard it has none, and Heatsink's are not its own.
#[test]
fn a_read_that_came_too_late_has_the_rights_of_its_client() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    rig.client().command(&["SADD", "set", "a", "b", "c"]);
    let (mut ann, mut eve) = (login(&rig, "ann"), login(&rig, "eve"));
    let untold = mover.move_away(b"set", 4);
    read_too_late(&rig, &mut ann, &["SCARD", "set"]);
    // What the server refuses is told at once.
    let refused = eve.command(&["SCARD", "set"]);
    assert!(refused.error().starts_with("NOPERM"), "{refused}");
    mover.tell(b"set", &untold);
    assert_eq!(ann.read_reply(), Reply::Integer(3));
    assert_eq!(mover.forced(), 1);
    // The same once everybody knows that it is split.
    assert!(mover.split(b"set", 2));
    assert_eq!(ann.command(&["SISMEMBER", "set", "b"]), Reply::Integer(1));
    assert_eq!(mover.forced(), 2);
    assert!(mover.split(b"set", 2));
    for command in [&["SCARD", "set"][..], &["SADD", "set", "d"], &["SMEMBERS", "set"]] {
        let refused = eve.command(command);
        assert!(refused.error().starts_with("NOPERM"), "{command:?}: {refused}");
    }
    assert_eq!(rig.client().command(&["SCARD", "set"]), Reply::Integer(3));
}

/// It lost its right while it waited.
#[test]
fn a_read_that_waited_is_asked_with_the_rights_of_now() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    rig.client().command(&["SADD", "set", "a", "b", "c"]);
    let mut ann = login(&rig, "ann");
    let untold = mover.move_away(b"set", 4);
    read_too_late(&rig, &mut ann, &["SCARD", "set"]);
    let taken = ["ACL", "SETUSER", "ann", "resetkeys"];
    assert_eq!(rig.server().client().command(&taken), Reply::ok());
    mover.tell(b"set", &untold);
    let refused = ann.read_reply();
    assert!(refused.error().starts_with("NOPERM"), "{refused}");
}

/// Who asks several things at once is answered in order.
#[test]
fn replies_keep_their_order_around_a_read_that_came_too_late() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    let mut client = rig.client();
    client.command(&["SADD", "set", "a", "b", "c"]);
    client.command(&["SET", "other", "v"]);
    let untold = mover.move_away(b"set", 4);
    let requests = [&["GET", "other"][..], &["SCARD", "set"], &["GET", "other"], &["PING"]];
    client.send_raw(&requests.map(encode).concat());
    assert_eq!(client.read_reply(), Reply::bulk("v"));
    assert_eq!(client.read_reply(), Reply::Integer(3));
    assert_eq!(client.read_reply(), Reply::bulk("v"));
    assert_eq!(client.read_reply(), Reply::Simple("PONG".into()));
    mover.tell(b"set", &untold);
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(3));
}
