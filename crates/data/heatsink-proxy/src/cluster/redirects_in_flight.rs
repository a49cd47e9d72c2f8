//! Requests that were sent on, and the nodes that they are on their way to.
//!
//! One behind the other along the same redirect, they keep their order. If a slot moves on while they
//! are under way, they would part:
//!
//! ```text
//! 1. SET k 1, SET k 2 -> A, in which k's slot was
//! 2. A: MOVED to B; SET k 1 -> B, which takes its time
//! 3. the slot moves on to C; A: MOVED to C for the second
//! 4. SET k 2 -> C, executed; B: MOVED to C; SET k 1 -> C, executed last: wrong
//! ```
//!
//! At 3 the second waits, and all that its client has sent behind it for the slot, until the first is
//! answered.
//!
//! Called by: `redirects`.
//! Bound: an entry for each slot and node that something is on its way to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::FixedState;

use crate::cluster;
use crate::cluster::redirects::{Later, RETRY_PAUSE};
use crate::cluster::replay::is_before;
use crate::downstream::clients::error_line;
use crate::relay::Relay;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::Ticket;

/// How many requests are on their way to which node, by their slots. After a failover that may be
/// all slots of a node.
#[derive(Debug, Default)]
pub(crate) struct RedirectsInFlight(HashMap<u16, Vec<(NodeId, u32)>, FixedState>);

impl RedirectsInFlight {
    fn add(&mut self, slot: u16, node: NodeId) {
        let nodes = self.0.entry(slot).or_default();
        match nodes.iter_mut().find(|(to, _)| *to == node) {
            Some((_, count)) => *count += 1,
            None => nodes.push((node, 1)),
        }
    }

    pub(super) fn remove(&mut self, sent_to: Option<(u16, NodeId)>) {
        let Some((slot, node)) = sent_to else { return };
        let Entry::Occupied(mut entry) = self.0.entry(slot) else { return };
        let nodes = entry.get_mut();
        if let Some(at) = nodes.iter().position(|(to, _)| *to == node) {
            nodes[at].1 -= 1;
            if nodes[at].1 == 0 {
                nodes.swap_remove(at);
            }
        }
        if nodes.is_empty() {
            entry.remove();
        }
    }

    /// Some of a slot are on their way to another node.
    fn has_other(&self, slot: u16, node: NodeId) -> bool {
        self.0.get(&slot).is_some_and(|nodes| nodes.iter().any(|(to, _)| *to != node))
    }
}

impl Relay {
    /// Sends a request on when all that its client sent before it for the slot is answered.
    pub(super) fn send_later(&mut self, pool: usize, to: NodeId, ticket: Ticket, request: Vec<u8>) {
        let Some(serial) = self.upstream.pools.get(pool).map(|pool| pool.serial) else {
            return self.effects.conclude(ticket, &error_line("ERR heatsink: given up"));
        };
        self.hold_back(ticket, &request, self.now + self.live.timeouts.cluster_retry);
        if let Some(slot) = self.slot_of_request(&request) {
            self.cluster.note_sent(ticket, slot, NodeId::NONE);
        }
        let at = self.now + RETRY_PAUSE;
        self.cluster.later.push(Later::Shared { at, pool, serial, from: to, ticket, request });
        self.next_tick = self.next_tick.min(at);
    }
}

impl cluster::Room {
    /// A request is sent on to a node.
    pub(crate) fn note_sent(&mut self, ticket: Ticket, slot: u16, to: NodeId) {
        if let Some(redirect) = self.redirects.get_mut(&ticket) {
            let before = redirect.sent_to.replace((slot, to));
            self.redirects_in_flight.add(slot, to);
            self.redirects_in_flight.remove(before);
        }
    }

    /// Whether a request of the same client for the same slot that was sent before this one is on
    /// its way to another node than the one this is to go to, or waits for that.
    pub(crate) fn parts_ways(&self, ticket: Ticket, slot: u16, to: NodeId) -> bool {
        self.redirects_in_flight.has_other(slot, to)
            && self.redirects.iter().any(|(other, redirect)| {
                other.client == ticket.client
                    && redirect.sent_to.is_some_and(|(of, node)| of == slot && node != to)
                    && is_before(*other, ticket)
            })
    }
}
