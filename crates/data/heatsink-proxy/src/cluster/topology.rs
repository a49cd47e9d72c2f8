//! The map of the cluster: which node has which slot. Found out by one worker, used by all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use heatsink_cluster::slot;
use heatsink_cluster::topology::{NodeAddress, Topology};

use crate::upstream::nodes::{NodeId, Nodes};

/// A question that is not answered by then is asked again.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Time between two questions at least.
const PAUSE: Duration = Duration::from_millis(20);

/// So many slots next to each other have one entry in the small table.
const STRETCH: usize = 64;
const STRETCHES: usize = slot::COUNT / STRETCH;
/// The slots of a stretch have different primaries, or nothing is known.
const MIXED: NodeId = NodeId(u16::MAX);

/// What workers share about the cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// Nodes that were given by the user; they have the first numbers.
    pub(crate) seeds: usize,
    routes: RwLock<Arc<Routes>>,
    /// Who belongs to the cluster, with slots or without.
    members: RwLock<Vec<NodeAddress>>,
    /// Changes with the map; workers look at it once a turn.
    version: AtomicU64,
    /// Somebody has reason to believe that the map has changed.
    wanted: AtomicBool,
    /// When a worker last asked, and whether it still waits for the answer.
    asked: Mutex<(Option<Instant>, bool)>,
}

/// The map of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    topology: Option<Topology>,
    /// The primary of each slot.
    primary: SlotMap,
    pub(crate) shards: Vec<ShardNodes>,
}

/// The nodes that have the same keys.
#[derive(Debug)]
pub(crate) struct ShardNodes {
    pub(crate) primary: NodeId,
    pub(crate) replicas: Vec<NodeId>,
}

impl Routes {
    fn new(topology: Topology, nodes: &Nodes) -> Self {
        let shards: Vec<_> = topology
            .shards
            .iter()
            .map(|shard| ShardNodes {
                primary: nodes.id_of(&shard.primary),
                replicas: shard.replicas.iter().map(|replica| nodes.id_of(replica)).collect(),
            })
            .collect();
        let primary = (0..slot::COUNT)
            .map(|slot| {
                let shard = shards.get(usize::from(topology.slots[slot]));
                shard.map_or(NodeId::NONE, |shard| shard.primary)
            })
            .collect();
        Self { topology: Some(topology), primary: SlotMap::new(primary), shards }
    }

    /// There is a map.
    pub(crate) fn is_known(&self) -> bool {
        !self.shards.is_empty()
    }

    /// The primary of a slot, if the slot is anybody's.
    #[inline]
    pub(crate) fn primary(&self, slot: u16) -> Option<NodeId> {
        self.primary.owner(slot).filter(|node| *node != NodeId::NONE)
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.shards
            .iter()
            .flat_map(|shard| std::iter::once(shard.primary).chain(shard.replicas.iter().copied()))
    }

    /// All replicas.
    pub(crate) fn replica_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.shards.iter().flat_map(|shard| shard.replicas.iter().copied())
    }

    /// The replicas of a slot.
    pub(crate) fn replicas(&self, slot: u16) -> &[NodeId] {
        let shard = self.topology.as_ref().map(|topology| topology.slots[usize::from(slot)]);
        shard.and_then(|shard| self.shards.get(usize::from(shard))).map_or(&[], |s| &s.replicas)
    }

    /// Whether a node is a replica, as far as is known.
    pub(crate) fn is_replica(&self, node: NodeId) -> bool {
        self.shards.iter().any(|shard| shard.replicas.contains(&node))
    }
}

impl Cluster {
    pub(crate) fn new(seeds: usize) -> Self {
        Self {
            seeds,
            routes: RwLock::default(),
            members: RwLock::default(),
            version: AtomicU64::new(0),
            wanted: AtomicBool::new(true),
            asked: Mutex::new((None, false)),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a map over; true if it is another one than before.
    pub(crate) fn publish(&self, topology: Topology, nodes: &Nodes) -> bool {
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        if routes.topology.as_ref() == Some(&topology) {
            return false;
        }
        *routes = Arc::new(Routes::new(topology, nodes));
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// Takes over who belongs to the cluster.
    pub(crate) fn set_members(&self, members: Vec<NodeAddress>) {
        let mut known = self.members.write().unwrap_or_else(PoisonError::into_inner);
        if *known != members {
            *known = members;
        }
    }

    /// The number of the node at an address, if it belongs to the cluster. Whatever a script
    /// or a module says, no other address is ever spoken to.
    pub(crate) fn member(&self, address: &NodeAddress, nodes: &Nodes) -> Option<NodeId> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let in_map = || {
            let routes = self.routes();
            let shards = routes.topology.iter().flat_map(|topology| &topology.shards);
            shards.into_iter().any(|s| s.primary == *address || s.replicas.contains(address))
        };
        (members.contains(address) || in_map()).then(|| nodes.id_of(address))
    }

    /// The map should be looked at again.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// The map should be looked at again, unless it was looked at within this time.
    pub(crate) fn want_after(&self, time: Duration, now: Instant) {
        let asked_at = self.asked.lock().unwrap_or_else(PoisonError::into_inner).0;
        if asked_at.is_none_or(|at| now.saturating_duration_since(at) >= time) {
            self.want();
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Whether it is this worker's turn to ask, now.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        if !self.is_wanted() {
            return false;
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = if asked.1 { ANSWER_TIME } else { PAUSE };
        if asked.0.is_some_and(|at| now.saturating_duration_since(at) < wait) {
            return false;
        }
        *asked = (Some(now), true);
        self.wanted.store(false, Ordering::Release);
        true
    }

    /// The question was answered, or will not be.
    pub(crate) fn asked_and_done(&self) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).1 = false;
    }
}

/// The primary of each slot, in little memory: it is asked for every request, and whatever it pushes
/// out of the cache has to come back. A table of 512 bytes is looked into first, since slots next to each
/// other mostly have the same primary.
#[derive(Debug)]
struct SlotMap {
    stretches: Box<[NodeId; STRETCHES]>,
    /// By slot; empty if nothing is known.
    owners: Vec<NodeId>,
}

impl Default for SlotMap {
    fn default() -> Self {
        Self { stretches: Box::new([MIXED; STRETCHES]), owners: Vec::new() }
    }
}

impl SlotMap {
    /// `owners` are those of all slots, from 0 on.
    fn new(owners: Vec<NodeId>) -> Self {
        debug_assert_eq!(owners.len(), slot::COUNT);
        let mut stretches = Box::new([MIXED; STRETCHES]);
        for (stretch, owners) in stretches.iter_mut().zip(owners.chunks(STRETCH)) {
            if owners.iter().all(|owner| *owner == owners[0]) {
                *stretch = owners[0];
            }
        }
        Self { stretches, owners }
    }

    /// Who has a slot.
    #[inline]
    fn owner(&self, slot: u16) -> Option<NodeId> {
        let slot = usize::from(slot);
        match self.stretches.get(slot / STRETCH) {
            Some(owner) if *owner != MIXED => Some(*owner),
            _ => self.owners.get(slot).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_its_owner_in_however_many_pieces_they_lie() {
        for pieces in [1, 3, 16, 64, 255, 256, 257, 5000] {
            let owner = |slot: usize| NodeId((slot * pieces / slot::COUNT % 7) as u16);
            let map = SlotMap::new((0..slot::COUNT).map(owner).collect());
            for slot in 0..slot::COUNT {
                assert_eq!(map.owner(slot as u16), Some(owner(slot)), "{pieces} {slot}");
            }
        }
        assert_eq!(SlotMap::default().owner(7), None);
    }
}
