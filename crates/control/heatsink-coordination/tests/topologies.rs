//! The store finds its server again: failovers, moved slots, Sentinels with passwords, TLS.

mod support;

use std::time::Duration;

use heatsink_coordination::{
    Channel, Expects, Notice, Settings, SettingsError, Store, StoreError, Subscription, TlsFiles,
};
use heatsink_testkit::{
    Certificates, ClientAuth, RedisCluster, RedisServer, Reply, SentinelRig, key_slot,
};
use support::{
    applied, body, contents, eventually, expecting, is_connected, is_lost, listen, settings,
    skip_to, store_at, url,
};

/// Puts until one is acknowledged and the subscriber has heard of it; what was put before a
/// `Connected` is not told.
async fn works(store: &Store, subscription: &mut Subscription) -> u64 {
    loop {
        let version = eventually(async || store.put(b"works", body("1")).await.map(applied)).await;
        let is_heard = skip_to(subscription, |notice| match notice {
            Notice::Change { version: told, .. } => (*told == version).then_some(true),
            Notice::Connected { .. } => Some(false),
            _ => None,
        });
        if is_heard.await {
            return version;
        }
    }
}

/// Waits until a replica has everything: replication is asynchronous, and these tests are not
/// about what it loses.
fn wait_for_replica(primary: &RedisServer, settings: &Settings) {
    let mut client = primary.admin_client();
    let key = format!("{{{}}}", settings.namespace());
    assert_eq!(client.command(&["SET", &key, "1"]), Reply::ok());
    assert!(client.command(&["WAIT", "1", "9000"]).integer() >= 1, "no replica");
}

fn slot(settings: &Settings) -> u16 {
    key_slot(format!("heatsink:{{{}}}:state", settings.namespace()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_may_fail_over_and_move_the_slot() {
    let mut cluster = RedisCluster::start();
    let settings = settings();
    let slot = slot(&settings);
    let store = store_at(&cluster.seed_url(), settings.clone());
    let mut subscription = listen(&store, &[]).await;
    let epoch = applied(store.put(b"k", body("1")).await.unwrap());
    let before = store.snapshot().await.unwrap();

    // Sharded channels: the other primaries hear nothing of a change.
    let owner = cluster.owner_of(slot);
    assert!(cluster.calls(owner, "spublish") > 0);

    // A failover without loss.
    let replica = cluster.replicas_of(owner)[0];
    cluster.failover(replica);
    works(&store, &mut subscription).await;
    let after = store.snapshot().await.unwrap();
    assert_eq!(after.incarnation, before.incarnation);
    assert_eq!(contents(&after)[&b"k"[..]], (epoch, b"1".to_vec()));

    // The slot moves, step by step: while it does, calls fail in time.
    let from = cluster.owner_of(slot);
    let to = cluster.primaries().into_iter().find(|node| *node != from).expect("another");
    cluster.begin_move_slot(slot, to);
    cluster.migrate_some_keys(slot, to, 1);
    let error = store.put(b"k", body("no")).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Refused { words }
            if words.contains("TRYAGAIN") || words.contains("ASK")),
        "{error:?}"
    );
    cluster.migrate_keys(slot, to);
    cluster.finish_move_slot(slot, to);
    works(&store, &mut subscription).await;
    let after = store.snapshot().await.unwrap();
    assert_eq!(after.incarnation, before.incarnation);
    assert_eq!(contents(&after)[&b"k"[..]], (epoch, b"1".to_vec()));

    // The primary dies.
    let owner = cluster.owner_of(slot);
    let heard = works(&store, &mut subscription).await;
    cluster.wait_until_ok();
    wait_for_replica(cluster.node(owner), &settings);
    cluster.kill(owner);
    skip_to(&mut subscription, is_lost).await;
    skip_to(&mut subscription, is_connected).await;
    assert!(works(&store, &mut subscription).await > heard);
    assert_eq!(store.snapshot().await.unwrap().incarnation, before.incarnation);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_found_from_any_node_that_lives() {
    let mut cluster = RedisCluster::builder().primaries(3).replicas_per_primary(1).start();
    let settings = settings();
    let owner = cluster.owner_of(slot(&settings));
    let bystander = cluster.primaries().into_iter().find(|node| *node != owner).expect("another");
    let replica = cluster.replicas_of(owner)[0];
    // One seed is dead, the other a replica of the owner.
    let seeds = format!(
        "redis+cluster://{},{}",
        cluster.node(bystander).addr(),
        cluster.node(replica).addr()
    );
    cluster.kill(bystander);
    cluster.wait_until_ok();
    let store = store_at(&seeds, settings);
    let mut subscription = store.subscribe(&[]);
    let server = skip_to(&mut subscription, is_connected).await;
    assert_eq!(server, cluster.node(owner).addr().to_string());
    works(&store, &mut subscription).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_sharded_channels_uses_plain_ones() {
    let cluster = RedisCluster::builder()
        .replicas_per_primary(0)
        .line("rename-command SPUBLISH \"\"")
        .line("rename-command SSUBSCRIBE \"\"")
        .start();
    let settings = settings();
    let owner = cluster.owner_of(slot(&settings));
    let store = store_at(&cluster.seed_url(), settings);
    let mut subscription = listen(&store, &[Channel::Reports]).await;
    store.publish(Channel::Reports, b"r".to_vec()).await.unwrap();
    skip_to(&mut subscription, |notice| (*notice == Notice::Report(b"r".to_vec())).then_some(()))
        .await;
    works(&store, &mut subscription).await;
    assert!(cluster.calls(owner, "publish") > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_suffice_on_a_cluster() {
    let rights = documented_rights();
    let cluster = RedisCluster::builder()
        .replicas_per_primary(0)
        .line("user admin on >admin ~* &* +@all")
        .line(format!("user heat on >sink resetchannels -@all {rights}"))
        .line("user default off")
        .admin("admin", "admin")
        .start();
    let seeds = cluster.seed_url().replace("://", "://heat:sink@");
    let store = store_at(&seeds, settings());
    let mut subscription = listen(&store, &[Channel::Reports, Channel::Watch]).await;
    works(&store, &mut subscription).await;
    store.heartbeat("a", b"", Duration::from_secs(1)).await.unwrap();
    for node in cluster.nodes() {
        let log = node.admin_client().command(&["ACL", "LOG"]);
        assert_eq!(log, Reply::Array(Vec::new()), "{log}");
    }
}

/// The rules for a user in the crate's documentation, those for a cluster too.
fn documented_rights() -> String {
    let text = include_str!("../src/lib.rs").replace("\n//!", "");
    let rest = &text[text.find("+@connection").expect("the rules begin")..];
    let mut quoted = rest.split('`');
    let (server, cluster) = (quoted.next(), quoted.nth(1));
    format!("{} {}", server.expect("for a server"), cluster.expect("for a cluster"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_may_replace_the_primary() {
    let mut rig = SentinelRig::start();
    let settings = settings();
    let store = store_at(&rig.url(), settings.clone());
    let mut subscription = listen(&store, &[]).await;
    let epoch = applied(store.put(b"k", body("1")).await.unwrap());
    let before = store.snapshot().await.unwrap();

    rig.wait_until_ok();
    wait_for_replica(rig.primary(), &settings);
    let left = rig.primary_index();
    let index = rig.hand_over();
    assert_ne!(index, left);
    rig.wait_until_ok();
    works(&store, &mut subscription).await;
    let after = store.snapshot().await.unwrap();
    assert_eq!(after.incarnation, before.incarnation);
    assert_eq!(contents(&after)[&b"k"[..]], (epoch, b"1".to_vec()));

    rig.kill_sentinel(0);
    wait_for_replica(rig.primary(), &settings);
    let paused = rig.pause_primary();
    skip_to(&mut subscription, is_lost).await;
    let index = rig.wait_for_new_primary();
    let server = skip_to(&mut subscription, is_connected).await;
    assert_eq!(server, rig.servers()[index].addr().to_string());
    works(&store, &mut subscription).await;
    // The old one comes back and believes to be the primary, for a moment.
    rig.resume(paused);
    let version = works(&store, &mut subscription).await;
    let stale = store.put(b"k", expecting(Expects::Epoch(version), "2")).await.unwrap();
    assert_eq!(stale, heatsink_coordination::PutOutcome::Stale { epoch });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_have_credentials_of_their_own() {
    let rig = SentinelRig::builder().password("data").sentinel_password("watch").start();
    let hosts: Vec<String> = rig.sentinels().iter().map(|one| one.addr().to_string()).collect();
    let at = |login: &str, query: &str| {
        format!("redis+sentinel://{login}{}/{}{query}", hosts.join(","), rig.name())
    };
    let right = store_at(&at(":data@", "?sentinel_password=watch"), settings());
    right.snapshot().await.unwrap();
    for (login, query) in
        [(":data@", ""), (":data@", "?sentinel_password=no"), (":no@", "?sentinel_password=watch")]
    {
        let error = store_at(&at(login, query), settings()).snapshot().await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{login} {query}: {error:?}");
    }
    let unknown = format!("redis+sentinel://:data@{}/other?sentinel_password=watch", hosts[0]);
    let error = store_at(&unknown, settings()).snapshot().await.unwrap_err();
    assert!(error.to_string().contains("no primary called \"other\""), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_no_store() {
    let rig = SentinelRig::start();
    let replica = rig.servers().iter().find(|one| one.port() != rig.primary().port());
    let store = store_at(&replica.expect("a replica").url(), settings());
    let error = store.put(b"k", body("1")).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Refused { words } if words.contains("READONLY")),
        "{error:?}"
    );
    let why = skip_to(&mut store.subscribe(&[]), is_lost).await;
    assert!(why.contains("READONLY"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_verified_on_both_sides() {
    let certificates = Certificates::generate();
    let read = |path: &std::path::Path| Some(std::fs::read(path).expect("a file of the kit"));
    let full = TlsFiles {
        ca_pem: read(certificates.ca()),
        certificate_pem: read(certificates.client().certificate()),
        key_pem: read(certificates.client().key()),
        server_name: None,
    };
    let server =
        RedisServer::builder().tls(&certificates).tls_auth_clients(ClientAuth::Required).start();
    let at = |files: &TlsFiles| Store::redis(&url(&server.url()), Some(files), settings());
    let store = at(&full).unwrap();
    let mut subscription = listen(&store, &[]).await;
    works(&store, &mut subscription).await;

    let named = TlsFiles { server_name: Some("localhost".to_owned()), ..full.clone() };
    at(&named).unwrap().snapshot().await.unwrap();
    let wrong = [
        TlsFiles { server_name: Some("elsewhere.test".to_owned()), ..full.clone() },
        TlsFiles { ca_pem: read(certificates.other_ca()), ..full.clone() },
        TlsFiles { certificate_pem: None, key_pem: None, ..full.clone() },
    ];
    for files in &wrong {
        let error = at(files).unwrap().snapshot().await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{files:?}: {error:?}");
    }
    let unusable = [
        TlsFiles { key_pem: None, ..full.clone() },
        TlsFiles { ca_pem: Some(b"no certificate".to_vec()), ..full.clone() },
        TlsFiles { key_pem: Some(b"no key".to_vec()), ..full.clone() },
    ];
    for files in &unusable {
        assert!(matches!(at(files), Err(SettingsError::Tls(_))), "{files:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_speaks_tls_to_all_nodes() {
    let certificates = Certificates::generate();
    let cluster = RedisCluster::builder().replicas_per_primary(0).tls(&certificates).start();
    let files = TlsFiles {
        ca_pem: Some(std::fs::read(certificates.ca()).expect("the authority")),
        ..TlsFiles::default()
    };
    let settings = settings();
    let owner = cluster.owner_of(slot(&settings));
    let other = (owner + 1) % 3;
    let seed = format!("rediss+cluster://{}", cluster.node(other).addr());
    let store = Store::redis(&url(&seed), Some(&files), settings).unwrap();
    let mut subscription = listen(&store, &[]).await;
    works(&store, &mut subscription).await;
}

#[test]
fn what_can_be_no_store_is_refused_before_anything_is_connected() {
    let refused = |text: &str| Store::redis(&url(text), None, settings()).unwrap_err();
    assert_eq!(refused("embedded://"), SettingsError::Embedded);
    assert_eq!(refused("redis://:%ff@localhost"), SettingsError::Credentials);
}
