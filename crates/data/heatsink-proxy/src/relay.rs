//! What passes requests on to the servers, and replies back, as they are: clients, links and the
//! cluster. Sessions and mitigations stand on top of it, and it knows nothing of them.
//!
//! Owns: the rooms of clients (`downstream`), of links (`upstream`) and of the cluster, the counts of keys,
//! the settings, and the time of the turn. Each of the rooms has its own methods, on what [`Relay::links`]
//! and [`Relay::routing`] lend for a call.
//! Called by: the event loop, and the rooms above, to which it is the way to clients and servers.
//! Bound: those of its rooms.
//! Invariant: nothing here calls up. What a room above has to do is put among the [`Effects`], which
//! the event loop carries out as soon as the call that led to it has returned.

pub(crate) mod effects;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use heatsink_resp::command::CommandTable;
use heatsink_resp::request::Limits;

use crate::cluster::Routing;
use crate::config::Live;
use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::observe::Observer;
use crate::runtime::shared::Shared;
use crate::runtime::world::World;
use crate::upstream::Links;
use crate::upstream::links::Owner;
use crate::upstream::nodes::NodeId;
use crate::{cluster, upstream};
use effects::{Effect, Effects};

/// What a server accepts from a connection that has not authenticated.
const SERVER_UNAUTHENTICATED_MAX_ARGS: u64 = 10;
const SERVER_UNAUTHENTICATED_MAX_BYTES: u64 = 16 << 10;

/// The rooms that a request passes when nothing is done about its key.
pub(crate) struct Relay {
    pub(crate) world: World,
    pub(crate) shared: Arc<Shared>,
    /// The number of the worker.
    pub(crate) index: usize,
    /// The settings as this worker knows them.
    pub(crate) live: Arc<Live>,
    /// Limits on a request after authentication, and before.
    pub(crate) request_limits: [Limits; 2],
    /// This worker's copy of the command table; no other thread touches its counter.
    pub(crate) table: Rc<CommandTable>,
    pub(crate) table_version: u64,
    pub(crate) clients: Clients,
    pub(crate) upstream: upstream::Room,
    pub(crate) cluster: cluster::Room,
    /// Counts keys, if they are to be counted.
    pub(crate) observer: Option<Observer>,
    /// What the event loop is to have done next.
    pub(crate) effects: Effects,
    /// Tells one client in a place from the next one there.
    pub(crate) next_generation: u32,
    /// The time of the turn.
    pub(crate) now: Instant,
    pub(crate) next_tick: Instant,
}

impl Relay {
    /// The relay of a worker, on its way to the server before the first client comes.
    pub(crate) fn new(
        index: usize,
        world: World,
        shared: Arc<Shared>,
        observer: Option<Observer>,
    ) -> Self {
        let now = world.now();
        let login = shared.base_login.clone();
        let live = shared.live();
        let mut relay = Self {
            world,
            index,
            table: Rc::new(CommandTable::clone(&shared.table())),
            table_version: shared.table_version.load(Ordering::Acquire),
            clients: Clients::new(live.limits.max_output_bytes),
            next_generation: 0,
            request_limits: request_limits(&live.limits),
            observer,
            live,
            upstream: upstream::Room::new(&shared, shared.cluster.is_some(), index == 0),
            cluster: cluster::Room::new(shared.cluster.is_some(), index, now),
            effects: Effects::default(),
            now,
            next_tick: now,
            shared,
        };
        relay.cluster.reads_replicas = reads_replicas(&relay.live);
        if let Some(base_pool) = relay.links().pool_for(&login) {
            relay.upstream.base_pool = base_pool;
        }
        // Connected before the first client comes, so that it does not wait for it, and the
        // server's commands and its wish for a password are known.
        if relay.links().base_link(NodeId::FIRST).is_err() {
            tracing::debug!("upstream not there yet");
        }
        relay
    }

    /// Takes over settings that were changed.
    pub(crate) fn renew_settings(&mut self) {
        self.live = self.shared.live();
        self.request_limits = request_limits(&self.live.limits);
        self.clients.max_output_bytes = self.live.limits.max_output_bytes;
        self.cluster.reads_replicas = reads_replicas(&self.live);
        if let Some(observer) = &mut self.observer {
            observer.apply(&self.live);
        }
    }

    /// The room of links, for a call.
    #[inline]
    pub(crate) fn links(&mut self) -> Links<'_, Effects> {
        Links {
            room: &mut self.upstream,
            clients: &mut self.clients,
            world: &mut self.world,
            shared: &self.shared,
            live: &self.live,
            table: &self.table,
            now: self.now,
            next_tick: &mut self.next_tick,
            effects: &mut self.effects,
        }
    }

    /// The room of the cluster, for a call.
    #[inline]
    pub(crate) fn routing(&mut self) -> Routing<'_, Effects> {
        Routing {
            room: &mut self.cluster,
            upstream: &mut self.upstream,
            clients: &mut self.clients,
            observer: &mut self.observer,
            world: &mut self.world,
            shared: &self.shared,
            live: &self.live,
            table: &self.table,
            now: self.now,
            next_tick: &mut self.next_tick,
            effects: &mut self.effects,
        }
    }

    /// A node for what any node can do; see [`cluster::Room::home`].
    pub(crate) fn home(&self, key: ClientKey) -> NodeId {
        self.cluster.home(&self.clients, key)
    }

    /// The server of a key.
    pub(crate) fn node_of(&self, name: &[u8]) -> NodeId {
        self.cluster.node_of(&self.clients, name)
    }

    /// The primary of a slot; see [`cluster::Room::primary_of`].
    #[inline]
    pub(crate) fn primary_of(&self, slot: u16, key: ClientKey) -> NodeId {
        self.cluster.primary_of(&self.clients, slot, key)
    }

    /// The small limits hold: the server has asked for a password and got none yet.
    #[inline]
    pub(crate) fn is_unauthenticated(&self, key: ClientKey) -> bool {
        let client = self.clients.get_ref(key);
        client.is_some_and(|client| {
            (self.upstream.pools[client.pool].needs_auth || !client.is_known)
                && client.dedicated.as_ref().is_none_or(|dedicated| !dedicated.strayed)
        })
    }

    /// A link is ready, and whose it is is settled: what is to be asked on it first.
    pub(crate) fn begin_on(&mut self, slot: usize) {
        let Some(upstream) = self.upstream.links.get(slot) else { return };
        match upstream.owner {
            Owner::Pool if !upstream.link.needs_auth() => {
                self.links().ask_commands(slot);
                self.routing().ask_topology(slot);
            }
            Owner::Client(key) => {
                let id = upstream.link.connection_id();
                if let Some(client) = self.clients.get(key) {
                    client.record.set_upstream_id(id);
                }
            }
            Owner::Tracked => self.effects.push(Effect::TrackedReady(slot)),
            Owner::Pool | Owner::Spare | Owner::Once | Owner::Listener | Owner::Retired { .. } => {}
        }
    }
}

/// Whether some rule lets replicas answer reads.
fn reads_replicas(live: &Live) -> bool {
    live.policy.iter().any(|rule| rule.replica_reads)
}

/// The limits on a request after authentication, and before.
fn request_limits(limits: &crate::config::Limits) -> [Limits; 2] {
    let after = Limits {
        max_args: limits.max_args,
        max_bulk_bytes: limits.max_bulk_bytes,
        max_request_bytes: limits.max_request_bytes,
        unauthenticated: false,
    };
    let before = Limits {
        // Above its own limits the server would close the connection, which others share.
        max_args: limits.unauthenticated_max_args.min(SERVER_UNAUTHENTICATED_MAX_ARGS),
        max_bulk_bytes: limits.unauthenticated_max_bytes.min(SERVER_UNAUTHENTICATED_MAX_BYTES),
        // Room for the arguments' headers.
        max_request_bytes: limits.unauthenticated_max_bytes + 1024,
        unauthenticated: true,
    };
    [after, before]
}
