//! A primary stands still: whoever waits for it is told as soon as another has its place, and
//! not before.

use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::ClusterRig;
use heatsink_testkit::{RawClient, RedisCluster, RedisClusterBuilder, Reply, eventually};

use crate::failover::{BACK_WITHIN, FAILOVER_TIMEOUT, wait_until_serving};

const SOON: Duration = Duration::from_secs(20);
const REPLACED: &str =
    "it is no longer the primary; it is unknown whether the command was executed";
/// How long a server is merely slow.
const SLOW: Duration = Duration::from_secs(3);
/// Time between two looks at the map for that.
const LOOKS_APART: Duration = Duration::from_millis(600);

fn rig(settings: RedisClusterBuilder) -> ClusterRig {
    // Else other nodes refuse everything meanwhile, which is a reason to look at the map.
    let settings = settings.line("cluster-require-full-coverage no");
    ClusterRig::with(settings, |config| config.workers = 1)
}

/// A client that has been served for `key`.
#[track_caller]
fn served(rig: &ClusterRig, key: &str) -> RawClient {
    let mut client = rig.client();
    client.set_timeout(SOON);
    assert_eq!(client.command(&["GET", key]), Reply::Null);
    client
}

#[track_caller]
fn assert_replaced(reply: &Reply) {
    assert!(reply.is_error() && reply.error().contains(REPLACED), "{reply}");
}

/// How often the map was asked for, of all nodes but one.
fn looks(cluster: &RedisCluster, still: usize) -> u64 {
    let others = (0..cluster.nodes().len()).filter(|node| *node != still);
    others.map(|node| cluster.calls(node, "cluster|slots")).sum()
}

/// 1. INCR -> P, which stands still
/// 2. the cluster elects Q; nobody else is asked anything, and so nobody tells
/// 3. P does not answer the INCR, and Q must not be asked it
#[test]
fn those_who_wait_for_a_replaced_primary_are_told() {
    let mut rig = rig(RedisCluster::builder());
    let still = rig.cluster.primaries()[1];
    let heir = rig.cluster.replicas_of(still)[0];
    let key = rig.cluster.key_on(still, "waiting");
    let mut clients: Vec<RawClient> = (0..4).map(|_| served(&rig, &key)).collect();
    rig.cluster.pause(still);
    for client in &mut clients {
        client.send(&["INCR", &key]);
    }
    let served_at = wait_until_serving(&rig.cluster, heir);
    for client in &mut clients {
        assert_replaced(&client.read_reply());
    }
    let told = served_at.elapsed();
    assert_eq!(clients[0].command(&["INCR", &key]), Reply::Integer(1));
    let back = served_at.elapsed();
    println!("told {told:?}, served {back:?} after the failover");
    assert!(back < BACK_WITHIN, "{back:?}");
    // What it says when it wakes up is for nobody.
    rig.cluster.resume(still);
    rig.cluster.wait_until_ok();
    for (client, count) in clients.iter_mut().zip(2..) {
        assert_eq!(client.command(&["INCR", &key]), Reply::Integer(count));
    }
}

/// 1. P stands still, and the cluster elects Q
/// 2. INCR -> P
/// 3. at once, for another reason, Heatsink looks at the map: P is to be waited for no longer, but
///    has not been silent for long yet
#[test]
fn one_that_came_just_before_the_new_map_is_told_too() {
    let mut rig = rig(RedisCluster::builder());
    let primaries = rig.cluster.primaries();
    let (still, other) = (primaries[1], primaries[0]);
    let heir = rig.cluster.replicas_of(still)[0];
    let key = rig.cluster.key_on(still, "late");
    served(&rig, &rig.cluster.key_on(other, "other"));
    // More connections to ask on than the one to the node that will not answer; if it is that
    // one's turn all the same, others are asked a second later.
    let elsewhere = rig.cluster.key_on(primaries[2], "elsewhere");
    served(&rig, &elsewhere);
    let mut newer = rig.client();
    newer.command(&["HELLO", "3"]);
    assert_eq!(newer.command(&["GET", &elsewhere]), Reply::Null);
    let mut client = served(&rig, &key);
    rig.cluster.pause(still);
    wait_until_serving(&rig.cluster, heir);
    let sent_at = Instant::now();
    client.send(&["INCR", &key]);
    // Heatsink loses its connection to another node, which is a reason.
    let mut at_other = rig.cluster.node(other).client();
    at_other.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let reply = client.read_reply();
    let told = sent_at.elapsed();
    println!("{reply} after {told:?}");
    // The map may have been looked at without a reason before that.
    assert!(reply == Reply::Integer(1) || reply.error().contains(REPLACED), "{reply}");
    assert!(told < 3 * BACK_WITHIN, "{told:?}");
}

/// It is asked of others whether it was replaced, now and then. It was not.
#[test]
fn a_slow_server_is_waited_for() {
    let mut rig = rig(RedisCluster::builder().node_timeout(SOON));
    let still = rig.cluster.primaries()[1];
    let key = rig.cluster.key_on(still, "slow");
    let mut client = served(&rig, &key);
    // By then nothing else is a reason to look.
    let settled = eventually(SOON, || {
        let before = looks(&rig.cluster, still);
        thread::sleep(2 * LOOKS_APART);
        let after = looks(&rig.cluster, still);
        (before == after).then_some(after)
    });
    rig.cluster.pause(still);
    let begun = Instant::now();
    client.send(&["INCR", &key]);
    assert_eq!(client.try_read_frame(SLOW).expect("open"), None);
    let looked = looks(&rig.cluster, still) - settled;
    let most = begun.elapsed().as_millis() / LOOKS_APART.as_millis() + 2;
    println!("{looked} looks in {:?}", begun.elapsed());
    // One of them may be for no reason.
    assert!(looked >= 3 && u128::from(looked) <= most, "{looked}, at most {most}");
    rig.cluster.resume(still);
    assert_eq!(client.read_reply(), Reply::Integer(1));
}

/// 1. INCR -> P, which lives, but does not execute writes at the moment
/// 2. its replica Q takes over; Heatsink hears of it from others
/// 3. P hears of it too and says `MOVED`, at last: the INCR goes to Q
///
/// Between the last two it has been silent for long, and is no primary.
#[test]
fn one_that_was_silent_and_lives_is_listened_to() {
    let rig = rig(RedisCluster::builder());
    let mut primary = rig.cluster.primaries()[1];
    let [key, other] = ["mute", "other"].map(|name| rig.cluster.key_on(primary, name));
    let mut client = served(&rig, &key);
    let mut count = 0;
    // On a busy machine the word may come too late.
    let in_time = (0..5).any(|_| {
        let replica =
            eventually(FAILOVER_TIMEOUT, || rig.cluster.replicas_of(primary).first().copied());
        let mut at_primary = rig.cluster.node(primary).client();
        let mut at_replica = rig.cluster.node(replica).client();
        let mut looking = rig.client();
        at_primary.command(&["CLIENT", "PAUSE", "20000", "WRITE"]);
        client.send(&["INCR", &key]);
        assert_eq!(client.try_read_frame(LOOKS_APART).expect("open"), None);
        assert_eq!(at_replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]), Reply::ok());
        let mut known_since = Instant::now();
        eventually(SOON, || {
            // A client that waits for the old one is of no use for another question.
            looking = rig.client();
            looking.send(&["SET", &other, "1"]);
            let answer = looking.try_read_frame(Duration::from_millis(10)).expect("open");
            if answer.is_none() {
                known_since = Instant::now();
            }
            answer.is_some()
        });
        at_primary.command(&["CLIENT", "UNPAUSE"]);
        let took = known_since.elapsed();
        let reply = client.read_reply();
        println!("{reply}; unpaused {took:?} after it was known");
        primary = replica;
        rig.cluster.wait_until_ok();
        if reply.is_error() {
            assert_replaced(&reply);
            return false;
        }
        count += 1;
        assert_eq!(reply, Reply::Integer(count));
        true
    });
    assert!(in_time, "never in time");
}
