//! Flights and batches against a simulated server: every reply is one that a single server
//! could have given, and every waiter comes back exactly once.
//!
//! The server notes the instant of each execution. So that a history is linearizable it is
//! enough that every operation has its instant between its call and its reply, that the
//! replies are those of executing them in that order, and that the operations of one
//! connection keep theirs: the instants are the proof.
//!
//! A script of bytes drives it, so that a failing run shrinks. `HEATSINK_MODEL_SEED` replays
//! or varies the scripts, `HEATSINK_MODEL_CASES` says how many.

mod server;
mod world;

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use world::{Seen, World};

/// A bug put in on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// Reads join a flight that is out.
    JoinOut,
    /// A batch of which nobody knows the outcome is sent again.
    RetryLost,
    /// Operations of one connection are not held back behind others on the key.
    NoOrder,
}

type Script = Vec<[u8; 3]>;

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn explore(planted: Planted, cases: u32) -> (Result<(), TestError<Script>>, Seen) {
    let mut start = [0; 32];
    start[..8].copy_from_slice(&number_from_env("HEATSINK_MODEL_SEED", 1).to_le_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &start);
    let seen = RefCell::new(Seen::default());
    let scripts = vec(any::<[u8; 3]>(), 1..500);
    let result = TestRunner::new_with_rng(config, random).run(&scripts, |script| {
        let mut world = World::new(planted, script[0][0]);
        let result = script.iter().try_for_each(|step| world.step(*step));
        let result = result.and_then(|()| world.drain());
        seen.borrow_mut().add(&world.seen());
        result
    });
    (result, seen.into_inner())
}

#[test]
fn histories_are_linearizable_and_nobody_is_lost_or_answered_twice() {
    let cases = number_from_env("HEATSINK_MODEL_CASES", 2000) as u32;
    let (result, seen) = explore(Planted::Nothing, cases);
    if let Err(error) = result {
        panic!("{error}");
    }
    // The model is about something.
    let few = u64::from(cases) / 4;
    assert!(
        seen.answered > few
            && seen.refused > few
            && seen.lost > few
            && seen.expired > few
            && seen.left > few
            && seen.joined > few
            && seen.combined > few,
        "{seen:?}"
    );
}

#[test]
fn planted_bugs_are_found() {
    for planted in [Planted::JoinOut, Planted::RetryLost, Planted::NoOrder] {
        let (found, _) = explore(planted, 20_000);
        assert!(matches!(found, Err(TestError::Fail(..))), "{planted:?} was not found");
    }
}

/// Increments by one from all connections, without faults: the replies are 1..=N, and one
/// that was answered before another was called is the smaller.
#[test]
fn replies_to_increments_are_one_to_n_and_respect_real_time() {
    let mut world = World::new(Planted::Nothing, 0);
    let mut random = 1_u64;
    let mut draw = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % bound
    };
    for _ in 0..200_000 {
        match draw(10) {
            0..6 => world.increment_by_one(draw(8) as usize),
            6 | 7 => world.execute(),
            _ => world.deliver().expect("no rule is broken"),
        }
    }
    world.drain().expect("no rule is broken");
    let mut replies = world.integer_replies();
    assert!(replies.len() > 20_000, "{}", replies.len());
    assert!(world.seen().combined > 10_000, "{:?}", world.seen());
    // By value: called at no time after a greater one was answered.
    replies.sort_unstable_by_key(|reply| reply.value);
    let mut answered_at_least = u64::MAX;
    for (index, reply) in replies.iter().enumerate().rev() {
        assert_eq!(reply.value, index as i64 + 1);
        assert!(reply.called < answered_at_least, "{reply:?}");
        answered_at_least = answered_at_least.min(reply.answered);
    }
}
