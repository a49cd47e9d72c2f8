//! Clients never see `MOVED` or `ASK`, however long the nodes send a request around.

use std::time::Duration;

use heatsink_conformance::Heatsink;
use heatsink_testkit::{RawClient, Reply, key_slot};

use crate::open::{OPEN, before_open, elsewhere, send_all};

const RETRY: Duration = Duration::from_millis(200);
/// For an answer that comes after everything allowed has been tried.
const BOUNDED: Duration = Duration::from_secs(4);
const HALF_MOVED: &str = "TRYAGAIN Multiple keys request during rehashing of slot";
const UNSERVED: &str = "CLUSTERDOWN Hash slot not served";

fn hasty() -> Heatsink {
    before_open(|config| config.live.timeouts.cluster_retry = RETRY)
}

fn client(heatsink: &Heatsink) -> RawClient {
    let mut client = heatsink.client();
    client.set_timeout(BOUNDED);
    client
}

/// The first of these keys is on its way to another node, the second is not.
fn move_first_of(keys: &[String; 2]) {
    let slot = key_slot(&keys[0]);
    let mut owner = OPEN.node(OPEN.owner_of(slot)).client();
    let to = elsewhere(&keys[0]);
    assert_eq!(owner.command(&["SET", &keys[0], "1"]), Reply::ok());
    OPEN.begin_move_slot(slot, to);
    assert_eq!(OPEN.migrate_some_keys(slot, to, 1), 1);
    // A new key would be the other node's: only one that is there already stays.
    OPEN.abandon_move_slot(slot, to);
    assert_eq!(owner.command(&["SET", &keys[1], "1"]), Reply::ok());
    OPEN.begin_move_slot(slot, to);
}

#[test]
fn a_transaction_on_both_halves_of_a_moving_slot() {
    let heatsink = hasty();
    let keys = ["half", "other"].map(|name| OPEN.key_on(0, "halves") + name);
    move_first_of(&keys);
    let [moved, staying] = [&*keys[0], &*keys[1]];
    for [first, second] in [[moved, staying], [staying, moved]] {
        let commands = [&["MULTI"][..], &["INCR", first], &["INCR", second], &["EXEC"], &["PING"]];
        for pipelined in [false, true] {
            let mut client = client(&heatsink);
            let replies = if pipelined {
                send_all(&mut client, &commands);
                commands.map(|_| client.read_reply())
            } else {
                commands.map(|command| client.command(command))
            };
            let expected = [
                Reply::ok(),
                Reply::Simple("QUEUED".into()),
                Reply::Simple("QUEUED".into()),
                Reply::Error(HALF_MOVED.into()),
                Reply::Simple("PONG".into()),
            ];
            assert_eq!(replies, expected, "{first} {second}, pipelined: {pipelined}");
        }
    }
    // One half at a time is fine, and nothing was executed before.
    for key in [moved, staying] {
        let mut client = client(&heatsink);
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["INCR", key]).text(), "QUEUED");
        assert_eq!(client.command(&["EXEC"]), Reply::Array(vec![Reply::Integer(2)]), "{key}");
    }
}

/// Each of two nodes says of the slot of `key` that it is the other's.
fn argue_about(key: &str) {
    let slot = key_slot(key).to_string();
    let (owner, other) = (OPEN.owner_of(key_slot(key)), elsewhere(key));
    let mut client = OPEN.node(owner).client();
    let given = client.command(&["CLUSTER", "SETSLOT", &slot, "NODE", OPEN.id(other)]);
    assert_eq!(given, Reply::ok());
    for (node, named) in [(owner, other), (other, owner)] {
        let sent_on = OPEN.node(node).client().command(&["GET", key]);
        let expected = format!("MOVED {slot} {}", OPEN.node(named).addr());
        assert_eq!(sent_on, Reply::Error(expected));
    }
}

#[test]
fn a_slot_that_nodes_disagree_about() {
    let heatsink = hasty();
    let (key, fine) = (OPEN.key_on(1, "argued"), OPEN.key_on(2, "argued"));
    argue_about(&key);
    for command in [
        &["GET", &key][..],
        &["SET", &key, "x"],
        &["MGET", &key, &fine],
        &["DEL", &fine, &key],
        &["EVAL", "return 1", "1", &key],
        &["BLPOP", &key, "1"],
        &["WATCH", &key],
        &["SSUBSCRIBE", &key],
    ] {
        let mut client = client(&heatsink);
        let reply = client.command(command);
        assert_eq!(reply, Reply::Error(UNSERVED.into()), "{command:?}");
        // An ordinary client afterwards.
        assert_eq!(client.command(&["STRLEN", &fine]), Reply::Integer(0), "{command:?}");
    }
    // Pipelined, where none may be tried again since others are behind it.
    let mut piping = client(&heatsink);
    send_all(&mut piping, &[&["GET", &key], &["INCR", &key], &["STRLEN", &fine]]);
    let replies = [(); 3].map(|()| piping.read_reply());
    let unserved = Reply::Error(UNSERVED.into());
    assert_eq!(replies, [unserved.clone(), unserved.clone(), Reply::Integer(0)]);
    // In a transaction, which fails with it.
    assert_eq!(piping.command(&["MULTI"]), Reply::ok());
    assert_eq!(piping.command(&["SET", &key, "x"]), unserved);
    let aborted = piping.command(&["EXEC"]);
    assert!(aborted.is_error() && aborted.error().starts_with("EXECABORT"), "{aborted}");
    // And beside a key that is watched.
    assert_eq!(piping.command(&["WATCH", &fine]), Reply::ok());
    assert_eq!(piping.command(&["GET", &key]), unserved);
    assert_eq!(piping.command(&["UNWATCH"]), Reply::ok());
}
