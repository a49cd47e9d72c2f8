//! Failovers to replicas that have missed a commit, and splits that nobody knows of any more.

use heatsink_testkit::{RedisCluster, RedisServer, Reply, eventually, eventually_ok, key_slot};

use crate::node::{Node, all, assemble};
use crate::split::{rests_split, split};
use crate::support::{PATIENCE, Place};

const MEMBERS: i64 = 300;

/// A cluster with a replica for each primary, a store of its own, and a proxy.
struct Rig {
    place: Place,
    cluster: RedisCluster,
    store: RedisServer,
    node: Node,
}

impl Rig {
    fn start() -> Self {
        let place = Place::empty();
        let cluster = RedisCluster::builder().replicas_per_primary(1).start();
        let store = RedisServer::start();
        let node = Node::member(&place, "all", &store.url(), &cluster.seed_url());
        assemble(&[&node]);
        let mut command = vec!["SADD".to_owned(), "set".to_owned()];
        command.extend((0..MEMBERS).map(|number| number.to_string()));
        assert_eq!(node.client().command(&command), Reply::Integer(MEMBERS));
        Self { place, cluster, store, node }
    }

    fn split(&self) {
        self.node.api().promote(b"set", split(4)).expect("promoted");
        all([&self.node], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
    }

    /// The primary of the key, and its replica.
    fn owners(&self) -> (usize, usize) {
        let primary = self.cluster.owner_of(key_slot("set"));
        (primary, self.cluster.replicas_of(primary)[0])
    }

    /// Cuts a replica off: it keeps what it has, and gets nothing more.
    fn cut_off(&mut self, primary: usize, replica: usize) {
        self.cluster.pause(replica);
        let mut direct = self.cluster.node(primary).client();
        direct.command(&["CLIENT", "KILL", "TYPE", "replica"]);
        eventually(PATIENCE, || self.cluster.info_u64(primary, "connected_slaves") == 0);
    }

    /// The primary dies, and the replica that was cut off takes its place.
    fn take_over(&mut self, primary: usize, replica: usize) {
        self.cluster.kill(primary);
        self.cluster.resume(replica);
        let mut direct = self.cluster.node(replica).admin_client();
        eventually_ok(PATIENCE, || {
            direct.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
            let owner = self.cluster.owner_of(key_slot("set"));
            if owner == replica { Ok(()) } else { Err(format!("{owner} has it")) }
        });
        self.cluster.wait_until_ok();
    }

    /// Whether a marker is at the key, as this node sees it.
    fn is_marked(&self, index: usize) -> bool {
        self.cluster.node(index).client().command(&["TYPE", "set"]).text() == "string"
    }

    fn drain(&self) -> (Option<i32>, String) {
        let (upstream, store) = (self.cluster.seed_url(), self.store.url());
        let drained =
            self.place.run(&["drain", "--upstream", &upstream, "--coordination-url", &store]);
        (drained.code, drained.stdout)
    }
}

fn members(node: &Node) -> Result<(), String> {
    match node.client().command(&["SCARD", "set"]) {
        Reply::Integer(MEMBERS) => Ok(()),
        other => Err(format!("{other:?}; {:?}", node.entry("set"))),
    }
}

fn says(node: &Node, why: &str) -> bool {
    let entry = node.entry("set").unwrap_or_default();
    entry["reason"].as_str().is_some_and(|reason| reason.contains(why))
}

#[test]
fn a_failover_that_takes_the_end_of_a_split_back_loses_nothing() {
    let mut rig = Rig::start();
    rig.split();
    let (primary, replica) = rig.owners();
    // The replica has the marker.
    eventually(PATIENCE, || {
        let behind = |index| rig.cluster.info_u64(index, "master_repl_offset");
        behind(primary) == behind(replica)
    });
    rig.cut_off(primary, replica);
    rig.node.api().demote(b"set").expect("removed");
    all([&rig.node], PATIENCE, "it is whole", |node| node.lacks("set"));
    assert!(!rig.is_marked(primary));
    rig.take_over(primary, replica);
    // The marker is back; nobody need ask for the value to be whole again.
    eventually_ok(PATIENCE, || members(&rig.node));
    eventually(PATIENCE, || !rig.is_marked(replica));
    assert_eq!(rig.node.client().command(&["SADD", "set", "new"]), Reply::Integer(1));
}

#[test]
fn a_key_is_not_split_while_a_failover_could_take_that_back() {
    let mut rig = Rig::start();
    let (primary, replica) = rig.owners();
    // It is connected, and confirms nothing.
    rig.cluster.pause(replica);
    rig.node.api().promote(b"set", split(4)).expect("promoted");
    let why = "not split yet: a replica does not confirm what was written";
    all([&rig.node], PATIENCE, "it says why", |node| says(node, why));
    eventually_ok(PATIENCE, || members(&rig.node));
    // It is gone.
    rig.cut_off(primary, replica);
    let why = "not split yet: its server has replicas, and none of them is connected";
    all([&rig.node], PATIENCE, "it says why", |node| says(node, why));
    eventually_ok(PATIENCE, || members(&rig.node));
    assert!(!rig.is_marked(primary));
    rig.cluster.resume(replica);
    all([&rig.node], PATIENCE, "it is split", |node| rests_split(node, "set", 4));
    eventually_ok(PATIENCE, || members(&rig.node));
}

/// The index and the registry forget everything; tells how many splits the index had.
fn forget(rig: &Rig) -> usize {
    rig.store.client().command(&["FLUSHALL"]);
    let index = "heatsink:{default}:splits";
    let owner = rig.cluster.node(rig.cluster.owner_of(key_slot(index)));
    let known = owner.client().command(&["HLEN", index]).integer();
    assert_eq!(owner.client().command(&["DEL", index]), Reply::Integer(1));
    known as usize
}

#[test]
fn a_marker_that_nobody_knows_of_is_met_and_followed() {
    let mut rig = Rig::start();
    rig.split();
    rig.node.process.kill();
    assert_eq!(forget(&rig), 1);
    rig.node = Node::member(&rig.place, "all", &rig.store.url(), &rig.cluster.seed_url());
    assemble(&[&rig.node]);
    // Nobody looks for it; the first command that is refused has it looked at.
    assert_eq!(rig.node.client().command(&["SADD", "set", "new"]), Reply::Integer(1));
    assert_eq!(rig.node.client().command(&["SCARD", "set"]), Reply::Integer(MEMBERS + 1));
}

#[test]
fn drain_finds_what_neither_index_nor_registry_know() {
    let mut rig = Rig::start();
    rig.split();
    rig.node.process.kill();
    assert_eq!(forget(&rig), 1);
    let (code, said) = rig.drain();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 made whole") && said.contains("0 left"), "{said}");
    let (primary, _) = rig.owners();
    let mut direct = rig.cluster.node(primary).client();
    assert_eq!(direct.command(&["SCARD", "set"]), Reply::Integer(MEMBERS));
    // A shard without a marker is named, and nobody says that nothing is left.
    let orphan = "heatsink:{set}:19f2c1a77d0-5e884898g:0";
    direct.command(&["SADD", orphan, "x"]);
    let (code, said) = rig.drain();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1 left"), "{said}");
    direct.command(&["DEL", orphan]);
    assert_eq!(rig.drain().0, Some(0));
}
