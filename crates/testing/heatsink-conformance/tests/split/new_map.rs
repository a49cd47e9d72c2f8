//! A slot goes to another node while a command of several steps is under way. Its later steps go by
//! the new map, and must not pass what its client has sent by the old one. Each test draws its own.

use std::time::Duration;

use heatsink_cluster::slot;
use heatsink_conformance::ClusterRig;
use heatsink_proxy::hot_keys::{Copies, HotKeys};
use heatsink_split::layout;
use heatsink_testkit::{RawClient, RedisCluster, Reply, eventually};

use crate::hand::Mover;
use crate::pipelines::{open_ways, send, together, waits};

const SOON: Duration = Duration::from_secs(10);

/// With one worker, whose clients of one protocol share their links.
pub(crate) fn rig() -> ClusterRig {
    ClusterRig::with(RedisCluster::builder().replicas_per_primary(0), |config| {
        config.workers = 1;
        // Increments wait for each other here for as long as it takes to move a slot.
        config.live.coalesce.max_wait = 3 * SOON;
    })
}

/// A client that shares its links with others of RESP3 only.
pub(crate) fn client_apart(rig: &ClusterRig) -> RawClient {
    let mut client = rig.client();
    client.set_timeout(SOON);
    client.command(&["HELLO", "3"]);
    open_ways(&mut client);
    client
}

pub(crate) fn owner(rig: &ClusterRig, key: &[u8]) -> usize {
    rig.cluster.owner_of(slot::of_key(key))
}

/// A key that a node has.
fn key_on(rig: &ClusterRig, node: usize) -> String {
    let mut names = (0..).map(|number| format!("on{number}"));
    names.find(|name| owner(rig, name.as_bytes()) == node).expect("one of many")
}

/// Has a node execute no writes, so that a link with one of them is still.
pub(crate) fn pause(rig: &ClusterRig, node: usize) -> RawClient {
    let mut admin = rig.cluster.node(node).client();
    assert_eq!(admin.command(&["CLIENT", "PAUSE", "60000", "WRITE"]), Reply::ok());
    admin
}

pub(crate) fn wait_blocked(admin: &mut RawClient) {
    eventually(SOON, || admin.command(&["CLIENT", "LIST"]).text().contains(" flags=b "));
}

pub(crate) fn unpause(admin: &mut RawClient) {
    assert_eq!(admin.command(&["CLIENT", "UNPAUSE"]), Reply::ok());
}

/// Moves the slot of a key, in which nothing is, and has the proxy hear of it.
pub(crate) fn move_empty_slot(rig: &ClusterRig, key: &[u8], to: usize) {
    let handle = rig.heatsink.proxy().handle();
    let before = handle.slot_owners();
    let slot = slot::of_key(key);
    rig.cluster.begin_move_slot(slot, to);
    rig.cluster.finish_move_slot(slot, to);
    let name = String::from_utf8_lossy(key);
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let beside = format!("{{{}}}beside", tag.map_or(&*name, |(tag, _)| tag));
    let mut reader = rig.client();
    eventually(SOON, || {
        assert_eq!(reader.command(&["GET", &beside]), Reply::Null);
        handle.slot_owners() != before
    });
}

/// An increment waits for others, and leaves by the map of its time:
///
/// ```text
/// GET count: GET shard -> A     (old map)
/// INCR count waits for others   new map: the shard is B's
/// INCRBY shard 1 -> B           executed
/// A: MOVED, GET shard -> B      executed last: the read tells of what was sent behind it
/// ```
#[test]
fn an_increment_does_not_pass_a_read_of_the_counter() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let (mut client, mut other) = (client_apart(&rig), client_apart(&rig));
    client.command(&["SET", "count", "10"]);
    assert!(mover.split(b"count", 8));
    let shards = mover.shards(b"count");
    let value = |shard: usize| {
        let name = &shards[shard];
        let mut node = rig.cluster.node(owner(&rig, name)).client();
        node.command(&[b"GET", &name[..]]).text().parse::<i64>().expect("a number")
    };
    // Increments go to the shards in turn, and so would reads if they went to one.
    let before: Vec<i64> = (0..8).map(value).collect();
    assert_eq!(client.command(&["INCR", "count"]), Reply::Integer(11));
    let last = (0..8).find(|shard| value(*shard) > before[*shard]).expect("it was carried out");
    let [theirs, ours] = [last + 1, last + 3].map(|turn| turn % 8);
    let from = owner(&rig, &shards[ours]);
    let [held, to] = [1, 2].map(|step| (from + step) % 3);
    // A shard that does not exist counts as nothing, which it holds, and is moved at once.
    assert_eq!(value(ours), 0);
    rig.cluster.node(from).client().command(&[b"DEL", &shards[ours][..]]);
    let mut held_node = pause(&rig, held);
    send(&mut other, &[format!("SET {} 1", key_on(&rig, held)), "INCR count".to_owned()]);
    wait_blocked(&mut held_node);
    if owner(&rig, &shards[theirs]) != held {
        eventually(SOON, || value(theirs) > before[theirs]);
    }
    let mut from_node = pause(&rig, from);
    let set = format!("SET {} 1", key_on(&rig, from));
    send(&mut client, &[&set, "GET count", "INCR count"]);
    wait_blocked(&mut from_node);
    move_empty_slot(&rig, &shards[ours], to);
    unpause(&mut held_node);
    assert_eq!(other.read_reply(), Reply::ok());
    assert_eq!(other.read_reply(), Reply::Integer(12));
    assert!(waits(&mut client));
    unpause(&mut from_node);
    let replies: Vec<Reply> = (0..3).map(|_| client.read_reply()).collect();
    assert_eq!(replies, [Reply::ok(), Reply::bulk("12"), Reply::Integer(13)]);
    assert!(mover.is_split(b"count") && mover.forced() == 0);
}

/// A write of a key that has copies removes them first, and then goes by the map of its time:
///
/// ```text
/// GET key -> A                  (old map)
/// SET key: copies are removed   new map: the key is B's
/// SET key -> B                  executed
/// A: MOVED, GET key -> B        executed last: the read tells of what was sent behind it
/// ```
#[test]
fn a_write_that_removes_copies_does_not_pass_a_read_of_the_key() {
    let rig = rig();
    let key = "{value}";
    let from = owner(&rig, key.as_bytes());
    let [held, to] = [1, 2].map(|step| (from + step) % 3);
    let copy = layout::copy_name(&key_on(&rig, held), "test", 0);
    assert_eq!(owner(&rig, &copy), held);
    let copies = Copies { names: vec![copy], read: false, life: 6 * SOON };
    let handle = rig.heatsink.proxy().handle();
    let mut client = client_apart(&rig);
    // Removing copies goes along the links of others, which are to be there.
    open_ways(&mut rig.client());
    let hot = HotKeys::default().with_copies([(key.as_bytes().to_vec(), copies)]);
    let version = handle.set_hot_keys(hot);
    eventually(SOON, || handle.settled_version() >= version);
    let [mut from_node, mut held_node] = [from, held].map(|node| pause(&rig, node));
    let set = format!("SET {} 1", key_on(&rig, from));
    send(&mut client, &[&set, &format!("GET {key}"), &format!("SET {key} new")]);
    wait_blocked(&mut from_node);
    // As long as it takes to begin to remove copies, if it did.
    assert!(waits(&mut client));
    move_empty_slot(&rig, key.as_bytes(), to);
    unpause(&mut held_node);
    assert!(waits(&mut client));
    unpause(&mut from_node);
    let replies: Vec<Reply> = (0..3).map(|_| client.read_reply()).collect();
    assert_eq!(replies, [Reply::ok(), Reply::Null, Reply::ok()]);
    assert_eq!(together(&mut client, &[format!("GET {key}")]), [Reply::bulk("new")]);
}

/// What shards have refused goes where the value is, by the map of that time. What its client sent
/// before it to the same shards is answered by then, by whichever map it went:
///
/// ```text
/// SADD shard x -> A             (old map)
/// SMISMEMBER x y: SMISMEMBER shard x -> A, other shard y -> C: refused, sealed
///                               new map: the shard is B's
/// A: MOVED, MOVED; SADD shard x -> B     executed, then SMISMEMBER shard x -> B
/// SMISMEMBER x y waits; the key is whole: SMISMEMBER key x y
/// ```
#[test]
fn a_command_that_was_refused_comes_behind_what_was_sent_before_it() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = client_apart(&rig);
    client.command(&["SADD", "set", "first"]);
    assert!(mover.split(b"set", 8));
    let shards = mover.shards(b"set");
    let is_there = |shard: &usize| {
        let name = &shards[*shard];
        let mut node = rig.cluster.node(owner(&rig, name)).client();
        node.command(&[b"EXISTS", &name[..]]) == Reply::Integer(1)
    };
    let first = (0..8).find(is_there).expect("a shard with the member");
    let mut member_of = |wanted: &dyn Fn(usize) -> bool| {
        let mut members = (0..256).map(|number| format!("m{number}"));
        let found = members.find_map(|member| {
            client.command(&["SADD", "set", &member]);
            let shard = (0..8).filter(|shard| *shard != first).find(is_there);
            client.command(&["SREM", "set", &member]);
            shard.filter(|shard| wanted(*shard)).map(|shard| (member, shard))
        });
        found.expect("a member of such a shard")
    };
    let (member, shard) = member_of(&|_| true);
    let from = owner(&rig, &shards[shard]);
    let (beside, sealed) = member_of(&|other| owner(&rig, &shards[other]) != from);
    let to = 3 - from - owner(&rig, &shards[sealed]);
    mover.seal_unheard(b"set", sealed..sealed + 1);
    let mut from_node = pause(&rig, from);
    let ask = format!("SMISMEMBER set {member} {beside}");
    send(&mut client, &[format!("SADD set {member}"), ask]);
    wait_blocked(&mut from_node);
    move_empty_slot(&rig, &shards[shard], to);
    assert!(waits(&mut client));
    unpause(&mut from_node);
    assert_eq!(client.read_reply(), Reply::Integer(1));
    assert!(waits(&mut client));
    mover.make_whole_unheard(b"set");
    mover.release(b"set");
    assert_eq!(client.read_reply(), Reply::Array([1, 0].map(Reply::Integer).to_vec()));
}
