//! The measurement: for each case, for each round, each peer in turn.
//!
//! Called by: `main`.
//! Bound: cases x rounds x peers runs of `redis-benchmark`, and one short one of each to warm
//! up.
//! Invariant: within a case no peer is measured twice before all others were measured once, and
//! the order rotates, so that a change in the machine's mood meets all of them alike.

use heatsink_testkit::ProcStats;
use serde::Serialize;

use crate::benchmark;
use crate::case::{self, Case, KEYS};
use crate::peer::Peer;
use crate::preload;
use crate::upstream_commands::Counts;

/// The part of a round's requests that the run before the first round sends.
const WARM_UP_PART: u64 = 10;

/// What to measure.
#[derive(Serialize)]
pub(crate) struct Plan {
    pub(crate) cases: Vec<Case>,
    pub(crate) requests: u64,
    pub(crate) rounds: usize,
    /// Whether the commands that reach Redis are counted, and reads that find nothing refused.
    #[serde(skip)]
    pub(crate) counts_upstream: bool,
}

/// One run against one peer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// Index into the plan's cases.
    pub(crate) case: usize,
    pub(crate) round: usize,
    pub(crate) peer: String,
    pub(crate) requests_per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// CPU seconds per million requests of the process that clients talk to.
    pub(crate) cpu_per_million: f64,
    /// The same of the Redis behind it.
    pub(crate) redis_cpu_per_million: Option<f64>,
    /// Commands that its Redis got, per request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_per_request: Option<f64>,
}

/// Runs the whole plan; `progress` is told about each case.
pub(crate) fn run(
    plan: &Plan,
    peers: &[Peer],
    progress: impl Fn(&str),
) -> Result<Vec<Sample>, String> {
    let families = case::families(&plan.cases);
    for peer in peers {
        progress(&format!("writing {KEYS} keys to {}", peer.name));
        preload::write(peer, &families).map_err(|error| named(peer, &error))?;
    }
    let mut samples = Vec::new();
    for (index, case) in plan.cases.iter().enumerate() {
        progress(&format!("case {} of {}: {}", index + 1, plan.cases.len(), case.title()));
        let requests = case.requests(plan.requests);
        for peer in peers {
            let warm_up = (requests / WARM_UP_PART).max(u64::from(case.clients));
            benchmark::run(case, peer.target, warm_up).map_err(|error| named(peer, &error))?;
        }
        for round in 0..plan.rounds {
            for turn in 0..peers.len() {
                let peer = &peers[(round + turn) % peers.len()];
                let sample =
                    measure(plan, case, peer, requests).map_err(|error| named(peer, &error))?;
                samples.push(Sample { case: index, round, ..sample });
            }
        }
    }
    Ok(samples)
}

fn measure(plan: &Plan, case: &Case, peer: &Peer, requests: u64) -> Result<Sample, String> {
    let counts = || plan.counts_upstream.then(|| Counts::of(peer)).flatten();
    let counts_before = counts();
    let before = cpu_seconds(peer)?;
    let figures = benchmark::run(case, peer.target, requests)?;
    let after = cpu_seconds(peer)?;
    let grown = counts().zip(counts_before).map(|(after, before)| after.since(before));
    // Heatsink asks every few seconds for its index of split keys, which is not there.
    let few = 5.max(requests / 1000);
    if let Some(Counts { misses, .. }) = grown
        && misses > few
    {
        return Err(format!("{misses} reads of {} found no key", case.title()));
    }
    let per_million = |seconds: f64| seconds * 1e6 / requests as f64;
    Ok(Sample {
        case: 0,
        round: 0,
        peer: peer.name.clone(),
        requests_per_second: figures.requests_per_second,
        p50_ms: figures.p50_ms,
        p99_ms: figures.p99_ms,
        cpu_per_million: per_million(after.0 - before.0),
        redis_cpu_per_million: after
            .1
            .zip(before.1)
            .map(|(after, before)| per_million(after - before)),
        upstream_per_request: grown.map(|grown| grown.commands as f64 / requests as f64),
    })
}

fn cpu_seconds(peer: &Peer) -> Result<(f64, Option<f64>), String> {
    let of = |pid: u32| {
        let stats = ProcStats::of(pid).map_err(|error| format!("process {pid}: {error}"))?;
        Ok::<f64, String>(stats.cpu_seconds)
    };
    let sum = |pids: Vec<u32>| pids.into_iter().map(of).sum::<Result<f64, String>>();
    let redis_pids = peer.redis_pids();
    let redis = if redis_pids.is_empty() { None } else { Some(sum(redis_pids)?) };
    Ok((sum(peer.pids())?, redis))
}

fn named(peer: &Peer, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", peer.name)
}

#[cfg(test)]
mod tests {
    use heatsink_testkit::RawClient;

    use super::*;
    use crate::{proxy, summary};

    fn plain() -> Peer {
        proxy::plain().expect("a server")
    }

    fn plan(filter: &str, rounds: usize) -> Plan {
        let cases = case::matching(case::of_proxies(), filter);
        Plan { cases, requests: 100, rounds, counts_upstream: false }
    }

    #[test]
    fn peers_take_turns_and_every_run_reaches_its_server() {
        let mut peers = vec![plain(), plain()];
        peers[1].name = "other".to_owned();
        let plan = plan("random keys, 50 clients, -P", 2);
        let samples = run(&plan, &peers, |_| {}).expect("a run");

        let order: Vec<_> = samples.iter().map(|s| (s.case, s.round, s.peer.as_str())).collect();
        let expected: Vec<_> = (0..2)
            .flat_map(|case| {
                [(case, 0, "redis"), (case, 0, "other"), (case, 1, "other"), (case, 1, "redis")]
            })
            .collect();
        assert_eq!(order, expected);
        assert!(samples.iter().all(|s| s.requests_per_second > 0.0 && s.p99_ms >= s.p50_ms));

        for peer in &peers {
            let mut client = RawClient::connect(peer.target.addr);
            assert_eq!(client.command(&["DBSIZE"]).integer(), KEYS as i64 + 1);
            // 800 in each of two rounds and 80 to warm up, all of them on keys that exist.
            let stats = client.command(&["INFO", "stats"]).text();
            assert!(stats.contains("keyspace_hits:1680\r\n"), "{stats}");
            assert!(stats.contains("keyspace_misses:0\r\n"), "{stats}");
        }
        let summaries = summary::of(&plan.cases, &samples);
        assert_eq!(summaries.len(), 2);
        assert!(summaries.iter().all(|summary| summary.rows.len() == 2));
    }

    #[test]
    fn a_peer_that_is_gone_fails_the_run_by_name() {
        let addr = {
            let gone = plain();
            gone.target.addr
        };
        let mut peer = plain();
        peer.target.addr = addr;
        let plan = plan("incr", 1);
        let error = run(&plan, &[peer], |_| {}).expect_err("nobody listens");
        assert!(error.starts_with("redis: "), "{error}");
    }
}
