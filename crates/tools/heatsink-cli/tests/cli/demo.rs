//! `heatsink demo`: what it claims, it shows.

use heatsink_testkit::RedisCluster;
use rustix::process::Signal;

use crate::support::{Finished, PATIENCE, Place};

#[test]
fn a_key_goes_viral_a_node_melts_and_heatsink_cools_it() {
    let place = Place::empty();
    let mut process = place.heatsink(&["demo", "--plain", "--duration", "16s"]).spawn();
    let page = process.wait_for_line("page ", PATIENCE);
    let (_, address) = page.split_once("http://").expect("an address");
    let address = address.trim_end().trim_end_matches('/');
    let listed = place.run(&["keys", "list", "--admin", &format!("http://{address}")]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let run = Finished::of(&mut process);
    // The exit code says that every claim holds; the lines say which there were.
    assert_eq!(run.code, Some(0), "{}\n{}", run.stdout, run.stderr);
    for claim in [
        "ok  0 replies were wrong, 0 were errors",
        "ok  the viral key was found after",
        "ok  the counter was found after",
        "ok  the hottest node's share of the load fell from",
        "ok  the hottest node was at its limit",
        "ok  the 99th percentile fell from",
        "ok  requests to nodes for each request of the shop fell from",
    ] {
        assert!(run.stdout.contains(claim), "{claim}\n{}", run.stdout);
    }
    for part in [
        "== one item goes viral",
        "local_cache (only observed); ",
        "== mitigation is switched on",
        "coalesce; ",
        "│ viral key, mitigated",
    ] {
        assert!(run.stdout.contains(part), "{part}\n{}", run.stdout);
    }
    assert!(!run.stdout.contains('\u{1b}'), "lines only");
    assert_eq!(run.stderr, "");
}

#[test]
fn real_servers_can_stand_behind_it_and_are_left_clean() {
    let cluster = RedisCluster::builder().primaries(3).replicas_per_primary(0).start();
    let place = Place::empty();
    let url = cluster.seed_url();
    let args = ["demo", "--plain", "--duration", "12s", "--rate", "2000", "--upstream", &url];
    let run = place.run(&args);
    assert_eq!(run.code, Some(0), "{}\n{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("ok  the hottest node's share"), "{}", run.stdout);
    assert!(!run.stdout.contains("99th percentile"), "their capacity is not known");
    let calls: u64 = (0..3).map(|node| cluster.calls(node, "incr")).sum();
    assert!(calls > 0, "the counter was there");
    for node in cluster.nodes() {
        assert_eq!(node.client().command(&["DBSIZE"]).integer(), 0);
    }
}

#[test]
fn what_it_does_not_show_is_a_failure() {
    let place = Place::empty();
    // Nodes that nothing is too much for: none melts, so none can be cooled.
    let args = ["demo", "--plain", "--duration", "12s", "--rate", "1000", "--capacity", "1000000"];
    let run = place.run(&args);
    assert_eq!(run.code, Some(1), "{}\n{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("NO  the hottest node was at its limit"), "{}", run.stdout);
    assert!(run.stderr.contains("did not show what it claims"), "{}", run.stderr);
}

#[test]
fn whoever_ends_it_early_gets_figures_and_no_verdict() {
    let place = Place::empty();
    let mut process = place.heatsink(&["demo", "--plain", "--duration", "600s"]).spawn();
    process.wait_for_line("req/s  p50", PATIENCE);
    process.signal(Signal::INT);
    let run = Finished::of(&mut process);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("the rest is not judged"), "{}", run.stdout);
}

#[test]
fn bad_input_is_refused_in_words() {
    let place = Place::empty();
    for (args, code, words) in [
        (&["--duration", "1s"][..], 2, "the duration must be between 12 s and 3600 s"),
        (&["--rate", "1"], 2, "the rate must be between"),
        (&["--capacity", "0"], 2, "the capacity of a node must be above 0"),
        (&["--upstream", "http://u:secret@h"], 2, "--upstream: "),
        (&["--upstream", "redis://h", "--capacity", "5"], 2, "cannot be used with"),
        (&["--admin", "0.0.0.0:0"], 2, "must be a loopback one"),
        (&["--upstream", "redis://127.0.0.1:1"], 1, "the demo cannot go on: "),
    ] {
        let run = place.run(&[&["demo", "--plain"], args].concat());
        assert_eq!(run.code, Some(code), "{run:?}");
        assert!(run.stderr.contains(words), "{words}\n{}", run.stderr);
        assert!(!run.stderr.contains("secret"), "{}", run.stderr);
    }
}
