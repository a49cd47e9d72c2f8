//! The Sentinel rig against real `redis-server` processes.

use std::time::Duration;

use heatsink_testkit::{Certificates, ClientAuth, RawClient, Reply, SentinelRig, eventually};

const SOON: Duration = Duration::from_secs(10);

/// A value that the replicas have, too.
fn write(rig: &SentinelRig, replicas: &str) {
    let mut client = rig.primary().admin_client();
    assert_eq!(client.command(&["SET", "k", "v"]), Reply::ok());
    let acknowledged = client.command(&["WAIT", replicas, "5000"]);
    assert_eq!(acknowledged.integer().to_string(), replicas);
}

#[test]
fn three_sentinels_name_the_primary_and_know_each_other() {
    let rig = SentinelRig::start();
    assert_eq!(rig.primary_index(), 0);
    let ports: Vec<String> = rig.sentinels().iter().map(|one| one.addr().to_string()).collect();
    assert_eq!(rig.url(), format!("redis+sentinel://{}/kit", ports.join(",")));
    for sentinel in rig.sentinels() {
        let mut client = sentinel.client();
        let addr = client.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "kit"]);
        assert_eq!(addr, Reply::bulks(["127.0.0.1", &rig.primary().port().to_string()]));
        let primary = client.command(&["SENTINEL", "MASTER", "kit"]);
        assert_eq!(primary.get("num-other-sentinels"), Some(Reply::bulk("2")));
        assert_eq!(primary.get("num-slaves"), Some(Reply::bulk("1")));
        assert_eq!(primary.get("quorum"), Some(Reply::bulk("2")));
        assert!(client.command(&["SENTINEL", "CKQUORUM", "kit"]).text().starts_with("OK 3"));
    }
    let refused = rig.servers()[1].client().command(&["SET", "k", "v"]).error();
    assert!(refused.starts_with("READONLY"), "{refused}");
}

#[test]
fn a_replica_takes_over_from_a_killed_primary_which_comes_back_as_a_replica() {
    let mut rig = SentinelRig::builder().name("shop").start();
    assert!(rig.url().ends_with("/shop"));
    write(&rig, "1");
    let mut watcher = rig.sentinels()[2].client();
    watcher.command(&["SUBSCRIBE", "+switch-master"]);
    assert_eq!(rig.kill_primary(), 0);
    assert_eq!(rig.wait_for_new_primary(), 1);
    assert_eq!(rig.primary_index(), 1);
    let (old, new) = (rig.servers()[0].port(), rig.servers()[1].port());
    let event = watcher.read_reply();
    assert_eq!(event.items()[2].text(), format!("shop 127.0.0.1 {old} 127.0.0.1 {new}"));
    let mut client = rig.primary().client();
    assert_eq!(client.command(&["GET", "k"]), Reply::bulk("v"));
    assert_eq!(client.command(&["SET", "k", "w"]), Reply::ok());

    rig.restart(0);
    rig.wait_until_ok();
    assert_eq!(rig.servers()[0].client().command(&["GET", "k"]), Reply::bulk("w"));
    assert_eq!(rig.servers()[0].info("replication", "role"), "slave");
}

#[test]
fn a_failover_by_hand_and_one_from_a_frozen_primary_with_a_sentinel_gone() {
    let mut rig = SentinelRig::builder().replicas(2).start();
    write(&rig, "2");
    assert_eq!(rig.primary_index(), 0);
    let second = rig.hand_over();
    assert_ne!(second, 0);
    rig.wait_until_ok();
    assert_eq!(rig.primary().info_u64("replication", "connected_slaves"), 2);

    rig.kill_sentinel(0);
    assert_eq!(rig.pause_primary(), second);
    let third = rig.wait_for_new_primary();
    assert_ne!(third, second);
    assert_eq!(rig.primary().client().command(&["GET", "k"]), Reply::bulk("v"));
    rig.resume(second);
    rig.restart_sentinel(0);
    rig.wait_until_ok();
    assert_eq!(rig.primary_index(), third);
}

#[test]
fn passwords_of_servers_and_of_sentinels() {
    let builder = SentinelRig::builder().password("of-servers");
    let mut rig = builder.sentinel_password("of-sentinels").start();
    let noauth = |client: &mut RawClient, command: &[&str]| {
        assert!(client.command(command).error().starts_with("NOAUTH"));
    };
    noauth(&mut rig.primary().client(), &["GET", "k"]);
    let mut sentinel = rig.sentinels()[0].client();
    noauth(&mut sentinel, &["SENTINEL", "MASTERS"]);
    assert_eq!(sentinel.command(&["AUTH", "of-sentinels"]), Reply::ok());
    write(&rig, "1");
    let old = rig.kill_primary();
    rig.wait_for_new_primary();
    assert_eq!(rig.primary().admin_client().command(&["GET", "k"]), Reply::bulk("v"));
    for _ in 0..2 {
        rig.restart(old); // the second time as a replica, as the Sentinels had it write down
        rig.wait_until_ok();
    }
    assert_eq!(rig.servers()[old].admin_client().command(&["GET", "k"]), Reply::bulk("v"));
    noauth(&mut rig.servers()[old].client(), &["GET", "k"]);
}

#[test]
fn users_with_rights() {
    let rig = SentinelRig::builder()
        .line("user default off")
        .line("user boss on >over-all ~* &* +@all")
        .admin("boss", "over-all")
        .start();
    assert!(rig.primary().client().command(&["PING"]).error().starts_with("NOAUTH"));
    write(&rig, "1");
}

#[test]
fn everything_over_tls() {
    let certificates = Certificates::generate();
    let mut rig =
        SentinelRig::builder().tls(&certificates).tls_auth_clients(ClientAuth::Required).start();
    assert!(rig.url().starts_with("rediss+sentinel://127.0.0.1:"));
    let mut sentinel = rig.sentinels()[0].client();
    assert!(sentinel.tls_version().is_some());
    let port = rig.primary().tls_port().to_string();
    let addr = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", rig.name()]);
    assert_eq!(addr, Reply::bulks(["127.0.0.1", &port]));
    write(&rig, "1");
    let new = rig.hand_over();
    eventually(SOON, || rig.servers()[new].client().command(&["SET", "k", "w"]) == Reply::ok());
}
