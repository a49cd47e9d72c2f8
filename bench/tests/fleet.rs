//! The measurement of a fleet in its short form: what does not depend on the machine has to be
//! right.

mod binary;

use std::process::{Command, Output};

use binary::HEATSINK;

fn fleet(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .args(["fleet", "--quick", "--heatsink"])
        .arg(&*HEATSINK)
        .args(args)
        .output()
        .expect("the benchmark starts")
}

#[test]
fn a_quick_run_measures_everything_and_misses_no_goal() {
    let output = fleet(&["--enforce"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{output:?}");
    let row = |name: &str| {
        let start = format!("| {name} | ");
        let row = text.lines().find(|line| line.starts_with(&start));
        row.unwrap_or_else(|| panic!("no row {name:?} in\n{text}")).to_owned()
    };
    // What holds on any machine was judged, times and CPU were not.
    for goal in [
        "keys that every proxy came to know within 5 s",
        "400 requests/s on each of three proxies: found",
        "100 requests/s on each of three proxies: found",
        "a key that is not read any more: retired",
        "members that the aggregator sees",
        "reports that the aggregator did not take in",
        "requests/s of a key that all report, in its sum",
        "new hot keys that it noticed",
    ] {
        assert!(row(goal).ends_with(" pass |"), "{}", row(goal));
    }
    for goal in [
        "onset after the count, p99",
        "retirement on every proxy, hold time 2 s, longest",
        "CPU per request, on ÷ off, worst of the cases",
        "CPU of the aggregator",
    ] {
        assert!(row(goal).ends_with(" not judged |"), "{}", row(goal));
    }
    // A hold time was waited for.
    let end = row("last request to its end");
    let least_ms = end.split(" | ").nth(2).and_then(|figure| figure.parse::<u64>().ok());
    assert!(least_ms.is_some_and(|least_ms| least_ms > 2_000), "{end}");
    for case in ["GET random keys, 50 clients", "SET random keys, 50 clients, -P 16"] {
        row(case);
    }
}

#[test]
fn a_part_can_be_measured_by_itself() {
    let output = fleet(&["--part", "reports", "--seconds", "2"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("simulated proxies") && !text.contains("### From onset"), "{text}");
    assert!(text.contains("None missed."), "{text}");
}

#[test]
fn a_program_that_does_not_serve_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .args(["fleet", "--quick", "--part", "onset", "--heatsink", "./no/heatsink"])
        .output()
        .expect("the benchmark starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("./no/heatsink"), "{message}");
}
