//! A part of a report: a table of figures and the goals that were set for them.
//!
//! Called by: every measurement of `detect`, `fleet`, `cold`, `viral` and `cache` makes one, which
//! they print.
//! Bound: a table of a few rows, and a goal each for some of them.
//! Invariant: a goal is reached or missed by a figure that stands in the same report.

use std::fmt::Write as _;

use crate::report::{push_head, push_row};

/// One table with the notes that a reader needs.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) notes: Vec<String>,
    /// The heading of the first column.
    pub(crate) first: &'static str,
    pub(crate) headings: Vec<&'static str>,
    pub(crate) rows: Vec<(String, Vec<String>)>,
    pub(crate) goals: Vec<Goal>,
}

/// A figure that had to be reached.
pub(crate) struct Goal {
    pub(crate) what: &'static str,
    pub(crate) limit: String,
    pub(crate) figure: String,
    /// Nothing when it was measured only to see that the measurement works.
    pub(crate) reached: Option<bool>,
}

impl Goal {
    /// A time that a quick run on a debug build says nothing about.
    pub(crate) fn of_time(
        what: &'static str,
        figure: f64,
        limit: f64,
        unit: &str,
        judged: bool,
    ) -> Self {
        Self {
            what,
            limit: format!("at most {limit} {unit}"),
            figure: format!("{figure:.1} {unit}"),
            reached: judged.then_some(figure <= limit),
        }
    }

    /// Something that holds or does not, on any machine.
    pub(crate) fn of_fact(
        what: &'static str,
        limit: impl Into<String>,
        figure: impl Into<String>,
        reached: bool,
    ) -> Self {
        Self { what, limit: limit.into(), figure: figure.into(), reached: Some(reached) }
    }
}

impl Section {
    /// A section without rows and goals.
    pub(crate) fn new(title: &'static str, first: &'static str, headings: &[&'static str]) -> Self {
        Self {
            title,
            notes: Vec::new(),
            first,
            headings: headings.to_vec(),
            rows: Vec::new(),
            goals: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, name: impl Into<String>, cells: impl IntoIterator<Item = String>) {
        self.rows.push((name.into(), cells.into_iter().collect()));
    }

    pub(crate) fn push_to(&self, text: &mut String) {
        let _ = writeln!(text, "\n### {}\n", self.title);
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        push_head(text, self.first, &self.headings);
        for (name, cells) in &self.rows {
            push_row(text, name, cells.iter().cloned());
        }
    }
}

/// Prints a report of these parts; whether none of their goals was missed.
pub(crate) fn print(title: &str, head: &str, sections: &[Section]) -> bool {
    let mut text = format!("## {title}\n\n{head}");
    for section in sections {
        section.push_to(&mut text);
    }
    let reached = push_goals(&mut text, sections);
    print!("{text}");
    reached
}

/// The table of all goals; whether none was missed.
pub(crate) fn push_goals(text: &mut String, sections: &[Section]) -> bool {
    let goals: Vec<&Goal> = sections.iter().flat_map(|section| &section.goals).collect();
    text.push_str("\n### Goals\n\n");
    push_head(text, "what", &["goal", "measured", "verdict"]);
    for goal in &goals {
        let verdict = match goal.reached {
            Some(true) => "pass",
            Some(false) => "**miss**",
            None => "not judged",
        };
        let cells = [goal.limit.clone(), goal.figure.clone(), verdict.to_owned()];
        push_row(text, goal.what, cells.into_iter());
    }
    let reached = goals.iter().all(|goal| goal.reached != Some(false));
    let _ = writeln!(text, "\n{}", if reached { "None missed." } else { "Not all reached." });
    reached
}
