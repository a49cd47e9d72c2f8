//! The campaign on a cluster with replicas.
//!
//! A primary that is killed takes acknowledged writes with it that no replica has: a plain client
//! would lose them, too. So clients stand still, and what they wrote is replicated, before a
//! failover; values are moved meanwhile, and must survive that.

use std::thread;
use std::time::Duration;

use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;
use heatsink_testkit::{RedisCluster, RedisServer, Reply, eventually, eventually_ok};

use super::{Fleet, RECOVERY, Schedule};
use crate::split::split;
use crate::support::PATIENCE;

const COPIES: Promotion =
    Promotion { mitigation: Mitigation::Copies, split_factor: None, ttl_seconds: None };

/// A large set that nobody changes: it does not fit beside itself when memory is short.
const CROWD: &str = "crowd";
const CROWD_MEMBERS: i64 = 20_000;

#[derive(Clone, Copy, Debug)]
enum Trouble {
    KillProxy,
    PauseProxy,
    PausePrimary,
    LaggingReplica,
    Memory(&'static str),
    MoveSlots,
    Copies,
    Flush,
}

const TROUBLES: [Trouble; 15] = [
    Trouble::KillProxy,
    Trouble::PauseProxy,
    Trouble::PausePrimary,
    Trouble::LaggingReplica,
    Trouble::Memory("noeviction"),
    Trouble::Memory("volatile-lru"),
    Trouble::Memory("volatile-lfu"),
    Trouble::Memory("volatile-random"),
    Trouble::Memory("volatile-ttl"),
    Trouble::Memory("allkeys-lru"),
    Trouble::Memory("allkeys-lfu"),
    Trouble::Memory("allkeys-random"),
    Trouble::MoveSlots,
    Trouble::Copies,
    Trouble::Flush,
];

#[test]
fn values_are_conserved_on_a_cluster_that_fails() {
    let mut schedule = Schedule::new();
    let settings = RedisCluster::builder().durable().node_timeout(Duration::from_secs(4));
    let mut cluster = settings.line("cluster-replica-validity-factor 0").start();
    let store = RedisServer::start();
    let (store_url, upstream) = (store.url(), cluster.seed_url());
    let flags = ["--coordination-url", store_url.as_str(), "--upstream", upstream.as_str()];
    let mut fleet = Fleet::start(&flags, &[0, 0, 0], false);
    fill_crowd(&fleet);
    schedule.rounds(&TROUBLES, |schedule, trouble| {
        schedule.note(format!("{trouble:?}"));
        let mut rng = schedule.rng.fork();
        let time = schedule.pause();
        fleet.operate_for(&mut rng, Duration::from_millis(300));
        match trouble {
            Trouble::KillProxy => fleet.kill_proxy(&mut rng),
            Trouble::PauseProxy => fleet.pause_proxy(&mut rng, time),
            Trouble::MoveSlots => move_slots(&cluster, &mut rng),
            _ => {}
        }
        fleet.clients.stop();
        match trouble {
            Trouble::PausePrimary => {
                all_replicated(&cluster);
                let primaries = cluster.primaries();
                let victim = primaries[rng.usize(..primaries.len())];
                cluster.pause(victim);
                fleet.operate_for(&mut rng, time);
                cluster.resume(victim);
                cluster.wait_until_ok();
            }
            Trouble::LaggingReplica => lagging_replica(&fleet, &mut cluster, &mut rng, time),
            Trouble::Memory(policy) => {
                limit_memory(&cluster, Some((policy, rng.u64(..1_500_000))));
                operate_crowd(&fleet, &mut rng);
                fleet.operate_for(&mut rng, time);
                operate_crowd(&fleet, &mut rng);
                fleet.operate_for(&mut rng, time);
                limit_memory(&cluster, None);
            }
            Trouble::Copies => copies(&fleet),
            Trouble::Flush => {
                flush(&fleet, 0);
                fill_crowd(&fleet);
            }
            Trouble::KillProxy | Trouble::PauseProxy | Trouble::MoveSlots => {}
        }
        let may_evict = matches!(trouble, Trouble::Memory(policy) if policy.starts_with("allkeys"));
        if may_evict {
            fleet.verify_or_absent(0, schedule);
        } else {
            fleet.verify(0, schedule);
        }
        verify_crowd(&fleet, may_evict);
        fleet.clients.go_on();
    });
    fleet.clients.stop();
    fleet.drain();
    fleet.verify(0, &schedule);
    verify_crowd(&fleet, false);
    assert_nothing_left(&cluster);
    println!("{} increments acknowledged since the last flush", fleet.clients.acknowledged());
    fleet.clients.end();
}

fn fill_crowd(fleet: &Fleet) {
    let mut client = fleet.client(0, 0);
    let members: Vec<String> =
        (0..CROWD_MEMBERS).map(|member| format!("member:{member}")).collect();
    for part in members.chunks(1_000) {
        let mut add = vec!["SADD", CROWD];
        add.extend(part.iter().map(String::as_str));
        assert_eq!(client.command(&add), Reply::Integer(1_000));
    }
}

/// Has the large set split, or made whole.
fn operate_crowd(fleet: &Fleet, rng: &mut fastrand::Rng) {
    let api = fleet.nodes[rng.usize(..2)].api();
    // It may be refused: there may be no room for it.
    let _ = if rng.bool() {
        api.promote(CROWD.as_bytes(), split(4)).is_ok()
    } else {
        api.demote(CROWD.as_bytes()).is_ok()
    };
}

/// The large set is complete; or, if it may be, it is gone as a whole, and made anew.
fn verify_crowd(fleet: &Fleet, may_be_absent: bool) {
    for number in 0..2 {
        let members = eventually_ok(RECOVERY, || {
            match fleet.client(number, 0).try_command(&["SMEMBERS", CROWD]) {
                Ok(Reply::Error(error)) => Err(error),
                Ok(reply) => Ok(reply.items().len() as i64),
                Err(error) => Err(error.to_string()),
            }
        });
        if members == 0 && may_be_absent {
            return fill_crowd(fleet);
        }
        assert_eq!(members, CROWD_MEMBERS, "proxy {number}");
    }
}

/// A replica misses what is done to values, and then takes its primary's place.
fn lagging_replica(
    fleet: &Fleet,
    cluster: &mut RedisCluster,
    rng: &mut fastrand::Rng,
    time: Duration,
) {
    all_replicated(cluster);
    let primaries = cluster.primaries();
    let primary = primaries[rng.usize(..primaries.len())];
    let Some(replica) = cluster.replicas_of(primary).first().copied() else { return };
    cluster.pause(replica);
    // Not for so long that the others would think it dead, and the primary drop the connection.
    fleet.operate_for(rng, time.min(Duration::from_secs(2)));
    cluster.kill(primary);
    cluster.resume(replica);
    let mut client = cluster.node(replica).admin_client();
    eventually_ok(PATIENCE, || {
        let reply = client.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        if cluster.primaries().contains(&replica) { Ok(()) } else { Err(format!("{reply:?}")) }
    });
    cluster.restart(primary);
    cluster.wait_until_ok();
}

/// Each replica has all that its primary has.
fn all_replicated(cluster: &RedisCluster) {
    for primary in cluster.primaries() {
        for replica in cluster.replicas_of(primary) {
            eventually(PATIENCE, || {
                let offset = cluster.info_u64(primary, "master_repl_offset");
                cluster.info_u64(replica, "slave_repl_offset") >= offset
            });
        }
    }
}

/// Lets every node have so many bytes more than it uses, or as many as it likes.
fn limit_memory(cluster: &RedisCluster, limit: Option<(&str, u64)>) {
    for node in cluster.nodes() {
        let mut client = node.admin_client();
        if let Some((policy, more)) = limit {
            client.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
            let most = node.info_u64("memory", "used_memory") + more;
            client.command(&["CONFIG", "SET", "maxmemory", &most.to_string()]);
        } else {
            client.command(&["CONFIG", "SET", "maxmemory", "0"]);
            client.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        }
    }
}

fn move_slots(cluster: &RedisCluster, rng: &mut fastrand::Rng) {
    let primaries = cluster.primaries();
    for _ in 0..5 {
        let slot = rng.u16(..16_384);
        let to = primaries[rng.usize(..primaries.len())];
        if cluster.owner_of(slot) != to {
            cluster.move_slot(slot, to);
        }
    }
}

/// A large value gets copies, is written, and is read as it was written by everybody.
fn copies(fleet: &Fleet) {
    const KEY: &str = "{copied}value";
    let api = fleet.nodes[0].api();
    for round in 0..3 {
        let value = format!("{round}").repeat(100 << 10);
        assert_eq!(fleet.client(round % 2, 0).command(&["SET", KEY, &value]), Reply::ok());
        let _ = api.promote(KEY.as_bytes(), COPIES);
        thread::sleep(Duration::from_millis(200));
        for number in 0..2 {
            assert_eq!(fleet.client(number, 0).command(&["GET", KEY]), Reply::bulk(&value));
        }
    }
    let _ = api.demote(KEY.as_bytes());
    fleet.client(0, 0).command(&["DEL", KEY]);
    for number in 0..2 {
        assert_eq!(fleet.client(number, 0).command(&["GET", KEY]), Reply::Null);
    }
}

/// Everything is removed, and nothing comes back.
fn flush(fleet: &Fleet, database: u32) {
    eventually_ok(RECOVERY, || match fleet.client(1, database).command(&["FLUSHALL"]) {
        Reply::Error(error) => Err(error),
        _ => Ok(()),
    });
    for key in super::KEYS {
        fleet.clients.of(database).iter_mut().for_each(|account| account.forget(key));
    }
}

/// Nothing is there but the values, what ends by itself, and an empty index.
fn assert_nothing_left(cluster: &RedisCluster) {
    for primary in cluster.primaries() {
        let mut client = cluster.node(primary).client();
        let keys = client.command(&["KEYS", "heatsink:*"]);
        for key in keys.items().iter().map(Reply::text) {
            let left = client.command(&["PTTL", &key]).integer();
            assert!(left >= 0, "{key} stays for ever");
        }
    }
}
