//! A server that runs a script, or holds up writes, is silent on the connection that this came from.
//! Hot keys are ordinary keys for whoever comes later.

use std::time::Duration;

use heatsink_conformance::{ClusterRig, Rig};
use heatsink_proxy::hot_keys::Treatment;
use heatsink_testkit::{RawClient, RedisCluster, Reply, eventually};

use crate::served::SOON;

fn rig(treatment: Treatment) -> Rig {
    let rig = Rig::one_server()
        .servers(|server| server.arg("busy-reply-threshold", "10"))
        .workers(1)
        .start();
    rig.heatsink().heat(&["k", "n"], treatment);
    rig
}

/// Whether somebody who comes now is answered, and with what.
fn newcomer(rig: &Rig, command: &[&str]) -> Option<Reply> {
    let mut client = rig.client();
    client.set_timeout(Duration::from_millis(200));
    client.try_command(command).ok()
}

fn is_busy(reply: &Reply) -> bool {
    reply.is_error() && reply.error().starts_with("BUSY")
}

/// A machine that is busy itself may let the writers come when the connection is gone around already. They
/// are refused then, like everybody who comes later, and have shown nothing.
const ROUNDS: usize = 10;

#[test]
fn a_script_that_does_not_end_holds_up_no_hot_key_for_those_who_come_later() {
    for treatment in [Treatment::EXACT, Treatment::COHERENT, Treatment::RELAXED] {
        let rig = rig(treatment);
        let waited = (0..ROUNDS).any(|_| a_script_holds_up_no_hot_key(&rig, treatment));
        assert!(waited, "the writers came too late each time, {treatment:?}");
    }
}

/// Whether the writers came early enough to wait behind the script.
fn a_script_holds_up_no_hot_key(rig: &Rig, treatment: Treatment) -> bool {
    let (mut busy, mut other) = (rig.client(), rig.client());
    let [mut reader, mut writer, mut setter] = [(); 3].map(|()| rig.client());
    assert_eq!(other.command(&["MSET", "k", "v", "n", "0"]), Reply::ok());
    assert_eq!(other.command(&["INCR", "n"]), Reply::Integer(1));
    busy.send(&["EVAL", "while true do end", "0"]);
    // A read of a hot key goes along another connection, and could be there first.
    let mut direct = rig.server().client();
    eventually(SOON, || is_busy(&direct.command(&["PING"])));
    // They wait behind it, and would be waited for.
    reader.send(&["STRLEN", "k"]);
    writer.send(&["INCR", "n"]);
    setter.send(&["SET", "k", "w"]);
    let commands: [&[&str]; 6] = [
        &["GET", "k"],
        &["STRLEN", "k"],
        &["INCR", "n"],
        &["SET", "k", "x"],
        &["APPEND", "k", "y"],
        &["MGET", "k", "n"],
    ];
    // The connection is gone around.
    eventually(SOON, || newcomer(rig, &["GET", "cold"]).is_some_and(|reply| is_busy(&reply)));
    for command in commands {
        let reply = newcomer(rig, command).expect("nobody waits");
        assert!(is_busy(&reply), "{command:?}, {treatment:?}: {reply}");
        let reply = other.command(command);
        assert!(is_busy(&reply), "{command:?}, {treatment:?}: {reply}");
    }
    eventually(SOON, || other.command(&["SCRIPT", "KILL"]) == Reply::ok());
    assert!(busy.read_reply().error().contains("killed"));
    // A link of its own may have told that the server is busy.
    let length = reader.read_reply();
    assert!(length == Reply::Integer(1) || is_busy(&length), "{length}, {treatment:?}");
    let (counted, set) = (writer.read_reply(), setter.read_reply());
    if is_busy(&counted) || is_busy(&set) {
        return false;
    }
    assert_eq!(counted, Reply::Integer(2), "{treatment:?}");
    assert_eq!(set, Reply::ok(), "{treatment:?}");
    assert_eq!(other.command(&["INCR", "n"]), Reply::Integer(3));
    assert_eq!(other.command(&["GET", "k"]), Reply::bulk("w"));
    assert_eq!(rig.client().command(&["GET", "k"]), Reply::bulk("w"));
    true
}

/// The same before a cluster, of which one node is busy.
#[test]
fn a_busy_node_of_a_cluster_holds_up_no_hot_key_for_those_who_come_later() {
    let builder = RedisCluster::builder().replicas_per_primary(0);
    let rig = ClusterRig::with(builder, |config| config.workers = 1);
    let (mut busy, mut other) = (rig.client(), rig.client());
    let set = ["CONFIG", "SET", "busy-reply-threshold", "50"];
    assert_eq!(other.command(&set), Reply::ok());
    for (treatment, tag) in [(Treatment::EXACT, "{a}"), (Treatment::COHERENT, "{b}")] {
        let [k, n, cold] = ["k", "n", "cold"].map(|name| format!("{tag}{name}"));
        rig.heatsink.heat(&[&k, &n], treatment);
        assert_eq!(other.command(&["SET", &k, "v"]), Reply::ok());
        assert_eq!(other.command(&["INCR", &n]), Reply::Integer(1));
        busy.send(&["EVAL", "while true do end", "1", &cold]);
        let mut writer = rig.client();
        writer.send(&["INCR", &n]);
        eventually(SOON, || {
            let mut client = rig.client();
            client.set_timeout(Duration::from_millis(200));
            client.try_command(&["GET", &cold]).is_ok_and(|reply| is_busy(&reply))
        });
        for command in [&["STRLEN", &k][..], &["INCR", &n], &["SET", &k, "x"], &["APPEND", &k, "y"]]
        {
            for client in [&mut rig.client(), &mut other] {
                let reply = client.command(command);
                assert!(is_busy(&reply), "{command:?}, {treatment:?}: {reply}");
            }
        }
        eventually(SOON, || other.command(&["SCRIPT", "KILL"]) == Reply::ok());
        assert!(busy.read_reply().error().contains("killed"));
        assert_eq!(writer.read_reply(), Reply::Integer(2), "{treatment:?}");
        assert_eq!(other.command(&["INCR", &n]), Reply::Integer(3));
        assert_eq!(other.command(&["GET", &k]), Reply::bulk("v"));
    }
}

#[test]
fn a_pause_for_writers_holds_up_no_readers_of_a_hot_key() {
    for treatment in [Treatment::EXACT, Treatment::COHERENT] {
        let rig = rig(treatment);
        let mut pauser = rig.server().client();
        let [mut writer, mut reader] = [(); 2].map(|()| rig.client());
        assert_eq!(writer.command(&["SET", "k", "v"]), Reply::ok());
        pauser.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
        writer.send(&["APPEND", "k", "w"]);
        let mut behind = rig.client();
        behind.send(&["GETRANGE", "k", "0", "9"]);
        eventually(SOON, || newcomer(&rig, &["GETRANGE", "k", "0", "9"]) == Some(Reply::bulk("v")));
        for _ in 0..100 {
            assert_eq!(reader.command(&["GET", "k"]), Reply::bulk("v"), "{treatment:?}");
        }
        // One that has something under way does not overtake itself.
        writer.send(&["GET", "k"]);
        pauser.command(&["CLIENT", "UNPAUSE"]);
        assert_eq!(writer.read_reply(), Reply::Integer(2));
        assert_eq!(writer.read_reply(), Reply::bulk("vw"));
        assert!(behind.read_reply().text().starts_with('v'));
        assert_eq!(
            eventually(SOON, || Some(reader.command(&["GET", "k"]))
                .filter(|reply| *reply == Reply::bulk("vw"))),
            Reply::bulk("vw")
        );
    }
}

/// The links on which the server tells of changes.
fn tracked(client: &mut RawClient) -> Vec<String> {
    let list = client.command(&["CLIENT", "LIST"]).text();
    let tracked = list.lines().filter(|line| line.contains("flags=t"));
    tracked.filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
}

/// ```text
/// 1. a script runs: CLIENT CACHING YES is refused, for the server is busy
/// 2. the script ends: the server has gone on to tell of changes
/// ```
#[test]
fn a_busy_server_is_not_one_that_does_not_tell_of_changes() {
    let rig = rig(Treatment::COHERENT);
    let (mut direct, mut client) = (rig.server().client(), rig.client());
    assert_eq!(direct.command(&["SET", "k", "v"]), Reply::ok());
    crate::served::warm(&rig, "k");
    let before = tracked(&mut direct);
    assert_eq!(before.len(), 1);
    let mut busy = rig.server().client();
    busy.send(&["EVAL", "while true do end", "0"]);
    eventually(SOON, || client.try_command(&["STRLEN", "k"]).is_ok_and(|reply| is_busy(&reply)));
    assert_eq!(direct.command(&["SCRIPT", "KILL"]), Reply::ok());
    eventually(SOON, || client.command(&["STRLEN", "k"]) == Reply::Integer(1));
    assert_eq!(tracked(&mut direct), before);
}
