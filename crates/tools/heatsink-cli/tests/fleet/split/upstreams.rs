//! Splits before each kind of upstream: a cluster with TLS and a password, one server, Sentinel.

use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;
use heatsink_testkit::{
    Certificates, ClientAuth, RedisCluster, RedisServer, Reply, SentinelRig, eventually,
    eventually_ok, key_slot,
};

use crate::node::{Node, all, assemble};
use crate::split::{is_split, rests_split, split};
use crate::support::{PATIENCE, Place};

const COPIES: Promotion =
    Promotion { mitigation: Mitigation::Copies, split_factor: None, ttl_seconds: None };

/// A set and a counter are split, changed, read, and made whole by a removal.
fn comes_and_goes(node: &Node) {
    let mut client = node.client();
    client.command(&["SADD", "set", "a", "b"]);
    client.command(&["SET", "counter", "40"]);
    for key in ["set", "counter"] {
        node.api().promote(key.as_bytes(), split(6)).expect("promoted");
        all([node], PATIENCE, "it is split", |node| rests_split(node, key, 6));
    }
    assert_eq!(client.command(&["SADD", "set", "c", "d", "e"]), Reply::Integer(3));
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(5));
    assert_eq!(client.command(&["INCRBY", "counter", "2"]), Reply::Integer(42));
    // For one that needs it whole, and split again by the operator.
    assert_eq!(client.command(&["APPEND", "counter", "0"]), Reply::Integer(3));
    node.api().promote(b"counter", split(2)).expect("promoted");
    all([node], PATIENCE, "it is split again", |node| rests_split(node, "counter", 2));
    assert_eq!(client.command(&["GET", "counter"]), Reply::bulk("420"));
    for key in ["set", "counter"] {
        node.api().demote(key.as_bytes()).expect("removed");
        all([node], PATIENCE, "it is gone", |node| node.lacks(key));
    }
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(5));
    assert_eq!(client.command(&["GET", "counter"]), Reply::bulk("420"));
}

#[test]
fn a_cluster_with_tls_and_a_password() {
    let certificates = Certificates::generate();
    let cluster = RedisCluster::builder()
        .replicas_per_primary(0)
        .password("cluster-secret")
        .tls(&certificates)
        .tls_auth_clients(ClientAuth::Required)
        .start();
    let store = RedisServer::start();
    let seeds = cluster.seed_url();
    let (scheme, seeds) = seeds.split_once("://").expect("a URL");
    let (ca, own) = (certificates.ca(), certificates.client());
    let place = Place::with_file(&format!(
        "upstream = \"{scheme}://:cluster-secret@{seeds}\"\n\
         [coordination]\nurl = \"{}\"\n\
         [upstream_tls]\nca = {ca:?}\ncertificate = {:?}\nkey = {:?}\n",
        store.url(),
        own.certificate(),
        own.key(),
    ));
    let mut node = Node::start(&place, &["--config", "heatsink.toml"]);
    assemble(&[&node]);
    comes_and_goes(&node);
    // Copies are written and read in the same ways.
    let mut client = node.client();
    client.command(&["SET", "value", "v"]);
    node.api().promote(b"value", COPIES).expect("promoted");
    all([&node], PATIENCE, "there are copies", |node| {
        node.entry("value").is_some_and(|entry| entry.split_phase() == Some("split"))
    });
    let copies = || -> usize {
        let of =
            |node: &RedisServer| node.admin_client().command(&["KEYS", "heatsink:*:copy[0-9]"]);
        cluster.nodes().map(|node| of(node).items().len()).sum()
    };
    eventually(PATIENCE, || copies() > 0);
    assert_eq!(client.command(&["SET", "value", "w"]), Reply::ok());
    for _ in 0..6 {
        assert_eq!(node.client().command(&["GET", "value"]), Reply::bulk("w"));
    }
    // When everything is gone, what is left is found with the same settings.
    node.api().promote(b"set", split(6)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 6));
    node.process.kill();
    let drained = place.run(&["drain", "--config", "heatsink.toml"]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    assert!(drained.stdout.contains("1 made whole"), "{drained:?}");
    let owner = cluster.node(cluster.owner_of(key_slot("set")));
    assert_eq!(owner.admin_client().command(&["SCARD", "set"]), Reply::Integer(5));
}

/// Whoever logs in as the user that Heatsink is, has its rights: the key stays split.
#[test]
fn clients_that_log_in_as_the_same_user() {
    let server = RedisServer::builder().line("requirepass secret").start();
    let store = RedisServer::start();
    for url in ["redis://:secret@", "redis://default:secret@"] {
        let place = Place::empty();
        let url = format!("{url}{}", server.addr());
        let node = Node::member(&place, "all", &store.url(), &url);
        assemble(&[&node]);
        comes_and_goes(&node);
        node.api().promote(b"set", split(4)).expect("promoted");
        all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
        let logins: [&[&str]; 4] = [
            &["AUTH", "secret"],
            &["AUTH", "default", "secret"],
            &["HELLO", "2", "AUTH", "default", "secret"],
            &["HELLO", "3", "AUTH", "default", "secret"],
        ];
        for login in logins {
            let mut client = node.client();
            assert!(!client.command(login).is_error(), "{login:?}");
            assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(5), "{login:?}");
            assert!(rests_split(&node, "set", 4), "{login:?}: {:?}", node.entry("set"));
        }
        node.api().demote(b"set").expect("removed");
        all([&node], PATIENCE, "it is gone", |node| node.lacks("set"));
        server.admin_client().command(&["AUTH", "secret"]);
        node.client().command(&["DEL", "set", "counter"]);
    }
}

/// Without a login of its own Heatsink moves nothing, and says why.
#[test]
fn without_a_login_of_its_own_the_reason_is_told() {
    let server = RedisServer::builder().line("requirepass secret").start();
    let (place, store) = (Place::empty(), RedisServer::start());
    let node = Node::member(&place, "all", &store.url(), &server.url());
    assemble(&[&node]);
    let mut client = node.client();
    client.command(&["AUTH", "secret"]);
    client.command(&["SADD", "set", "a"]);
    node.api().promote(b"set", split(4)).expect("promoted");
    all([&node], PATIENCE, "it says why", |node| {
        let entry = node.entry("set").unwrap_or_default();
        entry.reason.contains("not split yet: the upstream refused: NOAUTH")
    });
    assert_eq!(client.command(&["SADD", "set", "b"]), Reply::Integer(1));
}

#[test]
fn behind_sentinel_a_split_outlives_a_failover() {
    let mut rig = SentinelRig::builder().replicas(1).start();
    let store = RedisServer::start();
    let place = Place::empty();
    let node = Node::member(&place, "all", &store.url(), &rig.url());
    assemble(&[&node]);
    comes_and_goes(&node);
    let mut client = node.client();
    node.api().promote(b"set", split(4)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
    assert_eq!(client.command(&["SADD", "set", "f"]), Reply::Integer(1));
    // The replica has it all before it takes over.
    rig.wait_until_ok();
    let mut direct = rig.primary().client();
    direct.command(&["SADD", "probe", "p"]);
    assert_eq!(direct.command(&["WAIT", "1", "10000"]), Reply::Integer(1));
    rig.hand_over();
    eventually_ok(PATIENCE, || match node.client().command(&["SCARD", "set"]) {
        Reply::Integer(6) => Ok(()),
        other => Err(format!("{other}; {:?}", node.entry("set"))),
    });
    assert!(is_split(&mut rig.primary().client(), "set"));
    // The old primary takes writes until a Sentinel has told it, and forgets them then.
    eventually(PATIENCE, || {
        node.client().command(&["INCR", "arrived"]);
        rig.primary().client().command(&["EXISTS", "arrived"]) == Reply::Integer(1)
    });
    assert_eq!(node.client().command(&["SADD", "set", "g"]), Reply::Integer(1));
    node.api().demote(b"set").expect("removed");
    all([&node], PATIENCE, "it is gone", |node| node.lacks("set"));
    assert_eq!(rig.primary().client().command(&["SCARD", "set"]), Reply::Integer(7));
}

/// Shards are where the key is: in the database of the URL.
#[test]
fn another_database_than_the_first() {
    let server = RedisServer::start();
    let (place, store) = (Place::empty(), RedisServer::start());
    let node = Node::member(&place, "all", &store.url(), &format!("{}/3", server.url()));
    assemble(&[&node]);
    comes_and_goes(&node);
    node.api().promote(b"set", split(4)).expect("promoted");
    all([&node], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
    // A key of that name in another one is another key.
    let mut client = node.client();
    assert_eq!(client.command(&["SELECT", "5"]), Reply::ok());
    assert_eq!(client.command(&["SADD", "set", "z"]), Reply::Integer(1));
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(1));
    assert_eq!(client.command(&["SELECT", "3"]), Reply::ok());
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(5));
    assert!(rests_split(&node, "set", 4));
    let mut direct = server.client();
    assert_eq!(direct.command(&["KEYS", "*"]).items().len(), 0);
}

/// The store within the process has one node, and says so of what it cannot do.
#[test]
fn the_embedded_store() {
    let place = Place::empty();
    let node = Node::start(&place, &["--upstream", "embedded://"]);
    all([&node], PATIENCE, "it is well", Node::is_well);
    comes_and_goes(&node);
}
