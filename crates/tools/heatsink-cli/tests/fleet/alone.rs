//! One process that meets nobody: what an operator sees of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::{Process, RawClient, RedisServer, eventually, free_port};
use serde_json::Value;

use crate::http::{self, Events};
use crate::node::{Node, all};
use crate::support::{Finished, PATIENCE, Place};

/// More than a burst of the machine's neighbours takes; what is promised is 1 s.
const SOON: Duration = Duration::from_secs(1);

/// One before a server, that coordinates with itself.
fn start(place: &Place, upstream: &RedisServer, args: &[&str]) -> Node {
    let url = upstream.url();
    let fixed = ["--upstream", &url, "--coordination-url", "embedded://"];
    Node::start(place, &[&fixed, args].concat())
}

/// `heatsink keys ARGS`, on this node.
fn keys(place: &Place, node: &Node, args: &[&str]) -> Finished {
    let url = node.admin_url();
    place.run(&[&["keys", "--admin", &url], args].concat())
}

fn json(run: &Finished) -> Value {
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    serde_json::from_str(&run.stdout).expect("JSON")
}

#[test]
fn a_hot_key_is_listed_and_an_operator_has_the_last_word() {
    let (place, server) = (Place::empty(), RedisServer::start());
    let node = start(&place, &server, &["--detect-hot-threshold", "500"]);
    all([&node], PATIENCE, "it is well", Node::is_well);
    assert_eq!(keys(&place, &node, &["list"]).stdout, "no hot keys\n");

    let begun = Instant::now();
    let load = node.load("user:9999", 2000);
    eventually(PATIENCE, || node.entry("user:9999").is_some());
    let took = begun.elapsed();
    assert!(took < SOON, "{took:?}");
    let entry = node.entry("user:9999").expect("listed");
    assert_eq!(entry.origin, "auto");
    assert_eq!(entry.mitigation_type, "local_cache");
    assert_eq!(entry.status, "active");
    let reason = &entry.reason;
    assert!(reason.contains(" req/s over 1 proxy, threshold 500; "), "{reason}");
    assert!(reason.contains(" % reads"), "{reason}");
    assert_eq!(entry.dry_run, None, "it is acted on");

    let table = keys(&place, &node, &["list"]);
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = table.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{table:?}");
    assert!(lines[0].starts_with("KEY ") && lines[0].ends_with(" WHY"), "{table:?}");
    assert!(lines[1].starts_with("user:9999 ") && lines[1].contains(" auto "), "{table:?}");
    let listed = json(&keys(&place, &node, &["list", "--json", "--origin", "auto"]));
    assert_eq!(listed[0]["key"], "user:9999");
    assert_eq!(
        json(&keys(&place, &node, &["list", "--json", "--origin", "manual"])),
        Value::Array(vec![])
    );

    // The rate is counted over a second.
    eventually(PATIENCE, || load.tally().answered > 4000);
    let stats = json(&keys(&place, &node, &["stats", "user:9999", "--json"]));
    let rate = stats["requests_per_second"].as_f64().expect("a rate");
    assert!((1000.0..=2600.0).contains(&rate), "{stats}");
    let policy = keys(&place, &node, &["policy", "user:9999"]);
    assert!(policy.stdout.contains("mode"), "{policy:?}");
    assert!(policy.stdout.contains("coherent"), "{policy:?}");

    // Removed by hand it stays away, though it is as hot as before.
    let removed = keys(&place, &node, &["demote", "user:9999"]);
    let words = "user:9999: removed; not promoted automatically for 300 s\n";
    assert_eq!((removed.code, removed.stdout.as_str()), (Some(0), words), "{removed:?}");
    assert!(node.lacks("user:9999"));
    load.reset();
    eventually(PATIENCE, || load.tally().answered > 4000);
    assert!(node.lacks("user:9999"), "{:?}", node.entry("user:9999"));
    let again = keys(&place, &node, &["demote", "user:9999"]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(1), ""), "{again:?}");
    assert!(again.stderr.contains("404"), "{again:?}");

    // And the operator may bring it back, though it is blocked for the machine.
    let promote = ["promote", "user:9999", "--mitigation", "coalesce", "--ttl", "3600"];
    let promoted = keys(&place, &node, &promote);
    assert_eq!(promoted.code, Some(0), "{promoted:?}");
    assert!(promoted.stdout.starts_with("user:9999: coalesce, promoted by"), "{promoted:?}");
    let entry = node.entry("user:9999").expect("listed");
    assert_eq!((entry.origin.as_str(), entry.ttl_seconds), ("manual", Some(3600)));
    let tally = load.tally();
    assert_eq!(tally.failed, 0, "{tally:?}");
}

#[test]
fn so_it_is_before_the_embedded_store() {
    let place = Place::empty();
    let node = Node::start(&place, &["--detect-hot-threshold", "500"]);
    let _load = node.load("user:9999", 2000);
    all([&node], PATIENCE, "the hot key is listed", |node| node.entry("user:9999").is_some());
}

#[test]
fn a_key_that_cools_down_is_shown_as_such_and_leaves() {
    let (place, server) = (Place::empty(), RedisServer::start());
    let args = ["--detect-hot-threshold", "500", "--detect-hold-seconds", "1"];
    let node = start(&place, &server, &args);
    let load = node.load("k", 1500);
    eventually(PATIENCE, || node.entry("k").is_some());
    drop(load);
    eventually(PATIENCE, || node.entry("k").is_none_or(|entry| entry.status == "cooling"));
    let begun = Instant::now();
    eventually(PATIENCE, || node.lacks("k"));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn an_entry_ends_with_its_time() {
    let place = Place::empty();
    let node = Node::start(&place, &[]);
    let promoted = keys(&place, &node, &["promote", "k", "--mitigation", "coalesce", "--ttl", "1"]);
    assert_eq!(promoted.code, Some(0), "{promoted:?}");
    assert!(node.entry("k").is_some());
    eventually(PATIENCE, || node.lacks("k"));
}

#[test]
fn where_nothing_listens_that_is_what_is_said() {
    let place = Place::empty();
    let address = format!("127.0.0.1:{}", free_port());
    let run = place.run(&["keys", "list", "--admin", &address]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{run:?}");
    assert!(run.stderr.contains(&format!("nothing answers at {address}")), "{run:?}");
    assert!(run.stderr.contains("is Heatsink running"), "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
}

#[test]
fn without_the_token_nothing_is_told() {
    let place = Place::with_file("admin_token_file = \"token\"\n");
    place.replace("token", "s3cret\n");
    let node = Node::start(&place, &["--config", "heatsink.toml"]);
    for path in ["/hotkeys", "/proxies", "/metrics", "/policy?key=k", "/events"] {
        for token in [None, Some("wrong")] {
            let (status, body) = http::get(node.admin, path, token).expect("it answers");
            assert_eq!(status, 401, "{path}: {body}");
        }
    }
    let (status, _) = http::get(node.admin, "/hotkeys", Some("s3cret")).expect("it answers");
    assert_eq!(status, 200);
    // Those who look after processes have none.
    for path in ["/healthz", "/readyz"] {
        assert_eq!(http::get(node.admin, path, None).expect("it answers").0, 200, "{path}");
    }
    let wrong = keys(&place, &node, &["list", "--token", "wrong"]);
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    assert!(wrong.stderr.contains("401"), "{wrong:?}");
    let right = keys(&place, &node, &["list", "--token", "s3cret"]);
    assert_eq!((right.code, right.stdout.as_str()), (Some(0), "no hot keys\n"), "{right:?}");
    let url = node.admin_url();
    let by_variable =
        place.heatsink(&["keys", "list", "--admin", &url]).env("HEATSINK_TOKEN", "s3cret");
    assert_eq!(Finished::of(&mut by_variable.spawn()).code, Some(0));
}

#[test]
fn an_admin_address_for_everybody_needs_a_token() {
    let place = Place::with_file("admin = \"0.0.0.0:0\"\n");
    let run = Finished::of(
        &mut place
            .heatsink(&[])
            .args(["serve", "--config", "heatsink.toml", "--listen", "127.0.0.1:0"])
            .spawn(),
    );
    assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{run:?}");
    assert!(run.stderr.contains("heatsink.toml:1: admin:"), "{run:?}");
    assert!(run.stderr.contains("admin_token_file"), "{run:?}");
    // An empty token is none.
    place.replace("token", "\n");
    let args = ["serve", "--listen", "127.0.0.1:0", "--admin-token-file", "token"];
    let run = place.run(&args);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("token holds no admin token"), "{run:?}");
}

#[test]
fn a_taken_admin_address_is_named() {
    let place = Place::empty();
    let node = Node::start(&place, &[]);
    let taken = node.admin.to_string();
    let run = Process::builder(env!("CARGO_BIN_EXE_heatsink"))
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", &taken])
        .spawn();
    let run = Finished::of(&mut { run });
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains(&format!("cannot listen on {taken} for the admin API")), "{run:?}");
}

#[test]
fn hidden_keys_are_seen_nowhere() {
    const SECRET: &str = "patient-4711";
    let place = Place::with_file(&format!(
        "privacy = \"hash\"\n[[policy]]\nmatch = \"{SECRET}\"\nmode = \"coherent\"\n"
    ));
    let server = RedisServer::start();
    let url = server.url();
    let args = ["--config", "heatsink.toml", "--detect-hot-threshold", "500", "--log", "debug"];
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--upstream", &url];
    let node = Node::of(place.heatsink(&fixed).args(args));
    let events = Events::of(node.admin);
    let _load = node.load(SECRET, 1500);
    let listed = || node.json("/hotkeys").is_some_and(|page| page["total"] == 1);
    eventually(PATIENCE, listed);
    eventually(PATIENCE, || events.text().contains("event: hotkey"));
    // The name that is shown is good for asking.
    let list = node.json("/hotkeys").expect("listed");
    let name = list["items"][0]["key"].as_str().expect("a name").to_owned();
    assert!(name.starts_with("hash:"), "{list}");
    let stats = keys(&place, &node, &["stats", &name]);
    assert_eq!(stats.code, Some(0), "{stats:?}");
    let mut seen = vec![
        list.to_string(),
        node.metrics(),
        stats.stdout,
        keys(&place, &node, &["list"]).stdout,
        node.json(&format!("/policy?key={SECRET}")).expect("a policy").to_string(),
        keys(&place, &node, &["policy", SECRET]).stdout,
        keys(&place, &node, &["promote", SECRET, "--mitigation", "coalesce"]).stdout,
    ];
    assert!(seen[1].contains(&name["hash:".len()..]), "{}", seen[1]);
    seen.push(keys(&place, &node, &["demote", &name]).stdout);
    eventually(PATIENCE, || events.text().contains("event: removed"));
    seen.extend([events.text(), node.process.output()]);
    for (number, text) in seen.iter().enumerate() {
        assert!(!text.is_empty(), "{number}");
        assert!(!text.contains(SECRET), "{number}: {text}");
    }
}

#[test]
fn with_the_cache_on_reads_of_a_hot_key_leave_the_server_alone() {
    let (place, server) = (Place::empty(), RedisServer::start());
    let node = start(&place, &server, &["--detect-hot-threshold", "500"]);
    all([&node], PATIENCE, "it is well", Node::is_well);
    let load = node.load("user:9999", 2000);
    eventually(PATIENCE, || node.entry("user:9999").is_some());
    eventually(PATIENCE, || {
        let answer = json(&keys(&place, &node, &["stats", "user:9999", "--json"]));
        answer["hit_ratio"].as_f64().is_some_and(|ratio| ratio > 0.9)
    });
    let entry = node.entry("user:9999").expect("listed");
    assert!(!entry.is_dry_run(), "{entry:?}");
    let gets = || server.commandstats().get("get").map_or(0, |stats| stats.calls);
    let (asked, answered) = (gets(), load.tally().answered);
    eventually(PATIENCE, || load.tally().answered - answered >= 2000);
    let (asked, answered) = (gets() - asked, load.tally().answered - answered);
    assert!(asked * 100 < answered, "{asked} of {answered} reads reached the server");
    let stats = json(&keys(&place, &node, &["stats", "user:9999", "--json"]));
    let own = &stats["own"];
    assert_eq!(own["guard"], "tracking", "{stats}");
    assert!(own["cache_hits_total"].as_u64().is_some_and(|hits| hits > 1000), "{stats}");
    assert!(own["invalidation_delay_ms"].as_f64().is_some_and(|delay| delay < 1000.0), "{stats}");
    assert_eq!(node.entry("user:9999").expect("listed").guard.as_deref(), Some("tracking"));
    drop(load);
}

#[test]
fn a_hot_counter_is_combined() {
    let (place, server) = (Place::empty(), RedisServer::start());
    let node = start(&place, &server, &["--detect-hot-threshold", "500"]);
    all([&node], PATIENCE, "it is well", Node::is_well);
    let stop = Arc::new(AtomicBool::new(false));
    let counters: Vec<_> = (0..16)
        .map(|_| {
            let (stop, proxy) = (Arc::clone(&stop), node.clients());
            thread::spawn(move || {
                let mut client = RawClient::connect(proxy);
                let mut count = 0_i64;
                while !stop.load(Ordering::Relaxed) {
                    assert!(client.command(&["INCR", "sold"]).integer() > count);
                    count += 1;
                }
                count
            })
        })
        .collect();
    eventually(PATIENCE, || node.entry("sold").is_some());
    assert_eq!(node.entry("sold").expect("listed").mitigation_type, "coalesce");
    eventually(PATIENCE, || {
        let stats = json(&keys(&place, &node, &["stats", "sold", "--json"]));
        let combined = stats["own"]["combined_writes_total"].as_u64();
        combined.is_some_and(|combined| combined > 1000)
            && stats["collapse_ratio"].as_f64().is_some_and(|ratio| ratio > 2.0)
    });
    stop.store(true, Ordering::Relaxed);
    let sum: i64 = counters.into_iter().map(|thread| thread.join().expect("counted")).sum();
    assert_eq!(server.client().command(&["GET", "sold"]).text(), sum.to_string());
}
