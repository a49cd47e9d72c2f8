//! A node that runs a script, or holds up writers, holds up nobody who comes later.

use std::time::Duration;

use heatsink_conformance::ClusterRig;
use heatsink_testkit::{RawClient, RedisCluster, Reply, encode, eventually};

const SOON: Duration = Duration::from_secs(5);

fn rig() -> ClusterRig {
    let builder = RedisCluster::builder().replicas_per_primary(0);
    let rig = ClusterRig::with(builder, |config| config.workers = 1);
    let set = ["CONFIG", "SET", "busy-reply-threshold", "50"];
    assert_eq!(rig.client().command(&set), Reply::ok());
    rig
}

/// Whether somebody who comes now is answered, and with what.
fn newcomer(rig: &ClusterRig, command: &[&str]) -> Option<Reply> {
    let mut client = rig.client();
    client.set_timeout(Duration::from_millis(300));
    client.try_command(command).ok()
}

fn is_busy(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(error) if error.starts_with("BUSY"))
}

#[test]
fn a_script_that_does_not_end_holds_up_nobody_who_comes_later() {
    let rig = rig();
    let (mut busy, mut behind, mut other) = (rig.client(), rig.client(), rig.client());
    for client in [&mut busy, &mut behind, &mut other] {
        assert!(!client.command(&["SET", "a", "0"]).is_error());
    }
    busy.send(&["EVAL", "while true do end", "1", "a"]);
    behind.send_raw(&[encode(&["INCR", "a"]), encode(&["INCR", "a"])].concat());
    eventually(SOON, || newcomer(&rig, &["GET", "a"]).as_ref().is_some_and(is_busy));
    // So for whoever has been there before and has nothing under way, whatever it asks.
    assert!(is_busy(&other.command(&["GET", "a"])));
    assert!(is_busy(&other.command(&["MGET", "a", "b", "c", "d"])));
    assert!(is_busy(&other.command(&["DBSIZE"])));
    // Of a pipeline, what is for that node; the rest is answered.
    let keys = ["a", "b", "c", "d", "e", "f"];
    other.send_raw(&keys.map(|key| encode(&["GET", key])).concat());
    let told = keys.map(|_| other.read_reply());
    assert!(is_busy(&told[0]) && told.contains(&Reply::Null), "{told:?}");
    eventually(SOON, || other.command(&["SCRIPT", "KILL"]) == Reply::ok());
    assert!(busy.read_reply().error().contains("killed"));
    assert_eq!([behind.read_reply(), behind.read_reply()], [1, 2].map(Reply::Integer));
    assert_eq!(other.command(&["INCR", "a"]).integer(), 3);
}

#[test]
fn a_pause_for_writers_holds_up_no_readers_who_come_later() {
    let rig = rig();
    let (mut writer, mut reader): (RawClient, RawClient) = (rig.client(), rig.client());
    assert_eq!(reader.command(&["GET", "n"]), Reply::Null);
    let mut pauser = rig.client();
    assert_eq!(pauser.command(&["CLIENT", "PAUSE", "60000", "WRITE"]), Reply::ok());
    writer.send_raw(
        &[encode(&["INCR", "n"]), encode(&["GET", "n"]), encode(&["INCR", "n"])].concat(),
    );
    eventually(SOON, || newcomer(&rig, &["GET", "n"]) == Some(Reply::Null));
    // One that has something under way does not overtake itself.
    writer.send(&["GET", "n"]);
    for _ in 0..100 {
        assert_eq!(reader.command(&["GET", "n"]), Reply::Null);
        assert_eq!(reader.command(&["MGET", "n", "m"]).items(), [Reply::Null, Reply::Null]);
        assert!(reader.command(&["INFO", "server"]).text().contains("redis_version"));
    }
    assert_eq!(pauser.command(&["CLIENT", "UNPAUSE"]), Reply::ok());
    assert_eq!(writer.read_reply().integer(), 1);
    assert_eq!(writer.read_reply(), Reply::bulk("1"));
    assert_eq!(writer.read_reply().integer(), 2);
    assert_eq!(writer.read_reply(), Reply::bulk("2"));
    assert_eq!(reader.command(&["GET", "n"]), Reply::bulk("2"));
}

/// Replies are left out before a cluster as before one server.
#[test]
fn replies_can_be_switched_off() {
    let rig = rig();
    let mut client = rig.client();
    let sent = [
        &["SET", "a", "1"][..],
        &["CLIENT", "REPLY", "OFF"],
        &["SET", "b", "2"],
        &["MGET", "a", "b"],
        &["CLIENT", "REPLY", "ON"],
        &["CLIENT", "REPLY", "SKIP"],
        &["MSET", "a", "3", "b", "4"],
        &["MGET", "a", "b"],
    ];
    client.send_raw(&sent.iter().flat_map(|command| encode(command)).collect::<Vec<_>>());
    assert_eq!([client.read_reply(), client.read_reply()], [Reply::ok(), Reply::ok()]);
    assert_eq!(client.read_reply(), Reply::bulks(["3", "4"]));
}

/// ```text
/// 1. N and M hold up writers; N is silent, and there is a way around it
/// 2. C, with nothing under way: INCR n -> N, on link 2; INCR m -> M, on link 1
/// 3. M falls silent, and D goes around it, on link 2
/// 4. C: GET m -> M; on link 2 it would pass the INCR
/// ```
#[test]
fn a_way_around_that_is_younger_than_what_is_under_way_is_not_taken() {
    let rig = rig();
    let [n, m] = [0, 1].map(|index| rig.cluster.key_on(index, "around"));
    let (mut before, mut client, mut pauser) = (rig.client(), rig.client(), rig.client());
    for client in [&mut before, &mut client] {
        client.command(&["MGET", &n, &m]);
    }
    assert_eq!(pauser.command(&["CLIENT", "PAUSE", "60000", "WRITE"]), Reply::ok());
    before.send(&["INCR", &n]);
    eventually(SOON, || newcomer(&rig, &["GET", &n]) == Some(Reply::Null));
    client.send_raw(&[encode(&["INCR", &n]), encode(&["INCR", &m])].concat());
    eventually(SOON, || newcomer(&rig, &["GET", &m]) == Some(Reply::Null));
    client.send(&["GET", &m]);
    // Whoever comes later is answered later, by the same worker.
    eventually(SOON, || newcomer(&rig, &["GET", &m]) == Some(Reply::Null));
    assert_eq!(pauser.command(&["CLIENT", "UNPAUSE"]), Reply::ok());
    assert!(matches!(client.read_reply(), Reply::Integer(1 | 2)));
    assert_eq!(client.read_reply(), Reply::Integer(1));
    assert_eq!(client.read_reply(), Reply::bulk("1"));
}
