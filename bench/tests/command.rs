//! The command as a user runs it, with plain Redis as its own further peer.

use std::fs;
use std::process::{Command, Output};

use heatsink_testkit::RedisServer;
use serde_json::Value;

/// Runs a comparison without Heatsink, on one case and few requests.
fn bench(comparison: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heatsink-bench"))
        .args([comparison, "--requests", "100", "--rounds", "1", "--heatsink", "./no/heatsink"])
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
    let output =
        bench("proxy", &["--case", "INCR one key, 200", "--peer", &peer, "--json", file_name]);
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
    let missed = bench("proxy", &["--case", "INCR one key, 50 clients, -P", "--enforce"]);
    assert_eq!(missed.status.code(), Some(1), "{missed:?}");
    let mistaken = bench("proxy", &["--case", "no such case"]);
    assert_eq!(mistaken.status.code(), Some(2), "{mistaken:?}");
}

#[test]
fn a_cluster_stands_beside_a_server_and_its_commands_are_counted() {
    let other = RedisServer::start();
    let peer = format!("other={}:{}", other.addr(), other.pid());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("figures.json");
    let file_name = file.to_str().expect("a plain path");
    let case = "GET random keys of 3 B, 50";
    let args = ["--case", case, "--peer", &peer, "--json", file_name, "--enforce"];
    let output = bench("cluster", &args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("### GET random keys of 3 B, 50 clients"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("| redis cluster | ")), "{text}");
    assert!(text.contains("No verdict"), "{text}");
    let notices = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(notices.contains("heatsink on a cluster is left out"), "{notices}");
    assert!(notices.contains("heatsink on one server is left out"), "{notices}");

    let figures: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("written")).expect("valid JSON");
    let samples = figures["samples"].as_array().expect("samples");
    let of = |peer: &str| samples.iter().find(|sample| sample["peer"] == peer).expect("measured");
    let upstream = of("redis cluster")["upstream_per_request"].as_f64().expect("counted");
    // One for each request, and what the load asks of the nodes at its start.
    assert!((1.0..1.5).contains(&upstream), "{upstream}");
    assert!(of("other").get("upstream_per_request").is_none());
    // 100 of the round, and as many as there are clients to warm up.
    assert_eq!(other.calls("get"), 150);
}

#[test]
fn a_case_without_a_goal_cannot_miss_it() {
    let output = bench("cluster", &["--case", "MGET", "--enforce"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("there is no goal"), "{text}");
}
