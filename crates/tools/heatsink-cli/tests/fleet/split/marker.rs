//! Writes past all proxies to the name of a split key: what they do to its marker, and what becomes
//! of the value. What is promised is in `docs/splitting.md`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heatsink_cluster::slot;
use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, eventually};

use crate::node::{Node, Servers, all, assemble};
use crate::split::{manifests, rests_split, split};
use crate::support::{Finished, PATIENCE, Place};

/// A cluster, a store, and proxies.
struct Fleet {
    place: Place,
    cluster: RedisCluster,
    store: RedisServer,
    nodes: Vec<Node>,
}

impl Fleet {
    fn start(proxies: usize) -> Self {
        let place = Place::empty();
        let cluster = RedisCluster::builder().replicas_per_primary(0).start();
        let mut fleet = Self { place, cluster, store: RedisServer::start(), nodes: Vec::new() };
        fleet.nodes = (0..proxies).map(|_| fleet.proxy("")).collect();
        assemble(&fleet.nodes.iter().collect::<Vec<_>>());
        fleet
    }

    /// One more; with a label, it ends there.
    fn proxy(&self, label: &str) -> Node {
        let (store, upstream) = (self.store.url(), self.cluster.seed_url());
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--log", "info"];
        let serve = self.place.heatsink(&fixed).args(["--coordination-url", &store]);
        Node::of(serve.args(["--upstream", &upstream]).env("HEATSINK_FAULT", label))
    }

    /// A client that goes past all proxies, to the server of a key.
    fn direct(&self, key: &str) -> RawClient {
        self.cluster.node(self.cluster.owner_of(slot::of_key(key.as_bytes()))).client()
    }

    /// A command that does so.
    fn past(&self, command: &[&str]) -> Reply {
        let reply = self.direct(command[1]).command(command);
        assert!(!reply.is_error(), "{command:?}: {reply:?}");
        reply
    }

    fn client(&self) -> RawClient {
        let mut client = self.nodes[0].client();
        client.set_timeout(PATIENCE);
        client
    }

    /// Counters of 10, or sets of three, all of them split.
    fn split(&self, keys: &[&str]) {
        let mut client = self.client();
        for key in keys {
            if is_counter(key) {
                client.command(&["SET", key, "10"]);
            } else {
                client.command(&["SADD", key, "a", "b", "c"]);
            }
            self.nodes[0].api().promote(key.as_bytes(), split(4)).expect("promoted");
        }
        for key in keys {
            all(&self.nodes, PATIENCE, "it is split", |node| rests_split(node, key, 4));
        }
    }

    /// What stands at a key, whoever knows what of it.
    fn at(&self, key: &str) -> String {
        let mut direct = self.direct(key);
        match direct.command(&["TYPE", key]).text().as_str() {
            "string" => direct.command(&["GET", key]).text(),
            "list" => format!("{:?}", direct.command(&["LRANGE", key, "0", "-1"])),
            "set" => {
                let members = direct.command(&["SMEMBERS", key]);
                let mut members: Vec<String> = members.items().iter().map(Reply::text).collect();
                members.sort();
                members.join(" ")
            }
            other => other.to_owned(),
        }
    }

    fn has_manifests(&self) -> bool {
        !manifests(&mut self.direct("heatsink:{default}:splits")).is_empty()
    }

    fn stop(&mut self) {
        for node in &mut self.nodes {
            node.process.terminate();
            node.process.wait_exit(PATIENCE);
        }
    }

    fn drain(&self) -> Finished {
        let (store, upstream) = (self.store.url(), self.cluster.seed_url());
        self.place.run(&["drain", "--coordination-url", &store, "--upstream", &upstream])
    }
}

fn is_counter(key: &str) -> bool {
    key.contains("counter")
}

/// Commands that fit the marker's type, one a key, and leave something of it.
const DAMAGE: [&[&str]; 10] = [
    &["RPUSH", "counter:rpush", "x"],
    &["LPUSH", "counter:lpush", "x", "y", "z"],
    &["RPOP", "counter:rpop"],
    &["LPOP", "counter:lpop"],
    &["LREM", "counter:lrem", "0", "heatsink:split"],
    &["LSET", "counter:lset", "0", "x"],
    &["APPEND", "set:append", "x"],
    &["SETRANGE", "set:name", "0", "x"],
    &["SETRANGE", "set:id", "16", "x"],
    &["SETRANGE", "set:longer", "100", "x"],
];

fn keys_of(commands: &[&[&'static str]]) -> Vec<&'static str> {
    commands.iter().map(|command| command[1]).collect()
}

#[test]
fn a_marker_that_strangers_have_changed_is_mended() {
    let fleet = Fleet::start(2);
    let keys = keys_of(&DAMAGE);
    fleet.split(&keys);
    let before: Vec<String> = keys.iter().map(|key| fleet.at(key)).collect();
    for command in DAMAGE {
        fleet.past(command);
    }
    let mut client = fleet.client();
    let mut ask = |key: &str| {
        if is_counter(key) {
            [client.command(&["INCR", key]), client.command(&["GET", key])]
        } else {
            [client.command(&["SADD", key, "d"]), client.command(&["SCARD", key])]
        }
    };
    let answers = |key: &str| {
        let counter = is_counter(key);
        if counter {
            [Reply::Integer(11), Reply::bulk("11")]
        } else {
            [Reply::Integer(1), Reply::Integer(4)]
        }
    };
    // At once, while it is changed, and by itself as it was before.
    for key in &keys {
        assert_eq!(ask(key), answers(key), "{key}");
    }
    for (key, before) in keys.iter().zip(&before) {
        eventually(PATIENCE, || fleet.at(key) == *before);
        all(&fleet.nodes, PATIENCE, "it is split", |node| rests_split(node, key, 4));
    }
    let mended: u64 = fleet.nodes.iter().map(|node| metric(node, "mended")).sum();
    assert_eq!(mended, DAMAGE.len() as u64, "each of them once");
    // Changed again while it is made whole.
    for (key, command) in keys.iter().zip(DAMAGE) {
        fleet.past(command);
        fleet.nodes[1].api().demote(key.as_bytes()).expect("removed");
    }
    for key in keys {
        all(&fleet.nodes, PATIENCE, "it is whole", |node| node.lacks(key));
        assert_eq!(fleet.at(key), if is_counter(key) { "11" } else { "a b c d" }, "{key}");
    }
}

/// How often a process has moved something, with this outcome.
fn metric(node: &Node, outcome: &str) -> u64 {
    let label = format!("outcome=\"{outcome}\"");
    let metrics = node.metrics();
    let lines = metrics.lines().filter(|line| line.starts_with("heatsink_split_moves_total"));
    let of = lines.filter(|line| line.contains(&label));
    of.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Threads end, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How many increments were acknowledged.
fn count_until(is_over: &AtomicBool, node: &Node, key: &str) -> i64 {
    let mut client = node.client();
    client.set_timeout(PATIENCE);
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        count += i64::from(!client.command(&["INCR", key]).is_error());
    }
    count
}

/// What is acknowledged until proxies notice goes along; what comes later is at the key.
#[test]
fn nothing_is_lost_while_strangers_rename_a_marker() {
    let fleet = Fleet::start(2);
    fleet.split(&["{counter}a"]);
    let is_over = AtomicBool::new(false);
    let counted: i64 = thread::scope(|scope| {
        let counts = fleet.nodes.iter().map(|node| {
            let is_over = &is_over;
            scope.spawn(move || count_until(is_over, node, "{counter}a"))
        });
        let counts: Vec<_> = counts.collect();
        let over = Over(&is_over);
        let mut client = fleet.client();
        eventually(PATIENCE, || client.command(&["GET", "{counter}a"]).text() != "10");
        fleet.past(&["RENAME", "{counter}a", "{counter}b"]);
        eventually(PATIENCE, || fleet.at("{counter}b").parse::<i64>().is_ok());
        eventually(PATIENCE, || fleet.at("{counter}a").parse::<i64>().is_ok());
        drop(over);
        counts.into_iter().map(|count| count.join().expect("it ends")).sum()
    });
    let parts = ["{counter}a", "{counter}b"].map(|key| fleet.at(key).parse::<i64>());
    let [Ok(here), Ok(there)] = parts else { panic!("{parts:?}") };
    assert!(here > 0 && there > 10, "{here} and {there}");
    assert_eq!(here + there, 10 + counted);
}

/// Strangers write to markers for as long as clients write, and the keys are split and made whole.
#[test]
fn nothing_is_lost_while_strangers_change_markers() {
    let fleet = Fleet::start(2);
    fleet.split(&["counter", "set"]);
    let is_over = AtomicBool::new(false);
    let (counted, added) = thread::scope(|scope| {
        let counts = fleet.nodes.iter().map(|node| {
            let is_over = &is_over;
            scope.spawn(move || count_until(is_over, node, "counter"))
        });
        let counts: Vec<_> = counts.collect();
        let adds = scope.spawn(|| {
            let mut client = fleet.client();
            let mut added = 0;
            for member in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                added +=
                    i64::from(!client.command(&["SADD", "set", &member.to_string()]).is_error());
            }
            added
        });
        let strangers = scope.spawn(|| {
            let (mut counter, mut set) = (fleet.direct("counter"), fleet.direct("set"));
            let rounds: [(&[&str], &[&str]); 4] = [
                (&["RPUSHX", "counter", "x"], &["SETRANGE", "set", "0", "x"]),
                (&["LPUSHX", "counter", "x"], &["SETRANGE", "set", "16", "x"]),
                (&["LINSERT", "counter", "BEFORE", "x", "y"], &["SETRANGE", "set", "40", "x"]),
                (&["LSET", "counter", "0", "x"], &["APPEND", "set", "x"]),
            ];
            for (one, two) in rounds.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // What is whole meanwhile refuses it.
                counter.command(one);
                set.command(two);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let over = Over(&is_over);
        for _ in 0..3 {
            for key in ["counter", "set"] {
                fleet.nodes[1].api().demote(key.as_bytes()).expect("removed");
                all(&fleet.nodes, PATIENCE, "it is whole", |node| node.lacks(key));
                fleet.nodes[0].api().promote(key.as_bytes(), split(4)).expect("promoted");
                all(&fleet.nodes, PATIENCE, "it is split", |node| rests_split(node, key, 4));
            }
            let mended: u64 = fleet.nodes.iter().map(|node| metric(node, "mended")).sum();
            eventually(PATIENCE, || {
                fleet.nodes.iter().map(|node| metric(node, "mended")).sum::<u64>() > mended
            });
        }
        drop(over);
        strangers.join().expect("it ends");
        let counted: i64 = counts.into_iter().map(|count| count.join().expect("it ends")).sum();
        (counted, adds.join().expect("it ends"))
    });
    let mut client = fleet.client();
    assert!(counted > 0 && added > 0);
    assert_eq!(client.command(&["GET", "counter"]).text(), (10 + counted).to_string());
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(3 + added));
}

#[test]
fn drain_makes_keys_whole_whose_markers_were_changed_or_renamed() {
    let mut fleet = Fleet::start(1);
    let changed = keys_of(&DAMAGE);
    let renamed = ["{counter}a", "{set}a"];
    fleet.split(&[&changed[..], &renamed[..]].concat());
    fleet.stop();
    for command in DAMAGE {
        fleet.past(command);
    }
    fleet.past(&["RENAME", "{counter}a", "{counter}b"]);
    fleet.past(&["RENAME", "{set}a", "{set}b"]);
    fleet.past(&["SET", "{set}a", "mine"]);
    let drained = fleet.drain();
    assert_eq!(drained.code, Some(0), "{drained:?}");
    for key in changed {
        assert!(drained.stdout.contains(&format!("whole: {key} (")), "{key}: {drained:?}");
        assert_eq!(fleet.at(key), if is_counter(key) { "10" } else { "a b c" }, "{key}");
    }
    for told in ["whole, renamed to {counter}b: {counter}a (", "whole, renamed to {set}b: {set}a ("]
    {
        assert!(drained.stdout.contains(told), "{drained:?}");
    }
    let values = ["{counter}a", "{counter}b", "{set}a", "{set}b"].map(|key| fleet.at(key));
    assert_eq!(values, ["none", "10", "mine", "a b c"]);
    assert!(!fleet.has_manifests());
}

/// What replaces a marker is the value; nothing is, if it was removed.
#[test]
fn drain_lets_what_has_replaced_a_marker_be_the_value() {
    let mut fleet = Fleet::start(1);
    let keys =
        ["counter:set", "counter:del", "counter:pop", "{counter:onto}a", "set:set", "set:del"];
    fleet.split(&keys);
    fleet.stop();
    fleet.past(&["SET", "counter:set", "7"]);
    fleet.past(&["DEL", "counter:del"]);
    fleet.past(&["LPOP", "counter:pop", "2"]);
    fleet.past(&["SET", "{counter:onto}b", "9"]);
    fleet.past(&["RENAME", "{counter:onto}b", "{counter:onto}a"]);
    fleet.past(&["SET", "set:set", "text"]);
    fleet.past(&["DEL", "set:del"]);
    let drained = fleet.drain();
    assert_eq!(drained.code, Some(0), "{drained:?}");
    assert_eq!(keys.map(|key| fleet.at(key)), ["7", "none", "none", "9", "text", "none"]);
    for key in keys {
        assert!(drained.stdout.contains(&format!("had ended before: {key}\n")), "{drained:?}");
    }
    assert!(!fleet.has_manifests());
}

/// Nobody can tell whether a marker that is gone was removed or renamed without looking for it.
#[test]
fn drain_says_what_it_could_not_find_out() {
    let mut fleet = Fleet::start(1);
    fleet.split(&["{counter}a", "set"]);
    fleet.stop();
    let many = "for i = 1, 100001 do redis.call('SET', KEYS[1] .. i, '') end";
    let mut direct = fleet.direct("{counter}");
    direct.set_timeout(PATIENCE);
    assert_eq!(direct.command(&["EVAL", many, "1", "{counter}"]), Reply::Null);
    fleet.past(&["DEL", "{counter}a"]);
    let drained = fleet.drain();
    assert_eq!(drained.code, Some(1), "{drained:?}");
    assert!(drained.stdout.contains("whole: set (1 of 1)"), "{drained:?}");
    let index = "heatsink:{default}:splits";
    let ids = manifests(&mut fleet.direct(index));
    let id = ids.first().expect("it is left");
    let said = "1 key is left; run it again\n  {counter}a: its marker is gone, and nobody knows whether \
                it was renamed: there are more than 100000 keys in its slot. If the key was removed or \
                overwritten, say so by SET heatsink:{";
    assert!(drained.stderr.contains(said), "{drained:?}");
    // The operator knows.
    let (_, proof) = drained.stderr.split_once("say so by SET ").expect("said");
    let (proof, _) = proof.split_once(" 1, and the shards are let go").expect("said");
    assert!(proof.ends_with(&format!(":{id}:made-whole")), "{proof}");
    fleet.past(&["SET", proof, "1"]);
    assert_eq!(fleet.drain().code, Some(0));
    assert!(!fleet.has_manifests());
}

/// A newer release may have split what this one does not know.
#[test]
fn drain_names_what_it_does_not_understand() {
    let fleet = Fleet::start(0);
    let index = "heatsink:{default}:splits";
    fleet.past(&[
        "HSET",
        index,
        "1-2",
        "{\"key\":\"6b\",\"kind\":\"new\",\"tags\":[\"a\"],\"at_ms\":1}",
    ]);
    let drained = fleet.drain();
    assert_eq!(drained.code, Some(1), "{drained:?}");
    let said = "1 key is left; run it again\n  split 1-2: its manifest is not understood";
    assert!(drained.stderr.contains(said), "{drained:?}");
    assert_eq!(fleet.past(&["HLEN", index]), Reply::Integer(1));
}

/// A manifest that somebody has damaged is not the only one.
#[test]
fn drain_finds_a_split_whose_entry_in_the_index_is_damaged() {
    let mut fleet = Fleet::start(1);
    fleet.split(&["{set}a"]);
    fleet.stop();
    let index = "heatsink:{default}:splits";
    let ids = fleet.past(&["HKEYS", index]);
    for id in ids.items().iter().map(Reply::text) {
        fleet.past(&["HSET", index, &id, "garbage"]);
    }
    let drained = fleet.drain();
    assert_eq!(drained.code, Some(0), "{drained:?}");
    assert_eq!(fleet.at("{set}a"), "a b c");
    assert_eq!(fleet.past(&["HLEN", index]), Reply::Integer(0));
}

#[test]
fn a_renamed_marker_takes_the_value_along() {
    let fleet = Fleet::start(2);
    fleet.split(&["{counter}a", "{set}a", "{counter}c", "{counter}d"]);
    fleet.past(&["RENAME", "{counter}a", "{counter}b"]);
    fleet.past(&["RENAME", "{set}a", "{set}b"]);
    // Onto the marker of another one.
    fleet.client().command(&["INCRBY", "{counter}c", "90"]);
    fleet.past(&["RENAME", "{counter}c", "{counter}d"]);
    let mut client = fleet.client();
    let expected =
        [("{counter}b", "10"), ("{set}b", "a b c"), ("{counter}d", "100"), ("{counter}a", "none")];
    for (key, value) in expected {
        eventually(PATIENCE, || fleet.at(key) == value);
    }
    for key in ["{counter}a", "{set}a", "{counter}c", "{counter}d"] {
        all(&fleet.nodes, PATIENCE, "it is whole", |node| {
            node.entry(key).is_some_and(|entry| entry.split.is_none())
        });
    }
    assert_eq!(client.command(&["INCR", "{counter}b"]), Reply::Integer(11));
    assert_eq!(client.command(&["SADD", "{set}b", "d"]), Reply::Integer(1));
    assert_eq!(client.command(&["INCR", "{counter}d"]), Reply::Integer(101));
    assert_eq!(
        client.command(&["EXISTS", "{counter}a", "{set}a", "{counter}c"]),
        Reply::Integer(0)
    );
    eventually(PATIENCE, || !fleet.has_manifests());
}

/// Without slots, the whole server is looked through.
#[test]
fn a_renamed_marker_takes_the_value_along_on_one_server() {
    let (place, servers) = (Place::empty(), Servers::start());
    let node = servers.member(&place, "all", &[]);
    assemble(&[&node]);
    let mut direct = servers.upstream.client();
    let many = "for i = 1, 5000 do redis.call('SET', 'k' .. i, '1') end";
    direct.command(&["EVAL", many, "0"]);
    direct.command(&["SET", "counter", "10"]);
    direct.command(&["SADD", "set", "a", "b"]);
    for key in ["counter", "set"] {
        node.api().promote(key.as_bytes(), split(4)).expect("promoted");
        all([&node], PATIENCE, "it is split", |node| rests_split(node, key, 4));
        direct.command(&["RENAME", key, &format!("other {key}")]);
    }
    eventually(PATIENCE, || direct.command(&["GET", "other counter"]) == Reply::bulk("10"));
    eventually(PATIENCE, || direct.command(&["SCARD", "other set"]) == Reply::Integer(2));
    eventually(PATIENCE, || manifests(&mut direct).is_empty());
    assert_eq!(node.client().command(&["EXISTS", "counter", "set"]), Reply::Integer(0));
}

/// Whoever follows a marker dies, and another goes on.
fn dies_following(label: &str) {
    let mut fleet = Fleet::start(1);
    fleet.split(&["{set}a"]);
    let mut doomed = fleet.proxy(label);
    assemble(&[&fleet.nodes[0], &doomed]);
    fleet.stop();
    fleet.past(&["RENAME", "{set}a", "{set}b"]);
    assert!(!doomed.process.wait_exit(PATIENCE).success(), "{label}");
    let next = fleet.proxy("");
    eventually(PATIENCE, || fleet.at("{set}b") == "a b c");
    eventually(PATIENCE, || !fleet.has_manifests());
    assert_eq!(next.client().command(&["SADD", "{set}b", "d"]), Reply::Integer(1));
    assert_eq!(fleet.at("{set}a"), "none");
}

#[test]
fn one_dies_when_it_has_told_that_a_marker_is_gone() {
    dies_following("marker:told");
}

#[test]
fn one_dies_when_it_has_followed_a_marker() {
    dies_following("marker:followed");
}

/// Its mover dies right after the commit, and the marker is renamed before anybody has told of it.
#[test]
fn a_marker_that_nobody_has_told_of_takes_the_value_along() {
    let mut fleet = Fleet::start(0);
    let mut doomed = fleet.proxy("split:committed");
    assemble(&[&doomed]);
    fleet.past(&["SADD", "{set}a", "a", "b", "c"]);
    let _ = doomed.api().promote(b"{set}a", split(4));
    assert!(!doomed.process.wait_exit(PATIENCE).success());
    fleet.past(&["RENAME", "{set}a", "{set}b"]);
    fleet.nodes.push(fleet.proxy(""));
    eventually(PATIENCE, || fleet.at("{set}b") == "a b c");
    assert_eq!(fleet.at("{set}a"), "none");
}

/// An end that was set or removed at the marker is that of the value.
#[test]
fn the_end_that_strangers_give_a_key_is_seen() {
    let fleet = Fleet::start(2);
    fleet.split(&["set", "counter"]);
    let mut client = fleet.client();
    let mut left = |key: &str| client.command(&["TTL", key]).integer();
    for key in ["set", "counter"] {
        assert_eq!(left(key), -1);
        fleet.past(&["EXPIRE", key, "1000"]);
        eventually(PATIENCE, || (900..=1000).contains(&left(key)));
        // It is split again, with its end, and the last member takes that along.
        all(&fleet.nodes, PATIENCE, "it is split", |node| rests_split(node, key, 4));
    }
    let mut client = fleet.client();
    assert_eq!(client.command(&["SREM", "set", "a", "b", "c"]), Reply::Integer(3));
    assert_eq!(client.command(&["SADD", "set", "x"]), Reply::Integer(1));
    assert_eq!(client.command(&["TTL", "set"]), Reply::Integer(-1));
    fleet.past(&["PERSIST", "counter"]);
    eventually(PATIENCE, || client.command(&["TTL", "counter"]) == Reply::Integer(-1));
    assert_eq!(client.command(&["GET", "counter"]), Reply::bulk("10"));
}
