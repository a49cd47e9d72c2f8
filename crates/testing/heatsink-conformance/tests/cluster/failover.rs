//! A primary dies or hands over: others go on, its clients come back, nothing is lost.
//!
//! One worker, on purpose: a node writes what it has executed to its replica before it writes
//! to the one connection that asked for it, so what was acknowledged survives the node once the
//! replica has read it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::{ClusterRig, Heatsink};
use heatsink_testkit::{RawClient, RedisCluster, Reply, eventually, eventually_ok};

use crate::load::{REPLY_TIMEOUT, StopOnDrop, duration};

const SECONDS: u64 = 2;
/// From the cluster's own failover to the first success.
pub(crate) const BACK_WITHIN: Duration = Duration::from_secs(1);
/// The longest that clients of other nodes may have to wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
pub(crate) const FAILOVER_TIMEOUT: Duration = Duration::from_secs(30);
const UNKNOWN: &str = "it is unknown whether the command was executed";

/// What a client that counts by itself saw.
#[derive(Default)]
struct Tally {
    key: String,
    acknowledged: i64,
    unknown: i64,
    /// Errors, and when they came.
    errors: Vec<(Instant, String)>,
    successes: Vec<Instant>,
    longest: Duration,
}

impl Tally {
    /// Increments `key` until told to stop.
    fn count(addr: SocketAddr, key: &str, stop: &AtomicBool) -> Result<Self, String> {
        let mut client = RawClient::connect(addr);
        client.set_timeout(REPLY_TIMEOUT);
        let mut tally = Self { key: key.to_owned(), ..Self::default() };
        let (mut last, mut unsure) = (0, 0);
        while !stop.load(Ordering::Acquire) {
            let begun = Instant::now();
            let reply = client.try_command(&["INCR", key]);
            let now = Instant::now();
            tally.longest = tally.longest.max(now - begun);
            match reply.map_err(|error| format!("INCR {key}: {error}"))? {
                Reply::Integer(value) => {
                    if value <= last || value > last + 1 + unsure {
                        return Err(format!("INCR {key}: {value} after {last}, {unsure} unknown"));
                    }
                    (last, unsure) = (value, 0);
                    tally.acknowledged += 1;
                    tally.successes.push(now);
                }
                Reply::Error(text) => {
                    if text.contains(UNKNOWN) {
                        tally.unknown += 1;
                        unsure += 1;
                    }
                    tally.errors.push((now, text));
                    thread::sleep(Duration::from_millis(2));
                }
                other => return Err(format!("INCR {key}: {other}")),
            }
        }
        Ok(tally)
    }

    /// Whether the value at the end fits what was seen.
    #[track_caller]
    fn check(&self, client: &mut RawClient) {
        let value: i64 = client.command(&["GET", &self.key]).text().parse().expect("a number");
        let (acknowledged, unknown) = (self.acknowledged, self.unknown);
        assert!(
            acknowledged <= value && value <= acknowledged + unknown,
            "{}: {acknowledged} acknowledged, {unknown} unknown, but it is {value}",
            self.key
        );
    }

    fn first_success_after(&self, moment: Instant) -> Option<Instant> {
        self.successes.iter().copied().find(|at| *at >= moment)
    }
}

/// Runs a client for each key while `meanwhile` does.
#[track_caller]
fn count_while<T>(
    addr: SocketAddr,
    keys: &[String],
    meanwhile: impl FnOnce() -> T,
) -> (Vec<Tally>, T) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> =
            keys.iter().map(|key| scope.spawn(|| Tally::count(addr, key, &stop))).collect();
        let ending = StopOnDrop(&stop);
        let value = meanwhile();
        drop(ending);
        let tallies = threads.into_iter().map(|thread| {
            let tally = thread.join().expect("what it panicked with is above");
            tally.unwrap_or_else(|why| panic!("{why}"))
        });
        (tallies.collect(), value)
    })
}

/// Two keys on each primary.
fn keys_of_all(cluster: &RedisCluster) -> Vec<String> {
    let keys = |node: usize| (0..2).map(move |n| cluster.key_on(node, &format!("count{n}")));
    cluster.primaries().into_iter().flat_map(keys).collect()
}

/// Waits until a node says that it is a primary and that all is well.
pub(crate) fn wait_until_serving(cluster: &RedisCluster, node: usize) -> Instant {
    let mut client = cluster.node(node).client();
    eventually(FAILOVER_TIMEOUT, || {
        client.command(&["ROLE"]).items()[0].text() == "master"
            && client.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")
    });
    Instant::now()
}

#[test]
fn a_primary_dies_under_load() {
    // Else all nodes refuse everything until the dead one is replaced.
    let settings = RedisCluster::builder().line("cluster-require-full-coverage no");
    let mut rig = ClusterRig::with(settings, |config| config.workers = 1);
    let primaries = rig.cluster.primaries();
    let (dying, heir) = (primaries[1], rig.cluster.replicas_of(primaries[1])[0]);
    let keys = keys_of_all(&rig.cluster);
    let is_hurt: Vec<bool> = (0..keys.len()).map(|n| n / 2 == 1).collect();
    let addr = rig.heatsink.addr();
    let cluster = &mut rig.cluster;
    let (tallies, (killed_at, served_at)) = count_while(addr, &keys, || {
        thread::sleep(duration(SECONDS) / 4);
        let killed_at = Instant::now();
        cluster.kill_when_replicated(dying);
        let served_at = wait_until_serving(cluster, heir);
        thread::sleep(duration(SECONDS));
        (killed_at, served_at)
    });
    let mut client = rig.client();
    for (tally, is_hurt) in tallies.iter().zip(is_hurt) {
        tally.check(&mut client);
        assert!(tally.acknowledged > 100, "{}: {}", tally.key, tally.acknowledged);
        if !is_hurt {
            assert!(tally.errors.is_empty(), "{}: {:?}", tally.key, tally.errors[0]);
            assert!(tally.longest < LONGEST_PAUSE, "{}: {:?}", tally.key, tally.longest);
            continue;
        }
        let back_at = tally.first_success_after(killed_at + Duration::from_millis(100));
        let back_at = back_at.expect("it came back");
        let pause = back_at.saturating_duration_since(served_at);
        println!(
            "{}: failover {:?} after the kill, back {pause:?} after that; {} errors, {} unknown",
            tally.key,
            served_at - killed_at,
            tally.errors.len(),
            tally.unknown
        );
        assert!(pause < BACK_WITHIN, "{}: {pause:?}", tally.key);
        let late = tally.errors.iter().find(|(at, _)| *at > served_at + BACK_WITHIN);
        assert!(late.is_none(), "{}: {late:?}", tally.key);
    }
    // It comes back as a replica, and everything still works.
    rig.cluster.restart(dying);
    rig.cluster.wait_until_ok();
    let keys = keys_of_all(&rig.cluster);
    let tallies = count_again(addr, &keys);
    assert!(tallies.iter().all(|tally| tally.errors.is_empty() && tally.acknowledged > 0));
}

/// A short run on fresh keys, with nothing happening.
fn count_again(addr: SocketAddr, keys: &[String]) -> Vec<Tally> {
    let keys: Vec<String> = keys.iter().map(|key| format!("{key}:again")).collect();
    count_while(addr, &keys, || thread::sleep(Duration::from_millis(300))).0
}

#[test]
fn a_primary_hands_over_under_load() {
    let rig = ClusterRig::new(1);
    let keys = keys_of_all(&rig.cluster);
    let (tallies, handovers) = count_while(rig.heatsink.addr(), &keys, || {
        let until = Instant::now() + duration(SECONDS);
        let mut handovers = 0;
        while handovers < 2 || Instant::now() < until {
            let primary = rig.cluster.primaries()[handovers % 3];
            let replica =
                eventually(FAILOVER_TIMEOUT, || rig.cluster.replicas_of(primary).first().copied());
            rig.cluster.failover(replica);
            handovers += 1;
        }
        handovers
    });
    let mut client = rig.client();
    for tally in &tallies {
        println!(
            "{}: {handovers} handovers, {} acknowledged, {} errors, longest {:?}",
            tally.key,
            tally.acknowledged,
            tally.errors.len(),
            tally.longest
        );
        let other = tally.errors.iter().find(|(_, text)| !text.contains(UNKNOWN));
        assert!(other.is_none(), "{}: {other:?}", tally.key);
        tally.check(&mut client);
    }
    eventually_ok(FAILOVER_TIMEOUT, || match client.command(&["SET", "after", "1"]) {
        Reply::Simple(_) => Ok(()),
        reply => Err(reply.to_string()),
    });
}

/// The only node that Heatsink has a connection to, and the first that it was told of.
#[test]
fn the_only_node_in_use_dies() {
    let mut cluster = RedisCluster::start();
    let seeds = [0, 1, 2].map(|node| cluster.node(node).addr().to_string()).join(",");
    let heatsink = Heatsink::before_url(&format!("redis+cluster://{seeds}"), |_| {});
    let (dying, heir) = (0, cluster.replicas_of(0)[0]);
    let keys = [cluster.key_on(dying, "lonely")];
    let (tallies, (killed_at, served_at)) = count_while(heatsink.addr(), &keys, || {
        thread::sleep(Duration::from_millis(200));
        let killed_at = Instant::now();
        cluster.kill_when_replicated(dying);
        let served_at = wait_until_serving(&cluster, heir);
        thread::sleep(BACK_WITHIN + Duration::from_millis(200));
        (killed_at, served_at)
    });
    let tally = &tallies[0];
    tally.check(&mut heatsink.client());
    let back_at = tally.first_success_after(killed_at + Duration::from_millis(100));
    let last = tally.errors.last();
    let back_at = back_at.unwrap_or_else(|| panic!("it did not come back: {last:?}"));
    let pause = back_at.saturating_duration_since(served_at);
    println!("failover {:?} after the kill, back {pause:?} after that", served_at - killed_at);
    assert!(pause < BACK_WITHIN, "{pause:?}");
}
