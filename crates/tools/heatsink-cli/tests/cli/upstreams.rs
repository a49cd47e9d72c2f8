//! The kinds of upstream, by their URLs.

use heatsink_testkit::{RawClient, RedisCluster, Reply, SentinelRig, eventually};

use crate::support::{PATIENCE, Place, address, start};

/// Starts before `url` and stores a few keys; returns what the ready line says of the upstream.
fn store_through(url: &str) -> String {
    let place = Place::empty();
    let (_process, ready) =
        start(place.heatsink(&["serve", "--listen", "127.0.0.1:0", "--upstream", url]));
    let mut client = RawClient::connect(address(&ready));
    // Where the servers are may still be being asked.
    eventually(PATIENCE, || client.command(&["SET", "key:0", "0"]) == Reply::ok());
    for number in 0..20 {
        let (key, value) = (format!("key:{number}"), number.to_string());
        assert_eq!(client.command(&["SET", &key, &value]), Reply::ok());
        assert_eq!(client.command(&["GET", &key]), Reply::bulk(&*value));
    }
    let (_, words) = ready.split_once("(upstream ").expect("an upstream");
    words.to_owned()
}

#[test]
fn a_cluster_is_found_by_its_nodes() {
    let cluster = RedisCluster::builder().primaries(3).replicas_per_primary(0).start();
    let words = store_through(&cluster.seed_url());
    assert!(words.starts_with("cluster 127.0.0.1:"), "{words}");
    // A node may count the same command twice: refused, and executed elsewhere.
    let writes = (0..3).filter(|index| cluster.calls(*index, "set") > 0).count();
    assert_eq!(writes, 3, "keys are on all nodes");
}

#[test]
fn a_primary_is_found_by_its_sentinels() {
    let rig = SentinelRig::builder().replicas(1).start();
    let words = store_through(&rig.url());
    let beginning = format!("{} of sentinels 127.0.0.1:", rig.name());
    assert!(words.starts_with(&beginning), "{words}");
    // Beside them is what the processes of a fleet know of each other.
    let keys = rig.primary().client().command(&["KEYS", "*"]);
    let is_own = |key: &Reply| key.text().starts_with("heatsink:{default}:");
    assert_eq!(keys.items().iter().filter(|key| !is_own(key)).count(), 20, "{keys:?}");
}
