//! Histories recorded through two proxies before one server, half of them with faults.
//!
//! Called by: `cargo test` with [`SHORT`] histories.
//! Bound: one server and two proxies at a time, for [`PER_RIG`] histories.
//! Invariant: keys of one history are not those of another.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use heatsink_testkit::{RedisServer, seed_from};

use crate::faults::Fault;
use crate::fleet::{Fleet, Spared};
use crate::recorder::{PATIENCE, Session};
use crate::workload::{Mix, Workload};

const SHORT: usize = 40;
const SEED: u64 = 6;
/// Histories for which a server and its proxies are started.
const PER_RIG: usize = 20;

/// What was recorded over all.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) histories: usize,
    pub(crate) operations: usize,
    pub(crate) unknown: usize,
    pub(crate) faulty: usize,
    /// The search took too long; see [`Self::check`].
    pub(crate) undecided: usize,
    pub(crate) faults: BTreeMap<String, usize>,
    pub(crate) spared: Spared,
    pub(crate) checking: Duration,
}

/// How many histories to record.
pub(crate) fn histories(short: usize) -> usize {
    let number = std::env::var("HEATSINK_LINEAR_HISTORIES").ok();
    number.map_or(short, |text| text.parse().expect("a number"))
}

impl Totals {
    /// Records one history and asks the checker about it.
    #[track_caller]
    pub(crate) fn add(
        &mut self,
        what: &str,
        session: &Session,
        rng: &mut Rng,
        meanwhile: impl FnOnce(&mut Rng),
    ) {
        let seed = rng.get_seed();
        let history = session.record(rng, meanwhile);
        let begun = Instant::now();
        let verdict = history.check();
        self.checking += begun.elapsed();
        match verdict {
            Err(why) => panic!("history {} ({what}, generator at {seed}): {why}", self.histories),
            Ok(is_decided) => self.undecided += usize::from(!is_decided),
        }
        self.histories += 1;
        self.operations += history.operations.len();
        self.unknown += history.unknown();
        *self.faults.entry(what.to_owned()).or_default() += 1;
    }

    /// Whether what this is about has happened: requests went together, and the checker could
    /// tell of nearly every history, all but one in a hundred.
    #[track_caller]
    pub(crate) fn check(&self) {
        println!("{self:?}");
        let Spared { joined, changes, batches, .. } = self.spared;
        assert!(joined > 0 && changes > batches, "{self:?}");
        assert!(self.undecided <= 1 + self.histories / 100, "{self:?}");
    }
}

/// A server that forgets nothing it has acknowledged.
fn server() -> RedisServer {
    RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always").start()
}

/// Others keep the server busy, so that requests wait for each other.
fn keep_busy(server: &RedisServer, session: &Session) {
    let mut other = server.client();
    let until = Instant::now() + PATIENCE;
    while !session.has_percent(75) {
        assert!(Instant::now() < until, "it takes too long");
        other.command(&["EVAL", "for i = 1, 50000 do end", "0"]);
    }
}

#[test]
fn every_history_is_that_of_one_plain_server() {
    let mut rng = Rng::with_seed(seed_from("HEATSINK_LINEAR_SEED", SEED));
    let mut totals = Totals::default();
    let count = histories(SHORT);
    while totals.histories < count {
        let has_faults = totals.histories / PER_RIG % 2 == 1;
        let mut server = server();
        let mut fleet = Fleet::start(server.url(), &mut rng, true);
        for _ in 0..PER_RIG.min(count - totals.histories) {
            let number = totals.histories;
            let mut workload = Workload::random(&mut rng, &Mix::ANY);
            let fault = has_faults.then(|| Fault::ALL[totals.faulty % Fault::ALL.len()]);
            if fault.is_some() {
                workload.calm_down(6, 2);
            }
            workload.hangs_up = fault == Some(Fault::HangUp);
            let keys: Vec<String> = (0..workload.keys).map(|k| format!("{number}:{k}")).collect();
            fleet.heat(&keys);
            let what = fault.map_or("none".to_owned(), |fault| format!("{fault:?}"));
            let session = Session::new(workload, keys, &fleet.addrs());
            totals.faulty += usize::from(has_faults);
            totals.add(&what, &session, &mut rng, |rng| {
                if let Some(fault) = fault {
                    fault.happen(&mut server, &mut fleet, &session, rng);
                } else if number % 4 > 0 {
                    keep_busy(&server, &session);
                }
            });
        }
        totals.spared += fleet.spared();
    }
    totals.check();
}
