//! The cluster that a store is part of: who has which slots.
//!
//! Called by: `engine`, before each request; the `CLUSTER` commands.
//! Bound: as many nodes as there are slots.
//! Invariant: slots are divided evenly, in the order of the nodes, and never move.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use heatsink_cluster::announce;
use heatsink_cluster::slot::{self, COUNT};

use crate::args::Args;
use crate::failure::{Failure, Outcome};
use crate::table::Command;

/// One node's view of its cluster.
#[derive(Clone, Debug)]
pub struct Membership {
    nodes: Arc<[SocketAddr]>,
    own: usize,
}

impl Membership {
    /// The view of node `own` of these.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn new(nodes: Arc<[SocketAddr]>, own: usize) -> Self {
        assert!(own < nodes.len() && nodes.len() <= COUNT, "node {own} of {}", nodes.len());
        Self { nodes, own }
    }

    /// The index of this node.
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// Where the nodes listen.
    pub(crate) fn nodes(&self) -> &[SocketAddr] {
        &self.nodes
    }

    /// The slots of node `node`.
    pub(crate) fn slots(&self, node: usize) -> RangeInclusive<u16> {
        let first = |node: usize| node * COUNT / self.nodes.len();
        first(node) as u16..=(first(node + 1) - 1) as u16
    }

    /// The node that has `slot`.
    fn owner(&self, slot: u16) -> usize {
        let guess = usize::from(slot) * self.nodes.len() / COUNT;
        // Rounding down puts the first slot of a node one node too low.
        if self.slots(guess).contains(&slot) { guess } else { guess + 1 }
    }

    /// The id of node `node`.
    pub(crate) fn id(&self, node: usize) -> String {
        let address = self.nodes[node];
        announce::node_id(&address.ip().to_string(), address.port())
    }

    /// Refuses a request whose keys are elsewhere, with where that is.
    pub(crate) fn check(&self, command: &Command, args: Args<'_>) -> Outcome {
        let mut slots = command.keys(args).map(slot::of_key);
        let Some(slot) = slots.next() else { return Ok(()) };
        if slots.any(|other| other != slot) {
            return Err(Failure::of("CROSSSLOT Keys in request don't hash to the same slot"));
        }
        match self.owner(slot) {
            owner if owner == self.own => Ok(()),
            owner => Err(Failure::new(format!("MOVED {slot} {}", self.nodes[owner]))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: usize) -> Membership {
        let nodes = (0..count).map(|at| SocketAddr::from(([127, 0, 0, 1], 7000 + at as u16)));
        Membership::new(nodes.collect(), 0)
    }

    #[test]
    fn every_slot_has_one_owner() {
        for count in [1, 2, 3, 5, 7, 100] {
            let membership = of(count);
            let mut next = 0;
            for node in 0..count {
                let slots = membership.slots(node);
                assert_eq!(usize::from(*slots.start()), next, "{count} nodes");
                next = usize::from(*slots.end()) + 1;
                for slot in slots {
                    assert_eq!(membership.owner(slot), node, "slot {slot} of {count} nodes");
                }
            }
            assert_eq!(next, COUNT);
        }
    }
}
