//! The primary of each slot, in little memory: it is asked for every request, and whatever it
//! pushes out of the cache has to come back.
//!
//! Called by: `topology`.
//! Bound: a table of all slots, and one of 512 bytes that is looked into first: slots next to
//! each other mostly have the same primary.

use heatsink_cluster::slot;

use crate::upstream::nodes::NodeId;

/// So many slots next to each other have one entry in the small table.
const STRETCH: usize = 64;
const STRETCHES: usize = slot::COUNT / STRETCH;
/// The slots of a stretch have different primaries, or nothing is known.
const MIXED: NodeId = NodeId(u16::MAX);

/// The primary of each slot.
#[derive(Debug)]
pub(crate) struct SlotMap {
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
    pub(crate) fn new(owners: Vec<NodeId>) -> Self {
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
    pub(crate) fn owner(&self, slot: u16) -> Option<NodeId> {
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
