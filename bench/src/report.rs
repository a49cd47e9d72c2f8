//! The figures as Markdown for the documentation, and as JSON for everything else.
//!
//! Called by: `main`.
//! Bound: a table per case and one with the verdict.
//! Invariant: nothing is computed here but ratios of figures that stand in the same table.

use std::fmt::Write as _;

use serde_json::json;

use crate::machine::Machine;
use crate::peer::{REDIS, TWEMPROXY};
use crate::rounds::{Plan, Sample};
use crate::summary::{Row, Summary};
use crate::verdict::{Goal, Verdict};

const COLUMNS: &str = "\
| peer | requests/s | ÷ Redis | ÷ twemproxy | p50 ms | p99 ms | CPU s/M | CPU ÷ twemproxy | its Redis CPU s/M |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
";

/// Everything for a reader.
pub(crate) fn markdown(
    machine: &Machine,
    plan: &Plan,
    summaries: &[Summary],
    verdict: &Verdict,
) -> String {
    let mut text = format!("## Proxies side by side\n\n{machine}");
    let _ = writeln!(
        text,
        "- rounds: {}, requests per round: {} ({} with pipelining), peers in turn; medians\n\
         - CPU s/M: CPU seconds of the process per million requests, user and kernel mode",
        plan.rounds,
        plan.requests,
        plan.requests * 8,
    );
    for summary in summaries {
        let _ = write!(text, "\n### {}\n\n{COLUMNS}", summary.case.title());
        for row in &summary.rows {
            push_row(&mut text, row, summary);
        }
    }
    push_verdict(&mut text, verdict);
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

fn push_row(text: &mut String, row: &Row, summary: &Summary) {
    let of = |peer: &str, figure: fn(&Row) -> f64| {
        optional(summary.row(peer).map(|other| figure(row) / figure(other)))
    };
    let _ = writeln!(
        text,
        "| {} | {:.0} | {} | {} | {:.3} | {:.3} | {:.2} | {} | {} |",
        row.peer,
        row.requests_per_second,
        of(REDIS, |row| row.requests_per_second),
        of(TWEMPROXY, |row| row.requests_per_second),
        row.p50_ms,
        row.p99_ms,
        row.cpu_per_million,
        of(TWEMPROXY, |row| row.cpu_per_million),
        optional(row.redis_cpu_per_million),
    );
}

fn push_verdict(text: &mut String, verdict: &Verdict) {
    text.push_str("\n### Heatsink against twemproxy\n\n");
    if verdict.cases.is_empty() {
        text.push_str("No verdict: one of the two was left out.\n");
        return;
    }
    text.push_str(
        "| case | CPU ratio | goal | throughput ratio (goal 1.00) | p99 ratio (goal 1.00) |\n\
         |---|--:|--:|--:|--:|\n",
    );
    for case in &verdict.cases {
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} | {} | {} |",
            case.title,
            goal(case.cpu),
            case.cpu_ratio_max,
            goal(case.throughput),
            goal(case.p99),
        );
    }
    let reached = verdict.all_reached();
    let _ = writeln!(text, "\n{}", if reached { "All reached." } else { "Not all reached." });
}

fn goal(goal: Goal) -> String {
    format!("{:.2} {}", goal.ratio, if goal.reached { "pass" } else { "**miss**" })
}

fn optional(figure: Option<f64>) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.2}"))
}
