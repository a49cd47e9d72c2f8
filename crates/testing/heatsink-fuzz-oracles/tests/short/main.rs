//! A short campaign without a fuzzer's tools: well-formed input, mutated, against every
//! property. The fuzz targets in `fuzz/` go on where this stops.
//!
//! `HEATSINK_FUZZ_SEED` is another seed than the usual one, or `random`, and
//! `HEATSINK_FUZZ_ITERATIONS` makes a run longer.

mod mutation;

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use heatsink_fuzz_oracles::{command, corpus, reply, request};

/// About a second of each campaign without optimisation.
const ITERATIONS: u64 = 300_000;

fn seed() -> u64 {
    match std::env::var("HEATSINK_FUZZ_SEED").as_deref() {
        Ok("random") => fastrand::u64(..),
        _ => number_from("HEATSINK_FUZZ_SEED").unwrap_or(1),
    }
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}: {text:?} is not a number")))
}

fn campaign(name: &str, corpus: &[&[u8]], check: fn(&[u8])) {
    let seed = seed();
    let iterations = number_from("HEATSINK_FUZZ_ITERATIONS").unwrap_or(ITERATIONS);
    println!("{name}: HEATSINK_FUZZ_SEED={seed} HEATSINK_FUZZ_ITERATIONS={iterations}");
    for sample in corpus {
        check(sample);
    }
    let mut rng = Rng::with_seed(seed);
    for iteration in 0..iterations {
        let data = mutation::mutant(corpus, &mut rng);
        let held = catch_unwind(AssertUnwindSafe(|| check(&data))).is_ok();
        assert!(held, "{name}: iteration {iteration} of seed {seed}: b\"{}\"", data.escape_ascii());
    }
}

#[test]
fn requests() {
    campaign("request", corpus::REQUESTS, request);
}

#[test]
fn replies() {
    campaign("reply", corpus::REPLIES, reply);
}

#[test]
fn commands() {
    campaign("command", corpus::COMMANDS, command);
}

/// The mutants are worth their time: many are broken, many are still well-formed.
#[test]
fn mutants_lie_on_both_sides_of_the_border() {
    use heatsink_resp::reply::{ReplyScan, Status};
    let mut rng = Rng::with_seed(1);
    let (mut complete, mut incomplete, mut refused) = (0, 0, 0);
    for _ in 0..3000 {
        match ReplyScan::default().advance(&mutation::mutant(corpus::REPLIES, &mut rng)) {
            Ok(Status::Complete(_)) => complete += 1,
            Ok(Status::Incomplete) => incomplete += 1,
            Err(_) => refused += 1,
        }
    }
    let least = complete.min(incomplete).min(refused);
    assert!(least > 300, "{complete} complete, {incomplete} incomplete, {refused} refused");
}
