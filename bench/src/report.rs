//! The figures as Markdown for the documentation, and as JSON for everything else.
//!
//! Called by: `main`.
//! Bound: a table per case and one with the verdict.
//! Invariant: nothing is computed here but ratios of figures that stand in the same table.

use std::fmt::Write as _;

use serde_json::json;

use crate::comparison::Comparison;
use crate::machine::Machine;
use crate::rounds::{Plan, Sample};
use crate::summary::Summary;
use crate::verdict::{Cell, Verdict};

/// Everything for a reader.
pub(crate) fn markdown(
    comparison: &Comparison,
    machine: &Machine,
    plan: &Plan,
    summaries: &[Summary],
    verdict: &Verdict,
) -> String {
    let mut text = format!("## {}\n\n{machine}", comparison.title);
    let _ = writeln!(
        text,
        "- rounds: {}, requests per round: {} ({} with pipelining), peers in turn; medians\n\
         - CPU s/M: CPU seconds of the process per million requests, user and kernel mode",
        plan.rounds,
        plan.requests,
        plan.requests * 8,
    );
    for note in comparison.notes {
        let _ = writeln!(text, "- {note}");
    }
    let headings: Vec<&str> = comparison.columns.iter().map(|column| column.heading).collect();
    for summary in summaries {
        let _ = writeln!(text, "\n### {}\n", summary.case.title());
        push_head(&mut text, "peer", &headings);
        for row in &summary.rows {
            let cells = comparison.columns.iter().map(|column| (column.cell)(row, summary));
            push_row(&mut text, &row.peer, cells);
        }
    }
    push_verdict(&mut text, comparison, verdict);
    text
}

/// Everything for a program.
pub(crate) fn json(
    machine: &Machine,
    plan: &Plan,
    summaries: &[Summary],
    samples: &[Sample],
) -> String {
    let all = json!({
        "machine": machine, "plan": plan, "medians": summaries, "samples": samples,
    });
    format!("{all:#}\n")
}

fn push_verdict(text: &mut String, comparison: &Comparison, verdict: &Verdict) {
    let _ = writeln!(text, "\n### {}\n", comparison.goals_title);
    if verdict.cases_with_goals == 0 {
        text.push_str("No verdict: there is no goal for what was measured.\n");
        return;
    }
    if verdict.cases.is_empty() {
        text.push_str("No verdict: one of the two was left out.\n");
        return;
    }
    push_head(text, "case", comparison.goals_columns);
    for case in &verdict.cases {
        push_row(text, &case.title, case.cells.iter().map(cell));
    }
    let reached = verdict.all_reached();
    let _ = writeln!(text, "\n{}", if reached { "All reached." } else { "Not all reached." });
}

pub(crate) fn push_head(text: &mut String, first: &str, headings: &[&str]) {
    let _ = writeln!(text, "| {first} | {} |", headings.join(" | "));
    let _ = writeln!(text, "|---|{}", "--:|".repeat(headings.len()));
}

pub(crate) fn push_row(text: &mut String, first: &str, cells: impl Iterator<Item = String>) {
    let cells: Vec<String> = cells.collect();
    let _ = writeln!(text, "| {first} | {} |", cells.join(" | "));
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Goal { figure, reached } => {
            format!("{figure:.2} {}", if *reached { "pass" } else { "**miss**" })
        }
        Cell::Figure(figure) => format!("{figure:.2}"),
        Cell::Missing => "- **miss**".to_owned(),
    }
}
