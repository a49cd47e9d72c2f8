//! The comparison with a hot key: plain Redis, twemproxy, and Heatsink that cools it.
//!
//! Called by: `main`, for `hot`.
//! Bound: as for `proxy`; 10 s until the hot keys are in effect.
//! Invariant: Heatsink is judged against plain Redis in the same run, and by how many commands
//! its Redis counted itself, those that keep its cache right included.

use std::time::Duration;

use heatsink_control::entry::Mitigation;
use heatsink_testkit::{RawClient, poll_until};

use crate::admin;
use crate::benchmark::Access;
use crate::case::{self, COUNTER, Case, ONE_KEY, Workload};
use crate::comparison::{Column, Comparison, decimals, ratio};
use crate::peer::{self, Backend, ExtraPeer, HeatsinkChoice, Peer};
use crate::proxy::{self, HEATSINK, REDIS};
use crate::summary::Summary;
use crate::verdict::Cell;

/// Of 1 000 reads of a hot key, those that reach Redis: it does 99.9 % less.
const READS_UPSTREAM_MAX: f64 = 1.0;
/// Of 1 000 increments: a tenth.
const INCREMENTS_UPSTREAM_MAX: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(10);

/// What is compared and how it is shown.
pub(crate) const COMPARISON: Comparison = Comparison {
    title: "One hot key",
    notes: &[
        "the key that is read has the mitigation `local_cache`, the counter `coalesce`, both \
         promoted over the admin API before anything is measured; Heatsink has one worker",
        "upstream ‰: commands of any kind that the Redis behind got per 1 000 requests",
    ],
    cases: case::of_hot,
    start: start_all,
    counts_upstream: true,
    columns: &[
        Column { heading: "requests/s", cell: |row, _| format!("{:.0}", row.requests_per_second) },
        Column {
            heading: "÷ Redis",
            cell: |row, all| ratio(row, all.row(REDIS), |row| row.requests_per_second),
        },
        Column { heading: "p50 ms", cell: |row, _| format!("{:.3}", row.p50_ms) },
        Column { heading: "p99 ms", cell: |row, _| format!("{:.3}", row.p99_ms) },
        Column { heading: "CPU s/M", cell: |row, _| format!("{:.2}", row.cpu_per_million) },
        Column {
            heading: "CPU ÷ Redis",
            cell: |row, all| ratio(row, all.row(REDIS), |row| row.cpu_per_million),
        },
        Column {
            heading: "its Redis CPU s/M",
            cell: |row, _| decimals(row.redis_cpu_per_million, 2),
        },
        Column {
            heading: "upstream ‰",
            cell: |row, _| decimals(row.upstream_per_request.map(per_mille), 2),
        },
    ],
    goals_title: "Heatsink against plain Redis",
    goals_columns: &[
        "upstream ‰",
        "goal",
        "CPU ratio (GET: goal 1.00)",
        "p99 ratio (GET: goal 1.00)",
        "throughput ratio (INCR: goal 1.00)",
    ],
    has_goals: |_| true,
    goals,
};

/// Starts what is installed, Heatsink with its hot keys.
fn start_all(heatsink: &HeatsinkChoice, extra: Vec<ExtraPeer>) -> Result<Vec<Peer>, String> {
    let started = vec![proxy::start_twemproxy(), start_heatsink(heatsink)];
    peer::gather(vec![proxy::plain()?], started, extra, Access::Server)
}

/// Heatsink with the two hot keys of the cases.
pub(crate) fn start_heatsink(choice: &HeatsinkChoice) -> Result<Peer, String> {
    let (peer, api) = choice.start_with_admin(HEATSINK, Backend::server(), &[])?;
    admin::promote(api, ONE_KEY, Mitigation::LocalCache)?;
    admin::promote(api, COUNTER, Mitigation::Coalesce)?;
    wait_until_cached(&peer, ONE_KEY)?;
    Ok(peer)
}

/// Reads the key through the peer until a read does not reach its Redis.
fn wait_until_cached(peer: &Peer, key: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", peer.name);
    let mut client = RawClient::try_connect(peer.target.addr).map_err(failed)?;
    client.try_command(&["SET", key, "v"]).map_err(failed)?;
    let reads = || peer.servers().iter().map(|server| server.calls("get")).sum::<u64>();
    let cached = poll_until(PATIENCE, || {
        let before = reads();
        client.try_command(&["GET", key]).is_ok() && reads() == before
    });
    cached.ok_or_else(|| format!("{}: {key} is not cached after {PATIENCE:?}", peer.name))
}

fn goals(summary: &Summary) -> Option<Vec<Cell>> {
    let (own, other) = (summary.row(HEATSINK)?, summary.row(REDIS)?);
    let Case { workload, .. } = summary.case;
    let is_read = workload == Workload::GetOne;
    let upstream_max = if is_read { READS_UPSTREAM_MAX } else { INCREMENTS_UPSTREAM_MAX };
    let upstream = own.upstream_per_request.map(per_mille);
    let cpu = own.cpu_per_million / other.cpu_per_million;
    let p99 = own.p99_ms / other.p99_ms;
    let throughput = own.requests_per_second / other.requests_per_second;
    let of_reads = |cell: Cell, figure| if is_read { cell } else { Cell::Figure(figure) };
    let of_increments = |cell: Cell, figure| if is_read { Cell::Figure(figure) } else { cell };
    Some(vec![
        upstream.map_or(Cell::Missing, |figure| Cell::at_most(figure, upstream_max)),
        Cell::Figure(upstream_max),
        of_reads(Cell::at_most(cpu, 1.0), cpu),
        of_reads(Cell::at_most(p99, 1.0), p99),
        of_increments(Cell::at_least(throughput, 1.0), throughput),
    ])
}

fn per_mille(share: f64) -> f64 {
    share * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Row;
    use crate::verdict::Verdict;

    fn row(peer: &str, figures: [f64; 3], upstream_per_request: Option<f64>) -> Row {
        let [requests_per_second, p99_ms, cpu_per_million] = figures;
        Row {
            peer: peer.to_owned(),
            requests_per_second,
            p50_ms: p99_ms / 2.0,
            p99_ms,
            cpu_per_million,
            redis_cpu_per_million: None,
            upstream_per_request,
        }
    }

    fn reached(filter: &str, own: [f64; 3], upstream: Option<f64>) -> Vec<bool> {
        let case = case::matching(case::of_hot(), filter)[0];
        let rows = vec![row(REDIS, [100.0, 1.0, 10.0], Some(1.0)), row(HEATSINK, own, upstream)];
        let verdict = Verdict::of(&COMPARISON, &[Summary { case, rows }]);
        verdict.cases[0].cells.iter().map(Cell::is_reached).collect()
    }

    #[test]
    fn a_read_has_to_be_cheap_for_all_and_soon_done() {
        let all = [true; 5];
        assert_eq!(reached("get", [50.0, 1.0, 10.0], Some(0.001)), all);
        assert_eq!(
            reached("-P 16", [50.0, 1.1, 11.0], Some(0.0011)),
            [false, true, false, false, true]
        );
        assert_eq!(reached("get", [100.0, 1.0, 10.0], None), [false, true, true, true, true]);
    }

    #[test]
    fn an_increment_has_to_be_combined_and_none_may_be_lost_in_throughput() {
        assert_eq!(reached("incr", [100.0, 3.0, 30.0], Some(0.1)), [true; 5]);
        assert_eq!(reached("incr", [99.0, 1.0, 1.0], Some(0.11)), [false, true, true, true, false]);
    }

    #[test]
    fn there_is_no_verdict_on_heatsink_without_it() {
        let missing = HeatsinkChoice { program: Some("./no/heatsink".into()), args: Vec::new() };
        let peers = start_all(&missing, Vec::new()).expect("the others");
        assert!(peers.iter().all(|peer| peer.name != HEATSINK));
        let rows = vec![row(REDIS, [1.0; 3], Some(1.0))];
        let summary = Summary { case: case::of_hot()[0], rows };
        assert!(!Verdict::of(&COMPARISON, &[summary]).all_reached());
    }
}
