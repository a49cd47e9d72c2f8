//! Whether Heatsink reached its goals against twemproxy.
//!
//! Called by: `main`; `report` prints it.
//! Bound: one row per case in which both were measured.
//! Invariant: a goal that could not be measured is not reached.

use crate::peer::{HEATSINK, TWEMPROXY};
use crate::summary::Summary;

const CPU_RATIO_MAX: f64 = 0.85;
const CPU_RATIO_MAX_PIPELINED: f64 = 0.60;

/// One goal: a ratio of Heatsink's figure to twemproxy's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    pub(crate) ratio: f64,
    pub(crate) reached: bool,
}

/// The goals of one case.
#[derive(Clone, Debug)]
pub(crate) struct CaseVerdict {
    pub(crate) title: String,
    pub(crate) cpu_ratio_max: f64,
    pub(crate) cpu: Goal,
    pub(crate) throughput: Goal,
    pub(crate) p99: Goal,
}

/// The goals of all cases.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) cases: Vec<CaseVerdict>,
    cases_measured: usize,
}

impl Verdict {
    pub(crate) fn of(summaries: &[Summary]) -> Self {
        Self {
            cases: summaries.iter().filter_map(of_case).collect(),
            cases_measured: summaries.len(),
        }
    }

    /// Whether every goal of every case was measured and reached.
    pub(crate) fn all_reached(&self) -> bool {
        let reached =
            |case: &CaseVerdict| case.cpu.reached && case.throughput.reached && case.p99.reached;
        self.cases.len() == self.cases_measured && self.cases.iter().all(reached)
    }
}

fn of_case(summary: &Summary) -> Option<CaseVerdict> {
    let (own, other) = (summary.row(HEATSINK)?, summary.row(TWEMPROXY)?);
    let pipelined = summary.case.pipeline > 1;
    let cpu_ratio_max = if pipelined { CPU_RATIO_MAX_PIPELINED } else { CPU_RATIO_MAX };
    let cpu = own.cpu_per_million / other.cpu_per_million;
    let throughput = own.requests_per_second / other.requests_per_second;
    let p99 = own.p99_ms / other.p99_ms;
    Some(CaseVerdict {
        title: summary.case.title(),
        cpu_ratio_max,
        cpu: Goal { ratio: cpu, reached: cpu <= cpu_ratio_max },
        throughput: Goal { ratio: throughput, reached: throughput >= 1.0 },
        p99: Goal { ratio: p99, reached: p99 <= 1.0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;
    use crate::summary::Row;

    fn row(peer: &str, requests_per_second: f64, p99_ms: f64, cpu_per_million: f64) -> Row {
        Row {
            peer: peer.to_owned(),
            requests_per_second,
            p50_ms: p99_ms / 2.0,
            p99_ms,
            cpu_per_million,
            redis_cpu_per_million: None,
        }
    }

    fn verdict(filter: &str, rows: Vec<Row>) -> Verdict {
        let case = case::matching(filter)[0];
        Verdict::of(&[Summary { case, rows }])
    }

    #[test]
    fn the_cpu_goal_is_stricter_with_pipelining() {
        let rows = vec![row(TWEMPROXY, 100.0, 1.0, 10.0), row(HEATSINK, 100.0, 1.0, 7.0)];
        assert!(verdict("incr one key, 50 clients", rows.clone()).all_reached());
        let pipelined = verdict("-P 16", rows);
        assert!(!pipelined.all_reached());
        let case = &pipelined.cases[0];
        assert!(!case.cpu.reached && case.throughput.reached && case.p99.reached);
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
}
