//! What a cluster is started with, and how it is put together.
//!
//! Called by: tests, through `RedisCluster::builder`.
//! Bound: `MEET_TIMEOUT` until the nodes know each other, then that of `wait_until_ok`.
//! Invariant: node `i` below the number of primaries starts as a primary, with the slots from
//! `i * 16384 / primaries` on; the replicas of primary 0 follow, then those of primary 1 and so
//! on.
//!
//! Nodes are introduced to each other pair by pair, as gossip would take seconds. What is left
//! is the two seconds that a node of Redis 7.0 waits after its start before it takes writes.
//!
//! `CLUSTER SLOTS` leaves out a replica until it is known how far that is, which nobody is told
//! before its primary has sent something. Primaries therefore ping every second, not every ten,
//! and a cluster has started when all nodes list all replicas: who reads the map only now and then
//! would else not hear of them for seconds.

use std::thread;
use std::time::{Duration, Instant};

use super::{Node, RedisCluster};
use crate::certificates::Certificates;
use crate::client::RawClient;
use crate::hash_slot::SLOTS;
use crate::redis_server::{ClientAuth, RedisServer, RedisServerBuilder};
use crate::reply::Reply;
use crate::wait::eventually_ok;

const MEET_TIMEOUT: Duration = Duration::from_secs(30);
/// Short where somebody can take over.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);
/// Where nobody can, the others would only refuse everything while a node is busy or paused.
const NODE_TIMEOUT_ALONE: Duration = Duration::from_secs(15);
/// Longer than a node waits for one that it was told to meet.
const MEETING_FORGOTTEN: Duration = Duration::from_secs(3);

/// Settings of a cluster to start: made by [`RedisCluster::builder`].
#[derive(Clone, Debug)]
pub struct RedisClusterBuilder {
    primaries: usize,
    replicas_per_primary: usize,
    node_timeout: Option<Duration>,
    node: RedisServerBuilder,
    pub(super) is_tls: bool,
    /// How a node logs in at another one: the words for `MIGRATE`.
    pub(super) migrate_auth: Vec<String>,
}

impl RedisClusterBuilder {
    pub(super) fn new() -> Self {
        Self {
            primaries: 3,
            replicas_per_primary: 1,
            node_timeout: None,
            node: RedisServer::builder(),
            is_tls: false,
            migrate_auth: Vec::new(),
        }
    }

    /// How many primaries, 3 unless set. Fewer than 3 cannot fail over.
    #[must_use]
    #[track_caller]
    pub fn primaries(mut self, count: usize) -> Self {
        assert!(count > 0 && count <= usize::from(SLOTS), "{count} primaries");
        self.primaries = count;
        self
    }

    /// How many replicas each primary has, 1 unless set.
    #[must_use]
    pub fn replicas_per_primary(mut self, count: usize) -> Self {
        self.replicas_per_primary = count;
        self
    }

    /// After how long a node that does not answer is thought to have failed: unless set 1 s, and
    /// 15 s without replicas.
    #[must_use]
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = Some(timeout);
        self
    }

    /// Adds a line to the configuration file of every node; ACL users are such lines:
    /// `user alice on >secret ~* +@read`.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.node = self.node.line(line);
        self
    }

    /// Each node writes every change to its disk before it answers, and has its keys again after
    /// a [`restart`](RedisCluster::restart).
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.node = self.node.durable();
        self
    }

    /// Demands this password of the default user, and lets the nodes and the kit use it.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.node = self.node.arg("requirepass", password).arg("masterauth", password);
        self.migrate_auth = vec!["AUTH".to_owned(), password.to_owned()];
        self
    }

    /// The user as whom the nodes (`masteruser`) and the kit log in; one that a
    /// [`line`](Self::line) has given all rights.
    #[must_use]
    pub fn admin(mut self, user: &str, password: &str) -> Self {
        self.node =
            self.node.admin(user, password).arg("masteruser", user).arg("masterauth", password);
        self.migrate_auth = ["AUTH2", user, password].map(str::to_owned).to_vec();
        self
    }

    /// Speaks TLS only, to clients, between nodes and to replicas.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.node =
            self.node.tls(certificates).arg("tls-cluster", "yes").arg("tls-replication", "yes");
        self.is_tls = true;
        self
    }

    /// Whether clients must show a certificate; after [`tls`](Self::tls).
    #[must_use]
    #[track_caller]
    pub fn tls_auth_clients(mut self, auth_clients: ClientAuth) -> Self {
        self.node = self.node.tls_auth_clients(auth_clients);
        self
    }

    /// Runs another server program that takes the same arguments.
    #[must_use]
    pub fn program(mut self, program: &str) -> Self {
        self.node = self.node.program(program);
        self
    }

    /// Starts all nodes, makes them a cluster and waits until it serves.
    #[track_caller]
    pub fn start(self) -> RedisCluster {
        let nodes = self.start_nodes();
        let mut clients: Vec<RawClient> =
            nodes.iter().map(|node| node.server.admin_client()).collect();
        self.assign_slots(&mut clients);
        introduce(&nodes, &mut clients);
        for (index, client) in clients.iter_mut().enumerate().skip(self.primaries) {
            let primary = &nodes[(index - self.primaries) / self.replicas_per_primary];
            replicate(client, primary);
        }
        let cluster = RedisCluster { nodes, settings: self };
        cluster.wait_until_ok();
        for client in &mut clients {
            wait_until_listed(client, cluster.settings.replicas_per_primary);
        }
        cluster
    }

    #[track_caller]
    fn start_nodes(&self) -> Vec<Node> {
        let count = self.primaries * (1 + self.replicas_per_primary);
        let is_alone = self.replicas_per_primary == 0;
        let usual = if is_alone { NODE_TIMEOUT_ALONE } else { NODE_TIMEOUT };
        let timeout = self.node_timeout.unwrap_or(usual);
        let settings = self
            .node
            .clone()
            .cluster_node()
            .arg("cluster-node-timeout", &timeout.as_millis().to_string())
            .arg("cluster-replica-validity-factor", "0")
            // A cluster of the size asked for, whatever dies: no replica moves to an orphan.
            .arg("cluster-allow-replica-migration", "no")
            .arg("repl-diskless-sync-delay", "0")
            .arg("repl-ping-replica-period", "1");
        thread::scope(|scope| {
            let starts: Vec<_> =
                (0..count).map(|_| scope.spawn(|| Node::new(settings.clone().start()))).collect();
            starts.into_iter().map(|start| start.join().expect("the log is above")).collect()
        })
    }

    /// Gives slots, and an epoch to each node so that none has to be negotiated.
    fn assign_slots(&self, clients: &mut [RawClient]) {
        let first_of = |primary: usize| primary * usize::from(SLOTS) / self.primaries;
        for (index, client) in clients.iter_mut().enumerate() {
            expect_ok(client, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if index < self.primaries {
                let first = first_of(index).to_string();
                let last = (first_of(index + 1) - 1).to_string();
                expect_ok(client, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
        }
    }
}

fn introduce(nodes: &[Node], clients: &mut [RawClient]) {
    for (index, client) in clients.iter_mut().enumerate() {
        for other in &nodes[index + 1..] {
            meet(client, other);
        }
    }
}

fn meet(client: &mut RawClient, other: &Node) {
    let (port, bus) = (other.server.port(), other.server.bus_port());
    expect_ok(client, &["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus.to_string()]);
}

/// A node can follow only a primary that it has met. On a machine that stalls, a meeting may take
/// longer than nodes wait for each other, who then forget it: it is asked for again.
#[track_caller]
fn replicate(client: &mut RawClient, primary: &Node) {
    let begun = Instant::now();
    eventually_ok(MEET_TIMEOUT, || {
        let reply = client.command(&["CLUSTER", "REPLICATE", &primary.id]);
        if reply == Reply::ok() {
            return Ok(());
        }
        if begun.elapsed() > MEETING_FORGOTTEN {
            // Does nothing while one is under way.
            meet(client, primary);
        }
        Err(format!("CLUSTER REPLICATE: {reply}"))
    });
}

/// Waits until a node tells clients of so many replicas of each primary.
#[track_caller]
fn wait_until_listed(client: &mut RawClient, replicas: usize) {
    eventually_ok(MEET_TIMEOUT, || {
        let slots = client.command(&["CLUSTER", "SLOTS"]);
        // First slot, last slot, primary, replicas.
        let all = slots.items().iter().all(|range| range.items().len() == 3 + replicas);
        if all { Ok(()) } else { Err(format!("replicas are not listed: {slots}")) }
    });
}

#[track_caller]
pub(super) fn expect_ok(client: &mut RawClient, command: &[&str]) {
    let reply = client.command(command);
    assert_eq!(reply, Reply::ok(), "{}", command.join(" "));
}
