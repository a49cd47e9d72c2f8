//! What a client of one server expects, with its keys spread over three.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use heatsink_conformance::{ClusterRig, Rig};
use heatsink_testkit::{RawClient, Reply, encode, eventually};

const SOON: Duration = Duration::from_secs(5);

/// One for all tests that break nothing; each uses keys of its own.
static RIG: LazyLock<ClusterRig> = LazyLock::new(|| ClusterRig::new(2));

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}:{n}")).collect()
}

#[test]
fn keys_of_all_nodes_in_one_pipeline_are_answered_in_order() {
    let mut client = RIG.client();
    let mut bytes = Vec::new();
    for n in 0..1000 {
        bytes.extend(encode(&["SET", &format!("order:{n}"), &n.to_string()]));
        bytes.extend(encode(&["GET", &format!("order:{n}")]));
        bytes.extend(encode(&["INCR", &format!("order:{}", n / 2)]));
    }
    client.send_raw(&bytes);
    for n in 0..1000_i64 {
        assert_eq!(client.read_reply(), Reply::ok());
        assert_eq!(client.read_reply(), Reply::bulk(n.to_string()));
        let half = n / 2;
        // Its own value, and one for each time it was incremented before.
        assert_eq!(client.read_reply().integer(), half + 1 + n % 2);
    }
}

#[test]
fn commands_on_many_keys_are_taken_apart_and_joined() {
    let mut client = RIG.client();
    let keys = names("many", 100);
    let mut set = vec!["MSET".to_owned()];
    set.extend(keys.iter().flat_map(|key| [key.clone(), format!("v-{key}")]));
    assert_eq!(client.command(&set), Reply::ok());
    let with = |name: &str| [&[name.to_owned()], &keys[..]].concat();
    let mut get = with("MGET");
    get.insert(50, "many:missing".to_owned());
    let got = client.command(&get);
    assert_eq!(got.items().len(), 101);
    for (key, value) in get[1..].iter().zip(got.items()) {
        match key.as_str() {
            "many:missing" => assert_eq!(*value, Reply::Null),
            key => assert_eq!(*value, Reply::bulk(format!("v-{key}"))),
        }
    }
    assert_eq!(client.command(&with("EXISTS")).integer(), 100);
    assert_eq!(client.command(&with("TOUCH")).integer(), 100);
    assert_eq!(client.command(&with("DEL")).integer(), 100);
    assert_eq!(client.command(&with("UNLINK")).integer(), 0);
    let wrong = client.command(&["MSET", "a", "1", "b"]);
    assert!(wrong.error().contains("wrong number of arguments"), "{wrong:?}");
}

#[test]
fn what_a_cluster_cannot_do_gets_the_servers_own_error() {
    let mut client = RIG.client();
    let cross = "CROSSSLOT Keys in request don't hash to the same slot";
    for command in [
        &["RENAME", "cross:1", "cross:2"][..],
        &["MSETNX", "cross:1", "1", "cross:2", "2"],
        &["SUNION", "cross:1", "cross:2"],
        &["EVAL", "return 1", "2", "cross:1", "cross:2"],
        &["BLPOP", "cross:1", "cross:2", "0"],
    ] {
        assert_eq!(client.command(command).error(), cross, "{command:?}");
    }
    assert_eq!(client.command(&["SELECT", "0"]), Reply::ok());
    assert!(client.command(&["SELECT", "1"]).is_error());
    assert_eq!(client.command(&["SET", "cross:ok", "1"]), Reply::ok());
}

#[test]
fn commands_without_a_key_speak_for_all_nodes() {
    let rig = ClusterRig::new(1);
    let mut client = rig.client();
    let keys = names("all", 300);
    for key in &keys {
        client.command(&["SET", key, "1"]);
    }
    assert_eq!(client.command(&["DBSIZE"]).integer(), 300);
    let expected: BTreeSet<_> = keys.iter().cloned().collect();
    let texts = |reply: &Reply| -> Vec<String> { reply.items().iter().map(Reply::text).collect() };
    let listed = texts(&client.command(&["KEYS", "all:*"]));
    assert_eq!(
        (listed.len(), listed.into_iter().collect::<BTreeSet<_>>()),
        (300, expected.clone())
    );
    let mut scanned = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = client.command(&["SCAN", &cursor, "COUNT", "7"]);
        scanned.extend(texts(&reply.items()[1]));
        cursor = reply.items()[0].text();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(
        (scanned.len(), scanned.into_iter().collect::<BTreeSet<_>>()),
        (300, expected.clone())
    );
    assert!(expected.contains(&client.command(&["RANDOMKEY"]).text()));
    assert!(client.command(&["INFO", "keyspace"]).text().contains("db0:keys=300,"));
    assert_eq!(client.command(&["PING"]).text(), "PONG");
    assert_eq!(client.command(&["PING", "x"]), Reply::bulk("x"));
    let sha = client.command(&["SCRIPT", "LOAD", "return redis.call('GET', KEYS[1])"]).text();
    for key in &keys[..20] {
        assert_eq!(client.command(&["EVALSHA", &sha, "1", key]), Reply::bulk("1"));
    }
    assert_eq!(client.command(&["SCRIPT", "EXISTS", &sha]).items()[0].integer(), 1);
    let library = "#!lua name=lib\nredis.register_function('f', function(k) return redis.call('GET', k[1]) end)";
    assert_eq!(client.command(&["FUNCTION", "LOAD", library]).text(), "lib");
    for key in &keys[..20] {
        assert_eq!(client.command(&["FCALL", "f", "1", key]), Reply::bulk("1"));
    }
    // Nodes tell of a new replica only once they have heard how far it is.
    eventually(2 * SOON, || {
        assert_eq!(client.command(&["CONFIG", "SET", "slowlog-max-len", "77"]), Reply::ok());
        rig.cluster.nodes().all(|node| {
            let got = node.client().command(&["CONFIG", "GET", "slowlog-max-len"]);
            got.items()[1].text() == "77"
        })
    });
    assert_eq!(client.command(&["WAIT", "1", "1000"]).integer(), 1);
    assert_eq!(client.command(&["FLUSHALL"]), Reply::ok());
    assert_eq!(client.command(&["DBSIZE"]).integer(), 0);
    assert_eq!(client.command(&["RANDOMKEY"]), Reply::Null);
}

#[test]
fn transactions_run_on_the_node_of_their_keys() {
    let mut client = RIG.client();
    for n in 0..20 {
        let (a, b) = (format!("{{tx{n}}}a"), format!("{{tx{n}}}b"));
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["PING"]).text(), "QUEUED");
        assert_eq!(client.command(&["SET", &a, "1"]).text(), "QUEUED");
        assert_eq!(client.command(&["INCR", &b]).text(), "QUEUED");
        let done = client.command(&["EXEC"]);
        assert_eq!(done.items().len(), 3, "{done:?}");
        assert_eq!(done.items()[2].integer(), 1);
    }
    // All in one write.
    let mut bytes = Vec::new();
    for command in
        [&["MULTI"][..], &["SET", "{p}1", "x"], &["GET", "{p}1"], &["EXEC"], &["GET", "{q}1"]]
    {
        bytes.extend(encode(command));
    }
    client.send_raw(&bytes);
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply().text(), "QUEUED");
    assert_eq!(client.read_reply().text(), "QUEUED");
    assert_eq!(client.read_reply().items()[1], Reply::bulk("x"));
    assert_eq!(client.read_reply(), Reply::Null);
    // Keys of different slots.
    let cross = "CROSSSLOT Keys in request don't hash to the same slot";
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    assert_eq!(client.command(&["SET", "{tx0}c", "1"]).text(), "QUEUED");
    let mut crossed = 0;
    for n in 1..20 {
        let reply = client.command(&["SET", &format!("{{tx{n}}}c"), "1"]);
        crossed += usize::from(reply.is_error() && reply.error() == cross);
    }
    assert!(crossed > 0);
    assert!(client.command(&["EXEC"]).error().starts_with("EXECABORT"));
    assert_eq!(client.command(&["EXISTS", "{tx0}c"]).integer(), 0);
    // Without commands, and given up.
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    assert_eq!(client.command(&["EXEC"]).items().len(), 0);
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    assert_eq!(client.command(&["DISCARD"]), Reply::ok());
    assert_eq!(client.command(&["EXEC"]).error(), "ERR EXEC without MULTI");
}

#[test]
fn a_watched_key_that_is_touched_fails_the_transaction() {
    let (mut client, mut other) = (RIG.client(), RIG.client());
    for n in 0..10 {
        let key = format!("watched:{n}");
        assert_eq!(client.command(&["WATCH", &key]), Reply::ok());
        // A read of another node's key in between.
        assert_eq!(client.command(&["GET", &format!("unwatched:{n}")]), Reply::Null);
        assert_eq!(client.command(&["GET", &key]), Reply::Null);
        if n % 2 == 0 {
            other.command(&["SET", &key, "theirs"]);
        }
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["SET", &key, "ours"]).text(), "QUEUED");
        let done = client.command(&["EXEC"]);
        assert_eq!(done == Reply::Null, n % 2 == 0, "{done:?}");
    }
}

#[test]
fn blocking_commands_wait_at_the_node_of_their_key() {
    for n in 0..6 {
        let (mut waiting, mut other) = (RIG.client(), RIG.client());
        let queue = format!("queue:{n}");
        let before = blocked();
        waiting.send(&["BLPOP", &queue, "0"]);
        eventually(SOON, || blocked() == before + 1);
        assert_eq!(other.command(&["RPUSH", &queue, "x"]).integer(), 1);
        assert_eq!(waiting.read_reply(), Reply::bulks([queue.as_str(), "x"]));
        assert_eq!(waiting.command(&["LLEN", &queue]).integer(), 0);
    }
}

fn blocked() -> u64 {
    RIG.cluster.nodes().map(|node| node.info_u64("clients", "blocked_clients")).sum()
}

#[test]
fn messages_reach_subscribers_wherever_they_are_published() {
    let mut subscribers: Vec<_> = (0..6).map(|_| RIG.client()).collect();
    for subscriber in &mut subscribers {
        let confirmed = subscriber.command(&["SUBSCRIBE", "news"]);
        assert_eq!(confirmed.items()[2].integer(), 1);
    }
    let mut publishers: Vec<_> = (0..3).map(|_| RIG.client()).collect();
    for (n, publisher) in publishers.iter_mut().enumerate() {
        publisher.command(&["PUBLISH", "news", &n.to_string()]);
        for subscriber in &mut subscribers {
            let message = subscriber.read_reply();
            assert_eq!(message, Reply::bulks(["message", "news", &n.to_string()]));
        }
    }
    for n in 0..5 {
        let channel = format!("shard:{n}");
        let mut subscriber = RIG.client();
        assert_eq!(subscriber.command(&["SSUBSCRIBE", &channel]).items()[2].integer(), 1);
        assert_eq!(publishers[0].command(&["SPUBLISH", &channel, "x"]).integer(), 1);
        assert_eq!(subscriber.read_reply(), Reply::bulks(["smessage", &channel, "x"]));
    }
}

#[test]
fn to_cluster_clients_it_is_a_cluster_of_one_node() {
    let mut client = RIG.client();
    let slots = client.command(&["CLUSTER", "SLOTS"]);
    let [range] = slots.items() else { panic!("{slots:?}") };
    assert_eq!((range.items()[0].integer(), range.items()[1].integer()), (0, 16383));
    let node = &range.items()[2];
    assert_eq!(node.items()[0].text(), "127.0.0.1");
    assert_eq!(node.items()[1].integer(), i64::from(RIG.heatsink.addr().port()));
    assert!(client.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok"));
    assert_eq!(client.command(&["CLUSTER", "KEYSLOT", "foo"]).integer(), 12182);
    assert_eq!(client.command(&["READONLY"]), Reply::ok());
    assert_eq!(client.command(&["GET", "announced"]), Reply::Null);
    let refused = client.command(&["CLUSTER", "FAILOVER"]);
    assert!(refused.error().contains("for one node"), "{refused:?}");
    client.command(&["SET", "counted", "1"]);
    let slot = client.command(&["CLUSTER", "KEYSLOT", "counted"]).integer().to_string();
    assert_eq!(client.command(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).integer(), 1);
}

#[test]
fn what_info_sums_up_is_reset_on_every_node() {
    // Others count meanwhile.
    let rig = Rig::cluster().servers(|cluster| cluster.replicas_per_primary(0)).workers(1).start();
    let mut client = rig.client();
    for key in names("reset", 60) {
        client.command(&["GETRANGE", &key, "0", "1"]);
    }
    let calls = |client: &mut RawClient| {
        client.command(&["INFO", "commandstats"]).text().contains("cmdstat_getrange")
    };
    assert!(calls(&mut client));
    assert_eq!(client.command(&["CONFIG", "RESETSTAT"]), Reply::ok());
    assert!(!calls(&mut client));

    // The slow log is that of all nodes, and as long as it was asked for.
    client.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    for key in names("slow", 60) {
        client.command(&["GETRANGE", &key, "0", "1"]);
    }
    for (count, expected) in [("1", 1), ("25", 25), ("0", 0)] {
        assert_eq!(client.command(&["SLOWLOG", "GET", count]).items().len(), expected);
    }
    assert_eq!(client.command(&["SLOWLOG", "GET"]).items().len(), 10);
    assert!(client.command(&["SLOWLOG", "GET", "-1"]).items().len() > 60);
    assert!(client.command(&["SLOWLOG", "GET", "x"]).is_error());
}

#[test]
fn a_replica_of_one_node_is_not_taken_for_one_of_all() {
    for request in [&["SYNC"][..], &["PSYNC", "?", "-1"], &["REPLCONF", "capa", "eof"]] {
        let mut client = RIG.client();
        assert!(client.command(request).error().starts_with("ERR heatsink: not possible"));
        assert_eq!(client.command(&["PING"]).text(), "PONG");
    }
    assert!(RIG.client().command(&["INFO", "cluster"]).text().contains("cluster_enabled:1"));
}
