//! The shared tier on a cluster, behind Sentinels, and over TLS.

mod common;

use common::{Database, MS, Process, S, get};
use heatsink::{Source, TlsFiles};
use heatsink_testkit::{
    Certificates, ClientAuth, RedisCluster, RedisServer, SentinelRig, eventually, key_slot,
};

#[test]
fn a_cluster_is_followed_through_moved_slots_and_lost_primaries() {
    let mut cluster = RedisCluster::start();
    let db = Database::default();
    let url = format!("redis+cluster://{}", cluster.node(0).addr());
    let (one, two) = (Process::start(&url, &db), Process::start(&url, &db));
    for key in 0..50 {
        let (row, source) = one.get(key, MS(0));
        assert_eq!((two.get(key, MS(0)).0, source), (row, Source::Loaded), "{key}");
    }
    assert_eq!(db.queries(), 50);
    assert_eq!(one.counts().shared_errors + two.counts().shared_errors, 0);

    let slot = key_slot("users:7");
    let owner = cluster.owner_of(slot);
    let other = (0..3).find(|at| *at != owner).unwrap();
    cluster.move_slot(slot, other);
    two.run(two.cache.put(&7, "moved".to_owned())).unwrap();
    eventually(S(10), || one.get(7, MS(0)).0 == "moved");
    one.run(one.cache.put(&7, "again".to_owned())).unwrap();
    eventually(S(10), || two.get(7, MS(0)).0 == "again");

    cluster.kill_when_replicated(other);
    cluster.wait_until_ok();
    eventually(S(20), || one.is_connected() && two.is_connected());
    eventually(S(10), || one.run(one.cache.put(&7, "new primary".to_owned())).is_ok());
    eventually(S(10), || two.get(7, MS(0)).0 == "new primary");
}

#[test]
fn a_failover_by_sentinels_is_followed() {
    let mut rig = SentinelRig::start();
    let db = Database::default();
    let (one, two) = (Process::start(&rig.url(), &db), Process::start(&rig.url(), &db));
    one.run(one.cache.put(&1, "before".to_owned())).unwrap();
    assert_eq!(two.get(1, MS(0)), ("before".to_owned(), Source::Shared));
    rig.kill_primary();
    rig.wait_for_new_primary();
    eventually(S(20), || one.is_connected() && two.is_connected());
    eventually(S(10), || one.run(one.cache.put(&1, "after".to_owned())).is_ok());
    eventually(S(10), || two.get(1, MS(0)).0 == "after");
}

#[test]
fn tls_and_a_login_are_spoken_and_verified() {
    let certificates = Certificates::generate();
    let server =
        RedisServer::builder().tls(&certificates).tls_auth_clients(ClientAuth::Required).start();
    let mut admin = server.client();
    // The rights it needs, and no others.
    admin.command(&[
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">secret",
        "~users:*",
        "~users~*",
        "resetchannels",
        "-@all",
        "+get",
        "+set",
        "+del",
        "+pttl",
        "+getrange",
        "+eval",
        "+pexpire",
        "+ping",
        "+hello",
        "+auth",
        "+select",
        "+client|tracking",
        "+client|caching",
    ]);
    let url = format!("rediss://app:secret@localhost:{}", server.tls_port());
    let pem = |path: &std::path::Path| Some(std::fs::read(path).unwrap());
    let files = TlsFiles {
        ca_pem: pem(certificates.ca()),
        certificate_pem: pem(certificates.client().certificate()),
        key_pem: pem(certificates.client().key()),
        server_name: None,
    };
    let db = Database::default();
    let start = |files: TlsFiles| {
        Process::start_with(&url, &db, |builder| builder, |store| store.tls(files))
    };
    let (one, two) = (start(files.clone()), start(files.clone()));
    assert_eq!(one.get(1, MS(0)).0, "row 1");
    assert_eq!(two.get(1, MS(0)), ("row 1".to_owned(), Source::Shared));
    one.run(one.cache.put(&1, "put".to_owned())).unwrap();
    eventually(S(5), || two.get(1, MS(0)).0 == "put");
    let counts = one.counts();
    assert_eq!((counts.shared_errors, counts.leases_lost), (0, 0));

    // Somebody else's certificate: it is not spoken to.
    let wrong = start(TlsFiles { ca_pem: pem(certificates.other_ca()), ..files });
    assert!(!wrong.is_connected());
    assert!(wrong.run(get(&wrong.cache, &db, 1, MS(0))).is_ok(), "it loads by itself");
}

#[test]
fn the_rights_that_the_docs_name_are_enough() {
    let docs = include_str!("../../../../docs/library.md");
    let line = docs.lines().find(|line| line.starts_with("| rights |")).unwrap();
    let line = line.replace("\\|", "|").replace("<name>", "users");
    let rights: Vec<_> = line.split('`').skip(1).step_by(2).collect();
    let [keys, database, _sentinels, cluster, channel] = rights[..] else {
        panic!("{rights:?}");
    };
    let allow = |server: &RedisServer, rights: &[&str]| {
        let mut user = vec!["ACL", "SETUSER", "app", "reset", "on", ">secret"];
        user.extend(rights.iter().flat_map(|some| some.split(' ')));
        assert_eq!(server.client().command(&user), heatsink_testkit::Reply::ok());
    };
    let db = Database::default();
    let works = |url: &str| {
        let (one, two) = (Process::start(url, &db), Process::start(url, &db));
        assert!(one.is_connected() && two.is_connected(), "{:?}", one.cache.shared_state());
        let row = one.get(1, MS(0)).0;
        assert_eq!(two.get(1, MS(0)), (row, Source::Shared));
        one.run(one.cache.put(&1, "put".to_owned())).unwrap();
        eventually(S(5), || two.get(1, MS(0)).0 == "put");
        two.run(two.cache.invalidate(&1)).unwrap();
        let counts = (one.counts(), two.counts());
        assert_eq!(counts.0.shared_errors + counts.1.shared_errors, 0);
    };
    let server = RedisServer::start();
    let url = server.url().replace("redis://", "redis://app:secret@");
    allow(&server, &[keys]);
    works(&url);
    allow(&server, &[keys, database]);
    works(&format!("{url}/2"));
    allow(&server, &[keys, "-client|tracking", channel]);
    works(&url);
    let nodes = RedisCluster::start();
    nodes.nodes().for_each(|node| allow(node, &[keys, cluster]));
    works(&format!("redis+cluster://app:secret@{}", nodes.node(0).addr()));
}
