//! What changes while it runs: reloads, handovers; and what `check` says of it.

use std::net::TcpListener;
use std::time::Duration;

use heatsink_testkit::{RedisServer, Reply, eventually, free_port};
use rustix::process::Signal;

use crate::http::Events;
use crate::node::{CACHE, Node, Servers, all};
use crate::support::{Finished, PATIENCE, Place, start};

fn config(mode: &str, threshold: u32, rules: &str) -> String {
    format!(
        "mode = \"{mode}\"\nreload_on_change = false\n[detect]\nhot_threshold = {threshold}\n\
         hold_seconds = 0\n{rules}"
    )
}

#[test]
fn a_reload_changes_thresholds_policies_and_mode() {
    let place = Place::with_file(&config("coherent", 100_000, ""));
    let server = RedisServer::start();
    let mut node = Node::start(&place, &["--config", "heatsink.toml", "--upstream", &server.url()]);
    let load = node.load("user:1", 1000);
    load.reset();
    eventually(PATIENCE, || load.tally().answered > 1500);
    assert!(node.lacks("user:1"), "{:?}", node.entry("user:1"));
    let mode = |node: &Node| node.api().policy(b"user:1").expect("a policy")["mode"].clone();
    assert_eq!(mode(&node), "coherent");

    let reload = |node: &mut Node, text: &str, what: &str| {
        place.replace("heatsink.toml", text);
        node.process.signal(Signal::HUP);
        node.process.wait_for_line(&format!("configuration reloaded: {what}"), PATIENCE);
    };
    // A lower threshold makes it hot.
    reload(&mut node, &config("coherent", 300, ""), "detect.hot_threshold");
    all([&node], PATIENCE, "the key is hot", |node| node.entry("user:1").is_some());
    assert_eq!(node.entry("user:1").expect("listed").mitigation_type, "local_cache");

    // A rule with another mode: other mitigations are allowed.
    let rule = "[[policy]]\nmatch = \"user:*\"\nmode = \"exact\"\n";
    reload(&mut node, &config("coherent", 300, rule), "policy");
    eventually(PATIENCE, || mode(&node) == "exact");
    let policy = node.api().policy(b"user:1").expect("a policy");
    assert_eq!(
        (&policy["rule"]["number"], &policy["rule"]["match"]),
        (&1.into(), &"user:*".into())
    );
    let refused = node.api().promote(b"user:2", CACHE).expect_err("not in this mode");
    assert!(refused.to_string().contains("exact"), "{refused}");
    all([&node], PATIENCE, "the mitigation is another", |node| {
        node.entry("user:1").is_some_and(|entry| entry.mitigation_type == "coalesce")
    });

    // A threshold of the rule's own, above the rate.
    let rule = format!("{rule}hot_threshold = 50000\n");
    reload(&mut node, &config("coherent", 300, &rule), "policy");
    all([&node], PATIENCE, "the key is not hot", |node| node.lacks("user:1"));

    // Only to watch; then not at all.
    reload(&mut node, &config("observe", 300, ""), "mode");
    all([&node], PATIENCE, "the key is hot, for the record", |node| {
        node.entry("user:1").is_some_and(|entry| entry.is_dry_run())
    });
    assert_eq!(mode(&node), "observe");
    reload(&mut node, &config("off", 300, ""), "mode");
    all([&node], PATIENCE, "the key is not looked at", |node| node.lacks("user:1"));
    assert_eq!(load.tally().failed, 0, "{:?}", load.tally());
}

/// A read waits for a server that stands still. The bound that it was to wait for is lowered.
#[test]
fn a_reload_shortens_a_wait_that_has_begun_and_those_to_come() {
    const FOR_EVER_MS: u64 = 3_600_000;
    let config = |wait_ms: u64| {
        format!(
            "mode = \"relaxed\"\nreload_on_change = false\n[timeouts]\nsilence_ms = {FOR_EVER_MS}\n\
             [coalesce]\nmax_stale_ms = {FOR_EVER_MS}\nmax_wait_ms = {wait_ms}\n"
        )
    };
    let place = Place::with_file(&config(FOR_EVER_MS));
    let mut servers = Servers::start();
    let mut node = servers.member(&place, "all", &["--config", "heatsink.toml"]);
    node.api().promote(b"k", CACHE).expect("promoted");
    let mut client = node.client();
    assert_eq!(client.command(&["SET", "k", "old"]), Reply::ok());
    let is_cached = || {
        let stats = node.json("/hotkeys/k/stats").unwrap_or_default();
        stats["own"]["cache_hits_total"].as_u64() > Some(0)
    };
    eventually(PATIENCE, || {
        assert_eq!(client.command(&["GET", "k"]), Reply::bulk("old"));
        is_cached()
    });
    // What is cached goes by a write, word of which is there before the answer to what is asked later.
    assert_eq!(servers.upstream.client().command(&["SET", "k", "new"]), Reply::ok());
    assert_eq!(client.command(&["GET", "cold"]), Reply::Null);
    servers.upstream.pause();
    let mut reader = node.client();
    reader.set_timeout(PATIENCE);
    reader.send(&["GET", "k"]);
    let told = reader.try_read_frame(Duration::from_millis(300)).expect("a connection");
    assert_eq!(told, None, "it waits");
    place.replace("heatsink.toml", &config(50));
    node.process.signal(Signal::HUP);
    node.process.wait_for_line("configuration reloaded: coalesce.max_wait_ms", PATIENCE);
    assert_eq!(reader.read_reply(), Reply::bulk("old"));
    let mut next = node.client();
    next.set_timeout(PATIENCE);
    assert_eq!(next.command(&["GET", "k"]), Reply::bulk("old"));
    servers.upstream.resume();
    eventually(PATIENCE, || next.command(&["GET", "k"]) == Reply::bulk("new"));
}

#[test]
fn a_handover_keeps_the_admin_address_and_the_registry() {
    let (place, server) = (Place::empty(), RedisServer::start());
    let (url, admin) = (server.url(), format!("127.0.0.1:{}", free_port()));
    let serve = || {
        let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", &url, "--admin", &admin];
        let more = ["--handover", "handover.sock", "--log", "info", "--workers", "1"];
        Node::of(place.heatsink(&[]).args(args).args(more))
    };
    let mut serving = serve();
    serving.api().promote(b"k", CACHE).expect("promoted");
    let address = serving.clients();
    for _ in 0..3 {
        let mut before = serving.client();
        before.command(&["PING"]);
        // Somebody who listens does not keep the address.
        let events = Events::of(serving.admin);
        let new = serve();
        eventually(PATIENCE, || events.has_ended());
        assert_eq!((new.clients(), new.admin), (address, serving.admin));
        // It is the new one that answers, with what the old one was told.
        let is_self = |item: &serde_json::Value| item["is_self"] == true;
        eventually(PATIENCE, || {
            let fleet = new.json("/proxies").unwrap_or_default();
            fleet["items"].as_array().is_some_and(|items| items.iter().any(is_self))
        });
        all([&new], PATIENCE, "the key is listed", |node| node.entry("k").is_some());
        let mut old = std::mem::replace(&mut serving, new);
        assert!(old.process.is_running());
        drop(before);
        assert_eq!(Finished::of(&mut old.process).code, Some(0));
        assert!(serving.entry("k").is_some());
    }
}

#[test]
fn a_successor_without_an_admin_address_does_not_end_the_service() {
    let (place, server) = (Place::empty(), RedisServer::start());
    let (url, taken) = (server.url(), TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let serve = |admin: &str| {
        let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", &url, "--admin", admin];
        place.heatsink(&[]).args(args).args(["--handover", "handover.sock", "--workers", "1"])
    };
    let old = Node::of(serve("127.0.0.1:0"));
    let mut new = serve(&taken.local_addr().expect("bound").to_string()).spawn();
    // Whichever of them it is that serves then.
    eventually(PATIENCE, || !new.is_running() || new.stdout().contains(" ready: "));
    let pong = old.client().try_command(&["PING"]).expect("somebody answers");
    assert_eq!(pong, Reply::Simple("PONG".into()));
    // Nor does one whose token cannot be read.
    let mut new = serve("127.0.0.1:0").args(["--admin-token-file", "missing"]).spawn();
    eventually(PATIENCE, || !new.is_running() || new.stdout().contains(" ready: "));
    let pong = old.client().try_command(&["PING"]).expect("somebody answers");
    assert_eq!(pong, Reply::Simple("PONG".into()));
}

#[test]
fn check_shows_what_the_fleet_is_told() {
    let text = "role = \"proxy\"\nnamespace = \"eu\"\nprivacy = \"hash\"\nmode = \"observe\"\n\
                admin_token_file = \"token\"\n\
                upstream = \"redis://127.0.0.1:1\"\n[coordination]\nurl = \"redis://127.0.0.1:2\"\n\
                [registry]\nmax_entries = 100\nttl_seconds = 30\nblock_seconds = 60\n\
                [[policy]]\nmatch = \"a*\"\nmode = \"relaxed\"\nhot_threshold = 50\n\
                whole_traffic = true\n";
    let place = Place::with_file(text);
    place.replace("token", "t\n");
    let run = place.run(&["check", "heatsink.toml"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    for (setting, line) in [
        ("role = \"proxy\"", 1),
        ("namespace = \"eu\"", 2),
        ("privacy = \"hash\"", 3),
        ("mode = \"observe\"", 4),
        ("admin_token_file = \"token\"", 5),
        ("coordination.url = \"redis://127.0.0.1:2\"", 8),
        ("registry.max_entries = 100", 10),
        ("registry.ttl_seconds = 30", 11),
        ("registry.block_seconds = 60", 12),
    ] {
        let found = run.stdout.lines().find(|shown| shown.starts_with(setting));
        let shown = found.unwrap_or_else(|| panic!("{setting}: {}", run.stdout));
        assert!(shown.ends_with(&format!("# file, line {line}")), "{shown}");
    }
    assert!(run.stdout.contains("hot_threshold = 50"), "{}", run.stdout);
    assert!(run.stdout.contains("whole_traffic = true"), "{}", run.stdout);
    // A role that needs others needs a place to meet them.
    let alone = Place::with_file("role = \"aggregator\"\n").run(&["check", "heatsink.toml"]);
    assert_eq!(alone.code, Some(3), "{alone:?}");
    assert!(alone.stderr.contains("coordination.url"), "{alone:?}");
}

#[test]
fn a_process_that_ends_is_out_of_the_fleet_at_once() {
    let (place, server) = (Place::empty(), RedisServer::start());
    let start_one = || Node::member(&place, "all", &server.url(), &server.url());
    let (one, mut other) = (start_one(), start_one());
    all([&one], PATIENCE, "both are there", |node| node.sees(2));
    other.process.terminate();
    assert_eq!(Finished::of(&mut other.process).code, Some(0));
    // It has said good-bye: nobody waits for its presence to run out.
    let members = server.client().command(&["HLEN", "heatsink:{default}:members"]);
    assert_eq!(members.integer(), 1);
    all([&one], PATIENCE, "it is alone", |node| node.sees(1));
    // An admin address is not needed.
    let builder = place.heatsink(&[]).args(["serve", "--listen", "127.0.0.1:0", "--admin", ""]);
    let (_process, ready) = start(builder);
    assert!(!ready.contains("admin"), "{ready}");
}
