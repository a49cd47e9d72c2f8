//! The command as a user runs it, with plain Redis as its own further peer.

use std::fs;
use std::process::{Command, Output};

use heatsink_testkit::RedisServer;
use serde_json::Value;

/// Runs the benchmark without Heatsink, on one case and few requests.
fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .args(["proxy", "--requests", "100", "--rounds", "1", "--heatsink", "./no/heatsink"])
        .args(args)
        .output()
        .expect("the benchmark starts")
}

#[test]
fn a_further_peer_stands_in_the_table_and_in_the_file() {
    let other = RedisServer::start();
    let peer = format!("other={}:{}", other.addr(), other.pid());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("figures.json");
    let file_name = file.to_str().expect("a plain path");
    let output = bench(&["--case", "INCR one key, 200", "--peer", &peer, "--json", file_name]);
    assert!(output.status.success(), "{output:?}");

    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("### INCR one key, 200 clients"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("| redis | ")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("| other | ")), "{text}");
    assert!(text.contains("No verdict"), "{text}");
    let notices = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(notices.contains("heatsink is left out"), "{notices}");

    let figures: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("written")).expect("valid JSON");
    let samples = figures["samples"].as_array().expect("samples");
    let peers: Vec<&str> = samples.iter().filter_map(|sample| sample["peer"].as_str()).collect();
    assert!(peers.contains(&"redis") && peers.contains(&"other"), "{peers:?}");
    // 100 of the round, and as many as there are clients to warm up.
    assert_eq!(other.calls("incr"), 300);
}

#[test]
fn the_exit_code_tells_a_miss_from_a_mistake() {
    let missed = bench(&["--case", "INCR one key, 50 clients, -P", "--enforce"]);
    assert_eq!(missed.status.code(), Some(1), "{missed:?}");
    let mistaken = bench(&["--case", "no such case"]);
    assert_eq!(mistaken.status.code(), Some(2), "{mistaken:?}");
}
