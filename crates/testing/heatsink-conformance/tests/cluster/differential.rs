//! Random commands to a plain server and through Heatsink to a cluster: the same bytes back.
//!
//! `HEATSINK_DIFFERENTIAL_STEPS` makes the runs longer, `HEATSINK_CLUSTER_SEED` is another
//! seed, or `random`; see `heatsink_conformance::differential` for what is left out.

use std::sync::{LazyLock, Mutex, PoisonError};

use heatsink_conformance::ClusterRig;
use heatsink_conformance::differential::{
    Keys, Mode, Protocol, cluster_settings, compare_cluster, heat_of,
};
use heatsink_proxy::hot_keys::Treatment;

use heatsink_testkit::seed_from;

use crate::load::number;

const STEPS: usize = 1000;
const SEEDS: [u64; 2] = [1, 2];

/// One for all runs, one run at a time: each begins with an empty cluster.
static RIG: LazyLock<Mutex<ClusterRig>> =
    LazyLock::new(|| Mutex::new(ClusterRig::with(cluster_settings(), |config| config.workers = 2)));

/// The same through one worker.
static NARROW_RIG: LazyLock<Mutex<ClusterRig>> =
    LazyLock::new(|| Mutex::new(ClusterRig::with(cluster_settings(), |config| config.workers = 1)));

fn run(protocol: Protocol, pipelined: bool, keys: Keys) {
    run_on(&RIG, protocol, pipelined, keys, |_| Treatment::default());
}

fn run_hot(protocol: Protocol, pipelined: bool, keys: Keys) {
    run_on(&NARROW_RIG, protocol, pipelined, keys, heat_of);
}

fn run_on(
    rig: &LazyLock<Mutex<ClusterRig>>,
    protocol: Protocol,
    pipelined: bool,
    keys: Keys,
    heat: fn(u64) -> Treatment,
) {
    let rig = rig.lock().unwrap_or_else(PoisonError::into_inner);
    let mode = Mode { protocol, pipelined };
    let steps = number("HEATSINK_DIFFERENTIAL_STEPS").map_or(STEPS, |steps| steps as usize);
    if std::env::var_os("HEATSINK_CLUSTER_SEED").is_some() {
        let seed = seed_from("HEATSINK_CLUSTER_SEED", 0);
        return compare_cluster(&rig, seed, steps, mode, keys, heat(seed));
    }
    for seed in SEEDS {
        compare_cluster(&rig, seed, steps, mode, keys, heat(seed));
    }
}

#[test]
fn keys_of_one_slot_resp2() {
    run(Protocol::Resp2, false, Keys::Tagged);
}

#[test]
fn keys_of_one_slot_resp2_pipelined() {
    run(Protocol::Resp2, true, Keys::Tagged);
}

#[test]
fn keys_of_one_slot_resp3() {
    run(Protocol::Resp3, false, Keys::Tagged);
}

#[test]
fn keys_of_one_slot_resp3_pipelined() {
    run(Protocol::Resp3, true, Keys::Tagged);
}

#[test]
fn keys_of_all_nodes_resp2() {
    run(Protocol::Resp2, false, Keys::Spread);
}

#[test]
fn keys_of_all_nodes_resp2_pipelined() {
    run(Protocol::Resp2, true, Keys::Spread);
}

#[test]
fn keys_of_all_nodes_resp3() {
    run(Protocol::Resp3, false, Keys::Spread);
}

#[test]
fn keys_of_all_nodes_resp3_pipelined() {
    run(Protocol::Resp3, true, Keys::Spread);
}

#[test]
fn hot_keys_of_one_slot_resp2_pipelined() {
    run_hot(Protocol::Resp2, true, Keys::Tagged);
}

#[test]
fn hot_keys_of_one_slot_resp3() {
    run_hot(Protocol::Resp3, false, Keys::Tagged);
}

#[test]
fn hot_keys_of_all_nodes_resp2() {
    run_hot(Protocol::Resp2, false, Keys::Spread);
}

#[test]
fn hot_keys_of_all_nodes_resp3_pipelined() {
    run_hot(Protocol::Resp3, true, Keys::Spread);
}
