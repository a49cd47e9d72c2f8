//! The cluster rig against real `redis-server` processes: every state a test may put it in.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use heatsink_testkit::{
    Certificates, ClientAuth, RawClient, RedisCluster, Reply, SLOTS, eventually, key_for_slot,
    key_slot,
};

const SOON: Duration = Duration::from_secs(10);

fn small() -> RedisCluster {
    RedisCluster::builder().primaries(2).replicas_per_primary(0).start()
}

fn connected(cluster: &RedisCluster, index: usize) -> RawClient {
    cluster.node(index).client()
}

#[test]
fn three_primaries_and_three_replicas_serve_every_slot() {
    let cluster = RedisCluster::start();
    assert_eq!(cluster.nodes().len(), 6);
    assert_eq!(cluster.primaries(), [0, 1, 2]);
    for index in 0..3 {
        assert_eq!(cluster.replicas_of(index), [index + 3]);
        assert!((5461..=5462).contains(&cluster.slot_count(index)));
        let key = cluster.key_on(index, "name");
        assert!(key.ends_with("}name"), "{key}");
        assert_eq!(cluster.owner_of(key_slot(&key)), index);
        let mut client = connected(&cluster, index);
        assert_eq!(client.command(&["SET", &key, "v"]), Reply::ok());
        assert_eq!(client.command(&["GET", &key]), Reply::bulk("v"));
        assert_eq!(cluster.calls(index, "get"), 1);
        assert_eq!(cluster.info_u64(index, "connected_slaves"), 1);
        let mut replica = connected(&cluster, index + 3);
        assert_eq!(replica.command(&["READONLY"]), Reply::ok());
        eventually(SOON, || replica.command(&["GET", &key]) == Reply::bulk("v"));
        let elsewhere = connected(&cluster, (index + 1) % 3).command(&["GET", &key]).error();
        assert_eq!(
            elsewhere,
            format!("MOVED {} 127.0.0.1:{}", key_slot(&key), cluster.node(index).port())
        );
    }
    let epochs: BTreeSet<u64> = (0..3).map(|index| epoch(&cluster, index)).collect();
    assert_eq!(epochs.len(), 3);
    let addrs: Vec<String> = cluster.nodes().map(|node| node.addr().to_string()).collect();
    assert_eq!(cluster.seed_url(), format!("redis+cluster://{}", addrs.join(",")));
}

fn epoch(cluster: &RedisCluster, index: usize) -> u64 {
    let info = connected(cluster, index).command(&["CLUSTER", "INFO"]).text();
    let line = info.lines().find_map(|line| line.strip_prefix("cluster_my_epoch:"));
    line.expect("an epoch").parse().expect("a number")
}

#[test]
fn slots_of_keys_are_what_the_server_says() {
    let cluster = small();
    let mut client = connected(&cluster, 0);
    for key in ["", "a", "{a}b", "{}b", "a{b", "{{a}}", "a{b}{c}", "}{x}", "ключ", "123456789"]
    {
        let slot = client.command(&["CLUSTER", "KEYSLOT", key]).integer();
        assert_eq!(i64::from(key_slot(key)), slot, "{key}");
    }
}

#[test]
fn a_slot_moves_with_all_its_keys() {
    let cluster = small();
    let slot = 77;
    let tag = key_for_slot(slot);
    let mut source = connected(&cluster, 0);
    for n in 0..250 {
        let set = ["SET", &format!("{tag}{n}"), &format!("value {n}")];
        assert_eq!(source.command(&set), Reply::ok());
    }
    source.command(&["RPUSH", &format!("{tag}list"), "a", "b"]);
    cluster.move_slot(slot, 1);
    assert_eq!(cluster.owner_of(slot), 1);
    let mut target = connected(&cluster, 1);
    for n in 0..250 {
        let value = target.command(&["GET", &format!("{tag}{n}")]);
        assert_eq!(value, Reply::bulk(format!("value {n}")));
    }
    let list = target.command(&["LRANGE", &format!("{tag}list"), "0", "-1"]);
    assert_eq!(list, Reply::bulks(["a", "b"]));
    assert!(source.command(&["GET", &tag]).error().starts_with("MOVED 77 "));
    cluster.wait_until_ok();

    cluster.move_slot(slot, 1); // it is there already
    for to in [0, 1, 0] {
        cluster.move_slot(slot, to);
        assert_eq!(cluster.owner_of(slot), to);
    }
    assert_eq!(source.command(&["GET", &format!("{tag}249")]), Reply::bulk("value 249"));
    assert_eq!(source.command(&["DBSIZE"]), Reply::Integer(251));
    assert_eq!(target.command(&["DBSIZE"]), Reply::Integer(0));
}

#[test]
fn a_slot_moves_to_and_fro_while_it_is_written() {
    let cluster = small();
    let slot = 5;
    let key = key_for_slot(slot) + "counter";
    let rounds = 20;
    let counted = thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for round in 1..=rounds {
                cluster.move_slot(slot, round % 2);
            }
        });
        let mut counted = 0;
        while !mover.is_finished() {
            counted += increment(&cluster, &key);
        }
        mover.join().expect("no panic");
        counted
    });
    assert!(counted > rounds as i64, "{counted}");
    assert_eq!(cluster.owner_of(slot), 0);
    let value = connected(&cluster, 0).command(&["GET", &key]);
    assert_eq!(value, Reply::bulk(counted.to_string()));
}

/// One increment, following redirections as a client would: 1, or 0 when told to try again.
fn increment(cluster: &RedisCluster, key: &str) -> i64 {
    let mut client = connected(cluster, 0);
    for _ in 0..10 {
        let reply = client.command(&["INCR", key]);
        if let Reply::Integer(_) = reply {
            return 1;
        }
        let error = reply.error();
        let mut words = error.split(' ');
        match (words.next(), words.nth(1)) {
            (Some(kind @ ("MOVED" | "ASK")), Some(addr)) => {
                client = RawClient::connect(addr);
                if kind == "ASK" {
                    assert_eq!(client.command(&["ASKING"]), Reply::ok());
                }
            }
            (Some("TRYAGAIN"), _) => return 0,
            _ => panic!("{error}"),
        }
    }
    0
}

#[test]
fn between_the_steps_of_a_move_clients_are_told_to_ask() {
    let cluster = small();
    let slot = SLOTS - 1;
    let tag = key_for_slot(slot);
    let (a, b) = (format!("{tag}a"), format!("{tag}b"));
    let (mut source, mut target) = (connected(&cluster, 1), connected(&cluster, 0));
    assert_eq!(source.command(&["MSET", &a, "1", &b, "2"]), Reply::ok());

    cluster.begin_move_slot(slot, 0);
    assert_eq!(source.command(&["GET", &a]), Reply::bulk("1"));
    let ask = format!("ASK {slot} 127.0.0.1:{}", cluster.node(0).port());
    assert_eq!(source.command(&["GET", &format!("{tag}none")]).error(), ask);

    assert_eq!(cluster.migrate_some_keys(slot, 0, 1), 1);
    let gone = if source.command(&["GET", &a]).is_error() { &a } else { &b };
    assert_eq!(source.command(&["GET", gone]).error(), ask);
    assert!(source.command(&["MGET", &a, &b]).error().starts_with("TRYAGAIN"));
    let moved = format!("MOVED {slot} 127.0.0.1:{}", cluster.node(1).port());
    assert_eq!(target.command(&["GET", gone]).error(), moved);
    assert_eq!(target.command(&["ASKING"]), Reply::ok());
    assert!(matches!(target.command(&["GET", gone]), Reply::Bulk(_)));

    assert_eq!(cluster.migrate_keys(slot, 0), 1);
    assert_eq!(source.command(&["MGET", &a, &b]).error(), ask);
    assert_eq!(cluster.owner_of(slot), 1);
    cluster.finish_move_slot(slot, 0);
    assert_eq!(cluster.owner_of(slot), 0);
    assert_eq!(target.command(&["MGET", &a, &b]), Reply::bulks(["1", "2"]));
    cluster.wait_until_ok();

    cluster.begin_move_slot(slot, 1);
    assert!(target.command(&["GET", &tag]).error().starts_with("ASK"));
    cluster.abandon_move_slot(slot, 1);
    assert_eq!(target.command(&["GET", &tag]), Reply::Null);
}

#[test]
fn a_replica_takes_over_from_a_killed_primary_and_keeps_its_keys() {
    let mut cluster = RedisCluster::start();
    let key = cluster.key_on(1, "k");
    let mut client = connected(&cluster, 1);
    assert_eq!(client.command(&["SET", &key, "v"]), Reply::ok());
    cluster.kill_when_replicated(1);
    cluster.wait_until_ok();
    assert_eq!(cluster.primaries(), [0, 2, 4]);
    assert_eq!(cluster.owner_of(key_slot(&key)), 4);
    assert_eq!(connected(&cluster, 4).command(&["GET", &key]), Reply::bulk("v"));

    cluster.restart(1);
    eventually(SOON, || cluster.replicas_of(4) == [1]);
    cluster.wait_until_ok();
    assert_eq!(cluster.primaries(), [0, 2, 4]);

    cluster.failover(1);
    assert_eq!(cluster.primaries(), [0, 1, 2]);
    assert_eq!(cluster.replicas_of(1), [4]);
    assert_eq!(connected(&cluster, 1).command(&["GET", &key]), Reply::bulk("v"));
}

#[test]
fn a_paused_primary_is_replaced_and_comes_back_as_a_replica() {
    let mut cluster = RedisCluster::start();
    let mut client = connected(&cluster, 0);
    cluster.pause(0);
    client.send(&["PING"]);
    cluster.wait_until_ok();
    assert_eq!(cluster.primaries(), [1, 2, 3]);
    assert_eq!(client.try_read_frame(Duration::from_millis(20)).expect("open"), None);
    cluster.resume(0);
    assert_eq!(client.read_reply(), Reply::Simple("PONG".into()));
    eventually(SOON, || cluster.replicas_of(3) == [0]);
    cluster.wait_until_ok();
}

#[test]
fn users_and_their_rights_hold_on_every_node_and_slots_move_all_the_same() {
    let cluster = RedisCluster::builder()
        .line("user default off")
        .line("user boss on >over-all ~* &* +@all")
        .line("user reader on >books %R~* +@read +cluster")
        .admin("boss", "over-all")
        .start();
    let key = cluster.key_on(0, "k");
    for index in 0..6 {
        assert!(connected(&cluster, index).command(&["GET", "a"]).error().starts_with("NOAUTH"));
        let mut reader = connected(&cluster, index);
        assert_eq!(reader.command(&["AUTH", "reader", "books"]), Reply::ok());
        assert!(reader.command(&["SET", &key, "v"]).error().starts_with("NOPERM"));
    }
    assert_eq!(cluster.node(0).admin_client().command(&["SET", &key, "v"]), Reply::ok());
    cluster.move_slot(key_slot(&key), 1);
    assert_eq!(cluster.node(1).admin_client().command(&["GET", &key]), Reply::bulk("v"));
}

#[test]
fn one_password_for_all() {
    let builder = RedisCluster::builder().primaries(2).replicas_per_primary(1);
    let cluster = builder.password("secret").start();
    let key = cluster.key_on(1, "k");
    assert!(connected(&cluster, 1).command(&["GET", &key]).error().starts_with("NOAUTH"));
    let mut client = connected(&cluster, 1);
    assert_eq!(client.command(&["AUTH", "secret"]), Reply::ok());
    assert_eq!(client.command(&["SET", &key, "v"]), Reply::ok());
    cluster.move_slot(key_slot(&key), 0);
    assert_eq!(cluster.node(0).admin_client().command(&["GET", &key]), Reply::bulk("v"));
}

#[test]
fn everything_over_tls() {
    let certificates = Certificates::generate();
    let mut cluster = RedisCluster::builder()
        .tls(&certificates)
        .tls_auth_clients(ClientAuth::Required)
        .node_timeout(Duration::from_millis(1500))
        .start();
    assert!(cluster.seed_url().starts_with("rediss+cluster://127.0.0.1:"));
    let key = cluster.key_on(0, "k");
    let mut client = connected(&cluster, 0);
    assert!(client.tls_version().is_some());
    assert_eq!(client.command(&["SET", &key, "v"]), Reply::ok());
    let moved = connected(&cluster, 1).command(&["GET", &key]).error();
    assert!(moved.ends_with(&format!(":{}", cluster.node(0).tls_port())), "{moved}");
    cluster.move_slot(key_slot(&key), 2);
    let mut client = connected(&cluster, 2);
    assert_eq!(client.command(&["GET", &key]), Reply::bulk("v"));
    assert_eq!(client.command(&["WAIT", "1", "5000"]), Reply::Integer(1));
    cluster.kill(2);
    cluster.wait_until_ok();
    assert_eq!(connected(&cluster, 5).command(&["GET", &key]), Reply::bulk("v"));
}
