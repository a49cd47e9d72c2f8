//! What people see of a fleet: its figures are those of all processes, whichever is asked.

use heatsink_testkit::{RedisCluster, RedisServer, Reply, eventually};
use rustix::process::Signal;
use serde_json::Value;

use crate::node::{CACHE, Node, Servers, all, assemble};
use crate::support::{PATIENCE, Place};

/// The last sample of the fleet.
fn sample(node: &Node) -> Value {
    let history = node.json("/history?samples=1").unwrap_or_default();
    history["samples"][0].clone()
}

/// The members in the order of `nodes`, as `node` sees them.
fn rows(node: &Node, nodes: &[&Node]) -> Vec<Value> {
    let fleet = node.json("/proxies").unwrap_or_default();
    let items = fleet["items"].as_array().cloned().unwrap_or_default();
    let row = |member: &&Node| {
        let address = member.clients.map(|address| address.to_string());
        items.iter().find(|item| item["address"].as_str() == address.as_deref()).cloned()
    };
    nodes.iter().filter_map(row).collect()
}

/// The share of the requests that took none to the upstream: of a sample, or of a member.
fn saved(of: &Value) -> Option<f64> {
    let served = of["served_per_second"].as_f64().filter(|served| *served > 0.0)?;
    Some(of["saved_per_second"].as_f64()? / served)
}

fn share(of: &Value) -> Option<f64> {
    of["hottest_node_share"].as_f64()
}

/// ```text
/// one:    300/s of a key on node 0, 600/s of one that is cached     saves 2/3, all to node 0
/// other:  300/s of a key on node 1                                  saves 0,   all to node 1
/// fleet:                                                            saves 1/2, half to each
/// ```
#[test]
fn what_was_saved_and_the_hottest_node_are_those_of_the_whole_fleet() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().primaries(3).replicas_per_primary(0).start();
    let store = RedisServer::start();
    let member = |role| Node::member(&place, role, &store.url(), &cluster.seed_url());
    let (one, other, aggregator) = (member("all"), member("proxy"), member("aggregator"));
    let nodes = [&one, &other, &aggregator];
    assemble(&nodes);
    let key = cluster.key_on(cluster.primaries()[0], "cached");
    one.api().promote(key.as_bytes(), CACHE).expect("promoted");
    let _loads = [
        one.load(&cluster.key_on(cluster.primaries()[0], "plain"), 300),
        one.load(&key, 600),
        other.load(&cluster.key_on(cluster.primaries()[1], "plain"), 300),
    ];
    // Each of them is wholly on one node, and knows it of itself and of the other.
    all(nodes, PATIENCE, "each member has its own figures", |node| {
        let [first, second] = &rows(node, &[&one, &other])[..] else { return false };
        saved(first).is_some_and(|saved| (0.5..0.8).contains(&saved))
            && saved(second).is_some_and(|saved| saved < 0.1)
            && [first, second].iter().all(|row| share(row) > Some(0.9))
    });
    // Together they are not; also for one that takes no clients.
    all(nodes, PATIENCE, "the figures are those of all", |node| {
        let fleet = sample(node);
        saved(&fleet).is_some_and(|saved| (0.35..0.65).contains(&saved))
            && share(&fleet).is_some_and(|share| (0.35..0.65).contains(&share))
    });
    let history = aggregator.json("/history?samples=1").expect("it answers");
    let busy = history["nodes"].as_array().expect("nodes").iter();
    let busy = busy.filter(|node| node["commands_per_second"].as_f64() > Some(50.0));
    assert_eq!(busy.count(), 2, "{history}");
    // Metrics are of each process: whoever collects them adds them up.
    assert!(one.metrics().contains("heatsink_upstream_commands_total "));
    assert!(!aggregator.metrics().contains("heatsink_upstream_commands_total "));
}

#[test]
fn a_member_of_the_version_before_is_listed_without_the_new_figures() {
    let (place, store) = (Place::empty(), RedisServer::start());
    let nodes = ["all", "proxy"].map(|role| Node::member(&place, role, &store.url(), &store.url()));
    assemble(&nodes.each_ref());
    let _loads = nodes.each_ref().map(|node| node.load("k", 200));
    // What such a process says with its heartbeats.
    let card = r#"{"role":"proxy","address":"10.0.0.9:6380","version":"0.0.9",
        "registry_version":null,"requests_per_second":5000.5,"degraded":false}"#;
    let join = "redis.call('HSET', KEYS[1], 'old', '1 ' .. ARGV[1]) \
                return redis.call('ZADD', KEYS[2], '9999999999999', 'old')";
    let keys = ["heatsink:{default}:members", "heatsink:{default}:presence"];
    let joined = store.client().command(&["EVAL", join, "2", keys[0], keys[1], card]);
    assert_eq!(joined, Reply::Integer(1));
    all(&nodes, PATIENCE, "it is counted as far as it goes", |node| {
        let fleet = node.json("/proxies").unwrap_or_default();
        let items = fleet["items"].as_array().cloned().unwrap_or_default();
        let old = items.iter().find(|item| item["version"] == "0.0.9");
        let is_listed = old.is_some_and(|old| {
            old["requests_per_second"] == 5000.5
                && old["served_per_second"].is_null()
                && old["saved_per_second"].is_null()
                && old["hottest_node_share"].is_null()
        });
        let now = sample(node);
        is_listed
            && items.len() == 3
            && now["requests_per_second"].as_f64() > Some(5000.5 + 200.0)
            && now["served_per_second"].as_f64().is_some_and(|rate| (200.0..1000.0).contains(&rate))
    });
}

#[test]
fn without_the_store_the_others_are_not_known_and_it_is_not_made_up() {
    let place = Place::empty();
    let mut servers = Servers::start();
    let nodes = [servers.member(&place, "all", &[]), servers.member(&place, "all", &[])];
    assemble(&nodes.each_ref());
    let _loads = nodes.each_ref().map(|node| node.load("k", 200));
    let pair = nodes.each_ref();
    let are_known = |node: &Node| {
        let known = |row: &Value| row["served_per_second"].as_f64() > Some(50.0);
        rows(node, &pair).iter().map(known).collect::<Vec<_>>()
    };
    all(pair, PATIENCE, "both are known", |node| are_known(node) == [true, true]);
    servers.store.pause();
    for (place, node) in nodes.iter().enumerate() {
        all([node], PATIENCE, "only the own figures are known", |node| {
            let fleet = rows(node, &pair);
            let other = &fleet[1 - place];
            are_known(node)[place]
                && other["served_per_second"].is_null()
                && other["requests_per_second"].is_null()
                && fleet[place]["degraded"] == Value::Bool(true)
        });
        all([node], PATIENCE, "the fleet's figure is the own one", |node| {
            let served = sample(node)["served_per_second"].as_f64();
            served.is_some_and(|rate| (50.0..300.0).contains(&rate))
        });
    }
    servers.store.resume();
    all(pair, PATIENCE, "both are known again", |node| are_known(node) == [true, true]);
}

#[test]
fn the_rules_in_force_are_listed_and_follow_a_reload() {
    let rules = "reload_on_change = false\nmode = \"observe\"\n\
                 [[policy]]\nmatch = \"balance:*\"\nmode = \"exact\"\nhot_threshold = 500\n";
    let more = "[[policy]]\nmatch = \"*\"\nmode = \"off\"\n";
    let (place, server) = (Place::with_file(rules), RedisServer::start());
    let mut node = Node::start(&place, &["--config", "heatsink.toml", "--upstream", &server.url()]);
    let listed = |node: &Node| {
        let answer = node.api().policies().expect("it answers");
        let items = answer["items"].as_array().cloned().unwrap_or_default();
        let one = |item: &Value| {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            (text(&item["rule"]["match"]), text(&item["mode"]))
        };
        items.iter().map(one).collect::<Vec<_>>()
    };
    let some = |pattern: &str, mode: &str| (Some(pattern.to_owned()), Some(mode.to_owned()));
    let last = || (None, Some("observe".to_owned()));
    assert_eq!(listed(&node), [some("balance:*", "exact"), last()]);
    let admin = node.admin_url();
    let run = place.run(&["keys", "policy", "--admin", &admin]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("hot_threshold = 500"), "{}", run.stdout);
    assert!(run.stdout.contains("(all other keys)"), "{}", run.stdout);
    place.replace("heatsink.toml", &format!("{rules}{more}"));
    node.process.signal(Signal::HUP);
    eventually(PATIENCE, || {
        listed(&node) == [some("balance:*", "exact"), some("*", "off"), last()]
    });
}
