//! Medians over the rounds.
//!
//! Called by: `main`, after the measurement.
//! Bound: one row per case and peer.
//! Invariant: each figure is the median of its own column; a row is not one chosen round.

use serde::Serialize;

use crate::case::Case;
use crate::rounds::Sample;

/// One peer in one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) peer: String,
    pub(crate) requests_per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) cpu_per_million: f64,
    pub(crate) redis_cpu_per_million: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_per_request: Option<f64>,
}

/// All peers in one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) case: Case,
    pub(crate) rows: Vec<Row>,
}

impl Summary {
    /// The row of a peer, unless it was left out.
    pub(crate) fn row(&self, peer: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.peer == peer)
    }
}

/// Summarises every case that has samples, peers in the order of their first turn.
pub(crate) fn of(cases: &[Case], samples: &[Sample]) -> Vec<Summary> {
    let summarise = |(index, case): (usize, &Case)| {
        let of_case: Vec<&Sample> = samples.iter().filter(|sample| sample.case == index).collect();
        let first_round = of_case.iter().filter(|sample| sample.round == 0);
        let rows = first_round.map(|first| row(&first.peer, &of_case)).collect();
        Summary { case: *case, rows }
    };
    cases.iter().enumerate().map(summarise).collect()
}

fn row(peer: &str, samples: &[&Sample]) -> Row {
    let column = |figure: fn(&Sample) -> Option<f64>| {
        let of_peer = samples.iter().filter(|sample| sample.peer == peer);
        median(of_peer.filter_map(|sample| figure(sample)).collect())
    };
    Row {
        peer: peer.to_owned(),
        requests_per_second: column(|s| Some(s.requests_per_second)).unwrap_or_default(),
        p50_ms: column(|s| Some(s.p50_ms)).unwrap_or_default(),
        p99_ms: column(|s| Some(s.p99_ms)).unwrap_or_default(),
        cpu_per_million: column(|s| Some(s.cpu_per_million)).unwrap_or_default(),
        redis_cpu_per_million: column(|s| s.redis_cpu_per_million),
        upstream_per_request: column(|s| s.upstream_per_request),
    }
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        count if count % 2 == 1 => Some(figures[middle]),
        _ => Some(f64::midpoint(figures[middle - 1], figures[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 100.0, 1.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }
}
