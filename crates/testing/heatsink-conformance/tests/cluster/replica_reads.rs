//! Reads that may be answered by replicas are, and nobody sees less than what it wrote.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heatsink_conformance::{ClusterRig, Heatsink};
use heatsink_proxy::config::{Config, Rule};
use heatsink_testkit::{RawClient, RedisCluster, Reply, encode, eventually, key_slot};

use crate::load::StopOnDrop;

const SOON: Duration = Duration::from_secs(10);
const CLIENTS: usize = 40;
const READS: usize = 30;

fn reading_replicas(config: &mut Config) {
    config.workers = 2;
    let rule = Rule { pattern: b"r:*".as_slice().into(), replica_reads: true, counted: true };
    config.live.policy = Arc::from([rule]);
}

/// Keys with a prefix that node `primary` has.
fn keys_of(cluster: &RedisCluster, primary: usize, prefix: &str, count: usize) -> Vec<String> {
    let names = (0..).map(|n| format!("{prefix}{n}"));
    names.filter(|key| cluster.owner_of(key_slot(key)) == primary).take(count).collect()
}

/// Waits until a key's replicas have it.
fn wait_until_copied(cluster: &RedisCluster, replicas: &[usize], key: &str) {
    for &replica in replicas {
        let mut client = cluster.node(replica).client();
        assert_eq!(client.command(&["READONLY"]), Reply::ok());
        eventually(SOON, || client.command(&["GET", key]) == Reply::bulk("v"));
    }
}

fn gets(cluster: &RedisCluster, nodes: &[usize]) -> Vec<u64> {
    nodes.iter().map(|node| cluster.calls(*node, "get")).collect()
}

#[test]
fn reads_are_spread_over_the_replicas() {
    let settings = RedisCluster::builder().replicas_per_primary(2);
    let rig = ClusterRig::with(settings, reading_replicas);
    let mut writer = rig.client();
    let primary = rig.cluster.primaries()[0];
    let replicas = rig.cluster.replicas_of(primary);
    assert_eq!(replicas.len(), 2);
    let [spread, plain] = ["r:", "p:"].map(|prefix| keys_of(&rig.cluster, primary, prefix, 5));
    for key in spread.iter().chain(&plain) {
        assert_eq!(writer.command(&["SET", key, "v"]), Reply::ok());
        wait_until_copied(&rig.cluster, &replicas, key);
    }
    let nodes = [primary, replicas[0], replicas[1]];
    // Nodes tell of a replica only once they have heard how far it is, so Heatsink hears of
    // it when it looks again.
    let at_first = gets(&rig.cluster, &nodes);
    eventually(SOON, || {
        for _ in 0..4 {
            assert_eq!(rig.client().command(&["GET", &spread[0]]), Reply::bulk("v"));
        }
        let now = gets(&rig.cluster, &nodes);
        now[1] > at_first[1] && now[2] > at_first[2]
    });
    let before = gets(&rig.cluster, &nodes);
    for _ in 0..CLIENTS {
        let mut client = rig.client();
        for n in 0..READS {
            assert_eq!(client.command(&["GET", &spread[n % 5]]), Reply::bulk("v"));
        }
    }
    let after = gets(&rig.cluster, &nodes);
    let new: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let all = (CLIENTS * READS) as u64;
    assert_eq!(new[0], 0, "{new:?}");
    assert_eq!(new[1] + new[2], all, "{new:?}");
    assert!(new[1].min(new[2]) >= all / 4, "{new:?}");
    // Other keys, and what a client wrote itself, come from the primary.
    let mut client = rig.client();
    for n in 0..READS {
        assert_eq!(client.command(&["GET", &plain[n % 5]]), Reply::bulk("v"));
    }
    for n in 0..1000 {
        assert_eq!(client.command(&["SET", &spread[n % 5], &n.to_string()]), Reply::ok());
        assert_eq!(client.command(&["GET", &spread[n % 5]]), Reply::bulk(n.to_string()));
    }
    assert_eq!(gets(&rig.cluster, &nodes[1..]), after[1..]);
    // Written by several ways, some at once.
    for n in 0..200 {
        let (key, value) = (&spread[n % 5], format!("{n}!"));
        let commands = [
            &["MSET", "p:other", "1", key, &value][..],
            &["EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", "1", key, &value],
            &["GETSET", key, &value],
        ];
        let mut client = rig.client();
        assert!(!client.command(commands[n % 3]).is_error());
        assert_eq!(client.command(&["GET", key]), Reply::bulk(&value), "{:?}", commands[n % 3]);
    }
}

/// Reads a key over and over; how many reads, or the first that failed.
fn read_on(client: &mut RawClient, key: &str, stop: &AtomicBool) -> Result<usize, String> {
    let mut reads = 0;
    while !stop.load(Ordering::Acquire) {
        let reply = client.try_command(&["GET", key]).map_err(|error| error.to_string())?;
        if reply != Reply::bulk("v") {
            return Err(format!("read {reads}: {reply}"));
        }
        reads += 1;
    }
    Ok(reads)
}

#[test]
fn a_replica_that_fails_fails_no_read() {
    let mut rig = ClusterRig::with(RedisCluster::builder(), |config| {
        reading_replicas(config);
        config.live.timeouts.silence = Some(Duration::from_millis(500));
    });
    let primaries = rig.cluster.primaries();
    let replicas: Vec<usize> =
        primaries.iter().map(|node| rig.cluster.replicas_of(*node)[0]).collect();
    let mut writer = rig.client();
    let keys: Vec<String> =
        primaries.iter().map(|node| keys_of(&rig.cluster, *node, "r:", 1).remove(0)).collect();
    for (key, replica) in keys.iter().zip(&replicas) {
        assert_eq!(writer.command(&["SET", key, "v"]), Reply::ok());
        wait_until_copied(&rig.cluster, &[*replica], key);
    }
    let stop = AtomicBool::new(false);
    let cluster = &mut rig.cluster;
    let (heatsink, stop) = (&rig.heatsink, &stop);
    let results: Vec<Result<usize, String>> = thread::scope(|scope| {
        let threads: Vec<_> = keys
            .iter()
            .chain(&keys)
            .map(|key| scope.spawn(move || read_on(&mut heatsink.client(), key, stop)))
            .collect();
        let stopping = StopOnDrop(stop);
        for replica in &replicas {
            let before = cluster.calls(*replica, "get");
            eventually(SOON, || cluster.calls(*replica, "get") > before + 10);
        }
        cluster.kill(replicas[0]);
        cluster.pause(replicas[1]);
        // Longer than the silence, so that its clients have been served by the primary.
        let before = cluster.calls(primaries[1], "get");
        eventually(SOON, || cluster.calls(primaries[1], "get") > before + 10);
        cluster.resume(replicas[1]);
        thread::sleep(Duration::from_millis(300));
        drop(stopping);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("panicked".to_owned())))
            .collect()
    });
    for result in results {
        let reads = result.expect("no failed read");
        assert!(reads > 10, "{reads} reads");
    }
}

/// Whether a fresh client's read is answered by `replica`.
fn reads_at(heatsink: &Heatsink, cluster: &RedisCluster, replica: usize, key: &str) -> bool {
    let before = cluster.calls(replica, "get");
    assert_eq!(heatsink.client().command(&["GET", key]), Reply::bulk("v"));
    cluster.calls(replica, "get") > before
}

#[test]
fn a_read_does_not_see_what_is_written_behind_it() {
    let mut rig = ClusterRig::with(RedisCluster::builder(), reading_replicas);
    let primary = rig.cluster.primaries()[0];
    let replica = rig.cluster.replicas_of(primary)[0];
    let keys = keys_of(&rig.cluster, primary, "r:behind", 22);
    let mut writer = rig.client();
    for key in &keys {
        assert_eq!(writer.command(&["SET", key, "v"]), Reply::ok());
        wait_until_copied(&rig.cluster, &[replica], key);
    }
    let (slow, (seen, keys)) = (&keys[0], keys[1..].split_first().expect("some keys"));
    // On connections that have to be made first.
    for key in keys {
        let heatsink = Heatsink::before_url(&rig.cluster.seed_url(), reading_replicas);
        let mut client = heatsink.client();
        client.send_raw(&[encode(&["GET", key]), encode(&["SET", key, "2"])].concat());
        assert_eq!(client.read_reply(), Reply::bulk("v"), "{key}");
        assert_eq!(client.read_reply(), Reply::ok(), "{key}");
    }
    // With a replica that takes its time.
    eventually(SOON, || reads_at(&rig.heatsink, &rig.cluster, replica, slow));
    let (mut client, mut other) = (rig.client(), rig.client());
    rig.cluster.pause(replica);
    client.send_raw(&[encode(&["GET", slow]), encode(&["SET", slow, "2"])].concat());
    // What a client wrote in a transaction it reads at the primary.
    other.send_raw(
        &[&["MULTI"][..], &["SET", seen, "2"], &["EXEC"], &["GET", seen]].map(encode).concat(),
    );
    other.set_timeout(Duration::from_millis(500));
    let replies: Vec<_> = (0..4).map(|_| other.try_read_reply()).collect();
    rig.cluster.resume(replica);
    assert_eq!(client.read_reply(), Reply::bulk("v"));
    assert_eq!(client.read_reply(), Reply::ok());
    let last = replies[3].as_ref().expect("an answer without the replica");
    assert_eq!(*last, Reply::bulk("2"), "{replies:?}");
}
