//! The comparison of proxies: plain Redis, twemproxy and Heatsink.
//!
//! Called by: `main`, for `proxy` and, for its peers, `idle`; `hot`, for the other two peers.
//! Bound: each proxy has a `redis-server` of its own.
//! Invariant: plain Redis comes first and is always there; a peer that is not installed is
//! left out with a notice that says how to get it.

use std::fs;
use std::net::SocketAddr;

use heatsink_testkit::{Process, free_port};

use crate::benchmark::{Access, Target};
use crate::case;
use crate::comparison::{Column, Comparison, decimals, ratio};
use crate::peer::{self, Backend, ExtraPeer, HeatsinkChoice, Peer};
use crate::summary::Summary;
use crate::verdict::Cell;

pub(crate) const REDIS: &str = "redis";
pub(crate) const TWEMPROXY: &str = "twemproxy";
pub(crate) const HEATSINK: &str = "heatsink";

const CPU_RATIO_MAX: f64 = 0.85;
const CPU_RATIO_MAX_PIPELINED: f64 = 0.60;

/// What is compared and how it is shown.
pub(crate) const COMPARISON: Comparison = Comparison {
    title: "Proxies side by side",
    notes: &[],
    cases: case::of_proxies,
    start: start_all,
    counts_upstream: false,
    columns: &[
        Column { heading: "requests/s", cell: |row, _| format!("{:.0}", row.requests_per_second) },
        Column {
            heading: "÷ Redis",
            cell: |row, all| ratio(row, all.row(REDIS), |row| row.requests_per_second),
        },
        Column {
            heading: "÷ twemproxy",
            cell: |row, all| ratio(row, all.row(TWEMPROXY), |row| row.requests_per_second),
        },
        Column { heading: "p50 ms", cell: |row, _| format!("{:.3}", row.p50_ms) },
        Column { heading: "p99 ms", cell: |row, _| format!("{:.3}", row.p99_ms) },
        Column { heading: "CPU s/M", cell: |row, _| format!("{:.2}", row.cpu_per_million) },
        Column {
            heading: "CPU ÷ twemproxy",
            cell: |row, all| ratio(row, all.row(TWEMPROXY), |row| row.cpu_per_million),
        },
        Column {
            heading: "its Redis CPU s/M",
            cell: |row, _| decimals(row.redis_cpu_per_million, 2),
        },
    ],
    goals_title: "Heatsink against twemproxy",
    goals_columns: &["CPU ratio", "goal", "throughput ratio (goal 1.00)", "p99 ratio (goal 1.00)"],
    has_goals: |_| true,
    goals,
};

/// Starts what is installed.
pub(crate) fn start_all(
    heatsink: &HeatsinkChoice,
    extra: Vec<ExtraPeer>,
) -> Result<Vec<Peer>, String> {
    let started =
        vec![start_twemproxy(), heatsink.start(HEATSINK, Backend::server(), Access::Server)];
    peer::gather(vec![plain()?], started, extra, Access::Server)
}

/// Plain Redis without a proxy.
pub(crate) fn plain() -> Result<Peer, String> {
    let redis = Backend::server();
    let addr = redis.addr().ok_or("there is no server")?;
    Ok(Peer::direct(REDIS, Target { addr, access: Access::Server }, redis))
}

/// Twemproxy before a Redis of its own.
pub(crate) fn start_twemproxy() -> Result<Peer, String> {
    let redis = Backend::server();
    let redis_addr = redis.addr().ok_or("there is no server")?;
    let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let config = format!(
        "bench:\n  listen: {addr}\n  redis: true\n  hash: fnv1a_64\n  distribution: ketama\n  \
         auto_eject_hosts: false\n  servers:\n   - {redis_addr}:1\n",
    );
    let failed = |error: std::io::Error| format!("twemproxy is left out: {error}");
    let directory = tempfile::tempdir().map_err(failed)?;
    let file = directory.path().join("nutcracker.yml");
    fs::write(&file, config).map_err(failed)?;
    let process = Process::builder("nutcracker")
        .arg("--conf-file")
        .arg(&file)
        .args(["--stats-addr", "127.0.0.1", "--stats-port", &free_port().to_string()])
        .try_spawn()
        .map_err(|_| "twemproxy is left out; install it with: apt-get install nutcracker")?;
    let target = Target { addr, access: Access::Server };
    Peer::proxy(TWEMPROXY, target, process, redis, Some(directory))
}

fn goals(summary: &Summary) -> Option<Vec<Cell>> {
    let (own, other) = (summary.row(HEATSINK)?, summary.row(TWEMPROXY)?);
    let pipelined = summary.case.pipeline > 1;
    let cpu_ratio_max = if pipelined { CPU_RATIO_MAX_PIPELINED } else { CPU_RATIO_MAX };
    let throughput = own.requests_per_second / other.requests_per_second;
    Some(vec![
        Cell::at_most(own.cpu_per_million / other.cpu_per_million, cpu_ratio_max),
        Cell::Figure(cpu_ratio_max),
        Cell::at_least(throughput, 1.0),
        Cell::at_most(own.p99_ms / other.p99_ms, 1.0),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Row;
    use crate::verdict::Verdict;

    fn row(peer: &str, requests_per_second: f64, p99_ms: f64, cpu_per_million: f64) -> Row {
        Row {
            peer: peer.to_owned(),
            requests_per_second,
            p50_ms: p99_ms / 2.0,
            p99_ms,
            cpu_per_million,
            redis_cpu_per_million: None,
            upstream_per_request: None,
        }
    }

    fn verdict(filter: &str, rows: Vec<Row>) -> Verdict {
        let case = case::matching(case::of_proxies(), filter)[0];
        Verdict::of(&COMPARISON, &[Summary { case, rows }])
    }

    #[test]
    fn the_cpu_goal_is_stricter_with_pipelining() {
        let rows = vec![row(TWEMPROXY, 100.0, 1.0, 10.0), row(HEATSINK, 100.0, 1.0, 7.0)];
        assert!(verdict("incr one key, 50 clients", rows.clone()).all_reached());
        let pipelined = verdict("-P 16", rows);
        assert!(!pipelined.all_reached());
        let reached: Vec<bool> = pipelined.cases[0].cells.iter().map(Cell::is_reached).collect();
        assert_eq!(reached, [false, true, true, true]);
    }

    #[test]
    fn less_throughput_or_a_longer_tail_is_a_miss() {
        let base = row(TWEMPROXY, 100.0, 1.0, 10.0);
        for own in [row(HEATSINK, 99.0, 1.0, 5.0), row(HEATSINK, 101.0, 1.1, 5.0)] {
            assert!(!verdict("incr", vec![base.clone(), own]).all_reached());
        }
    }

    #[test]
    fn what_was_not_measured_is_not_reached() {
        let alone = verdict("incr", vec![row(HEATSINK, 100.0, 1.0, 1.0)]);
        assert!(alone.cases.is_empty() && !alone.all_reached());
    }

    #[test]
    fn a_peer_that_is_missing_is_left_out_and_a_name_is_taken_once() {
        let missing = HeatsinkChoice { program: Some("./no/heatsink".into()), args: Vec::new() };
        let peers = start_all(&missing, Vec::new()).expect("the others");
        assert_eq!(peers[0].name, REDIS);
        assert!(peers.iter().all(|peer| peer.name != HEATSINK));
        let twice = format!("{REDIS}={}:{}", peers[0].target.addr, peers[0].pids()[0]);
        assert!(start_all(&missing, vec![twice.parse().expect("a peer")]).is_err());
    }
}
