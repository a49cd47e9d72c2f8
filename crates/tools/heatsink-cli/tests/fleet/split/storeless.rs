//! Keys that are split while the coordination store is away: the data says where values are.

use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, eventually, eventually_ok};

use crate::node::{Node, Servers, all, assemble};
use crate::split::kills::left_behind;
use crate::split::{manifests, rests_split, split};
use crate::support::{PATIENCE, Place};

/// A client that waits for five seconds is told to try again. Here it waits for half a second, the
/// time that one call to a store that hangs may take, and for what a busy machine adds.
const SOON: Duration = Duration::from_secs(3);

const KEYS: [&str; 6] = ["{k}del", "{k}expire", "{k}union", "{k}rename", "{k}script", "{k}multi"];

fn fill(client: &mut RawClient) {
    for key in KEYS {
        assert_eq!(client.command(&["SADD", key, "a", "b", "c"]), Reply::Integer(3));
    }
}

fn split_all(nodes: &[Node]) {
    for key in KEYS {
        nodes[0].api().promote(key.as_bytes(), split(4)).expect("promoted");
        all(nodes, PATIENCE, "it is split", |node| rests_split(node, key, 4));
    }
}

/// Commands that need a key whole are carried out.
fn use_whole(client: &mut RawClient) {
    let begun = Instant::now();
    let mut ask = |command: &[&str]| {
        let asked = Instant::now();
        let reply = client.command(command);
        assert!(asked.elapsed() < SOON, "{command:?}: {:?}", asked.elapsed());
        reply
    };
    assert_eq!(ask(&["DEL", "{k}del"]), Reply::Integer(1));
    assert_eq!(ask(&["EXPIRE", "{k}expire", "1000"]), Reply::Integer(1));
    assert_eq!(ask(&["SUNION", "{k}union", "{k}other"]).items().len(), 3);
    assert_eq!(ask(&["RENAME", "{k}rename", "{k}renamed"]), Reply::ok());
    let script = "return redis.call('SCARD', KEYS[1])";
    assert_eq!(ask(&["EVAL", script, "1", "{k}script"]), Reply::Integer(3));
    assert_eq!(ask(&["MULTI"]), Reply::ok());
    ask(&["SREM", "{k}multi", "a"]);
    assert_eq!(ask(&["EXEC"]), Reply::Array(vec![Reply::Integer(1)]));
    // Written to as any other.
    assert_eq!(ask(&["SADD", "{k}del", "x"]), Reply::Integer(1));
    assert_eq!(ask(&["SADD", "{k}union", "x"]), Reply::Integer(1));
    assert!(begun.elapsed() < PATIENCE);
}

/// What the values are afterwards, through whichever proxy.
fn check(client: &mut RawClient) -> Result<(), String> {
    for (key, count) in
        [("del", 1), ("expire", 3), ("union", 4), ("rename", 0), ("renamed", 3), ("multi", 2)]
    {
        let reply = client.command(&["SCARD", &format!("{{k}}{key}")]);
        if reply != Reply::Integer(count) {
            return Err(format!("{key}: {reply:?}"));
        }
    }
    Ok(())
}

#[test]
fn commands_that_need_a_key_whole_do_not_need_the_store() {
    let (place, mut servers) = (Place::empty(), Servers::start());
    let nodes = [servers.member(&place, "all", &[]), servers.member(&place, "all", &[])];
    assemble(&[&nodes[0], &nodes[1]]);
    fill(&mut nodes[0].client());
    split_all(&nodes);
    servers.store.kill();
    use_whole(&mut nodes[0].client());
    // Who was not told finds out.
    eventually_ok(PATIENCE, || check(&mut nodes[1].client()));
    check(&mut nodes[0].client()).expect("as it was left");
    // The store comes back without its data, and is told.
    servers.store.start_again();
    eventually(PATIENCE, || manifests(&mut servers.upstream.client()).is_empty());
    for node in &nodes {
        check(&mut node.client()).expect("as it was left");
    }
}

#[test]
fn nor_before_a_cluster() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let mut store = RedisServer::start();
    let member = || Node::member(&place, "all", &store.url(), &cluster.seed_url());
    let nodes = [member(), member()];
    assemble(&[&nodes[0], &nodes[1]]);
    fill(&mut nodes[0].client());
    split_all(&nodes);
    store.kill();
    let mut late = nodes[1].client();
    use_whole(&mut nodes[0].client());
    // One that was not told waits until it has found out.
    assert_eq!(late.command(&["SADD", "{k}expire", "y"]), Reply::Integer(1));
    assert_eq!(late.command(&["SREM", "{k}expire", "y"]), Reply::Integer(1));
    eventually_ok(PATIENCE, || check(&mut nodes[1].client()));
    check(&mut nodes[0].client()).expect("as it was left");
}

/// What becomes of the store.
#[derive(Clone, Copy)]
enum Trouble {
    /// Nobody listens there any more.
    Killed,
    /// Connections stay open, and nothing is answered.
    Hung,
}

impl Trouble {
    fn begin(self, store: &mut RedisServer) {
        match self {
            Self::Killed => store.kill(),
            Self::Hung => store.pause(),
        }
    }

    fn end(self, store: &mut RedisServer) {
        match self {
            Self::Killed => store.start_again(),
            Self::Hung => store.resume(),
        }
    }
}

/// Keys that only one of the proxies is asked for, by what they are asked for there.
const OWN: [&str; 7] = ["del", "expire", "union", "rename", "spop", "eval", "multi"];
/// Keys that both are asked for at the same moment.
const BOTH: [&str; 4] = ["both0", "both1", "both2", "both3"];
/// Keys that are still split at the end.
const REST: [&str; 10] = ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"];

fn own(what: &str, proxy: usize) -> String {
    format!("{{{what}{proxy}}}")
}

/// A client whose replies must not be late.
struct Timed(RawClient);

impl Timed {
    fn ask(&mut self, command: &[&str]) -> Reply {
        let asked = Instant::now();
        let reply = self.0.command(command);
        assert!(asked.elapsed() < SOON, "{command:?}: {:?} {reply:?}", asked.elapsed());
        reply
    }
}

/// Every command that needs a key whole, of one key after the other.
fn use_own(client: &mut Timed, proxy: usize) {
    let key = |what| own(what, proxy);
    assert_eq!(client.ask(&["DEL", &key("del")]), Reply::Integer(1));
    assert_eq!(client.ask(&["EXPIRE", &key("expire"), "1000"]), Reply::Integer(1));
    let other = format!("{}other", key("union"));
    assert_eq!(client.ask(&["SUNION", &key("union"), &other]).items().len(), 3);
    let renamed = format!("{}ed", key("rename"));
    assert_eq!(client.ask(&["RENAME", &key("rename"), &renamed]), Reply::ok());
    assert_eq!(client.ask(&["SPOP", &key("spop"), "2"]).items().len(), 2);
    let script = "return redis.call('SADD', KEYS[1], ARGV[1])";
    assert_eq!(client.ask(&["EVAL", script, "1", &key("eval"), "x"]), Reply::Integer(1));
    assert_eq!(client.ask(&["MULTI"]), Reply::ok());
    client.ask(&["SREM", &key("multi"), "a"]);
    assert_eq!(client.ask(&["EXEC"]), Reply::Array(vec![Reply::Integer(1)]));
}

/// Both proxies make the same key whole at the same moment, each for a write of its own.
fn use_both(client: &mut Timed, proxy: usize, key: &str) {
    let script = "return redis.call('SADD', KEYS[1], ARGV[1])";
    let member = format!("of {proxy}");
    assert_eq!(client.ask(&["EVAL", script, "1", key, &member]), Reply::Integer(1));
}

/// Both proxies at the same time.
fn each(clients: &mut [Timed], act: impl Fn(&mut Timed, usize) + Sync) {
    thread::scope(|scope| {
        for (proxy, client) in clients.iter_mut().enumerate() {
            let act = &act;
            scope.spawn(move || act(client, proxy));
        }
    });
}

fn check_used(client: &mut RawClient) -> Result<(), String> {
    let mut counts = BOTH.map(|key| (key.to_owned(), 5)).to_vec();
    for proxy in 0..2 {
        let each =
            [("del", 0), ("expire", 3), ("union", 3), ("spop", 1), ("eval", 4), ("multi", 2)];
        counts.extend(each.map(|(what, count)| (own(what, proxy), count)));
        counts.push((format!("{}ed", own("rename", proxy)), 3));
    }
    for (key, count) in counts {
        let reply = client.command(&["SCARD", &key]);
        if reply != Reply::Integer(count) {
            return Err(format!("{key}: {reply:?}"));
        }
    }
    Ok(())
}

/// With the store away, each proxy makes keys whole for its own clients, and both at once the same
/// ones; `last` is about all that are still split.
fn through_two_proxies(upstream: &str, trouble: Trouble, last: &[&str]) {
    let place = Place::empty();
    let mut store = RedisServer::start();
    let member = || Node::member(&place, "all", &store.url(), upstream);
    let nodes = [member(), member()];
    assemble(&[&nodes[0], &nodes[1]]);
    let of_proxies = (0..2).flat_map(|proxy| OWN.map(|what| own(what, proxy)));
    let keys: Vec<_> = of_proxies.chain(BOTH.into_iter().chain(REST).map(str::to_owned)).collect();
    let mut client = nodes[0].client();
    for key in &keys {
        assert_eq!(client.command(&["SADD", key, "a", "b", "c"]), Reply::Integer(3));
        nodes[0].api().promote(key.as_bytes(), split(4)).expect("promoted");
    }
    for key in &keys {
        all(&nodes, PATIENCE, "it is split", |node| rests_split(node, key, 4));
    }
    trouble.begin(&mut store);
    let mut clients = nodes.each_ref().map(|node| Timed(node.client()));
    each(&mut clients, use_own);
    for key in BOTH {
        each(&mut clients, |client, proxy| use_both(client, proxy, key));
    }
    for node in &nodes {
        eventually_ok(PATIENCE, || check_used(&mut node.client()));
    }
    assert_eq!(clients[1].ask(last), Reply::ok());
    // What the other acknowledges from now on must be seen, although nobody has told it.
    for (client, member) in clients.iter_mut().zip(["of 0", "of 1"]) {
        for key in REST {
            assert_eq!(client.ask(&["SADD", key, member]), Reply::Integer(1), "{key}");
        }
    }
    let are_as_left = |client: &mut RawClient| {
        let counts = REST.map(|key| client.command(&["SCARD", key]));
        if counts.iter().all(|count| *count == Reply::Integer(2)) {
            return Ok(());
        }
        Err(format!("{counts:?}"))
    };
    for node in &nodes {
        eventually_ok(PATIENCE, || are_as_left(&mut node.client()));
    }
    // The registry is told when it is there again.
    trouble.end(&mut store);
    for key in &keys {
        all(&nodes, PATIENCE, "it is whole", |node| {
            node.is_well() && node.entry(key).is_none_or(|entry| entry.split.is_none())
        });
    }
    for node in &nodes {
        are_as_left(&mut node.client()).expect("as it was left");
    }
}

#[test]
fn two_proxies_of_a_cluster_do_not_need_a_store_that_is_killed() {
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    through_two_proxies(&cluster.seed_url(), Trouble::Killed, &["FLUSHALL"]);
}

#[test]
fn nor_one_that_hangs() {
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    through_two_proxies(&cluster.seed_url(), Trouble::Hung, &["FLUSHALL"]);
}

#[test]
fn nor_do_those_of_one_server() {
    let server = RedisServer::start();
    through_two_proxies(&server.url(), Trouble::Hung, &["SWAPDB", "0", "1"]);
    let server = RedisServer::start();
    through_two_proxies(&server.url(), Trouble::Killed, &["FLUSHDB"]);
}

/// A key whose mover has died at a labelled place, and then the store hangs, before anybody could
/// finish what was begun.
fn left_without_the_store(label: &str) {
    let (place, mut servers) = (Place::empty(), Servers::start());
    let (node, key) = left_behind(&place, &servers, label);
    servers.store.pause();
    let mut client = Timed(node.client());
    let script = "return redis.call('ZADD', KEYS[1], 3, ARGV[1])";
    assert_eq!(client.ask(&["EVAL", script, "1", &key, "e"]), Reply::Integer(1), "{label}");
    assert_eq!(client.ask(&["ZADD", &key, "3", "f"]), Reply::Integer(1), "{label}");
    assert_eq!(client.ask(&["ZCARD", &key]), Reply::Integer(6), "{label}");
    servers.store.resume();
    eventually(PATIENCE, || {
        let entry = node.entry(&key).unwrap_or_default();
        node.is_well() && entry.split_phase().is_none_or(|phase| phase == "split")
    });
    assert_eq!(node.client().command(&["ZCARD", &key]), Reply::Integer(6), "{label}");
}

#[test]
fn a_split_that_was_begun_is_given_up_without_the_store() {
    left_without_the_store("split:frozen");
    left_without_the_store("split:committed");
}

#[test]
fn and_an_end_that_was_begun_is_finished() {
    left_without_the_store("unsplit:draining");
    left_without_the_store("unsplit:sealed");
}
