//! Several stores as one cluster, as its clients meet it.

use std::process::Command;
use std::time::{Duration, Instant};

use heatsink_cluster::slot;
use heatsink_cluster::topology::Topology;
use heatsink_embedded::{Cluster, Pace};
use heatsink_resp::value::Value;
use heatsink_testkit::{RawClient, Reply, encode};

fn start() -> (Cluster, Vec<RawClient>) {
    let cluster = Cluster::start(3, Pace::default()).expect("a cluster");
    let clients = cluster.addresses().iter().map(RawClient::connect).collect();
    (cluster, clients)
}

/// The node that has a key, by the map of slots.
fn home(key: &str) -> usize {
    usize::from(slot::of_key(key.as_bytes())) * 3 / slot::COUNT
}

#[test]
fn keys_are_where_their_slots_are() {
    let (cluster, mut clients) = start();
    for number in 0..100 {
        let key = format!("key:{number}");
        for (node, client) in clients.iter_mut().enumerate() {
            let reply = client.command(&["SET", &key, "v"]);
            if node == home(&key) {
                assert_eq!(reply, Reply::ok());
            } else {
                let (slot, place) = (slot::of_key(key.as_bytes()), cluster.addresses()[home(&key)]);
                assert_eq!(reply.error(), format!("MOVED {slot} {place}"));
            }
        }
    }
    let sizes: Vec<i64> =
        clients.iter_mut().map(|client| client.command(&["DBSIZE"]).integer()).collect();
    assert_eq!(sizes.iter().sum::<i64>(), 100);
    assert!(sizes.iter().all(|size| *size > 10), "{sizes:?}");
}

#[test]
fn requests_over_many_slots_and_other_databases_are_refused() {
    let (_cluster, mut clients) = start();
    let client = &mut clients[home("a")];
    let error = client.command(&["MSET", "a", "1", "b", "2"]).error();
    assert_eq!(error, "CROSSSLOT Keys in request don't hash to the same slot");
    assert_eq!(client.command(&["MSET", "a", "1", "{a}b", "2"]), Reply::ok());
    assert_eq!(client.command(&["SELECT", "0"]), Reply::ok());
    assert_eq!(
        client.command(&["SELECT", "1"]).error(),
        "ERR SELECT is not allowed in cluster mode"
    );
    // A transaction that names a key of another node does not take place.
    let other = (0..100).map(|n| format!("k{n}")).find(|key| home(key) != home("a")).expect("one");
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    assert!(client.command(&["SET", &other, "1"]).error().starts_with("MOVED "));
    assert!(client.command(&["EXEC"]).error().starts_with("EXECABORT"));
}

#[test]
fn all_nodes_tell_the_same() {
    let (cluster, mut clients) = start();
    for (node, client) in clients.iter_mut().enumerate() {
        client.send_raw(&encode(&["CLUSTER", "SLOTS"]));
        let frame = client.read_frame();
        let value = Value::decode(&frame).expect("a reply");
        let topology = Topology::parse(&value, "elsewhere").expect("a topology");
        assert_eq!(topology.covered(), slot::COUNT);
        let told: Vec<String> =
            topology.shards.iter().map(|shard| shard.primary.to_string()).collect();
        let real: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
        assert_eq!(told, real);
        let lines = client.command(&["CLUSTER", "NODES"]).text();
        assert_eq!(lines.lines().count(), 3);
        let own = lines.lines().find(|line| line.contains("myself,master")).expect("itself");
        assert!(own.contains(&real[node]), "{own}");
        assert!(client.command(&["CLUSTER", "INFO"]).text().contains("cluster_size:3"));
        assert!(client.command(&["INFO", "cluster"]).text().contains("cluster_enabled:1"));
    }
}

#[test]
fn the_client_that_everybody_has_finds_its_way() {
    let cluster = Cluster::start(3, Pace::default()).expect("a cluster");
    let port = cluster.addresses()[0].port().to_string();
    for key in ["a", "b", "c", "foo"] {
        let output = Command::new("redis-cli")
            .args(["-c", "-p", &port, "SET", key, "v"])
            .output()
            .expect("redis-cli runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "OK", "{output:?}");
    }
}

#[test]
fn a_node_with_too_much_to_do_is_slow_and_loses_nothing() {
    let pace = Pace { capacity_per_second: Some(1_000), latency: Duration::ZERO };
    let cluster = Cluster::start(1, pace).expect("a cluster");
    let mut clients: Vec<RawClient> =
        (0..10).map(|_| RawClient::connect(cluster.addresses()[0])).collect();
    let started = Instant::now();
    for client in &mut clients {
        for _ in 0..20 {
            client.send_raw(&encode(&["INCR", "n"]));
        }
    }
    let mut seen = Vec::new();
    for client in &mut clients {
        let numbers: Vec<i64> = (0..20).map(|_| client.read_reply().integer()).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        seen.extend(numbers);
    }
    // 200 requests at 1 000 a second; the connections themselves cost nothing.
    assert!(started.elapsed() >= Duration::from_millis(195), "{:?}", started.elapsed());
    seen.sort_unstable();
    assert_eq!(seen, (1..=200).collect::<Vec<i64>>());
    let started = Instant::now();
    assert_eq!(clients[0].command(&["QUIT"]), Reply::ok());
    assert_eq!(cluster.nodes()[0].requests_total(), 201);
    assert!(started.elapsed() < Duration::from_secs(10), "an idle node answers at once");
    clients[0].expect_closed();
}
