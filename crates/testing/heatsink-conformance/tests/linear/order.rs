//! What a history has shown once, played again step by step.

use std::time::Duration;

use heatsink_conformance::{ClusterRig, Heatsink, Rig};
use heatsink_proxy::hot_keys::Treatment;
use heatsink_testkit::{RedisCluster, RedisServer, Reply, encode, eventually};

const SOON: Duration = Duration::from_secs(10);

fn heat(heatsink: &Heatsink) {
    heatsink.heat(&["k"], Treatment::EXACT);
}

/// Two reads of one connection, of one key, in the order in which they were sent.
///
/// ```text
/// 1. another's GET is out
/// 2. the client sends GET and STRLEN: the GET waits for the next flight, the STRLEN is in
///    nobody's way and could leave at once
/// 3. somebody writes
/// 4. the next flight leaves: the GET would see the write, and the STRLEN behind it would not
/// ```
#[test]
fn a_read_does_not_overtake_one_that_waits() {
    let mut rig = Rig::with(RedisServer::builder(), |config| {
        config.live.coalesce.max_wait = SOON;
    });
    heat(rig.heatsink());
    let (mut other, mut client, mut writer) = (rig.client(), rig.client(), rig.server().client());
    // Connections are there, and the key is known to be hot.
    for connection in [&mut other, &mut client, &mut writer] {
        assert_eq!(connection.command(&["GET", "k"]), Reply::Null);
    }
    let handle = rig.heatsink().proxy().handle();
    let wait_for_requests = |count| eventually(SOON, || handle.requests_total() >= count);
    wait_for_requests(2);
    rig.server_mut().pause();
    other.send(&["GET", "k"]);
    wait_for_requests(3);
    // The second of them may be left unread.
    client.send_raw(&[encode(&["GET", "k"]), encode(&["STRLEN", "k"])].concat());
    wait_for_requests(4);
    // Executed behind all that the server has received by now, before all that comes later.
    writer.send(&["SET", "k", "new"]);
    rig.server_mut().resume();
    assert_eq!(other.read_reply(), Reply::Null);
    assert_eq!(writer.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::bulk("new"));
    assert_eq!(client.read_reply(), Reply::Integer(3), "an older value than before");
}

/// A read behind a write of the same connection, before a cluster.
///
/// ```text
/// 1. another's GET is about to leave, and can still be joined
/// 2. the client sends GETDEL and GET: the GETDEL is queued behind that GET
/// 3. the client's GET joins the other's: it would see what its own GETDEL has removed
/// ```
#[test]
fn a_read_does_not_join_one_that_leaves_before_an_own_write() {
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let rig = ClusterRig::with(settings, |config| config.workers = 1);
    heat(&rig.heatsink);
    let (mut other, mut client) = (rig.client(), rig.client());
    for round in 0..2000 {
        assert_eq!(client.command(&["SET", "k", "v"]), Reply::ok());
        other.send(&["GET", "k"]);
        client.send_raw(&[encode(&["GETDEL", "k"]), encode(&["GET", "k"])].concat());
        assert_eq!(client.read_reply(), Reply::bulk("v"));
        assert_eq!(client.read_reply(), Reply::Null, "its own GETDEL is not seen, round {round}");
        other.read_reply();
    }
}

/// Two reads of one connection again: the second does not join what leaves before the first.
///
/// ```text
/// 1. another's GET is about to leave, and can still be joined; a write is queued behind it
/// 2. the client sends STRLEN and GET: the STRLEN is queued behind the write
/// 3. the client's GET joins the other's: it would see less than the STRLEN before it
/// ```
#[test]
fn a_read_does_not_join_one_that_leaves_before_an_own_read() {
    let rig = Rig::new(1);
    heat(rig.heatsink());
    let (mut other, mut writer, mut client) = (rig.client(), rig.client(), rig.client());
    for round in 0..2000 {
        other.send(&["GET", "k"]);
        writer.send(&["APPEND", "k", "x"]);
        client.send_raw(&[encode(&["STRLEN", "k"]), encode(&["GET", "k"])].concat());
        let len = client.read_reply().integer();
        let text = client.read_reply().bytes().map_or(0, <[u8]>::len) as i64;
        assert!(text >= len, "{text} bytes after {len}, round {round}");
        other.read_reply();
        writer.read_reply();
    }
}
