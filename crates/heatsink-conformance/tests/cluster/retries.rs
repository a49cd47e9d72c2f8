//! What cannot be executed at the moment is tried again: not for ever, not for those who have
//! gone, and not at the cost of others.

use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::{ClusterRig, Heatsink};
use heatsink_testkit::{RawClient, RedisCluster, Reply, encode, eventually, key_slot};

use crate::open::{OPEN, before_open, doing, orphan};

const SOON: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(300);
/// Within the bound, and a while on a busy machine.
const GIVEN_UP: Duration = Duration::from_millis(1500);
/// Requests that are refused all at once.
const REFUSED: usize = 12_000;
/// The longest that clients of other nodes may have to wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
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
    let settings = RedisCluster::builder().replicas_per_primary(0).node_timeout(SOON);
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

#[test]
fn a_node_that_refuses_everything_does_not_hold_up_others() {
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let rig = ClusterRig::with(settings.line("cluster-require-full-coverage no"), |_| {});
    let keys: Vec<String> = (0..REFUSED * 4).map(|n| format!("refused:{n}")).collect();
    // As the cluster is made: node 0 has the first third.
    let keys: Vec<&String> = keys.iter().filter(|key| key_slot(key) < 5461).take(REFUSED).collect();
    assert_eq!(keys.len(), REFUSED);
    let elsewhere = rig.cluster.key_on(1, "elsewhere");
    let (mut client, mut other) = (rig.client(), rig.client());
    assert_eq!(other.command(&["SET", &elsewhere, "1"]), Reply::ok());
    assert!(!client.command(&["GET", keys[0]]).is_error());
    let mut node = rig.cluster.node(0).client();
    assert_eq!(node.command(&["CLUSTER", "DELSLOTSRANGE", "0", "5460"]), Reply::ok());
    let bytes: Vec<u8> = keys.iter().flat_map(|key| encode(&["SET", key, "v"])).collect();
    client.send_raw(&bytes);
    other.set_timeout(Duration::from_secs(20));
    client.set_timeout(Duration::from_secs(20));
    let longest = thread::scope(|scope| {
        let client = &mut client;
        let refused = scope.spawn(move || {
            keys.len() == keys.iter().filter(|_| client.read_reply().is_error()).count()
        });
        let mut longest = Duration::ZERO;
        while !refused.is_finished() {
            let asked = Instant::now();
            assert_eq!(other.command(&["GET", &elsewhere]), Reply::bulk("1"));
            longest = longest.max(asked.elapsed());
        }
        assert!(refused.join().expect("what it panicked with is above"), "some were executed");
        longest
    });
    println!("the longest pause was {longest:?}");
    assert!(longest < LONGEST_PAUSE, "{longest:?}");
    assert_eq!(client.command(&["GET", &elsewhere]), Reply::bulk("1"));
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
