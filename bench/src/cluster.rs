//! The comparison of ways to a cluster: without a proxy, and through Heatsink, which is also
//! measured before one server.
//!
//! Called by: `main`, for `cluster`.
//! Bound: a cluster of three primaries, which two peers share, and one server.
//! Invariant: all peers get their load from one thread of `redis-benchmark`, as much as they take.
//! What a request costs depends on how many come together, and before one server more of them do:
//! so CPU is judged by `rates`, with the same load for both.

use std::rc::Rc;

use heatsink_testkit::RedisCluster;

use crate::benchmark::{Access, Target};
use crate::case;
use crate::comparison::{Column, Comparison, decimals, ratio};
use crate::peer::{self, Backend, ExtraPeer, HeatsinkChoice, Peer};
use crate::summary::Summary;
use crate::verdict::Cell;

const DIRECT: &str = "redis cluster";
const BEFORE_CLUSTER: &str = "heatsink on a cluster";
const BEFORE_SERVER: &str = "heatsink on one server";

/// One command per request; the margin is for `CONFIG GET` of `redis-benchmark` and for
/// looking at the cluster's topology.
const COMMANDS_MAX: f64 = 1.005;

/// What is compared and how it is shown.
pub(crate) const COMPARISON: Comparison = Comparison {
    title: "Ways to a cluster",
    notes: &[
        "redis cluster: `redis-benchmark --cluster`, CPU of the three primaries together; its \
         keys lie in one slot of each, and its MGET names keys of one slot",
        "upstream: commands that reached Redis per request, redirected ones included",
    ],
    cases: case::of_clusters,
    start: start_all,
    counts_upstream: true,
    columns: &[
        Column { heading: "requests/s", cell: |row, _| format!("{:.0}", row.requests_per_second) },
        Column {
            heading: "÷ redis cluster",
            cell: |row, all| ratio(row, all.row(DIRECT), |row| row.requests_per_second),
        },
        Column { heading: "p50 ms", cell: |row, _| format!("{:.3}", row.p50_ms) },
        Column { heading: "p99 ms", cell: |row, _| format!("{:.3}", row.p99_ms) },
        Column { heading: "CPU s/M", cell: |row, _| format!("{:.2}", row.cpu_per_million) },
        Column {
            heading: "CPU ÷ one server",
            cell: |row, all| ratio(row, all.row(BEFORE_SERVER), |row| row.cpu_per_million),
        },
        Column {
            heading: "its Redis CPU s/M",
            cell: |row, _| decimals(row.redis_cpu_per_million, 2),
        },
        Column { heading: "upstream", cell: |row, _| decimals(row.upstream_per_request, 3) },
    ],
    goals_title: "Heatsink on a cluster against Heatsink on one server",
    goals_columns: &[
        "commands per request (goal 1.00)",
        "CPU ratio at full speed (judged by `rates`)",
        "throughput ÷ redis cluster (no goal)",
    ],
    has_goals: |case| case.workload.has_one_key(),
    goals,
};

fn start_all(heatsink: &HeatsinkChoice, extra: Vec<ExtraPeer>) -> Result<Vec<Peer>, String> {
    let cluster = Rc::new(RedisCluster::builder().replicas_per_primary(0).start());
    let backend = || Backend::Cluster(Rc::clone(&cluster));
    let target = Target { addr: cluster.node(0).addr(), access: Access::Cluster };
    let access = Access::ServerThreaded;
    let started = vec![
        heatsink.start(BEFORE_CLUSTER, backend(), access),
        heatsink.start(BEFORE_SERVER, Backend::server(), access),
    ];
    peer::gather(vec![Peer::direct(DIRECT, target, backend())], started, extra, access)
}

fn goals(summary: &Summary) -> Option<Vec<Cell>> {
    let (own, other) = (summary.row(BEFORE_CLUSTER)?, summary.row(BEFORE_SERVER)?);
    let commands = own.upstream_per_request;
    let direct = summary.row(DIRECT)?;
    Some(vec![
        commands.map_or(Cell::Missing, |commands| Cell::at_most(commands, COMMANDS_MAX)),
        Cell::Figure(own.cpu_per_million / other.cpu_per_million),
        Cell::Figure(own.requests_per_second / direct.requests_per_second),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::{self, Plan};
    use crate::summary::Row;
    use crate::verdict::Verdict;

    fn row(peer: &str, cpu_per_million: f64, upstream_per_request: Option<f64>) -> Row {
        Row {
            peer: peer.to_owned(),
            requests_per_second: 100.0,
            p50_ms: 1.0,
            p99_ms: 2.0,
            cpu_per_million,
            redis_cpu_per_million: None,
            upstream_per_request,
        }
    }

    fn is_reached(filter: &str, upstream: Option<f64>) -> bool {
        let case = case::matching(case::of_clusters(), filter)[0];
        let rows = vec![
            row(DIRECT, 30.0, Some(1.0)),
            row(BEFORE_CLUSTER, 12.0, upstream),
            row(BEFORE_SERVER, 10.0, Some(1.0)),
        ];
        Verdict::of(&COMPARISON, &[Summary { case, rows }]).all_reached()
    }

    #[test]
    fn a_second_command_is_too_much() {
        assert!(is_reached("SET", Some(1.001)));
        assert!(!is_reached("SET", Some(1.01)));
        assert!(!is_reached("SET", None));
    }

    #[test]
    fn many_keys_have_no_goal() {
        assert!(is_reached("MGET", Some(3.0)));
    }

    #[test]
    fn load_that_knows_the_cluster_hits_existing_keys_on_every_node() {
        let missing = HeatsinkChoice { program: Some("./no/heatsink".into()), args: Vec::new() };
        let peers = start_all(&missing, Vec::new()).expect("the cluster");
        let cases = case::matching(case::of_clusters(), "ET random keys of 3 B, 50");
        assert_eq!(cases.len(), 2);
        let plan = Plan { cases, requests: 900, rounds: 1, counts_upstream: true };
        let samples = rounds::run(&plan, &peers, |_| {}).expect("no read finds nothing");
        for sample in &samples {
            let upstream = sample.upstream_per_request.expect("counted");
            assert!((1.0..1.05).contains(&upstream), "{upstream}");
        }
        for node in peers[0].servers() {
            let hits = node.info_u64("stats", "keyspace_hits");
            assert!(hits > 0, "no read came to {}", node.addr());
            let keys = node.client().command(&["DBSIZE"]).integer();
            assert_eq!(keys, Access::Cluster.numbers() as i64);
        }
    }
}
