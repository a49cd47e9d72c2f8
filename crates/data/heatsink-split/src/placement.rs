//! Hash tags for the shards of a split, so that they lie evenly over the nodes of a cluster.
//!
//! Called by: whoever begins a split.
//! Bound: the table of tags is made once, in a few milliseconds, and holds 16384 short strings.
//! Invariant: nothing depends on slots staying where they were; a tag only says where a shard
//! begins.

use std::sync::OnceLock;

use heatsink_cluster::slot;

use crate::layout::Layout;

use crate::layout::{hash, share};

/// In a map from slots to nodes: nobody has it.
pub const UNOWNED: u16 = u16::MAX;

const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// A tag for each of `factor` shards. `owner_of_slot` has the number of the node of each slot,
/// or [`UNOWNED`]; without it there is but one node, and any tags will do.
///
/// Shards go round the owners, from one that depends on the key, and each to another slot of its
/// owner while there are enough.
pub fn tags(owner_of_slot: Option<&[u16]>, factor: usize, key: &[u8]) -> Vec<String> {
    let slots_of_owners = owner_of_slot.map(by_owner).unwrap_or_default();
    if slots_of_owners.is_empty() {
        return (0..factor).map(|shard| base_36(shard as u64)).collect();
    }
    let seed = hash(key);
    let first = share(seed, slots_of_owners.len());
    let tag = |shard: usize| {
        let slots = &slots_of_owners[(first + shard) % slots_of_owners.len()];
        let round = shard / slots_of_owners.len();
        let rounds = factor.div_ceil(slots_of_owners.len());
        // Evenly over the owner's slots, so that a part of them that moves takes its share along.
        let begin = seed as u32 as usize % slots.len();
        let step = (slots.len() / rounds).max(1);
        tag_of_slot(slots[(begin + round * step) % slots.len()])
    };
    (0..factor).map(tag).collect()
}

/// Whether one node has more than twice its share of the shards.
pub fn is_uneven(owner_of_slot: &[u16], layout: &Layout) -> bool {
    let mut owners = owner_of_slot.to_vec();
    owners.sort_unstable();
    owners.dedup();
    owners.retain(|owner| *owner != UNOWNED);
    let owner = |shard: usize| owner_of_slot.get(usize::from(layout.slot(shard)));
    let shards_of = |of: &u16| (0..layout.len()).filter(|shard| owner(*shard) == Some(of)).count();
    let most = owners.iter().map(shards_of).max().unwrap_or(0);
    // Of less than a shard a node, some have one and some none.
    most > 1 && most * owners.len() > 2 * layout.len().max(owners.len())
}

/// A tag that hashes to exactly this slot, always the same.
pub fn tag_of_slot(slot: u16) -> String {
    static TAGS: OnceLock<Vec<String>> = OnceLock::new();
    TAGS.get_or_init(all_tags)[usize::from(slot) % slot::COUNT].clone()
}

/// A name in a slot, for what is built there before it takes a key's place.
pub fn name_in_slot(slot: u16, id: &str, rest: &str) -> Vec<u8> {
    format!("heatsink:{{{}}}:{id}:{rest}", tag_of_slot(slot)).into_bytes()
}

/// The name that a mover must find when it commits a split, and removes with that. It is never
/// written again; whoever takes it away forbids the split.
pub fn permit_name(key: &[u8], id: &str) -> Vec<u8> {
    name_in_slot(slot::of_key(key), id, "permit")
}

/// The name of the manifest beside a marker: it comes and goes with it, in the same transactions. So
/// whoever finds a marker finds its shards, whatever index and registry know.
pub fn manifest_name(key: &[u8], id: &str) -> Vec<u8> {
    name_in_slot(slot::of_key(key), id, "manifest")
}

fn all_tags() -> Vec<String> {
    let mut tags = vec![String::new(); slot::COUNT];
    let mut missing = slot::COUNT;
    for number in 0.. {
        let text = base_36(number);
        let tag = &mut tags[usize::from(slot::of_key(text.as_bytes()))];
        if tag.is_empty() {
            *tag = text;
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    tags
}

/// The slots of each node that has any, nodes in the order of their first slots.
fn by_owner(owner_of_slot: &[u16]) -> Vec<Vec<u16>> {
    let mut owners: Vec<(u16, Vec<u16>)> = Vec::new();
    for (slot, owner) in owner_of_slot.iter().enumerate().take(slot::COUNT) {
        if *owner == UNOWNED {
            continue;
        }
        match owners.iter_mut().find(|(known, _)| known == owner) {
            Some((_, slots)) => slots.push(slot as u16),
            None => owners.push((*owner, vec![slot as u16])),
        }
    }
    owners.into_iter().map(|(_, slots)| slots).collect()
}

fn base_36(mut number: u64) -> String {
    let mut text = Vec::new();
    loop {
        text.push(char::from(DIGITS[(number % 36) as usize]));
        number /= 36;
        if number == 0 {
            return text.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Three nodes: thirds, as a fresh cluster has them, and a slot that nobody has.
    fn thirds() -> Vec<u16> {
        let mut owners: Vec<u16> =
            (0..slot::COUNT).map(|at| (at * 3 / slot::COUNT) as u16).collect();
        owners[77] = UNOWNED;
        owners
    }

    #[test]
    fn every_slot_has_a_short_tag() {
        for slot in 0..slot::COUNT as u16 {
            let tag = tag_of_slot(slot);
            assert_eq!(slot::of_key(tag.as_bytes()), slot);
            assert!(tag.len() <= 4, "{tag}");
            assert_eq!(slot::of_key(&name_in_slot(slot, "i", "w")), slot);
        }
        assert_eq!(name_in_slot(slot::of_key(b"0"), "id", "whole"), b"heatsink:{0}:id:whole");
    }

    #[test]
    fn shards_lie_evenly_over_owners_on_different_slots() {
        let owners = thirds();
        for factor in [1, 2, 3, 4, 8, 16, 64, 256] {
            let tags = tags(Some(&owners), factor, b"key");
            assert_eq!(tags.iter().collect::<HashSet<_>>().len(), factor);
            let mut shards = [0; 3];
            for tag in &tags {
                shards[usize::from(owners[usize::from(slot::of_key(tag.as_bytes()))])] += 1;
            }
            let spread = shards.iter().max().unwrap() - shards.iter().min().unwrap();
            assert!(spread <= 1, "{factor}: {shards:?}");
        }
    }

    #[test]
    fn keys_begin_at_different_owners() {
        let owners = thirds();
        let mut begins = [0; 3];
        for key in 0..300 {
            let tag = &tags(Some(&owners), 2, format!("key:{key}").as_bytes())[0];
            begins[usize::from(owners[usize::from(slot::of_key(tag.as_bytes()))])] += 1;
        }
        assert!(begins.iter().all(|begins| *begins > 60), "{begins:?}");
    }

    #[test]
    fn owners_of_few_slots_get_their_share_too() {
        let mut owners = vec![4; slot::COUNT];
        owners[9] = 2;
        let tags = tags(Some(&owners), 6, b"key");
        let ninth = tags.iter().filter(|tag| slot::of_key(tag.as_bytes()) == 9).count();
        assert_eq!((tags.len(), ninth), (6, 3));
    }

    #[test]
    fn shards_are_uneven_when_one_node_has_twice_its_share() {
        let mut owners = thirds();
        let layout = |factor| {
            Layout::new("id", crate::Kind::Set, false, &tags(Some(&thirds()), factor, b"key"))
        };
        for factor in [1, 2, 3, 4, 8, 64] {
            assert!(!is_uneven(&owners, &layout(factor)), "{factor}");
        }
        // Everything moves to one node, but for a slot of each of the others.
        owners.iter_mut().filter(|owner| **owner != UNOWNED).for_each(|owner| *owner = 0);
        (owners[1], owners[2]) = (1, 2);
        for factor in [4, 8, 64] {
            assert!(is_uneven(&owners, &layout(factor)), "{factor}");
        }
        // One node with everything is no worse than it has to be.
        assert!(!is_uneven(&vec![0; slot::COUNT], &layout(8)));
    }

    #[test]
    fn without_a_cluster_tags_are_just_numbers() {
        assert_eq!(tags(None, 3, b"key"), ["0", "1", "2"]);
        assert_eq!(tags(Some(&[UNOWNED; 5]), 2, b"key"), ["0", "1"]);
    }
}
