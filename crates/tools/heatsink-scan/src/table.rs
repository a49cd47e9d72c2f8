//! The table of hot keys, fitted to a terminal.
//!
//! Called by: [`crate::report`].
//! Invariant: on a terminal of [`COLUMNS_MIN`] columns or more no line is longer than it. The
//! figures are never shortened: a long key loses its middle, and what Heatsink would do is
//! explained below the table if there is no room for it beside. Without a width nothing is
//! shortened.

use comfy_table::presets::{NOTHING, UTF8_BORDERS_ONLY};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table};
use heatsink_control::words;

use crate::report::{KeyReport, ScanReport, ValueReport};

/// Below that many columns cells are wrapped as it comes.
const COLUMNS_MIN: usize = 72;

/// Columns that a key gets if it needs them, before an explanation stands beside it.
const KEY_MIN: usize = 24;

/// Columns that an explanation needs beside the figures.
const BECAUSE_MIN: usize = 30;

/// Blanks on both sides of a column, and one or a border behind it.
const GAP: usize = 3;

/// The border before the first column.
const BORDER: usize = 1;

/// A table as text.
pub(crate) struct Fitted {
    pub(crate) text: String,
    /// Some key is not there as a whole.
    pub(crate) is_shortened: bool,
}

/// The hot keys in a table that fits this many columns, if it has to.
pub(crate) fn of(report: &ScanReport, columns: Option<usize>) -> Fitted {
    let head = if report.method == "monitor" {
        ["share", "req/s", "reads", "size", "Heatsink"]
    } else {
        ["CPU", "bytes", "", "size", "Heatsink"]
    };
    let figures: Vec<[String; 5]> = report.keys.iter().map(|key| figures(report, key)).collect();
    let longest = report.keys.iter().map(|key| whole(key).len()).max().unwrap_or(0);
    let Some(columns) = columns else {
        let text = beside(report, &head, &figures, usize::MAX).to_string();
        return Fitted { text, is_shortened: false };
    };
    let width = |column: usize| {
        let cells = figures.iter().map(|cells| cells[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0) + GAP
    };
    let taken = BORDER + GAP + (0..head.len()).map(width).sum::<usize>();
    let left = columns.max(COLUMNS_MIN).saturating_sub(taken);
    let room = left.saturating_sub(BECAUSE_MIN + GAP);
    let (key_width, mut text) = if room >= longest.min(KEY_MIN) {
        let mut table = beside(report, &head, &figures, room);
        fit(&mut table, columns, 1 + head.len());
        (room, table.to_string())
    } else {
        let mut table = start(&head, false);
        for (key, figures) in report.keys.iter().zip(&figures) {
            table.add_row([&[shortened(key, left)], figures.as_slice()].concat());
        }
        align(&mut table);
        fit(&mut table, columns, 1 + head.len());
        (left, format!("{table}\n{}", below(report, columns)))
    };
    text.truncate(text.trim_end().len());
    Fitted { text, is_shortened: longest > key_width }
}

/// With the explanations in the last column.
fn beside(report: &ScanReport, head: &[&str], figures: &[[String; 5]], key_width: usize) -> Table {
    let mut table = start(head, true);
    for (key, figures) in report.keys.iter().zip(figures) {
        let (name, because) = (shortened(key, key_width), key.advice.reason.clone());
        table.add_row([&[name], figures.as_slice(), &[because]].concat());
    }
    align(&mut table);
    table
}

/// The explanations by themselves.
fn below(report: &ScanReport, columns: usize) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    for key in &report.keys {
        table.add_row([shortened(key, KEY_MIN), key.advice.reason.clone()]);
    }
    fit(&mut table, columns, 1);
    table
}

/// Makes a table fit: the first columns are as wide as what is in them, and the one
/// behind them is wrapped.
fn fit(table: &mut Table, columns: usize, unwrapped: usize) {
    let width = u16::try_from(columns).unwrap_or(u16::MAX);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    if columns >= COLUMNS_MIN {
        for column in table.column_iter_mut().take(unwrapped) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

fn start(head: &[&str], explains: bool) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let because = explains.then_some("because");
    table.set_header(["key"].iter().chain(head).copied().chain(because));
    table
}

fn align(table: &mut Table) {
    for column in 1..=4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn figures(report: &ScanReport, key: &KeyReport) -> [String; 5] {
    let cost = key.cost.as_ref();
    let percent = |share: Option<f64>| share.map_or_else(|| "?".to_owned(), words::percent);
    let [first, second, third] = if report.method == "monitor" {
        let reads = key.reads as f64 / key.requests.max(1) as f64;
        let rate = words::whole(key.requests_per_second);
        [words::percent(key.share), rate, words::percent(reads)]
    } else {
        let cpu = percent(cost.and_then(|cost| cost.cpu_share));
        [cpu, percent(cost.and_then(|cost| cost.net_share)), String::new()]
    };
    let mitigation = key.advice.mitigation.map_or("-", |mitigation| mitigation.name());
    [first, second, third, size(key.value.as_ref()), mitigation.to_owned()]
}

/// What is said of a key's database.
fn database(key: &KeyReport) -> String {
    if key.db == 0 { String::new() } else { format!(" (db {})", key.db) }
}

fn whole(key: &KeyReport) -> String {
    format!("{}{}", key.key, database(key))
}

/// A key and its database in this many columns: both ends of the key stay, as both tell keys apart.
fn shortened(key: &KeyReport, width: usize) -> String {
    let database = database(key);
    // Keys are ASCII here, so a byte is a column.
    let room = width.saturating_sub(database.len()).max(3);
    let name = &key.key;
    if name.len() <= room {
        return whole(key);
    }
    let tail = (room - 1) / 2;
    let head = room - 1 - tail;
    format!("{}…{}{database}", &name[..head], &name[name.len() - tail..])
}

fn size(value: Option<&ValueReport>) -> String {
    let Some(value) = value else { return "?".to_owned() };
    let bytes = value.bytes.map(|bytes| format!("{} B", words::whole(bytes as f64)));
    match (value.elements, bytes) {
        (Some(elements), _) => format!("{} of {}", value.kind, words::whole(elements as f64)),
        (None, Some(bytes)) => bytes,
        (None, None) => value.kind.clone(),
    }
}

#[cfg(test)]
mod tests {
    use heatsink_control::entry::Mitigation;

    use super::*;
    use crate::report::End;
    use crate::tally::Name;

    fn key(name: &str, db: u32) -> KeyReport {
        let name = Name { key: name.as_bytes().into(), db };
        let mut key = KeyReport::unmeasured(&name, "n:1".to_owned());
        key.requests = 480_000;
        key.reads = 479_000;
        key.share = 0.62;
        key.requests_per_second = 48_211.0;
        key.advice.mitigation = Some(Mitigation::LocalCache);
        key.advice.reason = "48 211 req/s, 99.8 % reads; reads come from the proxies".to_owned();
        key
    }

    fn report(keys: &[(&str, u32)]) -> ScanReport {
        let keys = keys.iter().map(|(name, db)| key(name, *db)).collect();
        ScanReport { method: "monitor", keys, ..ScanReport::of_hotkeys(End::Duration) }
    }

    fn long() -> String {
        format!("session:{}:profile", "0123456789abcdef".repeat(10))
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        let long = long();
        let report = report(&[(&long, 0), ("user:9999", 0), (&long, 12)]);
        for columns in [72, 80, 100, 120, 132, 200, 300] {
            let fitted = of(&report, Some(columns));
            let widest = fitted.text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns), "{widest:?} of {columns}\n{}", fitted.text);
            assert!(fitted.text.contains("48 211 req/s"), "explained:\n{}", fitted.text);
            // Every key is on one line, with both its ends, its database and its figures.
            let rows: Vec<_> = fitted.text.lines().filter(|line| line.contains("62 %")).collect();
            let [first, second, third] = rows[..] else { panic!("{}", fitted.text) };
            assert!(first.contains("session:") && first.contains("profile"), "{first}");
            assert!(second.contains("user:9999"), "{second}");
            assert!(third.contains("sess") && third.contains("file (db 12)"), "{third}");
            assert_eq!(fitted.is_shortened, fitted.text.contains('…'), "{columns}");
        }
        // Nothing breaks on what nobody uses.
        for columns in [0, 1, 10, 40] {
            of(&report, Some(columns));
        }
    }

    #[test]
    fn keys_that_fit_are_whole() {
        let report = report(&[("user:9999", 0), ("count:views", 3)]);
        for columns in [80, 200] {
            let fitted = of(&report, Some(columns));
            assert!(!fitted.is_shortened && fitted.text.contains("count:views (db 3)"));
        }
    }

    #[test]
    fn without_a_terminal_nothing_is_shortened() {
        let long = long();
        let fitted = of(&report(&[(&long, 0)]), None);
        assert!(fitted.text.contains(&long) && !fitted.is_shortened, "{}", fitted.text);
        assert_eq!(fitted.text.lines().count(), 5, "{}", fitted.text);
    }

    #[test]
    fn the_middle_goes_and_the_database_stays() {
        let key = key("abcdefghijklmnop", 3);
        assert_eq!(shortened(&key, 16), "abcd…mnop (db 3)");
        assert_eq!(shortened(&key, 23), "abcdefghijklmnop (db 3)");
        assert_eq!(shortened(&key, 0), "a…p (db 3)");
    }
}
