//! Frames.
//!
//! Called by: `terminal`, for each of them; tests, into a buffer.
//! Bound: what fits the screen. On a small one the nodes go first, then columns.

mod details;
mod dialog;
mod list;
mod style;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::app::{App, Connection};
use style::Styles;

/// Lines for servers that cannot be reached.
const DOWN_LINES: u16 = 3;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame, app: &mut App) {
    let styles = Styles::new(app.colours);
    let down = u16::try_from(app.snapshot.down.len()).unwrap_or(u16::MAX).min(DOWN_LINES);
    let [title, figures, trouble, body, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(down),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_title(frame, title, app, &styles);
    draw_figures(frame, figures, app, &styles);
    draw_trouble(frame, trouble, app, &styles);
    if app.opened.is_some() {
        details::draw(frame, body, app, &styles);
    } else {
        list::draw(frame, body, app, &styles);
    }
    draw_footer(frame, footer, app, &styles);
    dialog::draw(frame, app, &styles);
}

fn draw_title(frame: &mut Frame, area: Rect, app: &App, styles: &Styles) {
    let state = match &app.connection {
        Connection::Live => Span::styled("● live", styles.good),
        Connection::Lost(_) => Span::styled("○ reconnecting", styles.bad),
    };
    let line = Line::from(vec![
        Span::styled("Heatsink", styles.title),
        Span::raw(format!("  {}  ", app.admin)),
        state,
    ]);
    frame.render_widget(Paragraph::new(line), area);
}

/// Servers that cannot be reached; of many, how many more there are.
fn draw_trouble(frame: &mut Frame, area: Rect, app: &App, styles: &Styles) {
    let down = &app.snapshot.down;
    let shown = usize::from(area.height);
    let mut lines: Vec<Line> = down
        .iter()
        .take(shown)
        .map(|line| Line::styled(format!("Upstream {line}"), styles.bad))
        .collect();
    if down.len() > shown
        && let Some(last) = lines.last_mut()
    {
        let more = down.len() - shown + 1;
        *last = Line::styled(format!("Upstream: {more} more nodes are down"), styles.bad);
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_figures(frame: &mut Frame, area: Rect, app: &App, styles: &Styles) {
    let fleet = &app.snapshot;
    let saved = match (fleet.saved_per_second, fleet.served_per_second) {
        (Some(saved), Some(served)) if served > 0.0 => {
            format!("{} ({})", rate(Some(saved)), percent(Some(saved / served)))
        }
        (saved, _) => rate(saved),
    };
    let members = match fleet.degraded {
        0 => fleet.members.to_string(),
        degraded => format!("{} ({degraded} degraded)", fleet.members),
    };
    let mut spans = Vec::new();
    for (name, value) in [
        ("Requests/s", rate(fleet.requests_per_second)),
        ("saved/s", saved),
        ("hottest", percent(fleet.hottest_node_share)),
        ("members", members),
    ] {
        let gap = if spans.is_empty() { "" } else { "  " };
        spans.push(Span::styled(format!("{gap}{name} "), styles.muted));
        spans.push(Span::styled(value, styles.strong));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn draw_footer(frame: &mut Frame, area: Rect, app: &App, styles: &Styles) {
    let line = match (&app.connection, &app.news) {
        (_, Some((true, words))) => Line::styled(words.clone(), styles.good),
        (_, Some((false, words))) => Line::styled(words.clone(), styles.bad),
        (Connection::Lost(why), None) => Line::styled(why.clone(), styles.bad),
        (Connection::Live, None) if app.opened.is_some() => {
            Line::styled("esc back  p promote  d demote  q quit", styles.muted)
        }
        (Connection::Live, None) => Line::styled(
            "↑↓ choose  enter details  ←→ sort  / filter  p promote  d demote  ? help  q quit",
            styles.muted,
        ),
    };
    frame.render_widget(Paragraph::new(line), area);
}

/// A rate with its thousands apart; a dash if nobody measures it.
fn rate(value: Option<f64>) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else { return "-".to_owned() };
    if value.abs() < 10.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share of 0 to 1.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

#[cfg(test)]
mod tests;
