//! Requests are taken back while their nodes are busy, and have a cluster of their own: others would
//! wait for it.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heatsink_conformance::Heatsink;
use heatsink_testkit::{LUA_NOW_MS, RawClient, RedisCluster, Reply, encode, eventually};

use crate::half::{HALF_MOVED, Half, MOMENT, says_nothing};

const SOON: Duration = Duration::from_secs(10);
/// More than a server reads at once: it sends what it has said before it reads all of it.
const SEVERAL_READS: usize = 200 << 10;

static BUSY: LazyLock<RedisCluster> =
    LazyLock::new(|| RedisCluster::builder().replicas_per_primary(0).start());

fn patient() -> Heatsink {
    Heatsink::before_url(&BUSY.seed_url(), |config| {
        config.live.timeouts.cluster_retry = 2 * SOON;
    })
}

/// A client of one that has its connections, and does not know that a slot is moving.
fn connected(heatsink: &Heatsink) -> RawClient {
    let mut client = heatsink.client();
    client.set_timeout(SOON);
    for node in 0..BUSY.nodes().len() {
        assert_eq!(client.command(&["GET", &BUSY.key_on(node, "busy")]), Reply::Null);
    }
    client
}

/// The connection of a node that did `command` last.
fn connection(node: usize, command: &str) -> String {
    let list = BUSY.node(node).client().command(&["CLIENT", "LIST"]).text();
    let line = list.lines().find(|line| line.contains(&format!(" cmd={command} ")));
    let id = line.and_then(|line| line.split(' ').find_map(|word| word.strip_prefix("id=")));
    id.expect("a connection").to_owned()
}

/// Keeps a node from reading anything for a while, so that requests gather.
#[must_use]
fn keep_busy(node: usize, time: Duration) -> RawClient {
    let mut client = BUSY.node(node).client();
    client.set_timeout(SOON);
    client.send_raw(&slow(time, &BUSY.key_on(node, "busy"), 0));
    client
}

/// Tests in which nodes are busy for a while take turns: each counts on the others' nodes to be idle.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A script that only reads and takes its time.
fn slow(time: Duration, key: &str, padding: usize) -> Vec<u8> {
    let script = format!(
        "{LUA_NOW_MS} local till = now() + {} repeat until now() > till
        return redis.call('GET', KEYS[1])",
        time.as_millis()
    );
    encode(&["EVAL_RO", &script, "1", key, &"-".repeat(padding)])
}

/// What names no key may be about all of them, and is not taken back.
#[test]
fn behind_it_there_is_one_without_a_key() {
    let _turn = turn();
    let half = Half::begin(&BUSY, "recalled without a key");
    let [x, y] = ["x", "y"].map(|name| format!("{}{name}", half.tag));
    // Refused by the source; refused by the target, while what is behind it is at the source.
    for (at_target, first) in [(false, half.read_both()), (true, encode(&["MGET", &x, &y]))] {
        let heatsink = patient();
        let mut client = connected(&heatsink);
        let _target = at_target.then(|| keep_busy(half.to, 6 * MOMENT));
        let _source = keep_busy(0, 2 * MOMENT);
        let slow = slow(10 * MOMENT, &half.stayed, SEVERAL_READS);
        client.send_raw(&[first, slow, encode(&["DBSIZE"])].concat());
        assert_eq!(client.read_reply().error(), HALF_MOVED);
        assert_eq!(client.read_reply(), Reply::bulk("0"));
        assert!(matches!(client.read_reply(), Reply::Integer(_)));
    }
    half.finish();
}

/// 1. The source sends the first to the target, which is busy, and refuses the second, which waits
///    for a slow script behind it
/// 2. the target refuses the first. That cannot recall the script once more, and is given up
#[test]
fn behind_it_one_leads_others_already() {
    let _turn = turn();
    let heatsink = patient();
    let half = Half::begin(&BUSY, "recalled twice");
    let [x, y] = ["x", "y"].map(|name| format!("{}{name}", half.tag));
    let mut client = connected(&heatsink);
    let _target = keep_busy(half.to, 6 * MOMENT);
    let _source = keep_busy(0, 2 * MOMENT);
    let slow = slow(10 * MOMENT, &half.stayed, SEVERAL_READS);
    client.send_raw(&[encode(&["MGET", &x, &y]), half.read_both(), slow].concat());
    assert_eq!(client.read_reply().error(), HALF_MOVED);
    says_nothing(&mut client);
    half.finish();
    assert_eq!(client.read_reply(), Reply::bulks(["0", "0"]));
    assert_eq!(client.read_reply(), Reply::bulk("0"));
}

/// What is more than may be taken back is not waited for.
#[test]
fn behind_it_there_is_too_much() {
    let _turn = turn();
    let half = Half::begin(&BUSY, "recalled too much");
    let [x, y] = ["x", "y"].map(|name| format!("{}{name}", half.tag));
    // Refused by the source; refused by the target, while what is behind it is at the source.
    for first in [half.read_both(), encode(&["MGET", &x, &y])] {
        let heatsink = patient();
        let mut client = connected(&heatsink);
        let _target = keep_busy(half.to, 6 * MOMENT);
        let _source = keep_busy(0, 2 * MOMENT);
        let quick = slow(Duration::ZERO, &half.stayed, SEVERAL_READS);
        let slow = slow(10 * MOMENT, &half.stayed, SEVERAL_READS);
        client.send_raw(&[first, slow, quick.repeat(6)].concat());
        assert_eq!(client.read_reply().error(), HALF_MOVED);
        for _ in 0..7 {
            assert_eq!(client.read_reply(), Reply::bulk("0"));
        }
    }
    half.finish();
}

/// And what is left where it is keeps its place:
///
/// 1. the target is busy. `MGET` of keys that are nowhere, a slow script, and at the source another
///    one, more than may be taken back, and `SET x 1`
/// 2. target: `TRYAGAIN`, and begins with its script
/// 3. `SET x 2`. The source is done with its script, and sends both to the target
#[test]
fn what_is_too_much_is_not_overtaken() {
    let _turn = turn();
    let heatsink = patient();
    let half = Half::begin(&BUSY, "recalled in part");
    let [x, y] = ["x", "y"].map(|name| format!("{}{name}", half.tag));
    let mut client = connected(&heatsink);
    let mut busy = keep_busy(half.to, 6 * MOMENT);
    let _source = keep_busy(0, 2 * MOMENT);
    let mut requests = vec![encode(&["MGET", &x, &y]), slow(10 * MOMENT, &y, SEVERAL_READS)];
    requests.push(slow(10 * MOMENT, &half.stayed, SEVERAL_READS));
    requests.extend((0..4).map(|_| slow(Duration::ZERO, &half.stayed, SEVERAL_READS)));
    requests.push(encode(&["SET", &x, "1"]));
    client.send_raw(&requests.concat());
    assert_eq!(busy.read_reply(), Reply::Null);
    says_nothing(&mut client);
    client.send_raw(&encode(&["SET", &x, "2"]));
    assert_eq!(client.read_reply().error(), HALF_MOVED);
    assert_eq!(client.read_reply(), Reply::Null);
    for _ in 0..5 {
        assert_eq!(client.read_reply(), Reply::bulk("0"));
    }
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.command(&["GET", &x]), Reply::bulk("2"));
    half.finish();
}

/// 1. `MGET` is refused; behind it there are scripts that read and take their time
/// 2. the connection is cut while the last is awaited
/// 3. the scripts only read, so they are sent again behind the first
#[test]
fn what_is_recalled_outlives_its_connection() {
    let _turn = turn();
    let heatsink = patient();
    let half = Half::begin(&BUSY, "recalled and cut");
    let mut client = connected(&heatsink);
    // Nobody else says it there.
    assert_eq!(client.command(&["BITPOS", &half.stayed, "1"]), Reply::Integer(2));
    let link = connection(0, "bitpos");
    let slow = slow(3 * MOMENT, &half.stayed, SEVERAL_READS);
    let mut source = keep_busy(0, 2 * MOMENT);
    client.send_raw(&[&half.read_both(), &slow[..], &slow, &slow].concat());
    assert_eq!(source.read_reply(), Reply::Null);
    // The first script has been executed.
    eventually(SOON, || {
        let asked = Instant::now();
        assert_eq!(source.command(&["PING"]).text(), "PONG");
        asked.elapsed() > MOMENT
    });
    // Read when the next has been, and before the last is.
    source.command(&["CLIENT", "KILL", "ID", &link]);
    says_nothing(&mut client);
    half.finish();
    assert_eq!(client.read_reply(), Reply::bulks(["0", "0"]));
    for _ in 0..3 {
        assert_eq!(client.read_reply(), Reply::bulk("0"));
    }
    assert_eq!(client.command(&["PING"]).text(), "PONG");
}
