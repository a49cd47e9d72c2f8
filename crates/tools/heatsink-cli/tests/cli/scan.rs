//! `heatsink scan` against real servers.

use heatsink_testkit::{RedisCluster, RedisServer, eventually};

use crate::support::{Finished, PATIENCE, Place};

/// Connections in MONITOR mode, by the server's own list.
fn monitors(server: &RedisServer) -> usize {
    let list = server.admin_client().command(&["CLIENT", "LIST"]).text();
    list.lines().filter(|line| line.contains(" flags=O ")).count()
}

/// Runs a scan, and `traffic` from when it looks until it has ended.
fn during(place: &Place, server: &RedisServer, args: &[&str]) -> Finished {
    let mut process = place.heatsink(args).spawn();
    eventually(PATIENCE, || monitors(server) == 1 || !process.is_running());
    let mut client = server.client();
    while process.is_running() {
        client.command(&["GET", "hot"]);
        client.command(&["INCR", "count"]);
        client.command(&["GET", "hot"]);
    }
    Finished::of(&mut process)
}

#[test]
fn the_cost_is_stated_and_the_hot_keys_are_found() {
    let server = RedisServer::start();
    let place = Place::empty();
    let url = server.url();
    let args = ["scan", &url, "--method", "monitor", "--max-commands", "600", "--yes"];
    let run = during(&place, &server, &args);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("MONITOR for at most 10 s or 600 commands"), "{}", run.stderr);
    assert!(run.stdout.contains("hot") && run.stdout.contains("count"), "{}", run.stdout);
    assert!(run.stdout.contains("ended by the number of commands"), "{}", run.stdout);
    let json = ["scan", &url, "--method", "monitor", "--max-commands", "600", "--yes", "--json"];
    let run = during(&place, &server, &json);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON alone");
    assert_eq!(report["keys"][0]["key"], "hot");
    assert_eq!(report["ended_by"], "commands");
    assert_eq!(monitors(&server), 0);
}

#[test]
fn a_long_key_is_whole_where_there_is_no_terminal() {
    let server = RedisServer::start();
    let place = Place::empty();
    let key = format!("session:{}:profile", "0123456789abcdef".repeat(8));
    let url = server.url();
    let args = ["scan", &url, "--method", "monitor", "--max-commands", "100", "--yes"];
    let mut process = place.heatsink(&args).spawn();
    let mut client = server.client();
    eventually(PATIENCE, || {
        client.command(&["GET", &key]);
        !process.is_running()
    });
    let run = Finished::of(&mut process);
    assert_eq!(run.code, Some(0), "{run:?}");
    let lines: Vec<_> = run.stdout.lines().filter(|line| line.contains(&key)).collect();
    assert_eq!(lines.len(), 1, "{}", run.stdout);
    assert!(lines[0].contains("req/s") && !run.stdout.contains("shortened"), "{}", run.stdout);
}

#[test]
fn without_consent_nothing_is_done() {
    let server = RedisServer::start();
    let place = Place::empty();
    let run = place.run(&["scan", &server.url(), "--method", "monitor"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("half its speed or less"), "{}", run.stderr);
    assert!(run.stderr.contains("--yes accepts it"), "{}", run.stderr);
    assert_eq!((run.stdout.as_str(), server.calls("monitor")), ("", 0));
}

#[test]
fn all_nodes_of_a_cluster_are_looked_at() {
    let cluster = RedisCluster::builder().primaries(3).replicas_per_primary(0).start();
    let place = Place::empty();
    let url = cluster.seed_url();
    let args = ["scan", &url, "--method", "monitor", "--duration", "300ms", "--yes", "--json"];
    let run = place.run(&args);
    assert_eq!(run.code, Some(0), "{run:?}");
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(report["nodes"].as_array().map(Vec::len), Some(3), "{report}");
    assert_eq!(report["ended_by"], "duration");
}

#[test]
fn bad_input_is_refused_in_words() {
    let place = Place::empty();
    for (args, code, words) in [
        (&["http://h"][..], 2, "the URL: "),
        (&["embedded://"], 2, "inside another process"),
        (&["redis+sentinel://h:1/main"], 2, "name the primary itself"),
        (&["redis://h", "--method", "guess"], 2, "[possible values: auto, monitor, hotkeys]"),
        (&["redis://h", "--duration", "0s"], 2, "--duration must be above 0"),
        (&["redis://h", "--hot-threshold", "0"], 2, "hot-threshold"),
        (&["redis://h", "--max-commands", "0"], 2, "--max-commands"),
        (&["redis://127.0.0.1:1", "--yes"], 1, "127.0.0.1:1/0: "),
    ] {
        let run = place.run(&[&["scan"], args].concat());
        assert_eq!(run.code, Some(code), "{run:?}");
        assert!(run.stderr.contains(words), "{words}\n{}", run.stderr);
    }
}
