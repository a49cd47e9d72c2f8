//! Keys and channels of the fleet are refused to clients, whatever way they are named.

use heatsink_conformance::{ClusterRig, Rig};
use heatsink_testkit::{RawClient, RedisCluster, Reply};

const OWN: &str = "heatsink:{default}:state";
const CHANGES: &str = "heatsink:{default}:changes";

#[track_caller]
fn assert_refused(reply: &Reply) {
    assert!(reply.error().starts_with("NOPERM heatsink: keys and channels"), "{reply:?}");
}

#[test]
fn no_client_reads_writes_or_publishes_under_the_fleets_names() {
    let rig = Rig::new(1);
    rig.server().client().command(&["SET", OWN, "theirs"]);
    let mut client = rig.client();
    for request in [
        &["GET", OWN][..],
        &["SET", OWN, "x"],
        &["MSET", "a", "1", OWN, "2"],
        &["DEL", OWN],
        &["COPY", OWN, "a"],
        &["EVAL", "return redis.call('SET', KEYS[1], 'x')", "1", OWN],
        &["EVAL", "return redis.call('PUBLISH', 'heatsink:{default}:changes', 'x')", "0"],
        &["BLPOP", OWN, "0"],
        &["WATCH", OWN],
        &["SUBSCRIBE", CHANGES],
        &["SSUBSCRIBE", CHANGES],
        &["PSUBSCRIBE", "heatsink:{*"],
        &["PUBLISH", CHANGES, "x"],
        &["SPUBLISH", CHANGES, "x"],
        &["NO.SUCH.COMMAND", OWN],
    ] {
        assert_refused(&client.command(request));
    }
    client.send_raw(format!("GET {OWN}\r\n").as_bytes());
    assert_refused(&client.read_reply());
    // In a pipeline each reply has its place.
    client.send(&["SET", "a", "1"]);
    client.send(&["GET", OWN]);
    client.send(&["GET", "a"]);
    assert_eq!(client.read_reply(), Reply::ok());
    assert_refused(&client.read_reply());
    assert_eq!(client.read_reply(), Reply::bulk("1"));
    // A value may be anything.
    assert_eq!(client.command(&["SET", "b", OWN]), Reply::ok());
    assert_eq!(client.command(&["GET", "b"]), Reply::bulk(OWN));
    assert_eq!(rig.server().client().command(&["GET", OWN]), Reply::bulk("theirs"));
}

/// The large request is not passed on in pieces before its last key has come.
#[test]
fn a_key_at_the_end_of_a_large_request_is_seen() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    let large = "x".repeat(600 << 10);
    assert_refused(&client.command(&["MSET", "a", &large, OWN, "1"]));
    assert_refused(&client.command(&["SET", OWN, &large]));
    assert_eq!(client.command(&["EXISTS", "a"]), Reply::Integer(0));
    assert_eq!(client.command(&["SET", "a", &large]), Reply::ok());
    assert_eq!(client.command(&["STRLEN", "a"]).integer(), 600 << 10);
    assert_eq!(rig.server().client().command(&["EXISTS", OWN]), Reply::Integer(0));
}

fn refuses_transactions(client: &mut RawClient) {
    for watched in [false, true] {
        if watched {
            assert_eq!(client.command(&["WATCH", "a"]), Reply::ok());
        }
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["SET", "a", "1"]).text(), "QUEUED");
        client.send(&["SET", OWN, "x"]);
        client.send(&["EXEC"]);
        assert_refused(&client.read_reply());
        assert!(client.read_reply().error().starts_with("EXECABORT"));
        assert_eq!(client.command(&["EXISTS", "a"]), Reply::Integer(0));
    }
}

#[test]
fn a_transaction_that_names_one_is_not_executed() {
    let rig = Rig::new(1);
    refuses_transactions(&mut rig.client());
    let builder = RedisCluster::builder().replicas_per_primary(0);
    let rig = ClusterRig::with(builder, |config| config.workers = 1);
    refuses_transactions(&mut rig.client());
    assert_refused(&rig.client().command(&["MGET", "a", OWN]));
    assert_refused(&rig.client().command(&["SSUBSCRIBE", CHANGES]));
}

/// Of a large request the last key counts as well, and it is not passed on before that has come.
#[test]
fn whoever_wants_no_replies_is_refused_like_any_other() {
    let rig = Rig::new(1);
    let mut direct = rig.server().client();
    let large = "x".repeat(600 << 10);
    let mut client = rig.client();
    for request in [
        &["SET", OWN, "x"][..],
        &["MSET", "a", &large, OWN, "1"],
        &["SET", OWN, &large],
        &["PUBLISH", CHANGES, &large],
        &["EVAL", &format!("--{large}\nreturn redis.call('SET', KEYS[1], 'x')"), "1", OWN],
    ] {
        client.send(&["CLIENT", "REPLY", "OFF"]);
        client.send(request);
        client.send(&["SET", "large", &large]);
        client.send(&["CLIENT", "REPLY", "ON"]);
        // The first thing that it is told.
        assert_eq!(client.read_reply(), Reply::ok());
        assert_eq!(client.command(&["STRLEN", "large"]).integer(), 600 << 10);
        assert_eq!(direct.command(&["EXISTS", OWN, "a"]), Reply::Integer(0));
        assert_eq!(direct.command(&["DEL", "large"]), Reply::Integer(1));
    }
}

#[test]
fn a_client_that_tracks_is_refused_like_any_other() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    client.command(&["HELLO", "3"]);
    assert_eq!(client.command(&["CLIENT", "TRACKING", "ON"]), Reply::ok());
    assert_eq!(client.command(&["SET", "a", "1"]), Reply::ok());
    assert_refused(&client.command(&["SET", OWN, "x"]));
    assert_eq!(client.command(&["GET", "a"]), Reply::bulk("1"));
    assert_eq!(rig.server().client().command(&["EXISTS", OWN]), Reply::Integer(0));
}

/// Whoever listens to everything hears everything but the fleet.
#[test]
fn a_pattern_for_all_channels_does_not_tell_what_the_fleet_says() {
    let rig = Rig::new(1);
    let mut direct = rig.server().client();
    direct.command(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]);
    for protocol in ["2", "3"] {
        let mut client = rig.client();
        client.command(&["HELLO", protocol]);
        client.send(&["PSUBSCRIBE", "*"]);
        client.read_frame();
        direct.command(&["PUBLISH", CHANGES, "P 1 1 1 a"]);
        direct.command(&["SET", OWN, "x"]);
        direct.command(&["PUBLISH", "news", "the next"]);
        let frame = client.read_frame();
        assert!(frame.ends_with(b"the next\r\n"), "{}", frame.escape_ascii());
    }
}

#[test]
fn the_control_planes_own_connection_may_use_them() {
    let rig = Rig::new(1);
    let handle = rig.heatsink().proxy().handle();
    let mut within = RawClient::over_stream(handle.connect().expect("a connection within"));
    assert_eq!(within.command(&["SET", OWN, "x"]), Reply::ok());
    assert_eq!(within.command(&["MULTI"]), Reply::ok());
    assert_eq!(within.command(&["GET", OWN]).text(), "QUEUED");
    assert_eq!(within.command(&["EXEC"]), Reply::Array(vec![Reply::bulk("x")]));
}
