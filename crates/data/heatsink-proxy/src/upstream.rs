//! The server side: which servers there are, the pool of connections of each login, and who waits
//! for which reply.
//!
//! | question | module |
//! |---|---|
//! | the servers, by number | `nodes`, `sentinel` (which one is the primary) |
//! | connections shared by the clients of one login | `pools` |
//! | who waits for a reply, and what for | `ticket` |
//! | what `MONITOR` does not show a client: what Heatsink says itself | `monitor` |
//! | whether each server can be reached, and how busy it is | `health`, `load` |

pub(crate) mod health;
pub(crate) mod load;
pub(crate) mod monitor;
pub(crate) mod nodes;
pub(crate) mod pools;
pub(crate) mod sentinel;
pub(crate) mod ticket;

use std::sync::Arc;
use std::time::Instant;

use slab::Slab;

use crate::observe::Mark;
use nodes::Node;
use pools::{Pool, Ticket, Upstream};

/// The servers as one worker knows them, and its connections to them.
#[derive(Debug)]
pub(crate) struct Room {
    /// By their numbers.
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) links: Slab<Upstream>,
    pub(crate) pools: Slab<Pool>,
    pub(crate) pool_serial: u64,
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
}

impl Room {
    pub(crate) fn new(nodes: Vec<Arc<Node>>) -> Self {
        Self {
            nodes,
            links: Slab::new(),
            pools: Slab::new(),
            pool_serial: 0,
            surplus_pools: Vec::new(),
            base_pool: 0,
            dirty_links: Vec::new(),
            eager_links: Vec::new(),
            goes_around: false,
        }
    }

    /// Queues a request on a link; it is flushed at the end of the turn.
    #[inline]
    pub(crate) fn push_to_link(&mut self, now: Instant, slot: usize, bytes: &[u8], ticket: Ticket) {
        let upstream = &mut self.links[slot];
        upstream.requests += 1;
        upstream.link.push(bytes, ticket, 1, now);
        if !upstream.dirty {
            upstream.dirty = true;
            self.dirty_links.push(slot);
        }
    }

    /// Queues requests of which something is remembered; the link is flushed at the end of the turn.
    #[inline]
    pub(crate) fn push_marked(
        &mut self,
        now: Instant,
        slot: usize,
        bytes: &[u8],
        ticket: Ticket,
        marks: &[Mark],
    ) {
        let upstream = &mut self.links[slot];
        upstream.requests += marks.len() as u64;
        upstream.link.push_marked(bytes, ticket, marks, now);
        if !upstream.dirty {
            upstream.dirty = true;
            self.dirty_links.push(slot);
        }
    }

    /// A link has something to send.
    pub(crate) fn touch_link(&mut self, slot: usize) {
        if let Some(upstream) = self.links.get_mut(slot)
            && !upstream.dirty
        {
            upstream.dirty = true;
            self.dirty_links.push(slot);
        }
    }
}
