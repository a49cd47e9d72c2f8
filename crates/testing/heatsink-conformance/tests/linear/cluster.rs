//! The same before a cluster, while slots move and primaries hand over.
//!
//! Called by: `cargo test` with [`SHORT`] histories; a campaign has one of these for [`SHARE`] before
//! one server.
//! Bound: one cluster and two proxies for all of them.
//! Invariant: nothing that was acknowledged is lost by what the cluster does here.

use std::time::Duration;

use fastrand::Rng;
use heatsink_testkit::{RedisCluster, key_slot, poll_until, seed_from};

use crate::exact::{Totals, histories};
use crate::fleet::Fleet;
use crate::recorder::Session;
use crate::workload::{Mix, Workload};

const SHORT: usize = 6;
const SEED: u64 = 60;
/// Slower than one server: fewer histories take as long.
const SHARE: usize = 10;
/// Steps of a move take tens of milliseconds; so does the history then.
const PAUSE_US: u64 = 20_000;

const FAILOVER_TRIES: usize = 5;
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(3);

/// What the cluster does meanwhile.
#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    Move,
    Failover,
}

impl Change {
    const ALL: [Self; 3] = [Self::Nothing, Self::Move, Self::Failover];

    fn happen(self, cluster: &RedisCluster, key: &str, session: &Session, rng: &mut Rng) {
        let slot = key_slot(key);
        let owner = cluster.owner_of(slot);
        session.wait_for_percent(rng.usize(5..20));
        match self {
            Self::Nothing => {}
            Self::Move => {
                let mut others = cluster.primaries();
                others.retain(|node| *node != owner);
                let to = rng.choice(others).expect("there are three");
                cluster.begin_move_slot(slot, to);
                session.wait_for_percent(rng.usize(20..35));
                cluster.migrate_keys(slot, to);
                session.wait_for_percent(rng.usize(35..50));
                // Keys may have come back to the source meanwhile.
                cluster.migrate_keys(slot, to);
                cluster.finish_move_slot(slot, to);
            }
            Self::Failover => {
                let replica = rng.choice(cluster.replicas_of(owner)).expect("it has one");
                fail_over(cluster, replica);
            }
        }
    }
}

/// Makes a replica the primary. The others refuse that for a while after they have agreed to
/// another, so it is asked for until it is done.
fn fail_over(cluster: &RedisCluster, replica: usize) {
    let done = (0..FAILOVER_TRIES).any(|_| {
        cluster.node(replica).admin_client().command(&["CLUSTER", "FAILOVER"]);
        poll_until(FAILOVER_TIMEOUT, || cluster.primaries().contains(&replica)).is_some()
    });
    assert!(done, "node {replica} is no primary");
    cluster.wait_until_ok();
}

#[test]
fn every_history_before_a_cluster_is_that_of_one_plain_server() {
    let mut rng = Rng::with_seed(seed_from("HEATSINK_LINEAR_SEED", SEED));
    let mut totals = Totals::default();
    let count = histories(SHORT * SHARE).div_ceil(SHARE);
    let cluster = RedisCluster::start();
    let mut fleet = Fleet::start(cluster.seed_url(), &mut rng, false);
    for number in 0..count {
        let change = Change::ALL[number % Change::ALL.len()];
        let mut workload = Workload::random(&mut rng, &Mix::SINGLE);
        if !matches!(change, Change::Nothing) {
            workload.calm_down(8, 2);
            workload.pause_us = PAUSE_US;
        }
        let keys: Vec<String> = (0..workload.keys).map(|k| format!("{number}:{k}")).collect();
        fleet.heat(&keys);
        let session = Session::new(workload, keys.clone(), &fleet.addrs());
        totals.add(&format!("{change:?}"), &session, &mut rng, |rng| {
            change.happen(&cluster, &keys[0], &session, rng);
        });
    }
    totals.spared = fleet.spared();
    totals.check();
}
