//! The primary of each slot, in little memory: it is asked for every request, and whatever it
//! pushes out of the cache has to come back.
//!
//! Called by: `routes`.
//! Bound: [`MAX_RANGES`] ranges, in 32 bytes per 16 of them; a cluster whose slots lie in more
//! pieces has a table of all slots.

use heatsink_cluster::slot;

use crate::nodes::NodeId;

/// More ranges than this are slower to look through than a table.
const MAX_RANGES: usize = 64;
/// Ranges that are looked through at once.
const LANES: usize = 16;

/// The primary of each slot.
#[derive(Debug)]
pub(crate) enum SlotMap {
    /// The first slot of each range, ascending and filled up with `u16::MAX`, and who has it.
    Ranges { starts: Vec<[u16; LANES]>, owners: Vec<NodeId> },
    /// By slot.
    Table(Vec<NodeId>),
}

impl Default for SlotMap {
    fn default() -> Self {
        Self::Table(Vec::new())
    }
}

impl SlotMap {
    /// `owners` are those of all slots, from 0 on.
    pub(crate) fn new(owners: Vec<NodeId>) -> Self {
        debug_assert_eq!(owners.len(), slot::COUNT);
        let mut ranges: Vec<(u16, NodeId)> = Vec::new();
        for (slot, owner) in owners.iter().enumerate() {
            if ranges.last().is_none_or(|(_, last)| last != owner) {
                ranges.push((slot as u16, *owner));
            }
        }
        if ranges.len() > MAX_RANGES {
            return Self::Table(owners);
        }
        let starts = ranges
            .chunks(LANES)
            .map(|chunk| std::array::from_fn(|at| chunk.get(at).map_or(u16::MAX, |range| range.0)))
            .collect();
        Self::Ranges { starts, owners: ranges.into_iter().map(|range| range.1).collect() }
    }

    /// Who has a slot.
    #[inline]
    pub(crate) fn owner(&self, slot: u16) -> Option<NodeId> {
        match self {
            Self::Ranges { starts, owners } => {
                // Without a branch that depends on the slot: none could be foretold.
                let upto = |starts: &[u16; LANES]| {
                    starts.iter().fold(0_u16, |count, start| count + u16::from(*start <= slot))
                };
                let count: u16 = starts.iter().map(upto).sum();
                owners.get(usize::from(count).wrapping_sub(1)).copied()
            }
            Self::Table(owners) => owners.get(usize::from(slot)).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_ranges_and_many_say_the_same() {
        for (pieces, ranges) in
            [(1, true), (3, true), (16, true), (17, true), (64, true), (65, false)]
        {
            let owner = |slot: usize| NodeId((slot * pieces / slot::COUNT % 7) as u16);
            let map = SlotMap::new((0..slot::COUNT).map(owner).collect());
            assert_eq!(matches!(map, SlotMap::Ranges { .. }), ranges, "{pieces}");
            for slot in 0..slot::COUNT {
                assert_eq!(map.owner(slot as u16), Some(owner(slot)), "{pieces} {slot}");
            }
        }
        assert_eq!(SlotMap::default().owner(7), None);
    }
}
