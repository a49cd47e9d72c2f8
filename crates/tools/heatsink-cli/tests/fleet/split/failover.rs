//! Failovers to replicas that have missed a commit, and splits that nobody knows of any more.

use heatsink_testkit::{RedisCluster, RedisServer, Reply, eventually, eventually_ok, key_slot};

use crate::node::{Node, all, assemble};
use crate::split::{rests_split, split};
use crate::support::{PATIENCE, Place};

const MEMBERS: i64 = 300;
const INDEX: &str = "heatsink:{default}:splits";

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
            let reply = direct.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
            let is_done = self.cluster.primaries().contains(&replica);
            if is_done { Ok(()) } else { Err(format!("{reply:?}")) }
        });
        self.cluster.wait_until_ok();
    }

    /// The replica of this primary has all that it has.
    fn wait_for(&self, primary: usize, replica: usize) {
        eventually(PATIENCE, || {
            let offset = |index| self.cluster.info_u64(index, "master_repl_offset");
            offset(primary) == offset(replica)
        });
    }

    /// The index has lost everything; how many splits it had.
    fn forget_index(&self) -> i64 {
        let mut owner = self.cluster.node(self.cluster.owner_of(key_slot(INDEX))).client();
        let known = owner.command(&["HLEN", INDEX]).integer();
        assert_eq!(owner.command(&["DEL", INDEX]), Reply::Integer(1));
        known
    }

    /// The index has a split again.
    fn wait_for_index(&self) {
        let mut owner = self.cluster.node(self.cluster.owner_of(key_slot(INDEX))).client();
        eventually(PATIENCE, || owner.command(&["HLEN", INDEX]) == Reply::Integer(1));
    }

    /// Names of Heatsink's own at a node that do not end by themselves.
    fn kept_at(&self, index: usize) -> Vec<String> {
        let mut client = self.cluster.node(index).client();
        let names = client.command(&["KEYS", "heatsink:*"]);
        let mut names: Vec<String> = names.items().iter().map(Reply::text).collect();
        names.retain(|name| client.command(&["PTTL", name]) == Reply::Integer(-1));
        names
    }

    /// Nothing is left of splits that does not end by itself.
    fn nothing_kept(&self) -> Result<(), String> {
        let primaries = self.cluster.primaries();
        let kept: Vec<String> =
            primaries.into_iter().flat_map(|primary| self.kept_at(primary)).collect();
        if kept.is_empty() { Ok(()) } else { Err(format!("{kept:?}")) }
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
    entry.reason.contains(why)
}

#[test]
fn a_failover_that_takes_the_end_of_a_split_back_loses_nothing() {
    let mut rig = Rig::start();
    rig.split();
    let (primary, replica) = rig.owners();
    // The replica has the marker.
    rig.wait_for(primary, replica);
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

#[test]
fn nothing_is_written_for_a_split_that_no_replica_would_confirm() {
    let mut rig = Rig::start();
    let (primary, replica) = rig.owners();
    rig.cut_off(primary, replica);
    rig.node.api().promote(b"set", split(4)).expect("promoted");
    let why = "not split yet: its server has replicas, and none of them is connected";
    all([&rig.node], PATIENCE, "it says why", |node| says(node, why));
    assert_eq!(rig.nothing_kept(), Ok(()));
    rig.cluster.resume(replica);
}

/// The index and the registry forget everything; tells how many splits the index had.
fn forget(rig: &Rig) -> i64 {
    rig.store.client().command(&["FLUSHALL"]);
    rig.forget_index()
}

/// The node of a shard fails over to before its sealed parts were told to end.
#[test]
fn shards_that_a_failover_brings_back_are_let_go() {
    let mut rig = Rig::start();
    rig.split();
    let others = ["set", INDEX].map(|name| rig.cluster.owner_of(key_slot(name)));
    let mut primaries = rig.cluster.primaries().into_iter();
    let primary = primaries.find(|node| !others.contains(node)).expect("a third one");
    let replica = rig.cluster.replicas_of(primary)[0];
    rig.wait_for(primary, replica);
    assert!(!rig.kept_at(primary).is_empty(), "it has a shard");
    rig.cut_off(primary, replica);
    rig.node.api().demote(b"set").expect("removed");
    all([&rig.node], PATIENCE, "it is whole", |node| node.lacks("set"));
    eventually(PATIENCE, || rig.kept_at(primary).is_empty());
    rig.take_over(primary, replica);
    eventually_ok(PATIENCE, || rig.nothing_kept());
    eventually_ok(PATIENCE, || members(&rig.node));
    let (code, said) = rig.drain();
    assert_eq!(code, Some(0), "{said}");
}

/// It was evicted, say, or taken back by a failover of its node.
#[test]
fn the_index_is_told_again_of_what_it_has_lost() {
    let rig = Rig::start();
    rig.split();
    assert_eq!(rig.forget_index(), 1);
    rig.wait_for_index();
}

/// What is needed to go back is kept, and nobody but who ended the split knows of it.
#[test]
fn what_the_index_has_lost_is_let_go_once_a_replica_is_there() {
    let mut rig = Rig::start();
    rig.split();
    let (primary, replica) = rig.owners();
    rig.cut_off(primary, replica);
    assert_eq!(rig.forget_index(), 1);
    rig.node.api().demote(b"set").expect("removed");
    all([&rig.node], PATIENCE, "it is whole", |node| node.lacks("set"));
    rig.wait_for_index();
    rig.cluster.resume(replica);
    eventually_ok(PATIENCE, || rig.nothing_kept());
    eventually_ok(PATIENCE, || members(&rig.node));
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

/// Where a server may evict tombstones, what is left is let go after a while. The index is evicted, and
/// who ended the split dies meanwhile.
#[test]
fn what_a_dead_process_was_to_let_go_is_found_in_the_index() {
    let mut rig = Rig::start();
    rig.split();
    for primary in rig.cluster.primaries() {
        let mut client = rig.cluster.node(primary).admin_client();
        let settings = ["maxmemory", "1gb", "maxmemory-policy", "volatile-lru"];
        assert_eq!(client.command(&[&["CONFIG", "SET"], &settings[..]].concat()), Reply::ok());
    }
    rig.node.api().demote(b"set").expect("removed");
    all([&rig.node], PATIENCE, "it is whole", |node| node.lacks("set"));
    assert_eq!(rig.forget_index(), 1);
    rig.wait_for_index();
    rig.node.process.kill();
    rig.node = Node::member(&rig.place, "all", &rig.store.url(), &rig.cluster.seed_url());
    assemble(&[&rig.node]);
    eventually_ok(PATIENCE, || rig.nothing_kept());
    eventually_ok(PATIENCE, || members(&rig.node));
}
