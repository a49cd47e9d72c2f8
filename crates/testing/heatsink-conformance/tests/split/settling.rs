//! What is waited for before a worker says that it holds the writes of a key: whatever it sent when it
//! did not know, also if that has to be sent on to another node.

use std::sync::Arc;
use std::time::Duration;

use heatsink_conformance::ClusterRig;
use heatsink_proxy::Handle;
use heatsink_proxy::hot_keys::HotKeys;
use heatsink_proxy::splits::Splitting;
use heatsink_split::layout::{Kind, Layout};
use heatsink_testkit::{RedisCluster, Reply, eventually};

use crate::copies_order::is_unsettled;
use crate::new_map;
use crate::pipelines::waits;

const SOON: Duration = Duration::from_secs(20);

/// Tells the proxy that a set is about to be split, and nobody else; the version that is to settle.
fn freeze(handle: &Handle, key: &str) -> u64 {
    let layout = Arc::new(Layout::new("test", Kind::Set, false, &["a", "b"]));
    let permit: Arc<[u8]> = Arc::from(key.as_bytes());
    let freezing = Splitting::Freezing { layout, permit };
    handle.set_hot_keys(HotKeys::default().with_splits([(key.as_bytes().to_vec(), freezing)]))
}

/// A request that was not sent goes elsewhere if the node of its link is a primary no more:
///
/// ```text
/// 1. SADD key x waits for the link to A, which stands still and does not greet
/// 2. the key is about to be split: the worker waits for that link
/// 3. new map: B has taken the place of A. The link is dropped; SADD key x -> B
/// 4. settled now, the value would be moved before that is executed
/// ```
#[test]
fn a_write_that_goes_to_another_node_before_it_was_sent_is_waited_for() {
    let mut rig = ClusterRig::with(RedisCluster::builder(), |config| {
        config.workers = 1;
        config.live.timeouts.connect = 3 * SOON;
    });
    let mut client = rig.client();
    client.set_timeout(SOON);
    client.command(&["HELLO", "3"]);
    let clients_of = |node: usize| rig.cluster.node(node).client().command(&["CLIENT", "LIST"]);
    // One that nobody who speaks RESP3 has been to.
    let is_new = |node: &usize| !clients_of(*node).text().contains(" resp=3");
    let from = rig.cluster.primaries().into_iter().find(is_new).expect("a node without a link");
    let heir = rig.cluster.replicas_of(from)[0];
    let key = rig.cluster.key_on(from, "set");
    let handle = rig.heatsink.proxy().handle();
    let before = handle.slot_owners();
    rig.cluster.pause(from);
    let mut heir_node = new_map::pause(&rig, heir);
    client.send(&["SADD", &key, "x"]);
    assert!(waits(&mut client));
    let version = freeze(&handle, &key);
    eventually(SOON, || handle.slot_owners() != before);
    new_map::wait_blocked(&mut heir_node);
    assert!(is_unsettled(&handle, version), "a write is under way");
    new_map::unpause(&mut heir_node);
    assert_eq!(client.read_reply(), Reply::Integer(1));
    eventually(SOON, || handle.settled_version() >= version);
    rig.cluster.resume(from);
}

/// What a client sent before it went is executed all the same, and may have to be sent on:
///
/// ```text
/// 1. SADD key x -> A; its client has gone
/// 2. the key is about to be split: the worker waits for that
/// 3. A: MOVED; SADD key x -> B
/// 4. settled now, the value would be moved before that is executed
/// ```
#[test]
fn a_write_that_is_sent_on_for_a_client_that_has_gone_is_waited_for() {
    let rig = new_map::rig();
    let handle = rig.heatsink.proxy().handle();
    let key = "{set}";
    let from = new_map::owner(&rig, key.as_bytes());
    let to = (from + 1) % 3;
    let mut client = new_map::client_apart(&rig);
    let id = client.command(&["CLIENT", "ID"]).integer().to_string();
    let [mut from_node, mut to_node] = [from, to].map(|node| new_map::pause(&rig, node));
    client.send(&["SADD", key, "x"]);
    new_map::wait_blocked(&mut from_node);
    assert_eq!(rig.client().command(&["CLIENT", "KILL", "ID", &id]), Reply::Integer(1));
    client.expect_closed();
    let version = freeze(&handle, key);
    new_map::move_empty_slot(&rig, key.as_bytes(), to);
    assert!(is_unsettled(&handle, version), "a write is under way");
    new_map::unpause(&mut from_node);
    new_map::wait_blocked(&mut to_node);
    assert!(is_unsettled(&handle, version), "a write is under way to another node");
    new_map::unpause(&mut to_node);
    eventually(SOON, || handle.settled_version() >= version);
    assert_eq!(to_node.command(&["SCARD", key]), Reply::Integer(1));
}
