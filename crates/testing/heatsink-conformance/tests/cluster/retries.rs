//! What cannot be executed at the moment is tried again: not for ever, not for those who have
//! gone, and not at the cost of others.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::{ClusterRig, Heatsink};
use heatsink_testkit::{
    RawClient, RedisCluster, Reply, encode, eventually, eventually_ok, key_slot,
};

use crate::open::{OPEN, before_open, doing, orphan};

const SOON: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(300);
/// Within the bound, and a while on a busy machine.
const GIVEN_UP: Duration = Duration::from_millis(1500);
/// Requests of one client that are refused all at once.
const REFUSED: usize = 6000;
const REFUSED_CLIENTS: usize = 8;
/// The longest that clients of other nodes may have to wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const LEAVING_CLIENTS: usize = 50;
/// Sockets and buffers take some, but this is more than they may.
const MOST_INPUT_BYTES: usize = 100 << 20;
const CHUNK_BYTES: usize = 200_000;

fn hasty() -> Heatsink {
    before_open(|config| config.live.timeouts.cluster_retry = RETRY)
}

/// Sends `bytes` over and over until nobody takes them any more; how many were sent.
fn push_in(client: &mut RawClient, bytes: &[u8]) -> usize {
    client.set_timeout(Duration::from_millis(300));
    let mut sent = 0;
    while sent < MOST_INPUT_BYTES && client.try_send_raw(bytes).is_ok() {
        sent += bytes.len();
    }
    sent
}

#[test]
fn a_slot_of_nobody_is_given_up() {
    let heatsink = hasty();
    let key = OPEN.key_on(0, "nobody");
    orphan(&key);
    let mut client = heatsink.client();
    for command in [&["GET", &key][..], &["BLPOP", &key, "0"], &["BLPOP", &key, "0.1"]] {
        let begun = Instant::now();
        let refused = client.command(command);
        let took = begun.elapsed();
        assert!(refused.is_error() && refused.error().starts_with("CLUSTERDOWN"), "{refused}");
        assert!(took >= RETRY / 2 && took < GIVEN_UP, "{command:?}: {took:?}");
    }
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    let begun = Instant::now();
    let refused = client.command(&["SET", &key, "1"]);
    let took = begun.elapsed();
    assert!(refused.is_error() && refused.error().starts_with("CLUSTERDOWN"), "{refused}");
    assert!(took >= RETRY / 2 && took < GIVEN_UP, "{took:?}");
    let done = client.command(&["EXEC"]);
    assert!(done.is_error() && done.error().starts_with("EXECABORT"), "{done}");
    // An ordinary client again.
    let other = OPEN.key_on(1, "nobody");
    assert_eq!(client.command(&["SET", &other, "1"]), Reply::ok());
    assert_eq!(client.command(&["GET", &other]), Reply::bulk("1"));
}

/// 1. a request on a client's own connection is to be tried again after a pause
/// 2. the connection is lost, and the client told so
/// 3. it begins something else on another one
/// 4. the pause is over: that is not tried again
#[test]
fn a_retry_whose_connection_is_lost_is_forgotten() {
    let heatsink = hasty();
    let (orphaned, list) = (OPEN.key_on(2, "lost"), OPEN.key_on(1, "list"));
    orphan(&orphaned);
    let mut at_list = OPEN.node(1).client();
    for round in 0..4 {
        let mut client = heatsink.client();
        client.send(&["BRPOP", &orphaned, "0"]);
        let (node, ids) = eventually(SOON, || {
            let found = (0..3).map(|node| (node, doing(node, "brpop")));
            found.into_iter().find(|(_, ids)| !ids.is_empty())
        });
        for id in ids {
            OPEN.node(node).client().command(&["CLIENT", "KILL", "ID", &id]);
        }
        let refused = client.read_reply();
        assert!(refused.is_error(), "round {round}: {refused}");
        client.send(&["BRPOP", &list, "0"]);
        eventually(SOON, || doing(1, "brpop").len() == 1);
        // Longer than a pause between two attempts.
        assert_eq!(client.try_read_frame(RETRY / 3).expect("open"), None, "round {round}");
        assert_eq!(doing(1, "brpop").len(), 1, "round {round}");
        assert_eq!(at_list.command(&["RPUSH", &list, "x"]).integer(), 1);
        assert_eq!(client.read_reply(), Reply::bulks([list.as_str(), "x"]), "round {round}");
        assert_eq!(at_list.command(&["LLEN", &list]).integer(), 0, "round {round}");
        // Whoever gets the connection next is alone on it.
        let mut other = heatsink.client();
        assert_eq!(other.command(&["WATCH", &list]), Reply::ok(), "round {round}");
        assert_eq!(other.command(&["UNWATCH"]), Reply::ok(), "round {round}");
        drop(client);
        eventually(SOON, || {
            other.command(&["PING"]);
            doing(1, "brpop").is_empty()
        });
    }
}

#[test]
fn a_client_that_is_tried_again_for_sends_no_more() {
    let heatsink =
        before_open(|config| config.live.timeouts.cluster_retry = Duration::from_secs(2));
    let key = OPEN.key_on(0, "greedy");
    orphan(&key);
    let mut client = heatsink.client();
    client.send(&["GET", &key]);
    assert_eq!(client.try_read_frame(Duration::from_millis(100)).expect("open"), None);
    let chunk = encode(&["SET", &OPEN.key_on(1, "greedy"), &"x".repeat(CHUNK_BYTES)]);
    let sent = push_in(&mut client, &chunk);
    println!("{} MiB were taken", sent >> 20);
    assert!(sent < MOST_INPUT_BYTES, "{} MiB were taken", sent >> 20);
    drop(client);
    // That it has left is seen when it is read from again.
    eventually(SOON, || heatsink.proxy().client_count() == 0);
    assert_eq!(heatsink.client().command(&["PING"]).text(), "PONG");
}

#[test]
fn a_node_that_stands_still_stops_those_who_send_to_it() {
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let mut rig = ClusterRig::with(settings, |_| {});
    let [still, going] = [1, 2].map(|node| rig.cluster.key_on(node, "fan-out"));
    let mut client = rig.client();
    assert_eq!(client.command(&["MSET", &still, "0", &going, "0"]), Reply::ok());
    rig.cluster.pause(1);
    let value = "x".repeat(CHUNK_BYTES);
    let sent = push_in(&mut client, &encode(&["MSET", &still, &value, &going, &value]));
    println!("{} MiB were taken", sent >> 20);
    assert!(sent < MOST_INPUT_BYTES, "{} MiB were taken", sent >> 20);
    // Others have their way.
    assert_eq!(rig.client().command(&["STRLEN", &going]).integer(), CHUNK_BYTES as i64);
    rig.cluster.resume(1);
    assert_eq!(client.read_reply(), Reply::ok());
}

/// Has [`REFUSED_CLIENTS`] clients send all of `requests` at once, each of which must be refused
/// with `error`, and looks how long another client has to wait for another node meanwhile.
#[track_caller]
fn check_others_go_on(rig: &ClusterRig, requests: &[Vec<u8>], error: &str) {
    let elsewhere = rig.cluster.key_on(1, "elsewhere");
    let mut other = rig.client();
    assert_eq!(other.command(&["SET", &elsewhere, "1"]), Reply::ok());
    other.set_timeout(Duration::from_secs(20));
    let bytes = requests.concat();
    let mut refused: Vec<RawClient> = (0..REFUSED_CLIENTS).map(|_| rig.client()).collect();
    let longest = thread::scope(|scope| {
        let clients: Vec<_> = refused
            .iter_mut()
            .map(|client| {
                client.set_timeout(Duration::from_secs(30));
                let mut writer = client.stream().try_clone().expect("a second handle");
                let bytes = &bytes;
                scope.spawn(move || writer.write_all(bytes).expect("all is taken"));
                scope.spawn(move || {
                    for n in 0..requests.len() {
                        let reply = client.read_reply();
                        let as_expected = reply.is_error() && reply.error().starts_with(error);
                        assert!(as_expected, "request {n}: {reply}");
                    }
                })
            })
            .collect();
        let mut longest = Duration::ZERO;
        while !clients.iter().all(thread::ScopedJoinHandle::is_finished) {
            let asked = Instant::now();
            assert_eq!(other.command(&["GET", &elsewhere]), Reply::bulk("1"));
            longest = longest.max(asked.elapsed());
        }
        longest
    });
    println!("{error}: the longest pause was {longest:?}");
    assert!(longest < LONGEST_PAUSE, "{error}: {longest:?}");
    for client in &mut refused {
        assert_eq!(client.command(&["GET", &elsewhere]), Reply::bulk("1"));
    }
}

#[test]
fn a_node_that_refuses_everything_does_not_hold_up_others() {
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let rig = ClusterRig::with(settings.line("cluster-require-full-coverage no"), |_| {});
    // As the cluster is made: node 0 has the first third.
    let keys = (0..).map(|n| format!("refused:{n}")).filter(|key| key_slot(key) < 5461);
    let keys: Vec<String> = keys.take(REFUSED).collect();
    assert!(!rig.client().command(&["GET", &keys[0]]).is_error());
    let mut node = rig.cluster.node(0).client();
    assert_eq!(node.command(&["CLUSTER", "DELSLOTSRANGE", "0", "5460"]), Reply::ok());
    let requests = keys.iter().enumerate().map(|(n, key)| match n % 2 {
        0 => encode(&["GET", key]),
        _ => encode(&["SET", key, "v"]),
    });
    check_others_go_on(&rig, &requests.collect::<Vec<_>>(), "CLUSTERDOWN");
}

#[test]
fn a_slot_under_way_does_not_hold_up_others() {
    let rig = ClusterRig::with(RedisCluster::builder().replicas_per_primary(0), |_| {});
    let here = rig.cluster.key_on(0, "here");
    let gone = format!("{here}:gone");
    assert_eq!(key_slot(&gone), key_slot(&here));
    assert_eq!(rig.client().command(&["SET", &here, "1"]), Reply::ok());
    let slot = key_slot(&here).to_string();
    let mut node = rig.cluster.node(0).client();
    let migrating = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", rig.cluster.id(2)];
    assert_eq!(node.command(&migrating), Reply::ok());
    // One is there and the other is not: neither node can answer for both.
    let requests = (0..REFUSED).map(|n| encode(&[["MGET", "LCS"][n % 2], &here, &gone]));
    check_others_go_on(&rig, &requests.collect::<Vec<_>>(), "TRYAGAIN");
}

#[test]
fn those_who_wait_and_leave_are_gone() {
    let heatsink = before_open(|_| {});
    for round in 0..5 {
        let mut client = heatsink.client();
        if round % 2 == 1 {
            assert_eq!(client.command(&["SET", &OPEN.key_on(0, "waited"), "1"]), Reply::ok());
        }
        client.send(&["WAIT", "3", "0"]);
        eventually(SOON, || (0..3).all(|node| doing(node, "wait").len() == 1));
        drop(client);
        eventually(SOON, || heatsink.proxy().client_count() == 0);
        eventually(SOON, || (0..3).all(|node| doing(node, "wait").is_empty()));
    }
    assert_eq!(heatsink.client().command(&["WAIT", "0", "0"]).integer(), 0);
}

/// 1. a client sends `WAIT` and closes, so that both are seen at once
/// 2. the request is sent on for a client that has left
/// 3. nobody takes the connections back on which it waits for ever
#[test]
fn those_who_wait_and_leave_at_once_are_gone() {
    let rig = ClusterRig::with(RedisCluster::builder().replicas_per_primary(0), |_| {});
    let keys = [0, 1, 2].map(|node| rig.cluster.key_on(node, "left"));
    let settle = || {
        // Those who came earlier have been accepted, and all nodes been spoken to since.
        let mut last = rig.client();
        for key in &keys {
            assert_eq!(last.command(&["SET", key, "1"]), Reply::ok());
        }
        assert_eq!(last.command(&["WAIT", "0", "0"]).integer(), 0);
        drop(last);
        eventually(SOON, || rig.heatsink.proxy().client_count() == 0);
    };
    let connected = || [0, 1, 2].map(|node| rig.cluster.info_u64(node, "connected_clients"));
    settle();
    let before = connected();
    for way in ["wait", "set, wait", "half closed"] {
        for n in 0..LEAVING_CLIENTS {
            let mut client = rig.client();
            let mut bytes = encode(&["WAIT", "3", "0"]);
            if way == "set, wait" {
                bytes.splice(0..0, encode(&["SET", &keys[n % 3], "1"]));
            }
            client.send_raw(&bytes);
            if way == "half closed" {
                client.shutdown_write();
            }
        }
        for _ in 0..2 {
            settle();
            eventually(SOON, || {
                (0..3).all(|node| rig.cluster.info_u64(node, "blocked_clients") == 0)
            });
        }
        eventually_ok(SOON, || match connected() {
            now if now.iter().zip(&before).all(|(now, before)| now <= before) => Ok(()),
            now => Err(format!("{way}: {now:?} connections, {before:?} at first")),
        });
    }
}
