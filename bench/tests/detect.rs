//! The measurement of the detector in its short form: all that does not depend on the machine
//! has to be right.

use std::process::{Command, Output};

fn detect(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .arg("detect")
        .args(args)
        .output()
        .expect("the benchmark starts")
}

#[test]
fn a_quick_run_measures_everything_and_misses_no_goal() {
    let output = detect(&["--quick", "--enforce"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{output:?}");
    let row = |name: &str| {
        let start = format!("| {name} | ");
        let row = text.lines().find(|line| line.starts_with(&start));
        row.unwrap_or_else(|| panic!("no row {name:?} in\n{text}")).to_owned()
    };
    // Rivals stand beside.
    row("pingora-limits `Estimator`");
    row("shared sketch of atomics");
    row("dashmap, every key");
    row("two exact hashbrown maps");
    // Goals that hold on any machine were judged, times were not.
    for goal in [
        "growth of resident memory over all distinct keys",
        "allocated by touches of known keys",
        "recall, Zipf and scan",
        "reported below half of the threshold",
        "reported in uniform traffic with a scan",
        "onset at twice the threshold",
        "onset at ten times",
    ] {
        assert!(row(goal).ends_with(" pass |"), "{}", row(goal));
    }
    for goal in ["count one request", "touch behind the filter", "merge + report, full tables"] {
        assert!(row(goal).ends_with(" not judged |"), "{}", row(goal));
    }
    // Something was there to be found.
    let accuracy = row("Zipf, one key rising");
    let due = accuracy.split(" | ").nth(2).and_then(|due| due.parse::<u64>().ok());
    assert!(due.is_some_and(|due| due > 50), "{accuracy}");
}

#[test]
fn a_part_can_be_measured_by_itself() {
    let output = detect(&["--quick", "--part", "onset"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("From onset to report") && !text.contains("### Memory"), "{text}");
}
