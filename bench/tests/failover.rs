//! Failovers in short: every way to write has its row, and what replicas had is never lost.

mod binary;

use std::process::{Command, Output};

use binary::HEATSINK;

fn failover(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .args(["failover", "--quick", "--heatsink"])
        .arg(&*HEATSINK)
        .args(args)
        .output()
        .expect("the benchmark starts")
}

#[test]
fn every_way_is_failed_over_and_only_what_was_not_replicated_is_lost() {
    let output = failover(&["--enforce"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{output:?}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.contains(" | 100 | "))
        .map(|line| line.trim_matches(['|', ' ']).split(" | ").collect())
        .collect();
    assert_eq!(rows.len(), 4, "{text}");
    for row in &rows {
        let number = |column: usize| row[column].parse::<u64>();
        let (acknowledged, lost) = (number(2).expect("a count"), number(3).expect("a count"));
        assert!(acknowledged > 100, "nobody wrote: {row:?}");
        assert!(lost < acknowledged, "nothing is left: {row:?}");
    }
}
