//! Finds the cluster's map out: at start, when a node says that it is not the one, when a
//! node cannot be reached or does not answer, and now and then.
//!
//! Asked are the connections of the URL's own login: a client may lack the right. Only where the
//! URL has no credentials and the servers want some, or nobody without any may ask, are those of
//! clients: the first that is accepted asks with its own.

use std::time::{Duration, Instant};

use heatsink_cluster::members;
use heatsink_cluster::topology::Topology;
use heatsink_resp::value::Value;
use heatsink_upstream::address::Endpoint;
use heatsink_upstream::error::LinkError;

use crate::cluster::effects::Effect;
use crate::cluster::topology::{Cluster, Routes};
use crate::cluster::{Notes, Room, Routing};
use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Flow;
use crate::upstream::links::{Owner, Upstream};
use crate::upstream::nodes::NodeId;
use crate::upstream::pools::Pool;
use crate::upstream::ticket::{Purpose, Ticket};

/// Time between two attempts to listen at primaries that could not be reached.
const LISTENING_PAUSE: Duration = Duration::from_secs(1);
/// Without any reason, the map is looked at this often.
const PERIOD: Duration = Duration::from_secs(5);
/// After a node failed, it is looked at with every tick for this long.
const ALERT: Duration = Duration::from_secs(30);
/// Time between two looks at the map because a node is silent, whichever worker has it. With the rest
/// less than a second, in which clients are to be served after a failover.
const LOOKS_APART: Duration = Duration::from_millis(600);
/// Something has happened that the map may tell more about.
const LOOK_SOON: Duration = Duration::from_millis(20);

/// What a worker knows of the cluster.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) routes: std::sync::Arc<Routes>,
    version: u64,
    /// Why the map could not be found out.
    error: Option<String>,
    /// The host that was asked: a node may leave its own out.
    asked_host: String,
    /// Along the base pool.
    asked_base: bool,
    /// Who gives no credentials may not ask.
    base_refused: bool,
    /// Seeds are tried in turn.
    seed: usize,
    alert_until: Option<Instant>,
    next_look: Instant,
    /// Clients that wait for the map.
    waiting: Vec<ClientKey>,
    /// Replicas that are not to be asked for a while.
    pub(crate) sick: Vec<(NodeId, Instant)>,
}

impl View {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            routes: std::sync::Arc::default(),
            version: 0,
            error: None,
            asked_host: String::new(),
            asked_base: false,
            base_refused: false,
            seed: 0,
            alert_until: None,
            next_look: now + PERIOD,
            waiting: Vec::new(),
            sick: Vec::new(),
        }
    }

    /// Leaves a node alone until then. One entry a node, however often it fails.
    pub(crate) fn avoid(&mut self, node: NodeId, until: Instant) {
        match self.sick.iter_mut().find(|(sick, _)| *sick == node) {
            Some(entry) => entry.1 = until,
            None => self.sick.push((node, until)),
        }
    }

    /// Something is wrong, so that the map is looked at all the time.
    pub(crate) fn is_alert(&self) -> bool {
        self.alert_until.is_some() || !self.routes.is_known()
    }
}

impl<N: Notes> Routing<'_, N> {
    /// Takes over what other workers found out.
    #[inline]
    pub(crate) fn renew_topology(&mut self) {
        let (Some(view), Some(cluster)) = (&mut self.room.view, &self.shared.cluster) else {
            return;
        };
        let version = cluster.version();
        if view.version == version {
            return;
        }
        view.version = version;
        let before = std::mem::replace(&mut view.routes, cluster.routes());
        self.upstream.replicas = view.routes.replica_nodes().collect();
        view.error = None;
        self.room.epoch = self.room.epoch.wrapping_add(1);
        self.effects.note(Effect::MapChanged);
        self.clients.resume.append(&mut view.waiting);
        self.leave_changed_nodes(&before);
        self.effects.note(Effect::ListenAnew);
    }

    /// Shared links to nodes that are no longer part of the cluster, or are replicas now and
    /// were not, or the other way round, are not used again.
    fn leave_changed_nodes(&mut self, before: &Routes) {
        let Some(view) = &self.room.view else { return };
        let shards = &view.routes.shards;
        let as_opened = |node: NodeId, replica: bool| {
            shards.iter().any(|shard| {
                if replica { shard.replicas.contains(&node) } else { shard.primary == node }
            })
        };
        let changed = |(slot, upstream): (usize, &Upstream)| {
            let shared = matches!(upstream.owner, Owner::Pool | Owner::Spare | Owner::Tracked);
            let changed = shared && !as_opened(upstream.node, upstream.replica);
            changed.then_some((slot, upstream.generation))
        };
        let ending = |(slot, upstream): (usize, &Upstream)| {
            let Owner::Client(key) = upstream.owner else { return None };
            let dedicated = self.clients.get_ref(key)?.dedicated.as_ref()?;
            let ending = dedicated.awaits_exec() && dedicated.is_asked(slot);
            (ending && self.room.is_replaced(upstream.node, before))
                .then_some((slot, upstream.generation))
        };
        let changed: Vec<_> = self.upstream.links.iter().filter_map(changed).collect();
        let ending: Vec<_> = self.upstream.links.iter().filter_map(ending).collect();
        // What is done about one may close others, and open new ones in their place.
        for (slot, generation) in ending {
            if self.upstream.links.get(slot).is_some_and(|link| link.generation == generation) {
                // What it still says of a transaction is not worth anything.
                self.links().lose_link(slot, &LinkError::Replaced { ready: true });
            }
        }
        for (slot, generation) in changed {
            let link = self.upstream.links.get(slot).filter(|link| link.generation == generation);
            let Some(upstream) = link else { continue };
            // One that was a primary and is none any more may not have noticed.
            let replaced = self.room.is_replaced(upstream.node, before);
            self.links().retire_link(slot, replaced);
        }
    }

    /// A reason to look at the map.
    pub(crate) fn want_topology(&mut self) {
        if let Some(cluster) = &self.shared.cluster {
            cluster.want();
            self.ask_any();
            // If it is too early to ask again.
            *self.next_tick = (*self.next_tick).min(self.now + LOOK_SOON);
        }
    }

    /// A node could not be reached, or was lost.
    pub(crate) fn node_failed(&mut self, node: NodeId) {
        self.shared.primary_lost();
        let Some(view) = &mut self.room.view else { return };
        view.alert_until = Some(self.now + ALERT);
        view.avoid(node, self.now + PERIOD / 5);
        if !view.routes.is_known() {
            let seeds = self.shared.cluster.as_ref().map_or(1, |cluster| cluster.seeds);
            view.seed = (view.seed + 1) % seeds.max(1);
            self.clients.resume.append(&mut view.waiting);
        }
        // Not asked here: that may need a connection, which may fail just like this one.
        if let Some(cluster) = &self.shared.cluster {
            cluster.want();
        }
        *self.next_tick = (*self.next_tick).min(self.now + LOOK_SOON);
    }

    /// Whether the map may be asked for along a pool.
    fn asks_along(&self, pool: usize) -> bool {
        let base = &self.upstream.pools[self.upstream.base_pool];
        let base_fails =
            base.needs_auth || self.room.view.as_ref().is_some_and(|view| view.base_refused);
        pool == self.upstream.base_pool || (base.login.credentials.is_none() && base_fails)
    }

    /// Asks on any link that is ready, and whose node is likely to answer.
    fn ask_any(&mut self) {
        let still = self.upstream.silent_nodes(self.clients, self.now);
        let sick = |node: NodeId| {
            let view = self.room.view.as_ref();
            view.is_some_and(|view| view.sick.iter().any(|(sick, _)| *sick == node))
        };
        let usable = |(slot, upstream): (usize, &Upstream)| {
            (upstream.owner == Owner::Pool
                && self.asks_along(upstream.pool)
                && upstream.link.is_ready()
                && !upstream.link.needs_auth()
                && !sick(upstream.node)
                && !still.contains(&upstream.node))
            .then_some(slot)
        };
        let slots: Vec<_> = self.upstream.links.iter().filter_map(usable).collect();
        if !slots.is_empty() {
            let slot = slots[self.room.turn % slots.len()];
            self.room.turn = self.room.turn.wrapping_add(1);
            self.ask_topology(slot);
        } else if self.shared.cluster.as_ref().is_some_and(Cluster::is_wanted) {
            self.connect_anywhere(&still);
        }
    }

    /// No node can be asked on a connection that is there: the next one in turn gets one, and
    /// is asked when it is ready.
    fn connect_anywhere(&mut self, still: &[NodeId]) {
        let Some(view) = &self.room.view else { return };
        let seeds = self.shared.cluster.as_ref().map_or(0, |cluster| cluster.seeds);
        let mut nodes: Vec<NodeId> = view.routes.nodes().collect();
        nodes.extend((0..seeds).map(|seed| NodeId(seed as u16)));
        let sick =
            |node: &NodeId| still.contains(node) || view.sick.iter().any(|(sick, _)| sick == node);
        let healthy: Vec<_> = nodes.iter().copied().filter(|node| !sick(node)).collect();
        let candidates = if healthy.is_empty() { nodes } else { healthy };
        let open = |(_, pool): &(usize, &Pool)| pool.clients > 0 && !pool.needs_auth;
        let pool = match self.upstream.pools.get(self.upstream.base_pool) {
            Some(pool) if !pool.needs_auth => self.upstream.base_pool,
            _ => self
                .upstream
                .pools
                .iter()
                .find(open)
                .map_or(self.upstream.base_pool, |(slot, _)| slot),
        };
        if candidates.is_empty() {
            return;
        }
        self.room.turn = self.room.turn.wrapping_add(1);
        let node = candidates[self.room.turn % candidates.len()];
        if self.links().pool_link(pool, node).is_err() {
            tracing::debug!("a node of the cluster cannot be asked for the map");
        }
    }

    /// Asks on this link, if the map is wanted.
    pub(crate) fn ask_topology(&mut self, slot: usize) {
        let Some(cluster) = &self.shared.cluster else { return };
        let (pool, node) = (self.upstream.links[slot].pool, self.upstream.links[slot].node);
        if !self.asks_along(pool) || !cluster.may_ask(self.now) {
            return;
        }
        let endpoint = self.links().endpoint(node);
        if let Some(view) = &mut self.room.view {
            view.asked_base = pool == self.upstream.base_pool;
            if let Endpoint::Tcp { host, .. } = endpoint {
                view.asked_host = host;
            }
        }
        // Nodes without a slot are part of the cluster too: one may be about to get some.
        let bytes = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n";
        self.upstream.push_to_link(self.now, slot, bytes, Ticket::internal(Purpose::Members));
        let bytes = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n";
        self.upstream.push_to_link(self.now, slot, bytes, Ticket::internal(Purpose::Topology));
    }

    pub(crate) fn forget_topology_question(&mut self) {
        if let Some(cluster) = &self.shared.cluster {
            cluster.asked_and_done();
            cluster.want();
        }
    }

    /// `CLUSTER NODES`: whom redirections may name.
    pub(crate) fn learn_members(&mut self, frame: &[u8]) {
        let (Some(view), Some(cluster)) = (&self.room.view, &self.shared.cluster) else {
            return;
        };
        let Ok(value) = Value::decode(frame) else { return };
        if let Some(text) = value.text().and_then(|text| std::str::from_utf8(text).ok()) {
            cluster.set_members(members::parse(text, &view.asked_host));
        }
    }

    pub(crate) fn learn_topology(&mut self, frame: &[u8]) {
        let (Some(view), Some(cluster)) = (&mut self.room.view, &self.shared.cluster) else {
            return;
        };
        cluster.asked_and_done();
        let parsed = match Value::decode(frame) {
            Ok(Value::Error(error)) => Err(String::from_utf8_lossy(&error).into_owned()),
            Ok(value) => {
                Topology::parse(&value, &view.asked_host).map_err(|error| error.to_string())
            }
            Err(_) => Err("the reply cannot be understood".to_owned()),
        };
        match parsed {
            Ok(topology) if topology.shards.is_empty() => {
                view.error = Some("no node has any slot".to_owned());
            }
            Ok(topology) => {
                view.error = None;
                view.base_refused &= !view.asked_base;
                let (shards, covered) = (topology.shards.len(), topology.covered());
                if cluster.publish(topology, &self.shared.nodes) {
                    tracing::info!(shards, slots = covered, "the cluster's map has changed");
                    for mailbox in &self.shared.mailboxes {
                        mailbox.wake();
                    }
                    self.renew_topology();
                }
                return;
            }
            Err(error) => {
                if view.asked_base {
                    view.base_refused = error.starts_with("NOPERM");
                }
                if view.error.as_ref() != Some(&error) {
                    tracing::warn!("the cluster's map was not found out: {error}");
                }
                view.error = Some(error);
            }
        }
        cluster.want();
        self.clients.resume.append(&mut view.waiting);
    }

    /// Looks after the map now and then.
    pub(crate) fn look_after_topology(&mut self) {
        let now = self.now;
        if let Some(cluster) = &self.shared.cluster
            && !self.upstream.silent_nodes(self.clients, self.now).is_empty()
        {
            cluster.want_after(LOOKS_APART, now);
        }
        let (Some(view), Some(cluster)) = (&mut self.room.view, &self.shared.cluster) else {
            return;
        };
        view.sick.retain(|(_, until)| now < *until);
        if view.alert_until.is_some_and(|until| now >= until) {
            view.alert_until = None;
        }
        if view.is_alert() || now >= view.next_look {
            view.next_look = now + PERIOD;
            cluster.want();
        }
        self.clients.resume.append(&mut view.waiting);
        let (known, seed) = (view.routes.is_known(), NodeId(view.seed as u16));
        if cluster.is_wanted() {
            self.ask_any();
        }
        if self.room.is_listening_in_vain && now >= self.room.next_listening {
            self.room.next_listening = now + LISTENING_PAUSE;
            self.effects.note(Effect::ListenAnew);
        }
        if !known && self.links().base_link(seed).is_err() {
            tracing::debug!("no seed of the cluster can be reached");
        }
    }

    /// Whether a client's request can be sent by the map; if not, what becomes of it: it waits
    /// for the map, or is answered with the reason why there is none.
    #[inline]
    pub(crate) fn without_map(&mut self, key: ClientKey) -> Option<Flow> {
        let view = self.room.view.as_ref()?;
        if view.routes.is_known() { None } else { self.wait_for_map(key) }
    }

    fn wait_for_map(&mut self, key: ClientKey) -> Option<Flow> {
        let view = self.room.view.as_mut()?;
        let pool = self.clients.get_ref(key)?.pool;
        if self.upstream.pools[pool].needs_auth {
            // Any node will say so.
            return None;
        }
        if let Some(error) = &view.error {
            let text = format!("ERR heatsink: the cluster's map is not known: {error}");
            self.clients.error(key, &text);
            return Some(Flow::Taken);
        }
        let seed = NodeId(view.seed as u16);
        view.waiting.push(key);
        match self.links().base_link(seed) {
            Ok(_) => Some(Flow::Wait),
            Err(why) => {
                self.clients.error(key, &why);
                Some(Flow::Taken)
            }
        }
    }
}

impl Room {
    /// A node for what any node can do: the same for a client as long as the map is.
    pub(crate) fn home(&self, clients: &Clients, key: ClientKey) -> NodeId {
        let Some(view) = &self.view else { return NodeId::FIRST };
        let id = clients.get_ref(key).map_or(0, |client| client.record.id);
        match view.routes.shards.len() {
            0 => NodeId(view.seed as u16),
            count => view.routes.shards[id as usize % count].primary,
        }
    }

    /// There is a map.
    pub(crate) fn knows_map(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.routes.is_known())
    }

    /// Whether a node was a primary, and one of its replicas is it now.
    pub(crate) fn is_replaced(&self, node: NodeId, before: &Routes) -> bool {
        let shards = before.shards.iter().filter(|shard| shard.primary == node);
        !self.leads(node) && shards.flat_map(|shard| &shard.replicas).any(|heir| self.leads(*heir))
    }

    pub(crate) fn is_replica(&self, node: NodeId) -> bool {
        self.view.as_ref().is_some_and(|view| view.routes.is_replica(node))
    }

    /// Whether a node is a primary.
    pub(crate) fn leads(&self, node: NodeId) -> bool {
        let view = self.view.as_ref();
        view.is_some_and(|view| view.routes.shards.iter().any(|shard| shard.primary == node))
    }
}
