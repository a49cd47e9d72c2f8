//! The same rate for both sides, in short: everything is measured, nothing is judged.

mod binary;

use std::process::{Command, Output};

use binary::HEATSINK;

fn rates(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .args(["rates", "--quick", "--heatsink"])
        .arg(&*HEATSINK)
        .args(args)
        .output()
        .expect("the benchmark starts")
}

#[test]
fn a_quick_run_measures_every_rate_of_both_parts() {
    let output = rates(&["--enforce"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{output:?}");
    let cases = ["GET random keys of 3 B, 50 clients", "SET random keys of 1024 B, 200 clients"];
    for case in cases.iter().chain(&["SADD", "SISMEMBER, -P 16"]) {
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("| {case} | ")))
            .map(|row| row.split(" | ").collect())
            .collect();
        assert_eq!(rows.len(), 3, "{case} in {text}");
        let number = |cell: &str| cell.split(' ').next().and_then(|first| first.parse().ok());
        for row in rows {
            let figures: Option<Vec<f64>> = row[..4].iter().map(|cell| number(cell)).collect();
            let figures = figures.unwrap_or_else(|| panic!("no figures in {row:?}"));
            assert!(figures.iter().all(|figure| *figure > 0.0), "{row:?}");
        }
    }
    assert_eq!(text.matches("| not judged |").count(), 9, "{text}");
}

#[test]
fn one_case_can_be_measured_alone() {
    let output = rates(&["--part", "split", "--case", "sismember, -p"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{output:?}");
    assert_eq!(text.matches("| SISMEMBER, -P 16 |").count(), 3, "{text}");
    assert!(!text.contains("| SADD") && !text.contains("GET random"), "{text}");
}
