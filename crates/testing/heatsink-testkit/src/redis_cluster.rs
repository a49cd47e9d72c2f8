//! A Redis Cluster of one's own.
//!
//! Called by: integration tests of the cluster upstream, and the benchmark.
//! Bound: 30 s for every wait; as many processes as nodes.
//! Invariant: a node keeps its index, ports and id for life, through kills, restarts and
//! failovers; what changes is who is a primary and who owns a slot, and that is asked of the
//! nodes each time, never remembered.
//!
//! Nothing is kept on disk but what a node knows about the cluster: a primary that is restarted
//! before its replica took over comes back empty, and its replica empties itself.

mod moves;
mod settings;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use crate::hash_slot::{SLOTS, key_for_slot, key_slot};
use crate::redis_server::RedisServer;
use crate::reply::Reply;
use crate::wait::{eventually, eventually_ok};
use settings::expect_ok;
use view::{Links, View};

pub use settings::RedisClusterBuilder;

const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// A replica gives a handover up after five seconds, and does not begin it again by itself.
const HANDOVER: Duration = Duration::from_secs(6);

struct Node {
    server: RedisServer,
    id: String,
    is_paused: bool,
}

impl Node {
    fn new(server: RedisServer) -> Self {
        let id = server.admin_client().command(&["CLUSTER", "MYID"]).text();
        Self { server, id, is_paused: false }
    }

    fn is_live(&self) -> bool {
        self.server.is_running() && !self.is_paused
    }
}

/// What one node says about the cluster and itself.
struct Answers {
    view: View,
    links: Links,
    state: String,
    replication: String,
}

/// What the nodes must agree on: who owns what, and who follows whom.
type Roles = (View, BTreeMap<String, String>);

/// A running cluster, ended on drop.
pub struct RedisCluster {
    nodes: Vec<Node>,
    settings: RedisClusterBuilder,
}

impl RedisCluster {
    /// Starts three primaries with a replica each.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Settings for a cluster that differs from the default.
    pub fn builder() -> RedisClusterBuilder {
        RedisClusterBuilder::new()
    }

    /// All nodes, in the order of their indexes.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &RedisServer> {
        self.nodes.iter().map(|node| &node.server)
    }

    /// One node.
    #[track_caller]
    pub fn node(&self, index: usize) -> &RedisServer {
        &self.nodes[index].server
    }

    /// The id that node `index` has in the cluster.
    #[track_caller]
    pub fn id(&self, index: usize) -> &str {
        &self.nodes[index].id
    }

    /// The nodes that own slots now, as a live node sees it, in order.
    #[track_caller]
    pub fn primaries(&self) -> Vec<usize> {
        let view = self.view();
        let owners: BTreeSet<usize> = view.owners().map(|id| self.index_of(id)).collect();
        owners.into_iter().collect()
    }

    /// The live nodes that follow primary `index` now, as they say themselves.
    #[track_caller]
    pub fn replicas_of(&self, index: usize) -> Vec<usize> {
        let port = self.node(index).port().to_string();
        self.live().filter(|node| self.primary_port_of(*node).as_ref() == Some(&port)).collect()
    }

    /// The addresses of all nodes as one URL, without credentials:
    /// `redis+cluster://127.0.0.1:p1,127.0.0.1:p2`, with `rediss` when it speaks TLS.
    pub fn seed_url(&self) -> String {
        let scheme = if self.settings.is_tls { "rediss+cluster" } else { "redis+cluster" };
        let addrs: Vec<String> = self.nodes().map(|node| node.addr().to_string()).collect();
        format!("{scheme}://{}", addrs.join(","))
    }

    /// The node that owns `slot`, as a live node sees it.
    #[track_caller]
    pub fn owner_of(&self, slot: u16) -> usize {
        match self.view().owner_of(slot) {
            Some(id) => self.index_of(id),
            None => panic!("nobody owns slot {slot}"),
        }
    }

    /// How many slots node `index` owns, as a live node sees it.
    #[track_caller]
    pub fn slot_count(&self, index: usize) -> usize {
        self.view().slots_of(self.id(index)).len()
    }

    /// A key of a slot that primary `index` owns now: `name` behind a hash tag that depends on
    /// `name`, so that many names spread over the primary's slots.
    #[track_caller]
    pub fn key_on(&self, index: usize, name: &str) -> String {
        let slots = self.view().slots_of(self.id(index));
        assert!(!slots.is_empty(), "node {index} owns no slot");
        key_for_slot(slots[usize::from(key_slot(name)) % slots.len()]) + name
    }

    /// Kills node `index` (SIGKILL); see [`wait_until_ok`](Self::wait_until_ok).
    #[track_caller]
    pub fn kill(&mut self, index: usize) {
        self.nodes[index].server.kill();
        self.nodes[index].is_paused = false;
    }

    /// Kills node `index` (SIGKILL) once its replicas have executed all that it has sent them.
    ///
    /// One that is killed at once may take with it what it has acknowledged, if a replica does not
    /// get to run for a while: what such a replica says about how far it is cannot be sent, and it
    /// gives the connection up with what it has not read yet.
    #[track_caller]
    pub fn kill_when_replicated(&mut self, index: usize) {
        let replicas = self.replicas_of(index);
        self.pause(index);
        for replica in replicas {
            // Between two questions a replica reads from its primary, if there is anything.
            let mut before = None;
            eventually(SETTLE_TIMEOUT, || {
                let offset = self.info_u64(replica, "master_repl_offset");
                before.replace(offset) == Some(offset)
            });
        }
        self.kill(index);
    }

    /// Freezes node `index`: connections stay open, nothing is answered.
    #[track_caller]
    pub fn pause(&mut self, index: usize) {
        self.nodes[index].server.pause();
        self.nodes[index].is_paused = true;
    }

    /// Ends a [`pause`](Self::pause).
    #[track_caller]
    pub fn resume(&mut self, index: usize) {
        self.nodes[index].server.resume();
        self.nodes[index].is_paused = false;
    }

    /// Kills node `index` if it runs and starts it again at the same address, with what it
    /// knew about the cluster and, unless it is durable, without its keys.
    #[track_caller]
    pub fn restart(&mut self, index: usize) {
        self.kill(index);
        self.nodes[index].server.start_again();
    }

    /// Waits until the cluster is ok, makes replica `index` the primary in place of its own,
    /// without loss, and waits until all agree.
    #[track_caller]
    pub fn failover(&self, index: usize) {
        // A node that has not yet been in touch with its primary asks it in vain.
        self.wait_until_ok();
        let mut client = self.node(index).admin_client();
        expect_ok(&mut client, &["CLUSTER", "FAILOVER"]);
        let mut asked_at = Instant::now();
        eventually_ok(SETTLE_TIMEOUT, || {
            let primaries = self.primaries();
            if primaries.contains(&index) {
                return Ok(());
            }
            if asked_at.elapsed() > HANDOVER {
                asked_at = Instant::now();
                client.command(&["CLUSTER", "FAILOVER"]);
            }
            Err(format!("the primaries are still {primaries:?}"))
        });
        self.wait_until_ok();
    }

    /// Waits until the nodes that run and are not paused are content: each says
    /// `cluster_state:ok` and is in touch with all others, all name the same owners and the
    /// same primary for each replica, every slot has an owner, every owner is among them, and
    /// each replica among them is linked to such an owner. After [`kill`](Self::kill) of a
    /// primary that means that the failover is done; it cannot come to hold when slots were
    /// lost with their last node.
    #[track_caller]
    pub fn wait_until_ok(&self) {
        eventually_ok(SETTLE_TIMEOUT, || self.check());
    }

    /// One field of `INFO` of node `index`, as a number.
    #[track_caller]
    pub fn info_u64(&self, index: usize, field: &str) -> u64 {
        self.node(index).info_u64("all", field)
    }

    /// How often `command` ran at node `index`.
    #[track_caller]
    pub fn calls(&self, index: usize, command: &str) -> u64 {
        self.node(index).calls(command)
    }

    fn check(&self) -> Result<(), String> {
        let mut first: Option<Roles> = None;
        for index in self.live() {
            let seen = self.check_node(index).map_err(|why| format!("node {index}: {why}"))?;
            if first.get_or_insert_with(|| seen.clone()) != &seen {
                return Err(format!("node {index} disagrees: {first:?} and {seen:?}"));
            }
        }
        if first.is_some() { Ok(()) } else { Err("no node runs".to_owned()) }
    }

    fn check_node(&self, index: usize) -> Result<Roles, String> {
        let answers = self.ask(index).map_err(|error| error.to_string())?;
        let Answers { view, links, state, replication } = answers;
        if !state.contains("cluster_state:ok") {
            return Err(state);
        }
        if view.covered() != usize::from(SLOTS) {
            return Err(format!("{} slots have an owner", view.covered()));
        }
        if let Some(id) = view.owners().find(|id| !self.nodes[self.index_of(id)].is_live()) {
            return Err(format!("{id} owns slots and is gone"));
        }
        let live: BTreeSet<&str> = self.live().map(|index| self.id(index)).collect();
        if !links.reach(&live) {
            return Err(format!("not in touch with all others: {links:?}"));
        }
        if replication.contains("role:slave") {
            let port = field(&replication, "master_port").unwrap_or_default();
            let follows_owner =
                view.owners().any(|id| self.node(self.index_of(id)).port().to_string() == port);
            if !follows_owner || !replication.contains("master_link_status:up") {
                return Err(replication);
            }
        }
        let primaries = links.primaries_of(&live);
        Ok((view, primaries))
    }

    fn ask(&self, index: usize) -> io::Result<Answers> {
        let mut client = self.node(index).try_admin_client()?;
        Ok(Answers {
            view: View::of(&mut client)?,
            links: Links::of(&mut client)?,
            state: client.try_command(&["CLUSTER", "INFO"])?.text(),
            replication: client.try_command(&["INFO", "replication"])?.text(),
        })
    }

    /// What a node that answers believes; one that owns slots if there is any, because such
    /// nodes are told of moves while the others hear of them later.
    #[track_caller]
    fn view(&self) -> View {
        let mut fallback = None;
        for index in self.live() {
            let client = self.node(index).try_admin_client();
            if let Ok(view) = client.and_then(|mut client| View::of(&mut client)) {
                if view.owners().any(|id| id == self.id(index)) {
                    return view;
                }
                fallback = Some(view);
            }
        }
        fallback.expect("no node answers")
    }

    fn live(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].is_live())
    }

    #[track_caller]
    fn index_of(&self, id: &str) -> usize {
        match self.nodes.iter().position(|node| node.id == id) {
            Some(index) => index,
            None => panic!("node {id} is not ours"),
        }
    }

    fn primary_port_of(&self, index: usize) -> Option<String> {
        let mut client = self.node(index).try_admin_client().ok()?;
        match client.try_command(&["INFO", "replication"]).ok()? {
            Reply::Bulk(text) => field(&String::from_utf8_lossy(&text), "master_port"),
            _ => None,
        }
    }
}

fn field(info: &str, name: &str) -> Option<String> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::to_owned)
}
