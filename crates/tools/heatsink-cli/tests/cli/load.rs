//! `heatsink load` against real servers.

use std::fs;

use heatsink_testkit::{RedisServer, Reply, eventually};
use rustix::process::Signal;

use crate::support::{Finished, PATIENCE, Place};

/// A short run of little load.
const SHORT: &[&str] =
    &["--duration", "600ms", "--warmup", "50ms", "--keys", "200", "--connections", "8"];

fn load(place: &Place, args: &[&str]) -> Finished {
    place.run(&[&["load"], args, SHORT].concat())
}

#[test]
fn targets_are_compared_and_results_written() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let place = Place::empty();
    let (first, second) = (format!("one={}", one.url()), format!("two={}", two.url()));
    let upstream = one.url();
    let run = load(
        &place,
        &[
            "--target",
            &first,
            &second,
            "--scenario",
            "counter",
            "--rate",
            "400",
            "--upstream",
            &upstream,
            "--json",
            "results.json",
            "--html",
            "results.html",
        ],
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("one") && run.stdout.contains("mismatches"), "{}", run.stdout);
    // Nobody watches: a line for each round, no bar.
    assert!(run.stderr.contains("two: round 3 of 3"), "{}", run.stderr);
    assert!(!run.stderr.contains('\r') && !run.stderr.contains('\u{1b}'), "{}", run.stderr);
    let json = fs::read_to_string(place.path().join("results.json")).expect("a file");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let targets = json["targets"].as_array().expect("targets");
    for (target, name) in targets.iter().zip(["one", "two"]) {
        assert_eq!(target["name"], name);
        assert_eq!(target["mismatches"]["count"], 0);
        assert!(target["increments"].as_u64() > Some(10), "{target}");
    }
    assert!(targets[0]["upstream"]["calls"]["incr"].as_u64() > Some(10), "{}", targets[0]);
    let page = fs::read_to_string(place.path().join("results.html")).expect("a file");
    assert!(page.contains("<svg") && page.contains("heatsink load: counter"));
    assert_eq!(one.client().command(&["DBSIZE"]), Reply::Integer(0), "nothing is left behind");
}

#[test]
fn json_can_be_all_that_stdout_carries() {
    let server = RedisServer::start();
    let place = Place::empty();
    let run = load(&place, &["--target", &server.url(), "--scenario", "zipf", "--json", "-"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let json: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON alone");
    assert_eq!(json["settings"]["scenario"], "zipf");
}

#[test]
fn wrong_replies_are_a_failure() {
    let server = RedisServer::start();
    let place = Place::empty();
    let url = server.url();
    let args = [
        "load",
        "--target",
        &url,
        "--scenario",
        "zipf",
        "--keys",
        "50",
        "--duration",
        "60s",
        "--warmup",
        "0s",
        "--write-share",
        "0",
    ];
    let mut process = place.heatsink(&args).spawn();
    let mut client = server.client();
    eventually(PATIENCE, || {
        client.command(&["EXISTS", "heatsink:load:target:item:0"]).integer() == 1
    });
    process.wait_for_line("round 1 of 1", PATIENCE);
    eventually(PATIENCE, || server.calls("get") > 100);
    client.command(&["SET", "heatsink:load:target:item:0", "something else"]);
    let before = server.calls("get");
    eventually(PATIENCE, || server.calls("get") > before + 200);
    process.signal(Signal::INT);
    let run = Finished::of(&mut process);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("replies were wrong"), "{}", run.stderr);
    assert!(run.stdout.contains("damaged value"), "{}", run.stdout);
}

#[test]
fn a_signal_ends_it_with_the_results_so_far() {
    let server = RedisServer::start();
    let place = Place::empty();
    let url = server.url();
    let args = ["load", "--target", &url, "--duration", "600s", "--warmup", "0s", "--keys", "100"];
    let mut process = place.heatsink(&args).spawn();
    eventually(PATIENCE, || server.calls("get") > 1_000);
    process.signal(Signal::INT);
    let run = Finished::of(&mut process);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("req/s"), "{}", run.stdout);
    assert_eq!(server.client().command(&["DBSIZE"]), Reply::Integer(0));
}

#[test]
fn bad_input_is_refused_in_words() {
    let place = Place::empty();
    let url = "redis://127.0.0.1:1";
    for (args, words) in [
        (&["--target", "x=http://h"][..], "--target: x: unknown scheme"),
        (&["--target", url, "--scenario", "nothing"], "unknown scenario; there are zipf, viral"),
        (&["--target", url, "--rate", "0"], "the rate must be above 0"),
        (&["--target", url, "--duration", "soon"], "--duration <TIME>"),
        (&["--target", url, "--hot-share", "2"], "a share lies between 0 and 1"),
        (&["--target", url, "--onset", "10s"], "lower the onset"),
        (&["--target", url, "--tls-ca", "x.pem"], "no effect without a rediss:// URL"),
        (&["--target", "rediss://h", "--tls-ca", "x.pem"], "x.pem"),
        (&["--target", url, "--upstream", "redis://u:secret@"], "--upstream: "),
        (&[], "--target <[NAME=]URL>"),
    ] {
        let run = place.run(&[&["load"], args].concat());
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(words), "{words}\n{}", run.stderr);
        assert!(!run.stderr.contains("secret"), "{}", run.stderr);
    }
    let run = place.run(&["load", "--target", url]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("127.0.0.1:1/0: "), "{}", run.stderr);
}
