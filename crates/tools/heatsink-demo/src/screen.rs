//! The live terminal.
//!
//! Bound: the last 50 events, the last 240 samples.
//! Invariant: the terminal is given back as it was, even after an error.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use heatsink_control::words;
use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Gauge, Paragraph, Row, Sparkline, Table};

use crate::plain::time;
use crate::sample::{NodeLine, Sample, Scene, View, Wish, treatment};

const EVENTS_MAX: usize = 50;
const HISTORY: usize = 240;
/// A node that can answer no more: requests beyond wait where they are not counted yet.
const OVERLOADED: f64 = 0.97;

/// Draws on the terminal from when it is opened until it is dropped.
#[derive(Debug, Default)]
pub struct Screen {
    terminal: Option<DefaultTerminal>,
    scene: Option<Scene>,
    events: VecDeque<(Duration, String)>,
    p99_us: VecDeque<u64>,
    sample: Option<Sample>,
}

impl Screen {
    /// A screen that nothing is drawn on yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn draw(&mut self) -> io::Result<()> {
        let Self { terminal, scene, events, p99_us, sample } = self;
        if let (Some(terminal), Some(scene)) = (terminal, scene) {
            let picture = Picture { scene, events, p99_us, sample: sample.as_ref() };
            terminal.draw(|frame| picture.draw(frame))?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal.take().is_some() {
            ratatui::restore();
        }
    }
}

impl View for Screen {
    fn open(&mut self, scene: &Scene) -> io::Result<()> {
        self.scene = Some(scene.clone());
        self.terminal = Some(ratatui::try_init()?);
        self.draw()
    }

    fn event(&mut self, at: Duration, words: &str) -> io::Result<()> {
        self.events.push_front((at, words.to_owned()));
        self.events.truncate(EVENTS_MAX);
        self.draw()
    }

    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        self.p99_us.push_back(sample.p99.as_micros() as u64);
        if self.p99_us.len() > HISTORY {
            self.p99_us.pop_front();
        }
        self.sample = Some(sample.clone());
        self.draw()
    }

    fn wait(&mut self, time: Duration) -> io::Result<Option<Wish>> {
        if !event::poll(time)? {
            return Ok(None);
        }
        match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => Ok(match key.code {
                KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
                // In raw mode the terminal makes no signal of it.
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    Some(Wish::Quit)
                }
                KeyCode::Char('m' | ' ') => Some(Wish::Toggle),
                _ => None,
            }),
            Event::Resize(..) => {
                self.draw()?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}

/// One frame.
struct Picture<'a> {
    scene: &'a Scene,
    events: &'a VecDeque<(Duration, String)>,
    p99_us: &'a VecDeque<u64>,
    sample: Option<&'a Sample>,
}

impl Picture<'_> {
    fn draw(&self, frame: &mut Frame<'_>) {
        let nodes = self.sample.map_or(0, |sample| sample.nodes.len()) as u16;
        let [head, figures, bars, keys, events, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(4),
            Constraint::Length(nodes + 2),
            Constraint::Length(6),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.head(frame, head);
        if let Some(sample) = self.sample {
            self.figures(frame, figures, sample);
            Self::bars(frame, bars, &sample.nodes);
            Self::keys(frame, keys, sample);
        }
        self.events(frame, events);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let help = Line::from(vec![
            Span::styled(" m ", bold),
            Span::raw("mitigation on/off  "),
            Span::styled(" q ", bold),
            Span::raw("quit with a summary"),
        ]);
        frame.render_widget(help, foot);
    }

    fn head(&self, frame: &mut Frame<'_>, area: Rect) {
        let (act, at, on) = match self.sample {
            Some(sample) => (sample.act.title(), sample.at, sample.mitigates),
            None => ("", Duration::ZERO, false),
        };
        let (text, color) =
            if on { ("MITIGATION ON", Color::Green) } else { ("ONLY OBSERVING", Color::Yellow) };
        let style = Style::new().fg(color).add_modifier(Modifier::BOLD);
        let length = self.scene.length.as_secs();
        let title = Line::from(vec![
            Span::raw(format!("heatsink demo  {:.0} of {length} s  {act}  ", at.as_secs_f64())),
            Span::styled(text, style),
        ]);
        let place = Line::from(format!("page {}  before {}", self.scene.page, self.scene.upstream));
        frame.render_widget(Paragraph::new(vec![title, place]), area);
    }

    fn figures(&self, frame: &mut Frame<'_>, area: Rect, sample: &Sample) {
        let [left, right] =
            Layout::horizontal([Constraint::Min(58), Constraint::Fill(1)]).areas(area);
        let rate = words::whole(sample.requests_per_second);
        let upstream = words::whole(sample.upstream_per_second);
        let (saved, p50, p99) = (words::percent(sample.saved), time(sample.p50), time(sample.p99));
        let mut first = format!("{rate} req/s   p50 {p50}   p99 {p99}");
        if sample.given_up_per_second > 0.0 {
            let rate = words::whole(sample.given_up_per_second);
            let _ = write!(first, "   given up {rate}/s");
        }
        let second = format!("{upstream} req/s to nodes, {saved} saved");
        let wrong = format!("   wrong {}  errors {}", sample.mismatches, sample.errors);
        let block = Block::new().borders(Borders::ALL).title("shop");
        let lines = vec![Line::from(first), Line::from(second + &wrong)];
        frame.render_widget(Paragraph::new(lines).block(block), left);
        let width = right.width.saturating_sub(2) as usize;
        let skipped = self.p99_us.len().saturating_sub(width);
        let data: Vec<u64> = self.p99_us.iter().skip(skipped).copied().collect();
        let block = Block::new().borders(Borders::ALL).title("p99 over time");
        frame.render_widget(Sparkline::default().data(&data).block(block), right);
    }

    fn bars(frame: &mut Frame<'_>, area: Rect, nodes: &[NodeLine]) {
        let block = Block::new().borders(Borders::ALL).title("nodes: load of their capacity");
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let rows = Layout::vertical(nodes.iter().map(|_| Constraint::Length(1))).split(inner);
        for (node, row) in nodes.iter().zip(rows.iter()) {
            let level = node.load.unwrap_or(node.share);
            let color = match level {
                level if level > OVERLOADED => Color::Red,
                level if level > 0.75 => Color::Yellow,
                _ => Color::Green,
            };
            let label = format!(
                "{}  {} req/s  {}{}",
                node.name,
                words::whole(node.requests_per_second),
                words::percent(level),
                if node.load.is_some_and(|load| load > OVERLOADED) { "  OVERLOADED" } else { "" }
            );
            let gauge = Gauge::default()
                .ratio(level.clamp(0.0, 1.0))
                .label(label)
                .gauge_style(Style::new().fg(color));
            frame.render_widget(gauge, *row);
        }
    }

    fn keys(frame: &mut Frame<'_>, area: Rect, sample: &Sample) {
        let rows = sample.hot_keys.iter().map(|hot| {
            Row::new([
                Cell::from(hot.key.clone()),
                Cell::from(words::whole(hot.frequency)),
                Cell::from(treatment(hot)),
                Cell::from(hot.status.clone()),
                Cell::from(hot.reason.clone()),
            ])
        });
        let widths = [
            Constraint::Length(18),
            Constraint::Length(7),
            Constraint::Length(28),
            Constraint::Length(8),
            Constraint::Fill(1),
        ];
        let header = Row::new(["hot key", "req/s", "what is done", "status", "why"])
            .style(Style::new().add_modifier(Modifier::BOLD));
        let block = Block::new().borders(Borders::ALL).title("hot keys");
        frame.render_widget(Table::new(rows, widths).header(header).block(block), area);
    }

    fn events(&self, frame: &mut Frame<'_>, area: Rect) {
        let lines: Vec<Line<'_>> = self
            .events
            .iter()
            .map(|(at, words)| Line::from(format!("{:5.1} s  {words}", at.as_secs_f64())))
            .collect();
        let block = Block::new().borders(Borders::TOP).title("what happened");
        frame.render_widget(Paragraph::new(lines).block(block), area);
    }
}

#[cfg(test)]
mod tests {
    use heatsink_admin::HotKeyView;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::acts::Act;

    fn node(load: f64) -> NodeLine {
        NodeLine {
            name: "127.0.0.1:7000".to_owned(),
            requests_per_second: load * 2_000.0,
            share: 0.3,
            load: Some(load),
        }
    }

    #[test]
    fn a_small_terminal_shows_what_matters() {
        let scene = Scene {
            page: "http://127.0.0.1:9600/".to_owned(),
            proxies: Vec::new(),
            upstream: "three nodes".to_owned(),
            capacity_per_second: Some(2_000),
            rate_per_second: 4_000,
            length: Duration::from_secs(40),
        };
        let hot = HotKeyView {
            key: "shop:item:1".to_owned(),
            frequency: 2_400.0,
            mitigation_type: "local_cache".to_owned(),
            status: "active".to_owned(),
            dry_run: Some(true),
            reason: "2 400 req/s".to_owned(),
            ..HotKeyView::default()
        };
        let sample = Sample {
            at: Duration::from_secs(9),
            act: Act::Melting,
            mitigates: false,
            requests_per_second: 4_000.0,
            given_up_per_second: 12.0,
            p50: Duration::from_millis(2),
            p99: Duration::from_millis(800),
            upstream_per_second: 4_000.0,
            saved: 0.0,
            nodes: vec![node(0.3), node(1.4), node(0.3)],
            hot_keys: vec![hot],
            mismatches: 0,
            errors: 0,
        };
        let events = VecDeque::from([(Duration::from_secs(6), "it goes viral".to_owned())]);
        let p99_us = VecDeque::from([1, 2, 3]);
        let picture =
            Picture { scene: &scene, events: &events, p99_us: &p99_us, sample: Some(&sample) };
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
        terminal.draw(|frame| picture.draw(frame)).expect("drawn");
        let shown = terminal.backend().to_string();
        for part in [
            "ONLY OBSERVING",
            "http://127.0.0.1:9600/",
            "p99 800 ms",
            "given up 12/s",
            "OVERLOADED",
            "shop:item:1",
            "local_cache (only observed)",
            "it goes viral",
            "mitigation on/off",
        ] {
            assert!(shown.contains(part), "{part} is missing\n{shown}");
        }
    }
}
