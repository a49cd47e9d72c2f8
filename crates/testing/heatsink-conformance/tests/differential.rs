//! Random commands to a plain server and through Heatsink to another: the same bytes back.
//!
//! `HEATSINK_DIFFERENTIAL_STEPS` makes the runs longer, `HEATSINK_DIFFERENTIAL_SEED` is
//! another seed, or `random`; see `heatsink_conformance::differential`.

use heatsink_conformance::differential::{Mode, Protocol, compare, compare_hot, compare_plain};
use heatsink_testkit::seed_from;

const STEPS: usize = 3000;
/// The last one has found a bug.
const SEEDS: [u64; 4] = [1, 2, 3, 16_573_827_572_347_054_430];

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

fn run(protocol: Protocol, pipelined: bool, compare: fn(u64, usize, Mode)) {
    let mode = Mode { protocol, pipelined };
    let steps = number("HEATSINK_DIFFERENTIAL_STEPS").map_or(STEPS, |steps| steps as usize);
    if std::env::var_os("HEATSINK_DIFFERENTIAL_SEED").is_some() {
        return compare(seed_from("HEATSINK_DIFFERENTIAL_SEED", 0), steps, mode);
    }
    for seed in SEEDS {
        compare(seed, steps, mode);
    }
}

#[test]
fn two_plain_servers_agree_resp2() {
    run(Protocol::Resp2, false, compare_plain);
}

#[test]
fn two_plain_servers_agree_resp2_pipelined() {
    run(Protocol::Resp2, true, compare_plain);
}

#[test]
fn two_plain_servers_agree_resp3() {
    run(Protocol::Resp3, false, compare_plain);
}

#[test]
fn two_plain_servers_agree_resp3_pipelined() {
    run(Protocol::Resp3, true, compare_plain);
}

#[test]
fn heatsink_agrees_resp2() {
    run(Protocol::Resp2, false, compare);
}

#[test]
fn heatsink_agrees_resp2_pipelined() {
    run(Protocol::Resp2, true, compare);
}

#[test]
fn heatsink_agrees_resp3() {
    run(Protocol::Resp3, false, compare);
}

#[test]
fn heatsink_agrees_resp3_pipelined() {
    run(Protocol::Resp3, true, compare);
}

#[test]
fn hot_keys_agree_resp2() {
    run(Protocol::Resp2, false, compare_hot);
}

#[test]
fn hot_keys_agree_resp2_pipelined() {
    run(Protocol::Resp2, true, compare_hot);
}

#[test]
fn hot_keys_agree_resp3() {
    run(Protocol::Resp3, false, compare_hot);
}

#[test]
fn hot_keys_agree_resp3_pipelined() {
    run(Protocol::Resp3, true, compare_hot);
}
