//! Two builds side by side, in short: everything is measured, nothing is judged.

mod binary;

use std::path::Path;
use std::process::{Command, Output};

use binary::HEATSINK;

fn versions(old: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .args(["versions", "--quick", "--requests", "1000", "--old"])
        .arg(old)
        .arg("--new")
        .arg(&*HEATSINK)
        .args(args)
        .output()
        .expect("the benchmark starts")
}

#[test]
fn every_case_of_every_part_has_its_ratio() {
    let output = versions(&HEATSINK, &["--enforce"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{output:?}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.contains(" clients"))
        .map(|line| line.split(" | ").collect())
        .collect();
    // One server, hot, cluster, split.
    assert_eq!(rows.len(), 12 + 3 + 9 + 8, "{text}");
    for row in &rows {
        let ratio: f64 = row[3].parse().unwrap_or_else(|_| panic!("no ratio in {row:?}"));
        assert!(ratio > 0.0, "{row:?}");
    }
    assert_eq!(text.matches("| not judged |").count(), 4, "{text}");
}

#[test]
fn a_binary_that_is_missing_is_named() {
    let output = versions(Path::new("./no/heatsink"), &["--part", "proxy"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("./no/heatsink"), "{text}");
}
