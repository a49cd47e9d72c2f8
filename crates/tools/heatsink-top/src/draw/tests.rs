//! Frames against the pictures in `tests/frames`. After a wanted change, run the tests with
//! `HEATSINK_UPDATE_FRAMES=1` and look at the difference.

use std::path::Path;

use heatsink_admin::HotKeyView;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::json;

use super::*;
use crate::model::{Details, Snapshot};
use crate::source::Message;

fn hot_key(key: &str, frequency: f64, mitigation: &str, status: &str) -> HotKeyView {
    HotKeyView {
        key: key.to_owned(),
        key_hash: format!("{key}-hash"),
        frequency,
        reads_per_second: frequency * 0.9,
        writes_per_second: frequency * 0.1,
        mitigation_type: mitigation.to_owned(),
        split_factor: 1,
        ttl_seconds: Some(60),
        status: status.to_owned(),
        origin: "auto".to_owned(),
        detected_at: "2026-01-01T12:34:56.120Z".to_owned(),
        reason: "48 211 req/s over 2 proxies, threshold 5 000; 99.9 % reads".to_owned(),
        ..HotKeyView::default()
    }
}

fn snapshot() -> Snapshot {
    let split =
        HotKeyView { split_factor: 8, ..hot_key("count:views", 9300.0, "split", "candidate") };
    let name = "session:0123456789abcdef0123456789abcdef";
    let dry = HotKeyView { dry_run: Some(true), ..hot_key(name, 1200.5, "coalesce", "cooling") };
    let binary = HotKeyView {
        key_base64: Some("/xs=".to_owned()),
        ..hot_key("%FF%1B", 3.25, "local_cache", "active")
    };
    let strange = hot_key("a\u{1b}[31m\u{202e}b", 12.0, "local_cache", "active");
    let keys =
        vec![hot_key("user:9999", 48211.0, "local_cache", "active"), split, dry, binary, strange];
    let rates = |highest: f64| (0..60).map(|n| highest * f64::from(n) / 59.0).collect::<Vec<_>>();
    let history = json!({
        "samples": [{"requests_per_second": 62000.0, "served_per_second": 48000.0, "saved_per_second": 36000.0, "hottest_node_share": 0.75}],
        "nodes": [
            {"node": "10.0.0.1:6379", "commands_per_second": 3000.0, "share": 0.125},
            {"node": "10.0.0.2:6379", "commands_per_second": 18000.0, "share": 0.75},
            {"node": "10.0.0.3:6379", "commands_per_second": 3000.0, "share": 0.125},
        ],
        "keys": [
            {"key_hash": "user:9999-hash", "requests_per_second": rates(48211.0), "hit_ratio": 0.985},
            {"key_hash": "count:views-hash", "requests_per_second": [1.0, 8.0, 4.0], "hit_ratio": null},
        ],
    });
    let proxies = json!({"items": [{"degraded": false}, {"degraded": true}]});
    Snapshot::new(keys, &history, &proxies)
}

fn app() -> App {
    App::new("http://127.0.0.1:9600", true, snapshot())
}

fn press(app: &mut App, keys: &[KeyCode]) {
    for key in keys {
        app.press(KeyEvent::new(*key, KeyModifiers::NONE));
    }
}

fn buffer(app: &mut App, width: u16, height: u16) -> ratatui::buffer::Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    terminal.backend().buffer().clone()
}

/// The frame as text, without blanks at the ends of lines.
fn text(app: &mut App, width: u16, height: u16) -> String {
    let buffer = buffer(app, width, height);
    let lines = buffer.content.chunks(usize::from(width)).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

#[track_caller]
fn matches(name: &str, frame: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frames").join(name);
    if std::env::var_os("HEATSINK_UPDATE_FRAMES").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, frame).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(frame, expected, "differs from {name}");
}

#[test]
fn the_list_on_an_ordinary_terminal() {
    matches("list.txt", &text(&mut app(), 80, 24));
}

#[test]
fn servers_that_are_down_stand_above_everything() {
    let down = |node: &str, error: &str| json!({"node": node, "up": false, "since": "2026-01-01T10:20:30.000Z", "error": error});
    let refused = down("10.0.0.1:6379", "connection refused");
    let proxies = json!({"items": [
        {"degraded": true, "upstream_down": [refused, down("10.0.0.2:6379", "connection timed out")]},
        {"degraded": true, "upstream_down": [refused]},
        {"degraded": false, "upstream_down": []},
    ]});
    let snapshot = Snapshot::new(Vec::new(), &json!({}), &proxies);
    let mut app = App::new("http://127.0.0.1:9600", true, snapshot);
    let frame = text(&mut app, 80, 10);
    let lines: Vec<&str> = frame.lines().collect();
    assert_eq!(
        lines[2..4],
        [
            "Upstream 10.0.0.1:6379 down since 10:20:30: connection refused",
            "Upstream 10.0.0.2:6379 down since 10:20:30: connection timed out",
        ]
    );
    let many: Vec<_> = (0..9).map(|n| down(&format!("n{n}:1"), "x")).collect();
    let proxies = json!({"items": [{"upstream_down": many}]});
    app.snapshot = Snapshot::new(Vec::new(), &json!({}), &proxies);
    let frame = text(&mut app, 80, 10);
    assert_eq!(frame.lines().nth(4), Some("Upstream: 7 more nodes are down"));
}

#[test]
fn the_list_sorted_and_filtered() {
    let mut app = app();
    press(&mut app, &[KeyCode::Char('1'), KeyCode::Down, KeyCode::Char('/')]);
    press(&mut app, &[KeyCode::Char(':'), KeyCode::Enter]);
    matches("sorted.txt", &text(&mut app, 80, 24));
}

#[test]
fn small_and_large_terminals() {
    let mut app = app();
    matches("narrow.txt", &text(&mut app, 40, 10));
    matches("wide.txt", &text(&mut app, 132, 30));
    // Nothing breaks on what nobody uses.
    for (width, height) in [(1, 1), (2, 50), (200, 2), (10, 3)] {
        text(&mut app, width, height);
        press(&mut app, &[KeyCode::Char('?')]);
        text(&mut app, width, height);
        press(&mut app, &[KeyCode::Esc, KeyCode::Enter]);
        text(&mut app, width, height);
        press(&mut app, &[KeyCode::Esc]);
    }
}

#[test]
fn the_details_of_a_key() {
    let mut app = app();
    press(&mut app, &[KeyCode::Enter]);
    assert!(text(&mut app, 80, 24).contains("Loading..."));
    let stats = json!({"key_hash": "user:9999-hash", "hit_ratio": 0.985, "local_cache_hit_ratio": 0.99, "collapse_ratio": null, "shards": null});
    let policy = json!({"mode": "coherent", "rule": {"number": 2, "match": "user:*"}, "allowed_mitigations": ["local_cache", "coalesce"]});
    let history = json!({"decisions": [
        {"at": "2026-01-01T12:34:56.120Z", "status": "active", "mitigation_type": "local_cache", "reason": "48 211 req/s over 2 proxies, threshold 5 000; 99.9 % reads"},
        {"at": "2026-01-01T12:40:00.000Z", "reason": "no longer registered"},
    ]});
    app.hear(Message::Details(Some(Box::new(Details::new(&stats, &policy, &history)))));
    matches("details.txt", &text(&mut app, 80, 24));
}

#[test]
fn questions() {
    let mut app = app();
    press(&mut app, &[KeyCode::Char('d')]);
    matches("demote.txt", &text(&mut app, 80, 24));
    press(
        &mut app,
        &[KeyCode::Char('n'), KeyCode::Char('p'), KeyCode::Down, KeyCode::Down, KeyCode::Right],
    );
    matches("promote.txt", &text(&mut app, 80, 24));
    press(&mut app, &[KeyCode::Char('6'), KeyCode::Char('0'), KeyCode::Char('0')]);
    matches("promote-ttl.txt", &text(&mut app, 80, 24));
    press(&mut app, &[KeyCode::Enter]);
    matches("promote-sure.txt", &text(&mut app, 80, 24));
    press(&mut app, &[KeyCode::Esc, KeyCode::Char('?')]);
    matches("help.txt", &text(&mut app, 80, 24));
}

#[test]
fn a_lost_connection_keeps_what_was_seen() {
    let mut app = app();
    app.hear(Message::Lost("nothing answers at 127.0.0.1:9600".to_owned()));
    matches("lost.txt", &text(&mut app, 80, 24));
    app.hear(Message::Fleet(Box::default()));
    matches("empty.txt", &text(&mut app, 80, 24));
}

#[test]
fn colours_only_if_wanted() {
    let has_colour = |app: &mut App| {
        let buffer = buffer(app, 80, 24);
        buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    let mut app = app();
    assert!(has_colour(&mut app));
    app.colours = false;
    for keys in [&[][..], &[KeyCode::Char('p')], &[KeyCode::Esc, KeyCode::Enter]] {
        press(&mut app, keys);
        assert!(!has_colour(&mut app));
    }
    app.hear(Message::Lost("gone".to_owned()));
    assert!(!has_colour(&mut app));
}

#[test]
fn no_key_can_write_to_the_terminal() {
    let frame = text(&mut app(), 132, 24);
    assert!(frame.contains(r"a\u{1b}[31m\u{202e}b"), "{frame}");
    assert!(!frame.contains('\u{1b}') && !frame.contains('\u{202e}'));
}
