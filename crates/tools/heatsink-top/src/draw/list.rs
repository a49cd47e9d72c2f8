//! The nodes as bars, and the hot keys as a table.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};

use super::style::Styles;
use super::{percent, rate};
use crate::app::{App, Column};
use crate::model::{Key, Node, SAMPLES};

/// Lines of nodes, at most.
const NODES: usize = 6;

/// Below this height the table has all of the screen.
const NODES_FROM_HEIGHT: u16 = 14;

/// Levels of a small bar, empty to full.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &mut App, styles: &Styles) {
    let nodes = app.snapshot.nodes.len().min(NODES) as u16;
    let room = if area.height < NODES_FROM_HEIGHT || nodes == 0 { 0 } else { nodes + 1 };
    let [above, below] =
        Layout::vertical([Constraint::Length(room), Constraint::Min(0)]).areas(area);
    if room > 0 {
        draw_nodes(frame, above, &app.snapshot.nodes, styles);
    }
    draw_keys(frame, below, app, styles);
}

fn draw_nodes(frame: &mut Frame, area: Rect, nodes: &[Node], styles: &Styles) {
    let mut sorted: Vec<&Node> = nodes.iter().collect();
    sorted.sort_by(|a, b| b.commands_per_second.total_cmp(&a.commands_per_second));
    let mut title = "Nodes, commands/s".to_owned();
    if nodes.len() > NODES {
        title = format!("{title}, the busiest {NODES} of {}", nodes.len());
    }
    let block = Block::new().borders(Borders::TOP).title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let name_width = sorted.iter().take(NODES).map(|node| node.name.chars().count()).max();
    let name_width = name_width.unwrap_or(0).min(24);
    let bar_width = usize::from(inner.width).saturating_sub(name_width + 20);
    let lines: Vec<Line> = sorted
        .iter()
        .take(NODES)
        .map(|node| {
            let filled = (node.share.clamp(0.0, 1.0) * bar_width as f64).round() as usize;
            // More than twice its part is what melts.
            let is_hot = nodes.len() > 1 && node.share * nodes.len() as f64 > 2.0;
            let style = if is_hot { styles.hot } else { styles.cool };
            Line::from(vec![
                Span::raw(format!("{:name_width$.name_width$} ", node.name)),
                Span::styled("█".repeat(filled), style),
                Span::styled("·".repeat(bar_width - filled), styles.muted),
                Span::raw(format!(
                    " {:>10} {:>6}",
                    rate(Some(node.commands_per_second)),
                    percent(Some(node.share))
                )),
            ])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

/// The columns that fit, with their widths. The key takes what the others leave.
fn columns(width: u16) -> Vec<(Column, &'static str, u16)> {
    let all = [
        (Column::Key, "KEY", 12),
        (Column::Requests, "REQ/S", 9),
        (Column::Trend, "LAST MIN", 10),
        (Column::Reads, "READ", 6),
        (Column::Hits, "HIT", 6),
        (Column::Mitigation, "MITIGATION", 13),
        (Column::Status, "STATUS", 9),
        (Column::Since, "SINCE", 8),
    ];
    // What is dropped first when there is no room.
    let mut dropped =
        [Column::Since, Column::Reads, Column::Trend, Column::Status, Column::Hits].into_iter();
    let mut fitting = all.to_vec();
    while fitting.iter().map(|(_, _, width)| width + 1).sum::<u16>() > width + 1 {
        let Some(drop) = dropped.next() else { break };
        fitting.retain(|(column, ..)| *column != drop);
    }
    fitting
}

fn draw_keys(frame: &mut Frame, area: Rect, app: &mut App, styles: &Styles) {
    let rows = app.rows();
    let place = app.place(&rows);
    let shown = rows.len();
    let total = app.snapshot.keys.len();
    let mut title = format!("Hot keys: {total}");
    if !app.filter.is_empty() {
        title = format!("Hot keys: {shown} of {total} with \"{}\"", app.filter);
    }
    let block = Block::new().borders(Borders::TOP).title(title);
    if rows.is_empty() {
        let words = if total == 0 { "No key is hot." } else { "No hot key has this in its name." };
        frame.render_widget(Paragraph::new(words).block(block), area);
        return;
    }
    let columns = columns(area.width);
    let header = columns.iter().map(|(column, label, _)| {
        let is_sorted = *column == app.sort;
        let arrow = if app.descending { "↓" } else { "↑" };
        let label = if is_sorted { format!("{label}{arrow}") } else { (*label).to_owned() };
        let style = if is_sorted { styles.strong } else { styles.header };
        Cell::from(Text::from(Span::styled(label, style)).alignment(alignment(*column)))
    });
    let widths: Vec<Constraint> = columns
        .iter()
        .map(|(column, _, width)| match column {
            Column::Key => Constraint::Min(*width),
            _ => Constraint::Length(*width),
        })
        .collect();
    let body: Vec<Row> = rows
        .iter()
        .map(|key| {
            Row::new(columns.iter().map(|(column, _, width)| cell(key, *column, *width, styles)))
        })
        .collect();
    let table = Table::new(body, widths)
        .header(Row::new(header))
        .row_highlight_style(styles.chosen)
        .block(block);
    let mut state = app.table;
    state.select(place);
    frame.render_stateful_widget(table, area, &mut state);
    app.table = state;
}

fn alignment(column: Column) -> Alignment {
    match column {
        Column::Requests | Column::Reads | Column::Hits => Alignment::Right,
        _ => Alignment::Left,
    }
}

fn cell<'a>(key: &Key, column: Column, width: u16, styles: &Styles) -> Cell<'a> {
    let status_style = match key.hot.status.as_str() {
        "active" => styles.good,
        "cooling" => styles.warm,
        _ => ratatui::style::Style::new(),
    };
    let span = match column {
        Column::Key => Span::raw(key.name.clone()),
        Column::Requests => Span::styled(rate(Some(key.hot.frequency)), styles.strong),
        Column::Trend => Span::styled(spark(&key.rates, usize::from(width)), styles.hot),
        Column::Reads => Span::raw(percent(key.read_share())),
        Column::Hits => Span::raw(percent(key.hit_ratio)),
        Column::Mitigation => Span::raw(key.mitigation.clone()),
        Column::Status => Span::styled(key.hot.status.clone(), status_style),
        Column::Since => Span::raw(key.since.clone()),
    };
    Cell::from(Text::from(span).alignment(alignment(column)))
}

/// The rates of the last minute as one line of small bars, each the highest of its part of the
/// time. What there is no rate of is blank.
fn spark(rates: &[f64], width: usize) -> String {
    let highest = rates.iter().copied().fold(0.0, f64::max).max(1e-9);
    let span = SAMPLES as usize;
    let rates = &rates[rates.len().saturating_sub(span)..];
    // Places of the samples count from the beginning of the minute.
    let missing = span - rates.len();
    let bar = |column: usize| {
        let place = |column: usize| (column * span / width).saturating_sub(missing);
        let (from, to) = (place(column), place(column + 1));
        let high = rates[from..to].iter().copied().reduce(f64::max)?;
        let level = (high / highest * (LEVELS.len() - 1) as f64).round() as usize;
        Some(LEVELS[level.min(LEVELS.len() - 1)])
    };
    (0..width).map(|column| bar(column).unwrap_or(' ')).collect()
}
