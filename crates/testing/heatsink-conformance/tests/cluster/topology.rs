//! How the cluster is found, from whatever node is there.

use std::time::{Duration, Instant};

use heatsink_conformance::Heatsink;
use heatsink_proxy::config::{Target, Upstream};
use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, eventually_ok, free_port};

const SOON: Duration = Duration::from_secs(10);
const STARTS: usize = 50;

fn before_seeds(seeds: &[u16]) -> Heatsink {
    let seeds: Vec<String> = seeds.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    Heatsink::before_url(&format!("redis+cluster://{}", seeds.join(",")), |_| {})
}

/// Writes and reads keys of all nodes.
#[track_caller]
fn check_service(client: &mut RawClient, cluster: &RedisCluster) {
    for primary in cluster.primaries() {
        let key = cluster.key_on(primary, "found");
        assert_eq!(client.command(&["SET", &key, "1"]), Reply::ok());
        assert_eq!(client.command(&["GET", &key]), Reply::bulk("1"));
    }
    assert_eq!(client.command(&["DBSIZE"]).integer(), 3);
}

#[test]
fn any_seed_will_do() {
    let cluster = RedisCluster::start();
    let replica = cluster.replicas_of(cluster.primaries()[0])[0];
    let heatsink = before_seeds(&[cluster.node(replica).port()]);
    check_service(&mut heatsink.client(), &cluster);
    let heatsink = before_seeds(&[free_port(), cluster.node(0).port()]);
    let mut client = heatsink.client();
    // Those who came while the first seed was tried may be told that it is not there.
    eventually_ok(SOON, || match client.command(&["PING"]) {
        Reply::Simple(_) => Ok(()),
        reply => Err(reply.to_string()),
    });
    check_service(&mut client, &cluster);
}

#[test]
fn the_first_command_does_not_wait_long_for_the_map() {
    let cluster = RedisCluster::start();
    for round in 0..STARTS {
        let heatsink = Heatsink::before_url(&cluster.seed_url(), |config| config.workers = 2);
        let begun = Instant::now();
        let mut clients: Vec<_> = (0..4).map(|_| heatsink.client()).collect();
        for client in &mut clients {
            client.send(&["MGET", "a", "b", "c"]);
        }
        for client in &mut clients {
            assert_eq!(client.read_reply(), Reply::Array(vec![Reply::Null; 3]));
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(2), "start {round}: {took:?}");
    }
}

#[test]
fn a_cluster_that_comes_up_later_is_found() {
    let mut cluster = RedisCluster::start();
    let nodes = cluster.nodes().len();
    for node in 0..nodes {
        cluster.kill(node);
    }
    let heatsink = before_seeds(&[cluster.node(0).port(), cluster.node(1).port()]);
    let mut client = heatsink.client();
    for command in [&["GET", "a"][..], &["MGET", "a", "b"], &["DBSIZE"], &["BLPOP", "a", "1"]] {
        let reply = client.command(command);
        assert!(
            reply.is_error()
                && reply.error().starts_with("ERR heatsink: upstream 127.0.0.1:")
                && reply.error().contains("unavailable"),
            "{command:?}: {reply}"
        );
    }
    for node in 0..nodes {
        cluster.restart(node);
    }
    cluster.wait_until_ok();
    eventually_ok(SOON, || match client.command(&["SET", "up", "1"]) {
        Reply::Simple(_) => Ok(()),
        reply => Err(reply.to_string()),
    });
    assert_eq!(client.command(&["DEL", "up"]).integer(), 1);
    check_service(&mut client, &cluster);
}

#[test]
fn a_seed_that_is_no_cluster_is_said_to_be_none() {
    let server = RedisServer::start();
    let heatsink = before_seeds(&[server.port()]);
    let mut client = heatsink.client();
    for command in [&["GET", "a"][..], &["MSET", "a", "1", "b", "2"], &["DBSIZE"]] {
        let reply = client.command(command);
        assert!(
            reply.is_error() && reply.error().contains("cluster support disabled"),
            "{command:?}: {reply}"
        );
    }
    assert_eq!(server.client().command(&["DBSIZE"]).integer(), 0);
}

/// Such a name fails before a connection is even begun, without anybody being asked for it.
#[test]
fn a_seed_whose_name_leads_nowhere_is_said_to_be_unavailable() {
    let name = format!("{}.invalid", "x".repeat(64));
    for names in [&[&name][..], &[&name, &name]] {
        let seeds = names.iter().map(|name| ((*name).clone(), 7000)).collect();
        let heatsink = Heatsink::before(Upstream::new(Target::Cluster(seeds)), |_| {});
        let mut kept = heatsink.client();
        for round in 0..2 {
            for client in [&mut kept, &mut heatsink.client()] {
                for command in
                    [&["GET", "a"][..], &["MGET", "a", "b"], &["DBSIZE"], &["WATCH", "a"]]
                {
                    let begun = Instant::now();
                    let reply = client.command(command);
                    assert!(
                        reply.is_error()
                            && reply.error().contains(&name)
                            && reply.error().contains("unavailable"),
                        "round {round}: {command:?}: {reply}"
                    );
                    assert!(begun.elapsed() < SOON / 5, "{command:?}: {:?}", begun.elapsed());
                }
            }
        }
    }
}
