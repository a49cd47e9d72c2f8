//! A cluster for tests that break no more than slots of their own.
//!
//! Called by: the tests of hostile replies, of order, of retries and of transactions.
//! Bound: one cluster of three primaries for all of them, started with the first.
//! Invariant: a test spoils only slots it has chosen itself by [`RedisCluster::key_on`], and
//! stops no node.

use std::sync::LazyLock;
use std::time::Duration;

use heatsink_conformance::Heatsink;
use heatsink_proxy::config::Config;
use heatsink_testkit::{RawClient, RedisCluster, eventually, key_slot};

const SOON: Duration = Duration::from_secs(10);

/// It serves the slots it has, even if there are some that nobody has.
pub(crate) static OPEN: LazyLock<RedisCluster> = LazyLock::new(|| {
    let settings = RedisCluster::builder().replicas_per_primary(0);
    settings.line("cluster-require-full-coverage no").start()
});

/// A Heatsink of one's own before it, with one worker.
pub(crate) fn before_open(adjust: impl FnOnce(&mut Config)) -> Heatsink {
    Heatsink::before_url(&OPEN.seed_url(), adjust)
}

/// Takes the slot of `key` from everybody: each node says that it is served by none.
#[track_caller]
pub(crate) fn orphan(key: &str) {
    let slot = key_slot(key).to_string();
    let owner = OPEN.owner_of(key_slot(key));
    let others = (0..OPEN.nodes().len()).filter(|node| *node != owner);
    for node in [owner].into_iter().chain(others) {
        let mut client = OPEN.node(node).client();
        eventually(SOON, || {
            // A word of the owner from before may still be on its way.
            client.command(&["CLUSTER", "DELSLOTS", &slot]);
            let refused = client.command(&["GET", key]);
            refused.is_error() && refused.error().starts_with("CLUSTERDOWN")
        });
    }
}

/// Another node than the one that has the slot of `key`.
pub(crate) fn elsewhere(key: &str) -> usize {
    (OPEN.owner_of(key_slot(key)) + 1) % OPEN.nodes().len()
}

/// What connections at node `node` did last that did `command` last: their ids.
pub(crate) fn doing(node: usize, command: &str) -> Vec<String> {
    let list = OPEN.node(node).client().command(&["CLIENT", "LIST"]).text();
    let does = format!(" cmd={command} ");
    let lines = list.lines().filter(|line| line.contains(&does));
    let id =
        |line: &str| line.split(' ').find_map(|word| word.strip_prefix("id=")).map(str::to_owned);
    lines.filter_map(id).collect()
}

/// Sends commands in one write.
pub(crate) fn send_all(client: &mut RawClient, commands: &[&[&str]]) {
    let bytes: Vec<u8> =
        commands.iter().flat_map(|command| heatsink_testkit::encode(command)).collect();
    client.send_raw(&bytes);
}
