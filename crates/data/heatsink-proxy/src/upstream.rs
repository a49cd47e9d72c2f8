//! The server side: which servers there are, the pool of connections of each login, and who waits
//! for which reply.
//!
//! Owns: the links, the pools, and what is known of each server. It reaches clients to tell them of requests
//! that will not be answered; of a cluster, of sessions and of hot keys it knows nothing.
//! Called by: the cluster, which finds a server for each request; the rooms above, for links of one use or of
//! one client; the event loop, with what becomes of each link.
//! Effects that it notes: [`effects::Effect`].
//! Bound: the pools, and in each the links to one server, that `pools` allows.
//! Invariant: clients of different users never share a link.
//!
//! | question | module |
//! |---|---|
//! | the servers, by number | `nodes`, `sentinel` (which one is the primary) |
//! | connections shared by the clients of one login | `pools` |
//! | one connection: opened, used no more, lost | `links` |
//! | what those above have to do about it | `effects` |
//! | who waits for a reply, and what for | `ticket` |
//! | replies that are not believed, or are kept from their client | `suspect_replies` |
//! | a server owes an answer and says nothing | `silent_nodes` |
//! | what `MONITOR` does not show a client: what Heatsink says itself | `monitor` |
//! | whether each server can be reached, and how busy it is | `health`, `load` |

#[cfg(test)]
mod alone;
pub(crate) mod effects;
pub(crate) mod health;
pub(crate) mod links;
pub(crate) mod load;
pub(crate) mod monitor;
pub(crate) mod nodes;
pub(crate) mod pools;
pub(crate) mod sentinel;
pub(crate) mod silent_nodes;
pub(crate) mod suspect_replies;
pub(crate) mod ticket;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use heatsink_resp::command::CommandTable;
use heatsink_upstream::address::Endpoint;
use slab::Slab;

use crate::config::Live;
use crate::downstream::clients::Clients;
use crate::runtime::shared::Shared;
use crate::runtime::world::World;
use effects::{Effect, Note};
use links::Upstream;
use nodes::{Node, NodeId};
use pools::Pool;
use ticket::{Purpose, Ticket};

/// The servers as one worker knows them, and its connections to them.
#[derive(Debug)]
pub(crate) struct Room {
    /// By their numbers.
    nodes: Vec<Arc<Node>>,
    pub(crate) links: Slab<Upstream>,
    pub(crate) pools: Slab<Pool>,
    pool_serial: u64,
    /// Pools, by their serial numbers, that nobody needs any more.
    pub(crate) surplus_pools: Vec<(usize, u64)>,
    /// The pool of clients that have not authenticated.
    pub(crate) base_pool: usize,
    /// Links that have something to send.
    pub(crate) dirty_links: Vec<usize>,
    /// Links that may have more to read.
    pub(crate) eager_links: Vec<usize>,
    /// The server says nothing on some shared link, or there is a second one beside it.
    pub(crate) goes_around: bool,
    /// Requests are kept until they are answered: they may have to be sent elsewhere.
    keeps_requests: bool,
    /// Servers that only read, as those above say.
    pub(crate) replicas: Vec<NodeId>,
    /// This worker finds out which servers are up.
    watches: bool,
    /// Tells one link in a place from the next one there.
    generation: u32,
}

/// The room, with what it stands on, for a call; `N` is where it notes what others have to do.
pub(crate) struct Links<'a, N> {
    pub(crate) room: &'a mut Room,
    pub(crate) clients: &'a mut Clients,
    pub(crate) world: &'a mut World,
    pub(crate) shared: &'a Shared,
    pub(crate) live: &'a Live,
    pub(crate) table: &'a CommandTable,
    /// The time of the turn.
    pub(crate) now: Instant,
    pub(crate) next_tick: &'a mut Instant,
    pub(crate) effects: &'a mut N,
}

impl<N: Note<Effect>> Links<'_, N> {
    /// The server with that number.
    pub(crate) fn node(&mut self, id: NodeId) -> Arc<Node> {
        if id.index() >= self.room.nodes.len() {
            self.room.nodes = self.shared.nodes.all();
        }
        Arc::clone(&self.room.nodes[id.index().min(self.room.nodes.len() - 1)])
    }

    pub(crate) fn endpoint(&mut self, id: NodeId) -> Endpoint {
        self.node(id).dialer.endpoint()
    }

    /// Asks the server for its commands, if nobody has since it was last lost.
    pub(crate) fn ask_commands(&mut self, link: usize) {
        if self.shared.table_asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let ticket = Ticket::internal(Purpose::Commands);
        self.room.push_to_link(self.now, link, b"*1\r\n$7\r\nCOMMAND\r\n", ticket);
    }
}

impl Room {
    /// `keeps_requests`: what is asked may have to be asked elsewhere. `watches`: this worker finds out
    /// which servers are up.
    pub(crate) fn new(shared: &Shared, keeps_requests: bool, watches: bool) -> Self {
        Self {
            nodes: shared.nodes.all(),
            links: Slab::new(),
            pools: Slab::new(),
            pool_serial: 0,
            surplus_pools: Vec::new(),
            base_pool: 0,
            dirty_links: Vec::new(),
            eager_links: Vec::new(),
            goes_around: false,
            keeps_requests,
            replicas: Vec::new(),
            watches,
            generation: 0,
        }
    }

    /// Tells the servers how many requests they got from this worker.
    pub(crate) fn report_requests(&mut self) {
        let Self { links, nodes, .. } = self;
        for (_, upstream) in links {
            if upstream.requests > 0
                && let Some(node) = nodes.get(upstream.node.index())
            {
                node.requests.fetch_add(upstream.requests, Ordering::Relaxed);
                upstream.requests = 0;
            }
        }
    }
}
