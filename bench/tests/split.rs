//! Split keys measured in short: what does not depend on the machine has to be right.

mod binary;

use std::process::{Command, Output};

use binary::HEATSINK;

fn split(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .args(["split", "--quick", "--heatsink"])
        .arg(&*HEATSINK)
        .args(args)
        .output()
        .expect("the benchmark starts")
}

/// The cells of a row, without its name.
fn row(text: &str, name: &str) -> Vec<String> {
    let start = format!("| {name} | ");
    let row = text.lines().find_map(|line| line.strip_prefix(&start));
    let row = row.unwrap_or_else(|| panic!("no row {name:?} in\n{text}"));
    row.trim_end_matches(" |").split(" | ").map(str::to_owned).collect()
}

fn figure(text: &str, name: &str, column: usize) -> f64 {
    let row = row(text, name);
    let figure = row.get(column).and_then(|cell| cell.parse().ok());
    figure.unwrap_or_else(|| panic!("no figure in column {column} of {row:?}"))
}

#[test]
fn a_quick_run_measures_everything_and_misses_no_goal() {
    let output = split(&["--enforce"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{output:?}");
    // What holds on any machine was judged, times and CPU were not.
    for goal in [
        "a key that is whole: max ÷ mean, as a check of the count",
        "a split counter: commands at a primary, max ÷ mean",
        "commands per GET of a split counter: one for each shard",
        "of these, those that reach their primary while the other two are stopped",
        "a counter: its value in the end",
        "a large set: its members in the end",
        "a large value without copies: max ÷ mean, as a check of the count",
    ] {
        assert_eq!(row(&text, goal).last().map(String::as_str), Some("pass"), "{text}");
    }
    for goal in [
        "a split set: commands at a primary, max ÷ mean",
        "a large value with copies: reads at a primary, max ÷ mean",
        "CPU per request, split ÷ hot and whole, worst of the cases",
        "CPU per request, split ÷ cold and whole, worst of the cases",
        "a counter: requests refused, or answered wrongly",
        "a counter: longest time without an acknowledged write, p99 of the moves",
        "a large set: requests refused, or answered wrongly",
        "a large set: longest time without an acknowledged write, p99 of the moves",
    ] {
        assert_eq!(row(&text, goal).last().map(String::as_str), Some("not judged"), "{text}");
    }
    for case in ["SADD, 50 clients", "SISMEMBER, 50 clients"] {
        // The request is one command either way; split, no primary has most of them.
        assert!(figure(&text, case, 1) < 1.4, "{text}");
        assert!((figure(&text, case, 4) - 1.0).abs() < 0.01, "{text}");
    }
    for case in ["SADD", "SISMEMBER", "SADD, -P 16", "SISMEMBER, -P 16"] {
        assert_eq!(row(&text, case).len(), 10, "{text}");
    }
}

#[test]
fn a_part_can_be_measured_by_itself() {
    let output = split(&["--part", "get"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("### GET of a split counter") && !text.contains("### Writes"), "{text}");
}

#[test]
fn a_program_that_does_not_serve_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .args(["split", "--quick", "--part", "get", "--heatsink", "./no/heatsink"])
        .output()
        .expect("the benchmark starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("./no/heatsink"), "{message}");
}
