//! How entries go.

use super::entries::Entry;
use super::keys::NONE;
use super::{LocalCache, Reason};

impl LocalCache {
    pub(super) fn make_room(&mut self, entries: usize, bytes: usize) {
        while self.entries.len() > entries || self.entries.bytes() > bytes {
            let Some(slot) = self.entries.victim() else { return };
            self.evict(slot, Reason::Capacity);
        }
    }

    pub(super) fn evict_matching(&mut self, reason: Reason, matches: impl FnMut(&Entry) -> bool) {
        for slot in self.entries.matching(matches) {
            self.evict(slot, reason);
        }
    }

    pub(super) fn evict_key(&mut self, slot: u32, reason: Reason) {
        loop {
            match self.keys.at(slot).head {
                NONE => return,
                head => self.evict(head, reason),
            }
        }
    }

    pub(super) fn evict(&mut self, slot: u32, reason: Reason) {
        let key = self.remove(slot);
        self.keys.at(key).counters.count_evicted(reason);
    }

    pub(super) fn remove(&mut self, slot: u32) -> u32 {
        let removed = self.entries.remove(slot);
        if let Some(head) = removed.new_head {
            self.keys.at(removed.key).head = head;
        }
        removed.key
    }
}
