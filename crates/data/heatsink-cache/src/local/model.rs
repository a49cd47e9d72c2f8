//! A model of the cache's world: a server with versions, tracked links in order, ordinary
//! links that delay, foreign writers, and a proxy that keeps the caller's rules.
//!
//! A script of bytes drives it, so that a failing run shrinks. `HEATSINK_MODEL_SEED` replays
//! or varies the scripts, `HEATSINK_MODEL_CASES` says how many.
//!
//! What is checked: each connection's reads and writes of a key come in the order of its
//! versions, and no hit is of a version that was overwritten before something which the link
//! has already delivered.

mod proxy;
mod server;

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use proxy::Proxy;

/// A bug put in on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Planted {
    #[default]
    Nothing,
    /// The cache stores a fill although the epoch changed.
    StoreDespiteEpoch,
    /// The server drops its tracking entry on a write through the proxy, and tells nobody.
    NoLoop,
    /// The proxy serves a hit to a connection that has a fill of the key under way.
    HitBehindFill,
    /// The proxy gives the token of a registration back at once.
    NoSettling,
    /// The proxy says that a write is done as soon as it is sent.
    DoneWhenSent,
    /// A connection is served as soon as its write is answered.
    HitBeforeWord,
    /// … or as soon as its tracked link has answered anything.
    AnyAnswer,
}

/// What the proxy does about requests that touch a key past the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The key is pending: rules 2 and 5.
    Pending,
    /// Their connection waits for word of them: rule 6.
    Word,
}

type Script = Vec<[u8; 3]>;

/// What happened in all runs, to see that the model is about something.
#[derive(Debug, Default)]
struct Seen {
    hits: Cell<u64>,
    stored: Cell<u64>,
    overtaken: Cell<u64>,
    late_applied: Cell<u64>,
}

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn explore(rule: Rule, planted: Planted, cases: u32, seen: &Seen) -> Result<(), TestError<Script>> {
    let mut start = [0; 32];
    start[..8].copy_from_slice(&number_from_env("HEATSINK_MODEL_SEED", 1).to_le_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &start);
    let scripts = vec(any::<[u8; 3]>(), 1..600);
    TestRunner::new_with_rng(config, random).run(&scripts, |script| {
        let mut proxy = Proxy::new(rule, planted);
        let result = script.iter().try_for_each(|step| proxy.step(*step));
        let add = |cell: &Cell<u64>, more: u64| cell.set(cell.get() + more);
        add(&seen.hits, proxy.hits);
        add(&seen.late_applied, proxy.server.late_applied);
        for (_, counters) in proxy.cache.keys() {
            add(&seen.stored, counters.stored);
            add(&seen.overtaken, counters.overtaken);
        }
        result
    })
}

#[test]
fn no_connection_sees_a_key_go_back_and_nothing_invalidated_is_served() {
    for rule in [Rule::Pending, Rule::Word] {
        let seen = Seen::default();
        let cases = number_from_env("HEATSINK_MODEL_CASES", 2000) as u32;
        if let Err(error) = explore(rule, Planted::Nothing, cases, &seen) {
            panic!("{rule:?}: {error}");
        }
        for (what, cell) in [
            ("hits", &seen.hits),
            ("stored", &seen.stored),
            ("overtaken", &seen.overtaken),
            ("late", &seen.late_applied),
        ] {
            assert!(cell.get() > u64::from(cases) / 4, "{rule:?}, {what}: {}", cell.get());
        }
    }
}

#[test]
fn planted_bugs_are_found() {
    for (rule, planted) in [
        (Rule::Pending, Planted::StoreDespiteEpoch),
        (Rule::Pending, Planted::NoLoop),
        (Rule::Pending, Planted::HitBehindFill),
        (Rule::Pending, Planted::NoSettling),
        (Rule::Pending, Planted::DoneWhenSent),
        (Rule::Word, Planted::StoreDespiteEpoch),
        (Rule::Word, Planted::NoLoop),
        (Rule::Word, Planted::HitBehindFill),
        (Rule::Word, Planted::HitBeforeWord),
        (Rule::Word, Planted::AnyAnswer),
    ] {
        let found = explore(rule, planted, 20_000, &Seen::default());
        assert!(matches!(found, Err(TestError::Fail(..))), "{rule:?}, {planted:?} was not found");
    }
}
