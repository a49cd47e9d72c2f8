//! The registered keys: epoch, pending writes, settings, counters.
//!
//! Bound: `Limits::keys`.
//! Invariant: an epoch is given once, to one key at one time, so an equal epoch means that
//! it is the same registration and that nothing happened to the key since.

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;
use std::hash::BuildHasher;

use super::counters::KeyCounters;
use super::limits::KeySettings;
use super::token::KeyId;

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: Box<[u8]>,
    pub(super) registration: u64,
    pub(super) epoch: u64,
    pub(super) pending: u32,
    /// First of the key's entries.
    pub(super) head: u32,
    pub(super) settings: KeySettings,
    pub(super) counters: KeyCounters,
}

#[derive(Debug, Default)]
pub(super) struct Keys {
    slots: Slab<Key>,
    by_name: HashTable<u32>,
    state: RandomState,
    /// Source of epochs and of registrations.
    epochs: u64,
}

impl Keys {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn next_epoch(&mut self) -> u64 {
        self.epochs += 1;
        self.epochs
    }

    #[inline]
    pub(super) fn find(&self, name: &[u8]) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let hash = self.state.hash_one(name);
        self.by_name.find(hash, |&slot| *self.slots[slot as usize].name == *name).copied()
    }

    pub(super) fn insert(&mut self, name: &[u8], settings: KeySettings) -> u32 {
        let registration = self.next_epoch();
        let slot = self.slots.insert(Key {
            name: name.into(),
            registration,
            epoch: registration,
            pending: 0,
            head: NONE,
            settings,
            counters: KeyCounters::default(),
        }) as u32;
        let Self { slots, by_name, state, .. } = self;
        by_name.insert_unique(state.hash_one(name), slot, |&slot| {
            state.hash_one(&*slots[slot as usize].name)
        });
        slot
    }

    /// Removes a key that has no entries any more.
    pub(super) fn remove(&mut self, slot: u32) {
        let key = self.slots.remove(slot as usize);
        debug_assert_eq!(key.head, NONE, "its entries went first");
        let hash = self.state.hash_one(&*key.name);
        if let Ok(found) = self.by_name.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
    }

    pub(super) fn bump(&mut self, slot: u32) {
        let epoch = self.next_epoch();
        self.slots[slot as usize].epoch = epoch;
    }

    /// A flush, or anything else of which it is not known which keys it concerns.
    pub(super) fn bump_all(&mut self) {
        for (_, key) in &mut self.slots {
            self.epochs += 1;
            key.epoch = self.epochs;
        }
    }

    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> &mut Key {
        &mut self.slots[slot as usize]
    }

    pub(super) fn peek(&self, slot: u32) -> &Key {
        &self.slots[slot as usize]
    }

    pub(super) fn id(&self, slot: u32) -> KeyId {
        KeyId { slot, registration: self.slots[slot as usize].registration }
    }

    /// The name of a key, if it is still the same registration.
    pub(super) fn name(&self, id: KeyId) -> Option<&[u8]> {
        let key = self.slots.get(id.slot as usize)?;
        (key.registration == id.registration).then_some(&*key.name)
    }

    /// The key, if it is still the same registration.
    pub(super) fn get(&mut self, id: KeyId) -> Option<&mut Key> {
        self.slots.get_mut(id.slot as usize).filter(|key| key.registration == id.registration)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Key)> {
        self.slots.iter().map(|(slot, key)| (slot as u32, key))
    }
}
