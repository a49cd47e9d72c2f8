//! Whether the goals of a comparison were reached.
//!
//! Called by: `main`; `report` prints it.
//! Bound: one row per case that has goals and in which those compared were measured.
//! Invariant: a goal that could not be measured is not reached.

use crate::comparison::Comparison;
use crate::summary::Summary;

/// One cell of the table of goals.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell {
    /// A figure that had to be reached.
    Goal { figure: f64, reached: bool },
    /// A figure to read beside it.
    Figure(f64),
    /// A figure that could not be measured.
    Missing,
}

impl Cell {
    pub(crate) fn at_most(figure: f64, limit: f64) -> Self {
        Self::Goal { figure, reached: figure <= limit }
    }

    pub(crate) fn at_least(figure: f64, limit: f64) -> Self {
        Self::Goal { figure, reached: figure >= limit }
    }

    /// Whether it is no goal or one that was reached.
    pub(crate) fn is_reached(&self) -> bool {
        matches!(self, Self::Figure(_) | Self::Goal { reached: true, .. })
    }
}

/// The goals of one case.
#[derive(Clone, Debug)]
pub(crate) struct CaseVerdict {
    pub(crate) title: String,
    pub(crate) cells: Vec<Cell>,
}

/// The goals of all cases.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) cases: Vec<CaseVerdict>,
    pub(crate) cases_with_goals: usize,
}

impl Verdict {
    pub(crate) fn of(comparison: &Comparison, summaries: &[Summary]) -> Self {
        let with_goals = || summaries.iter().filter(|all| (comparison.has_goals)(&all.case));
        let of_case = |summary: &Summary| {
            let cells = (comparison.goals)(summary)?;
            Some(CaseVerdict { title: summary.case.title(), cells })
        };
        Self {
            cases: with_goals().filter_map(of_case).collect(),
            cases_with_goals: with_goals().count(),
        }
    }

    /// Whether every goal of every case was measured and reached.
    pub(crate) fn all_reached(&self) -> bool {
        let reached = |case: &CaseVerdict| case.cells.iter().all(Cell::is_reached);
        self.cases.len() == self.cases_with_goals && self.cases.iter().all(reached)
    }
}
