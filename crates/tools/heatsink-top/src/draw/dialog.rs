//! Questions, drawn over the rest of the screen.

use heatsink_control::entry::Mitigation;
use ratatui::Frame;
use ratatui::layout::{Constraint, Flex, Layout};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::style::Styles;
use crate::app::{App, Choice, Dialog, MITIGATIONS};
use crate::model::spelled_out;

/// Width of a question.
const WIDTH: u16 = 60;

const HELP: [(&str, &str); 11] = [
    ("↑ ↓ home end", "choose a key"),
    ("enter", "its details; esc goes back"),
    ("← →, 1 to 8", "sort by another column"),
    ("r", "reverse the order"),
    ("/", "show only keys with this in their name"),
    ("p", "promote the key, for good or for some time"),
    ("n", "promote another key"),
    ("d", "demote the key"),
    ("*", "after a mitigation: a dry run"),
    ("?", "this help"),
    ("q", "quit"),
];

pub(super) fn draw(frame: &mut Frame, app: &App, styles: &Styles) {
    let Some(dialog) = &app.dialog else { return };
    let (title, lines) = match dialog {
        Dialog::Demote { name, .. } => ("Demote this key?", demote(name, styles)),
        Dialog::Promote(choice) => {
            let lines = if choice.is_sure { sure(choice, styles) } else { choose(choice, styles) };
            ("Promote this key?", lines)
        }
        Dialog::NewKey(text) => {
            ("Promote which key?", typed(text, "enter continue  esc cancel", styles))
        }
        Dialog::Filter(text) => ("Show keys with", typed(text, "enter keep  esc close", styles)),
        Dialog::Help => {
            let line = |(key, what): &(&'static str, &'static str)| {
                Line::from(vec![
                    Span::styled(format!("{key:>13}  "), styles.strong),
                    Span::raw(*what),
                ])
            };
            ("Keys", HELP.iter().map(line).collect())
        }
    };
    let block = Block::bordered().title(title);
    let inner = WIDTH.min(frame.area().width).saturating_sub(2);
    // A long key takes more than one line; the screen is the limit.
    let height: usize =
        lines.iter().map(|line| line.width().div_ceil(usize::from(inner).max(1)).max(1)).sum();
    let paragraph = Paragraph::new(lines).wrap(Wrap { trim: false });
    let [row] = Layout::vertical([Constraint::Length(height as u16 + 2)])
        .flex(Flex::Center)
        .areas(frame.area());
    let [area] = Layout::horizontal([Constraint::Length(WIDTH)]).flex(Flex::Center).areas(row);
    frame.render_widget(Clear, area);
    frame.render_widget(paragraph.block(block), area);
}

fn demote<'a>(name: &str, styles: &Styles) -> Vec<Line<'a>> {
    vec![
        Line::styled(name.to_owned(), styles.strong),
        Line::raw("Its mitigation ends on all proxies, and it is not"),
        Line::raw("promoted again automatically for a while."),
        Line::raw(""),
        Line::styled("y demote  n cancel", styles.strong),
    ]
}

fn choose<'a>(choice: &Choice, styles: &Styles) -> Vec<Line<'a>> {
    let mut lines = vec![Line::styled(choice.name.clone(), styles.strong)];
    for (place, mitigation) in MITIGATIONS.iter().enumerate() {
        let is_chosen = place == choice.chosen;
        let mut text = format!("{} {}", if is_chosen { ">" } else { " " }, mitigation.name());
        if *mitigation == Mitigation::Split {
            text = format!("{text} x{}  (← → changes)", choice.split_factor);
        }
        lines.push(Line::styled(text, if is_chosen { styles.chosen } else { Style::default() }));
    }
    let (seconds, otherwise) = match choice.ttl_seconds {
        Some(ttl) => (ttl.to_string(), ""),
        None => (String::new(), " until it is removed"),
    };
    lines.push(Line::from(vec![
        Span::raw(format!("Seconds to live: {seconds}")),
        Span::styled(" ", styles.chosen),
        Span::styled(otherwise, styles.muted),
    ]));
    lines.push(Line::styled("↑↓ choose  0-9 seconds  enter continue  esc cancel", styles.muted));
    lines
}

fn sure<'a>(choice: &Choice, styles: &Styles) -> Vec<Line<'a>> {
    let mut what = format!("With {}", MITIGATIONS[choice.chosen].name());
    if MITIGATIONS[choice.chosen] == Mitigation::Split {
        what = format!("{what} x{}", choice.split_factor);
    }
    let life = match choice.ttl_seconds {
        Some(1) => "for 1 second".to_owned(),
        Some(ttl) => format!("for {ttl} seconds"),
        None => "until it is removed".to_owned(),
    };
    vec![
        Line::styled(choice.name.clone(), styles.strong),
        Line::raw(format!("{what}, {life}.")),
        Line::raw("All proxies of the fleet are told at once."),
        Line::raw(""),
        Line::styled("y promote  n cancel", styles.strong),
    ]
}

fn typed<'a>(text: &str, keys: &'static str, styles: &Styles) -> Vec<Line<'a>> {
    vec![
        Line::from(vec![Span::raw(spelled_out(text)), Span::styled(" ", styles.chosen)]),
        Line::styled(keys, styles.muted),
    ]
}
