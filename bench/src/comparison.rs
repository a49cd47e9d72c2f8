//! What makes one comparison differ from another: who takes part, in which cases, what is shown
//! and what must be reached.
//!
//! Called by: `main`; `proxy`, `hot` and `cluster` are those there are.
//! Bound: constants.
//! Invariant: the measurement, the medians and the form of the report are the same for all.

use crate::case::Case;
use crate::peer::{ExtraPeer, HeatsinkChoice, Peer};
use crate::summary::{Row, Summary};
use crate::verdict::Cell;

/// Starts those who take part.
type Start = fn(&HeatsinkChoice, Vec<ExtraPeer>) -> Result<Vec<Peer>, String>;

/// One comparison.
pub(crate) struct Comparison {
    pub(crate) title: &'static str,
    /// What a reader must know besides the machine, a line each.
    pub(crate) notes: &'static [&'static str],
    pub(crate) cases: fn() -> Vec<Case>,
    pub(crate) start: Start,
    /// Whether the commands that reach Redis are counted.
    pub(crate) counts_upstream: bool,
    /// The columns of a case's table after that of the peer's name.
    pub(crate) columns: &'static [Column],
    pub(crate) goals_title: &'static str,
    /// The columns of the table of goals after that of the case.
    pub(crate) goals_columns: &'static [&'static str],
    /// Whether a case has goals; the others are informative.
    pub(crate) has_goals: fn(&Case) -> bool,
    /// The cells of a case below `goals_columns`, unless somebody needed was left out.
    pub(crate) goals: fn(&Summary) -> Option<Vec<Cell>>,
}

/// A column of a case's table.
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    /// Its text in the row of a peer, who stands among all peers of the case.
    pub(crate) cell: fn(&Row, &Summary) -> String,
}

/// A figure of a row divided by that of another, if that one is there.
pub(crate) fn ratio(row: &Row, other: Option<&Row>, figure: fn(&Row) -> f64) -> String {
    decimals(other.map(|other| figure(row) / figure(other)), 2)
}

/// A figure if there is one.
pub(crate) fn decimals(figure: Option<f64>, places: usize) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.places$}"))
}
