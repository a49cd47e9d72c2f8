//! Servers of the upstream go away: the person on call is told which, since when and why.

use heatsink_testkit::{RedisCluster, RedisServer, SentinelRig, eventually};
use serde_json::Value;

use crate::http;
use crate::node::{Node, Servers};
use crate::support::{PATIENCE, Place};

/// `/readyz`: its status and its words.
fn readyz(node: &Node) -> Option<(u16, String)> {
    http::get(node.admin, "/readyz", None)
}

fn is_ready(node: &Node) -> bool {
    readyz(node).is_some_and(|(status, _)| status == 200)
}

fn reasons(node: &Node) -> Vec<String> {
    let state = node.json("/readyz").unwrap_or_default();
    let reasons = state["reasons"].as_array().cloned().unwrap_or_default();
    reasons.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn has_line(node: &Node, line: &str) -> bool {
    node.metrics().lines().any(|one| one == line)
}

fn up(node: &Node, server: &RedisServer, value: u8) -> bool {
    has_line(node, &format!("heatsink_upstream_up{{node=\"{}\"}} {value}", server.addr()))
}

fn count(node: &Node, name: &str) -> u64 {
    let metrics = node.metrics();
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// Nobody has to ask for anything: there is no client.
#[test]
fn an_outage_is_told_with_its_reason_and_so_is_its_end() {
    let place = Place::empty();
    let mut servers = Servers::start();
    let node = servers.member(&place, "all", &[]);
    eventually(PATIENCE, || node.is_well() && up(&node, &servers.upstream, 1));
    assert_eq!(reasons(&node), Vec::<String>::new());
    let refused = "heatsink_upstream_errors_total{kind=\"refused\"}";
    assert_eq!(count(&node, refused), 0);
    servers.upstream.kill();
    let address = servers.upstream.addr();
    let begin = format!("The upstream {address} is down since 20");
    eventually(PATIENCE, || {
        let reasons = reasons(&node);
        let [reason] = reasons.as_slice() else { return false };
        reason.starts_with(&begin) && reason.ends_with(": connection refused.")
    });
    assert!(up(&node, &servers.upstream, 0));
    assert!(count(&node, refused) > 0);
    // A process without any server takes no traffic after a while; it lives, and is well otherwise.
    eventually(PATIENCE, || !is_ready(&node));
    let (status, text) = readyz(&node).expect("it answers");
    assert!(status == 503 && text.contains(&begin), "{status} {text}");
    assert_eq!(http::get(node.admin, "/healthz", None).map(|(status, _)| status), Some(200));
    assert!(has_line(&node, "heatsink_degraded 0"));
    let fleet = node.json("/proxies").expect("it answers");
    let down = &fleet["items"][0]["upstream_down"][0];
    assert_eq!(down["node"], address.to_string());
    assert_eq!(down["error"], "connection refused");
    servers.upstream.start_again();
    let is_well =
        || is_ready(&node) && up(&node, &servers.upstream, 1) && reasons(&node).is_empty();
    eventually(PATIENCE, is_well);
    assert!(count(&node, "heatsink_upstream_reconnects_total") > 0);
    eventually(PATIENCE, || {
        node.json("/proxies").is_some_and(|fleet| {
            fleet["items"][0]["upstream_down"].as_array().is_some_and(Vec::is_empty)
        })
    });
}

#[test]
fn the_store_is_not_blamed_if_it_is_the_same_server() {
    let (place, mut server) = (Place::empty(), RedisServer::start());
    let node = Node::start(&place, &["--upstream", &server.url()]);
    eventually(PATIENCE, || node.is_well() && up(&node, &server, 1));
    server.kill();
    let same = "The coordination store is the same server";
    eventually(PATIENCE, || {
        let reasons = reasons(&node);
        reasons.len() == 2 && reasons[0].contains(" is down since ") && reasons[1].starts_with(same)
    });
    eventually(PATIENCE, || !is_ready(&node));
    let (_, text) = readyz(&node).expect("it answers");
    assert!(!text.contains("cannot be reached"), "{text}");
}

#[test]
fn a_cluster_that_has_lost_a_primary_is_ready_and_names_it() {
    let place = Place::empty();
    let mut cluster = RedisCluster::builder().primaries(3).replicas_per_primary(0).start();
    let store = RedisServer::start();
    let args = ["--upstream", &cluster.seed_url(), "--coordination-url", &store.url()];
    let node = Node::start(&place, &args);
    eventually(PATIENCE, || (0..3).all(|one| up(&node, cluster.node(one), 1)));
    cluster.kill(2);
    let lost = cluster.node(2).addr().to_string();
    eventually(PATIENCE, || {
        let reasons = reasons(&node);
        reasons.len() == 1 && reasons[0].contains(&lost)
    });
    assert!(up(&node, cluster.node(0), 1) && up(&node, cluster.node(1), 1));
    assert!(is_ready(&node));
}

#[test]
fn behind_sentinels_the_primary_is_the_one_that_counts() {
    let place = Place::empty();
    let mut rig = SentinelRig::builder().replicas(1).start();
    let store = RedisServer::start();
    let node = Node::start(&place, &["--upstream", &rig.url(), "--coordination-url", &store.url()]);
    eventually(PATIENCE, || up(&node, rig.primary(), 1));
    rig.hand_over();
    eventually(PATIENCE, || up(&node, rig.primary(), 1) && is_ready(&node));
    assert_eq!(reasons(&node), Vec::<String>::new());
}
