//! Somebody else speaks in the fleet's name.

use heatsink_control::entry::{Entry, Mitigation, Origin, Status};
use heatsink_control::wire;
use heatsink_testkit::{RedisServer, Reply, poll_until};

use crate::node::{CACHE, Node, all};
use crate::support::{PATIENCE, Place};

const CHANGES: &str = "heatsink:{default}:changes";

/// A change that says that `victim` is registered, as a member would tell it.
fn forged(version: u64) -> Vec<u8> {
    let entry = Entry {
        mitigation: Mitigation::LocalCache,
        split_factor: 1,
        ttl_seconds: None,
        origin: Origin::Manual,
        status: Status::Active,
        reason: "forged".to_owned(),
        dry_run: false,
        frequency: 1.0,
        reads_per_second: 1.0,
        writes_per_second: 0.0,
        detected_at_ms: 0,
        split: None,
        pause: None,
    };
    let mut message = format!("P {version} 1 6 victim{version} 1 0 ").into_bytes();
    message.extend_from_slice(&wire::encode_entry(&entry));
    message
}

/// Through Heatsink it is refused, and directly it is not believed if there is a secret.
#[test]
fn a_forged_change_is_refused_or_not_believed() {
    let server = RedisServer::start();
    let place = Place::empty();
    std::fs::write(place.path().join("secret"), "what only the fleet knows\n").expect("written");
    let url = server.url();
    let nodes = [(); 2].map(|()| {
        Node::start(&place, &["--upstream", &url, "--coordination-secret-file", "secret"])
    });
    all(&nodes, PATIENCE, "the members meet", |node| node.sees(2));
    let version = u64::MAX / 4;
    let message = forged(version);
    let reply = nodes[0].client().command(&[b"PUBLISH", CHANGES.as_bytes(), &message]);
    assert!(reply.error().starts_with("NOPERM"), "{reply:?}");
    let told = server.client().command(&[b"PUBLISH", CHANGES.as_bytes(), &message]);
    assert_eq!(told, Reply::Integer(2), "both members listen");
    all(&nodes, PATIENCE, "it is counted", |node| {
        node.metrics().contains("\nheatsink_records_ignored_total 1\n")
    });
    for node in &nodes {
        assert!(node.lacks("victim"));
        let state = node.json("/readyz").expect("it answers");
        let reason = state["reasons"][0].as_str().unwrap_or_default();
        assert!(reason.contains("ignored") && reason.contains("secret"), "{state}");
        assert!(node.is_well(), "{state}");
    }
    // What members say to each other is believed.
    nodes[0].api().promote(b"known", CACHE).expect("promoted");
    all(&nodes, PATIENCE, "both know it", |node| node.entry("known").is_some());
    // Nor is what stands in the registry.
    server.client().command(&["HSET", "heatsink:{default}:registry", "known", "1 1 0 forged"]);
    server.client().command(&["SET", "heatsink:{default}:state", "x"]);
    let again = poll_until(PATIENCE, || {
        let count = server.client().command(&["HLEN", "heatsink:{default}:registry"]);
        let kind = server.client().command(&["TYPE", "heatsink:{default}:state"]);
        count == Reply::Integer(1) && kind.text() == "hash"
    });
    assert!(again.is_some(), "{}", nodes[0].process.tail());
    all(&nodes, PATIENCE, "both are well", |node| node.is_well() && node.entry("known").is_some());
}
