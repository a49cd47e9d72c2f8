//! A cluster that speaks only TLS.

use std::time::Duration;

use heatsink_conformance::Heatsink;
use heatsink_proxy::config::Upstream;
use heatsink_testkit::{Certificates, ClientAuth, RedisCluster, Reply, eventually, key_slot};
use heatsink_tls::ClientTls;

use crate::support::{pong, showing};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_cluster_over_tls_with_client_certificates() {
    let certificates = Certificates::generate();
    let cluster =
        RedisCluster::builder().tls(&certificates).tls_auth_clients(ClientAuth::Required).start();
    assert!(cluster.seed_url().starts_with("rediss+cluster://"));
    let files = showing(certificates.ca(), certificates.client());
    let tls = ClientTls::load(files).expect("valid files");
    let url = cluster.seed_url().parse().expect("a URL");
    let upstream = Upstream::from_url(url, Some(tls)).expect("not the embedded store");
    let heatsink = Heatsink::before(upstream, |config| config.workers = 2);
    let mut client = heatsink.client();
    let primaries = cluster.primaries();
    let keys: Vec<String> = primaries.iter().map(|node| cluster.key_on(*node, "k")).collect();
    let mut set = vec!["MSET"];
    for key in &keys {
        set.extend([key.as_str(), "0"]);
    }
    assert_eq!(client.command(&set), Reply::ok());
    assert_eq!(client.command(&["DBSIZE"]).integer(), 3);
    for key in &keys {
        client.command(&["MULTI"]);
        client.command(&["INCR", key]);
        assert_eq!(client.command(&["EXEC"]).items().len(), 1);
    }
    // Redirected, over TLS.
    cluster.move_slot(key_slot(&keys[0]), primaries[1]);
    assert_eq!(client.command(&["INCR", &keys[0]]).integer(), 2);
    // Every connection lost at once.
    for node in cluster.nodes() {
        node.client().command(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    for key in &keys {
        eventually(SOON, || !client.command(&["INCR", key]).is_error());
    }
    // A replica takes over.
    let replica = cluster.replicas_of(primaries[2])[0];
    cluster.failover(replica);
    eventually(SOON, || !client.command(&["INCR", &keys[2]]).is_error());
    assert_eq!(client.command(&["PING"]), pong());
    for key in &keys {
        assert!(client.command(&["GET", key]).text().parse::<i64>().expect("a number") >= 2);
    }
}
