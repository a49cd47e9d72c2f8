//! One key: its figures, its rate over the last minute, its policy, what was decided and why.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Sparkline, Wrap};

use super::style::Styles;
use super::{percent, rate};
use crate::app::App;
use crate::model::{Details, Key, SAMPLES};

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, styles: &Styles) {
    let Some(key) = &app.opened else { return };
    let facts = facts(key, app.details.as_ref(), styles);
    let [head, trend, decisions] = Layout::vertical([
        Constraint::Length(facts.len() as u16 + 2),
        Constraint::Length(5),
        Constraint::Min(0),
    ])
    .areas(area);
    let title = Line::from(Span::styled(key.name.clone(), styles.strong));
    let block = Block::new().borders(Borders::TOP).title(title);
    frame.render_widget(Paragraph::new(facts).wrap(Wrap { trim: false }).block(block), head);
    draw_trend(frame, trend, key, styles);
    draw_decisions(frame, decisions, app.details.as_ref(), styles);
}

fn facts<'a>(key: &Key, details: Option<&Details>, styles: &Styles) -> Vec<Line<'a>> {
    let pairs = |pairs: Vec<(&'static str, String)>| {
        let spans = pairs.into_iter().flat_map(|(name, value)| {
            [Span::styled(format!("{name} "), styles.muted), Span::raw(format!("{value}   "))]
        });
        Line::from(spans.collect::<Vec<_>>())
    };
    let life = key.hot.ttl_seconds.map_or("until removed".to_owned(), |ttl| format!("{ttl} s"));
    let mut lines = vec![
        Line::styled(key.hot.reason.clone(), styles.strong),
        pairs(vec![
            ("Requests/s", rate(Some(key.hot.frequency))),
            ("reads/s", rate(Some(key.hot.reads_per_second))),
            ("writes/s", rate(Some(key.hot.writes_per_second))),
            ("hit ratio", percent(key.hit_ratio)),
        ]),
        pairs(vec![
            ("Mitigation", key.mitigation.clone()),
            ("status", format!("{}, {}", key.hot.status, key.hot.origin)),
            ("since", format!("{} UTC", key.since)),
        ]),
        pairs(vec![("Lives", life), ("hash", key.hot.key_hash.clone())]),
    ];
    match details {
        Some(details) => {
            lines.push(pairs(details.figures.clone()));
            lines.push(pairs(vec![("Policy", details.policy.clone())]));
        }
        None => lines.push(Line::styled("Loading...", styles.muted)),
    }
    lines
}

fn draw_trend(frame: &mut Frame, area: Rect, key: &Key, styles: &Styles) {
    let highest = key.rates.iter().copied().fold(0.0, f64::max);
    let title = format!("Requests/s, last minute, at most {}", rate(Some(highest)));
    let block = Block::new().borders(Borders::TOP).title(title);
    // The minute fills the width; what there is no rate of is empty.
    let (width, span) = (usize::from(area.width), SAMPLES as usize);
    let missing = span.saturating_sub(key.rates.len());
    let bar = |column: usize| {
        let place = (column * span / width.max(1)).checked_sub(missing)?;
        key.rates.get(place).map(|rate| rate.max(0.0) as u64)
    };
    let bars: Vec<Option<u64>> = (0..width).map(bar).collect();
    let spark = Sparkline::default().data(bars).style(styles.hot).block(block);
    frame.render_widget(spark, area);
}

fn draw_decisions(frame: &mut Frame, area: Rect, details: Option<&Details>, styles: &Styles) {
    let block = Block::new().borders(Borders::TOP).title("Decisions");
    let decisions = details.map_or(&[][..], |details| &details.decisions);
    let lines: Vec<Line> = decisions
        .iter()
        .map(|(at, what, why)| {
            Line::from(vec![
                Span::styled(format!("{at} "), styles.muted),
                Span::styled(format!("{what} "), styles.strong),
                Span::raw(why.clone()),
            ])
        })
        .collect();
    let text = if lines.is_empty() && details.is_some() {
        vec![Line::styled("None since that process started.", styles.muted)]
    } else {
        lines
    };
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block), area);
}
