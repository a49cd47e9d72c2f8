//! The entries: found by a hash, compared in full, evicted by a clock.
//!
//! Bound: as many entries and bytes as `LocalCache` lets in; it asks for a victim first.
//! Invariant: an entry is in the table and in the list of its key, or nowhere.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;

use super::keys::NONE;
use crate::identity::Reader;

/// Looked at since the hand of the clock passed.
const RECENT: u8 = 1;
/// Served at least once.
const SERVED: u8 = 2;
/// A refresh was asked for.
const REFRESHING: u8 = 4;

#[derive(Debug)]
pub(super) struct Entry {
    hash: u64,
    reader: Reader,
    pub(super) deadline: Duration,
    refresh_at: Duration,
    /// The command, and behind it the reply unless that is large: one allocation, one line to
    /// follow.
    bytes: Box<[u8]>,
    /// A large reply, which clients share with the cache.
    large: Option<Arc<[u8]>>,
    command_len: u32,
    pub(super) key: u32,
    /// Slot of the link it was filled through.
    pub(super) link: u32,
    flags: u8,
    next: u32,
    prev: u32,
}

impl Entry {
    #[inline]
    pub(super) fn reply(&self) -> &[u8] {
        match &self.large {
            None => &self.bytes[self.command_len as usize..],
            Some(reply) => reply,
        }
    }

    /// The reply, if it is large enough to be shared.
    #[inline]
    pub(super) fn large_reply(&self) -> Option<&Arc<[u8]>> {
        self.large.as_ref()
    }

    fn len(&self) -> usize {
        self.bytes.len() + self.large.as_ref().map_or(0, |reply| reply.len())
    }

    /// Marks a hit; `true` if this one should ask for a refresh.
    #[inline]
    pub(super) fn touch(&mut self, now: Duration) -> bool {
        let before = self.flags;
        if before & (RECENT | SERVED) != RECENT | SERVED {
            self.flags |= RECENT | SERVED;
        }
        if now < self.refresh_at || before & (SERVED | REFRESHING) != SERVED {
            return false;
        }
        self.flags |= REFRESHING;
        true
    }
}

/// What a new entry is made of.
pub(super) struct NewEntry<'a> {
    pub(super) hash: u64,
    pub(super) reader: Reader,
    pub(super) command: &'a [u8],
    pub(super) reply: &'a [u8],
    pub(super) deadline: Duration,
    pub(super) refresh_at: Duration,
    pub(super) key: u32,
    pub(super) link: u32,
}

#[derive(Debug, Default)]
pub(super) struct Entries {
    slots: Slab<Entry>,
    table: HashTable<u32>,
    state: RandomState,
    bytes: usize,
    hand: usize,
    /// One more than the highest slot ever used.
    slots_used: usize,
}

/// What an entry costs besides its bytes.
const OVERHEAD_BYTES: usize = size_of::<Entry>() + size_of::<u32>() + 1;

/// What an entry counts against the limits.
pub(super) fn entry_bytes(command: &[u8], reply: &[u8]) -> usize {
    command.len() + reply.len() + OVERHEAD_BYTES
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(super) fn hash(&self, reader: Reader, command: &[u8]) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write_u64(reader.tag());
        hasher.write(command);
        hasher.finish()
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, reader: Reader, command: &[u8]) -> Option<u32> {
        self.table
            .find(hash, |&slot| {
                let entry = &self.slots[slot as usize];
                entry.hash == hash
                    && entry.reader == reader
                    && entry.bytes[..entry.command_len as usize] == *command
            })
            .copied()
    }

    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> &mut Entry {
        &mut self.slots[slot as usize]
    }

    /// Inserts in front of `head`, the first entry of the same key, and returns the new head.
    pub(super) fn insert(&mut self, new: &NewEntry<'_>, head: u32) -> u32 {
        let is_large = new.reply.len() >= super::LARGE_BYTES;
        let beside = if is_large { &[] } else { new.reply };
        let mut bytes = Vec::with_capacity(new.command.len() + beside.len());
        bytes.extend_from_slice(new.command);
        bytes.extend_from_slice(beside);
        self.bytes += entry_bytes(new.command, new.reply);
        let slot = self.slots.insert(Entry {
            hash: new.hash,
            reader: new.reader,
            deadline: new.deadline,
            refresh_at: new.refresh_at,
            bytes: bytes.into_boxed_slice(),
            large: is_large.then(|| new.reply.into()),
            command_len: new.command.len() as u32,
            key: new.key,
            link: new.link,
            flags: 0,
            next: head,
            prev: NONE,
        });
        self.slots_used = self.slots_used.max(slot + 1);
        if head != NONE {
            self.slots[head as usize].prev = slot as u32;
        }
        let Self { slots, table, .. } = self;
        table.insert_unique(new.hash, slot as u32, |&slot| slots[slot as usize].hash);
        slot as u32
    }

    /// Removes an entry; the head of its key's list afterwards, if that changed.
    pub(super) fn remove(&mut self, slot: u32) -> Removed {
        let entry = self.slots.remove(slot as usize);
        self.bytes -= entry.len() + OVERHEAD_BYTES;
        if let Ok(found) = self.table.find_entry(entry.hash, |&other| other == slot) {
            found.remove();
        }
        if entry.next != NONE {
            self.slots[entry.next as usize].prev = entry.prev;
        }
        if entry.prev != NONE {
            self.slots[entry.prev as usize].next = entry.next;
        }
        let new_head = (entry.prev == NONE).then_some(entry.next);
        Removed { key: entry.key, new_head }
    }

    /// The next entry that was not used since the hand of the clock came by last.
    pub(super) fn victim(&mut self) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        loop {
            self.hand = if self.hand + 1 < self.slots_used { self.hand + 1 } else { 0 };
            if let Some(entry) = self.slots.get_mut(self.hand) {
                if entry.flags & RECENT == 0 {
                    return Some(self.hand as u32);
                }
                entry.flags &= !RECENT;
            }
        }
    }

    /// Slots of the entries for which `matches`.
    pub(super) fn matching(&self, mut matches: impl FnMut(&Entry) -> bool) -> Vec<u32> {
        self.slots.iter().filter(|(_, entry)| matches(entry)).map(|(slot, _)| slot as u32).collect()
    }
}

pub(super) struct Removed {
    pub(super) key: u32,
    pub(super) new_head: Option<u32>,
}
