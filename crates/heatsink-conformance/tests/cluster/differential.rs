//! Random commands to a plain server and through Heatsink to a cluster: the same bytes back.
//!
//! `HEATSINK_DIFFERENTIAL_STEPS` makes the runs longer, `HEATSINK_CLUSTER_SEED` repeats one;
//! see `heatsink_conformance::differential` for what is left out.

use std::sync::{LazyLock, Mutex, PoisonError};

use heatsink_conformance::ClusterRig;
use heatsink_conformance::differential::{Keys, Mode, Protocol, cluster_settings, compare_cluster};

use crate::load::number;

const STEPS: usize = 1000;
const SEEDS: [u64; 1] = [1];

/// One for all runs, one run at a time: each begins with an empty cluster.
static RIG: LazyLock<Mutex<ClusterRig>> =
    LazyLock::new(|| Mutex::new(ClusterRig::with(cluster_settings(), |config| config.workers = 2)));

fn run(protocol: Protocol, pipelined: bool, keys: Keys) {
    let rig = RIG.lock().unwrap_or_else(PoisonError::into_inner);
    let mode = Mode { protocol, pipelined };
    let steps = number("HEATSINK_DIFFERENTIAL_STEPS").map_or(STEPS, |steps| steps as usize);
    if let Some(seed) = number("HEATSINK_CLUSTER_SEED") {
        return compare_cluster(&rig, seed, steps, mode, keys);
    }
    for seed in SEEDS {
        compare_cluster(&rig, seed, steps, mode, keys);
    }
    let seed = fastrand::u64(..);
    println!("random seed: HEATSINK_CLUSTER_SEED={seed} ({mode:?}, {keys:?}, {steps} steps)");
    compare_cluster(&rig, seed, steps, mode, keys);
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
