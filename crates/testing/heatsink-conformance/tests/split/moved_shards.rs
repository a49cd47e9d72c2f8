//! Shards whose slots go to another node while pipelines are under way.

use std::time::Duration;

use heatsink_cluster::slot;
use heatsink_testkit::{Reply, eventually};

use crate::pipelines::{SplitSet, open_ways, send, together, waits};

/// A shard goes to another node while a write to it is under way: what its client sends next does
/// not go there before that.
///
/// ```text
/// SADD shard x -> A     (old map)
///                       new map: the shard is B's
/// SREM shard x -> B     executed: 0
/// A: MOVED, SADD shard x -> B     executed last: wrong
/// ```
#[test]
fn a_shard_that_has_moved_gets_nothing_before_what_was_sent_to_the_old_node() {
    let set = SplitSet::new();
    let cluster = &set.rig.cluster;
    // Pipelines of their own, so that one is held up and the other is not.
    let (mut reader, mut writer) = (set.rig.client(), set.rig.client());
    writer.command(&["HELLO", "3"]);
    for client in [&mut reader, &mut writer] {
        open_ways(client);
    }
    writer.command(&["SADD", "lone", "first"]);
    assert!(set.mover.split(b"lone", 8));
    let owner = |name: &[u8]| cluster.owner_of(slot::of_key(name));
    let filled = || -> Vec<Vec<u8>> {
        let exists = |name: &Vec<u8>| {
            let mut node = cluster.node(owner(name)).client();
            node.command(&[b"EXISTS", &name[..]]) == Reply::Integer(1)
        };
        set.mover.shards(b"lone").into_iter().filter(exists).collect()
    };
    let first = filled();
    let (member, shard) = (0..64)
        .find_map(|number| {
            let member = number.to_string();
            writer.command(&["SADD", "lone", &member]);
            let found = filled().into_iter().find(|name| !first.contains(name));
            writer.command(&["SREM", "lone", &member]);
            Some((member, found?))
        })
        .expect("a member of another shard");
    let (slot, from) = (slot::of_key(&shard), owner(&shard));
    let to = (from + 1) % 3;
    let mut node = cluster.node(from).client();
    assert_eq!(node.command(&["CLIENT", "PAUSE", "20000", "WRITE"]), Reply::ok());
    send(&mut writer, &[format!("SADD lone {member}")]);
    eventually(Duration::from_secs(5), || {
        node.command(&["CLIENT", "LIST"]).text().contains(" flags=b ")
    });
    let handle = set.rig.heatsink.proxy().handle();
    let before = handle.slot_owners();
    cluster.begin_move_slot(slot, to);
    cluster.finish_move_slot(slot, to);
    let ask = format!("SISMEMBER lone {member}");
    eventually(Duration::from_secs(10), || {
        assert_eq!(together(&mut reader, &[&ask]), [Reply::Integer(0)]);
        handle.slot_owners() != before
    });
    send(&mut writer, &[format!("SREM lone {member}")]);
    assert!(waits(&mut writer));
    assert_eq!(node.command(&["CLIENT", "UNPAUSE"]), Reply::ok());
    assert_eq!(writer.read_reply(), Reply::Integer(1));
    assert_eq!(writer.read_reply(), Reply::Integer(1));
    assert!(set.mover.is_split(b"lone") && set.mover.forced() == 0);
}

/// A rank takes several rounds. The later ones go by the map of their time, and must not come to a
/// shard before what the client has sent there by an older one.
///
/// ```text
/// ZADD shard 1 x -> A           (old map)
/// ZRANK last: ZSCORE -> C       new map: the shard of x is B's
/// ZCOUNT shard of x -> B        0
/// A: MOVED, ZADD shard 1 x -> B     executed last: the rank is too low
/// ```
#[test]
fn a_rank_tells_of_what_was_sent_before_it_to_a_shard_that_has_moved() {
    let set = SplitSet::new();
    let cluster = &set.rig.cluster;
    let (mut reader, mut writer) = (set.rig.client(), set.rig.client());
    writer.command(&["HELLO", "3"]);
    for client in [&mut reader, &mut writer] {
        open_ways(client);
    }
    writer.command(&["ZADD", "ranks", "5", "last"]);
    assert!(set.mover.split(b"ranks", 8));
    let owner = |name: &[u8]| cluster.owner_of(slot::of_key(name));
    let size =
        |name: &[u8]| cluster.node(owner(name)).client().command(&[b"ZCARD", name]).integer();
    let shards = set.mover.shards(b"ranks");
    let own = shards.iter().find(|name| size(name) == 1).expect("a shard with the member");
    let mut add = |wanted: &dyn Fn(&[u8]) -> bool| {
        (0..256)
            .find_map(|number| {
                let member = format!("m{number}");
                let before: Vec<i64> = shards.iter().map(|name| size(name)).collect();
                writer.command(&["ZADD", "ranks", "1", &member]);
                let grown = shards.iter().zip(before).find(|(name, before)| size(name) > *before);
                writer.command(&["ZREM", "ranks", &member]);
                let name = grown?.0;
                wanted(name).then(|| (member, name.clone()))
            })
            .expect("a member of such a shard")
    };
    let (moved, shard) = add(&|name| owner(name) != owner(own));
    let (beside, _) = add(&|name| name == own);
    let (from, other) = (owner(&shard), owner(own));
    let to = 3 - from - other;
    let mut nodes = [from, other].map(|node| cluster.node(node).client());
    for node in &mut nodes {
        assert_eq!(node.command(&["CLIENT", "PAUSE", "20000", "WRITE"]), Reply::ok());
    }
    let adds = [format!("ZADD ranks 1 {moved}"), format!("ZADD ranks 9 {beside}")];
    send(&mut writer, &[&adds[0], &adds[1], "ZRANK ranks last"]);
    for node in &mut nodes {
        eventually(Duration::from_secs(5), || {
            node.command(&["CLIENT", "LIST"]).text().contains(" flags=b ")
        });
    }
    let handle = set.rig.heatsink.proxy().handle();
    let before = handle.slot_owners();
    cluster.begin_move_slot(slot::of_key(&shard), to);
    cluster.finish_move_slot(slot::of_key(&shard), to);
    let ask = format!("ZSCORE ranks {moved}");
    eventually(Duration::from_secs(10), || {
        assert_eq!(together(&mut reader, &[&ask]), [Reply::Null]);
        handle.slot_owners() != before
    });
    let [held, ready] = &mut nodes;
    assert_eq!(ready.command(&["CLIENT", "UNPAUSE"]), Reply::ok());
    assert!(waits(&mut writer));
    assert_eq!(held.command(&["CLIENT", "UNPAUSE"]), Reply::ok());
    let replies: Vec<Reply> = (0..3).map(|_| writer.read_reply()).collect();
    assert_eq!(replies, [1, 1, 1].map(Reply::Integer));
}
