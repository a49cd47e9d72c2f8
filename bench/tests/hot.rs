//! Hot keys measured in short: what does not depend on the machine has to be right.

mod binary;

use std::process::{Command, Output};

use binary::HEATSINK;

fn bench(command: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .args([command, "--quick", "--heatsink"])
        .arg(&*HEATSINK)
        .args(args)
        .output()
        .expect("the benchmark starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The cells of every row of that name, without it.
fn rows(text: &str, name: &str) -> Vec<Vec<String>> {
    let start = format!("| {name} | ");
    let rows = text.lines().filter_map(|line| line.strip_prefix(&start));
    rows.map(|row| row.trim_end_matches(" |").split(" | ").map(str::to_owned).collect()).collect()
}

fn row(text: &str, name: &str) -> Vec<String> {
    rows(text, name).pop().unwrap_or_else(|| panic!("no row {name:?} in\n{text}"))
}

#[test]
fn hot_keys_are_in_effect_while_they_are_measured() {
    let output = bench("hot", &[]);
    let text = text(&output);
    assert!(output.status.success(), "{text}\n{output:?}");
    // Commands that reached Redis for 1 000 requests: GET, pipelined GET, INCR.
    let upstream = |peer: &str| -> Vec<f64> {
        let last = |row: Vec<String>| row.last().and_then(|cell| cell.parse().ok());
        rows(&text, peer).into_iter().filter_map(last).collect()
    };
    assert!(upstream("redis").iter().all(|figure| *figure >= 1_000.0), "{text}");
    let heatsink = upstream("heatsink");
    // A quick run is so short that heartbeats of its links count.
    let most = [20.0, 5.0, 500.0];
    assert_eq!(heatsink.len(), most.len(), "{text}");
    assert!(heatsink.iter().zip(most).all(|(figure, most)| *figure < most), "{text}");
    let verdict = row(&text, "GET one key, 50 clients, -P 16");
    assert!(verdict.len() == 5 && verdict[0].ends_with(" pass"), "{text}");
}

#[test]
fn a_viral_key_is_cooled_and_many_keys_fill_the_cache() {
    let output = bench("viral", &["--enforce"]);
    let text = text(&output);
    assert!(output.status.success(), "{text}\n{output:?}");
    for goal in [
        "GETs of a viral key that reach Redis",
        "the same without mitigations, as a check of the count",
    ] {
        assert_eq!(row(&text, goal).last().map(String::as_str), Some("pass"), "{text}");
    }
    let goal = row(&text, "hit ratio below that of an ideal cache");
    assert_eq!(goal.last().map(String::as_str), Some("not judged"), "{text}");
    // The first row of that name is of the viral key.
    let hits = row(&text, "heatsink")[1].parse::<u64>();
    assert!(hits.is_ok_and(|hits| hits > 1_000), "{text}");
}

#[test]
fn the_cost_for_cold_keys_is_measured_both_ways_and_not_judged() {
    let output = bench("cold", &["--enforce"]);
    let text = text(&output);
    assert!(output.status.success(), "{text}\n{output:?}");
    for case in ["GET random keys, 50 clients", "SET random keys, 50 clients, -P 16"] {
        assert_eq!(row(&text, case).len(), 9, "{text}");
    }
    for goal in ["no key hot", "others hot"] {
        let goal = row(&text, &format!("CPU per request, {goal} ÷ off, worst of the cases"));
        assert_eq!(goal.last().map(String::as_str), Some("not judged"), "{text}");
    }
}

#[test]
fn a_hit_stands_beside_those_of_other_caches() {
    let output = Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .args(["cache", "--quick", "--enforce"])
        .output()
        .expect("the benchmark starts");
    let text = text(&output);
    assert!(output.status.success(), "{text}\n{output:?}");
    for rival in ["quick_cache, shared", "moka, shared", "TinyUFO, shared"] {
        assert_eq!(row(&text, rival).len(), 6, "{text}");
    }
    for goal in ["a hit, one thread", "a hit, each of two threads"] {
        assert_eq!(row(&text, goal).last().map(String::as_str), Some("not judged"), "{text}");
    }
}

#[test]
fn a_program_that_does_not_serve_is_named() {
    for command in ["viral", "cold"] {
        let output = Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
            .args([command, "--quick", "--heatsink", "./no/heatsink"])
            .output()
            .expect("the benchmark starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains("./no/heatsink"), "{message}");
    }
}
