//! Db: one numbered database, with expiry.
//!
//! Called by: handlers of data commands; `engine` sets the time before each command and
//! collects the changed keys after it.
//! Bound: `expire_due` removes at most as many keys as it is told to.
//! Invariant: every entry with a deadline is in `deadlines` with that deadline, and no other;
//! a key past its deadline is never seen by a handler.

use std::collections::BTreeSet;

use crate::failure::Failure;
use crate::value::{Bytes, Map, Typed, Value};

/// A key's value and when it ends.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// Milliseconds since the Unix epoch; the key is gone once the time is later than this.
    pub(crate) deadline_ms: Option<u64>,
}

/// One database.
#[derive(Debug)]
pub(crate) struct Db {
    entries: Map<Entry>,
    deadlines: BTreeSet<(u64, Bytes)>,
    /// The time that the running command sees.
    pub(crate) now_ms: u64,
    /// The source of every random choice.
    pub(crate) rng: fastrand::Rng,
    /// Whether anybody watches or tracks keys: without, changes are not noted down.
    pub(crate) observed: bool,
    /// Keys changed since the engine last looked.
    pub(crate) changes: Vec<Bytes>,
    /// Keys that ended by their deadline, for `INFO`.
    pub(crate) expired: u64,
}

impl Db {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            entries: Map::default(),
            deadlines: BTreeSet::new(),
            now_ms: 0,
            rng: fastrand::Rng::with_seed(seed),
            observed: false,
            changes: Vec::new(),
            expired: 0,
        }
    }

    /// Entries, including those past their deadline that nobody asked for yet.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many keys have a deadline.
    pub(crate) fn deadline_count(&self) -> usize {
        self.deadlines.len()
    }

    fn is_past(&self, entry: &Entry) -> bool {
        entry.deadline_ms.is_some_and(|deadline_ms| self.now_ms > deadline_ms)
    }

    fn prune(&mut self, key: &[u8]) {
        if !self.deadlines.is_empty() && self.entries.get(key).is_some_and(|e| self.is_past(e)) {
            self.take(key);
            self.expired += 1;
            self.signal(key);
        }
    }

    /// Removes up to `limit` keys past their deadline.
    pub(crate) fn expire_due(&mut self, limit: usize) {
        for _ in 0..limit {
            match self.deadlines.first() {
                Some((deadline_ms, key)) if self.now_ms > *deadline_ms => {
                    let key = key.clone();
                    self.prune(&key);
                }
                _ => return,
            }
        }
    }

    pub(crate) fn find(&mut self, key: &[u8]) -> Option<&Entry> {
        self.prune(key);
        self.entries.get(key)
    }

    pub(crate) fn contains(&mut self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// Whether the key is present but past its deadline: `WATCH` wants to know, without effect.
    pub(crate) fn is_past_deadline(&self, key: &[u8]) -> bool {
        self.entries.get(key).is_some_and(|entry| self.is_past(entry))
    }

    /// Whether the key is stored, past its deadline or not.
    pub(crate) fn is_stored(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    /// The value if it is of type `T`; nothing for a missing key.
    pub(crate) fn read<T: Typed>(&mut self, key: &[u8]) -> Result<Option<&T>, Failure> {
        self.find(key).map(|entry| T::of(&entry.value).ok_or(Failure::WRONG_TYPE)).transpose()
    }

    /// As `read`, to be changed in place; call `changed` afterwards.
    pub(crate) fn write<T: Typed>(&mut self, key: &[u8]) -> Result<Option<&mut T>, Failure> {
        self.prune(key);
        let entry = self.entries.get_mut(key);
        entry.map(|e| T::of_mut(&mut e.value).ok_or(Failure::WRONG_TYPE)).transpose()
    }

    /// As `write`, but a missing key is made first, holding an empty value.
    pub(crate) fn upsert<T: Typed>(&mut self, key: &[u8]) -> Result<&mut T, Failure> {
        self.prune(key);
        // The entry API would want an owned key even where the key exists.
        if !self.entries.contains_key(key) {
            let entry = Entry { value: T::default().wrap(), deadline_ms: None };
            self.entries.insert(key.to_vec(), entry);
        }
        let entry = self.entries.get_mut(key).ok_or(Failure::NO_SUCH_KEY)?;
        T::of_mut(&mut entry.value).ok_or(Failure::WRONG_TYPE)
    }

    /// Stores a whole value, in place of whatever the key held, without deadline.
    pub(crate) fn store(&mut self, key: &[u8], value: Value) {
        self.put(key, Entry { value, deadline_ms: None });
        self.changed(key);
    }

    /// Puts an entry back as it is; says nothing to watchers.
    pub(crate) fn put(&mut self, key: &[u8], entry: Entry) {
        let deadline_ms = entry.deadline_ms;
        let before = match self.entries.get_mut(key) {
            Some(slot) => std::mem::replace(slot, entry).deadline_ms,
            None => self.entries.insert(key.to_vec(), entry).and_then(|e| e.deadline_ms),
        };
        self.move_deadline(key, before, deadline_ms);
    }

    /// Takes an entry out; says nothing to watchers.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<Entry> {
        let entry = self.entries.swap_remove(key)?;
        self.move_deadline(key, entry.deadline_ms, None);
        Some(entry)
    }

    /// Removes a key; whether it was there.
    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        self.prune(key);
        let removed = self.take(key).is_some();
        if removed {
            self.signal(key);
        }
        removed
    }

    /// To be called after a value was changed in place: removes an emptied collection and
    /// tells watchers.
    pub(crate) fn changed(&mut self, key: &[u8]) {
        if self.entries.get(key).is_some_and(|entry| entry.value.is_empty_collection()) {
            self.take(key);
        }
        self.signal(key);
    }

    fn signal(&mut self, key: &[u8]) {
        if self.observed {
            self.changes.push(key.to_vec());
        }
    }

    /// Sets or clears the deadline of a key that exists.
    pub(crate) fn set_deadline(&mut self, key: &[u8], deadline_ms: Option<u64>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let before = std::mem::replace(&mut entry.deadline_ms, deadline_ms);
        self.move_deadline(key, before, deadline_ms);
    }

    fn move_deadline(&mut self, key: &[u8], before: Option<u64>, after: Option<u64>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.deadlines.remove(&(before, key.to_vec()));
        }
        if let Some(after) = after {
            self.deadlines.insert((after, key.to_vec()));
        }
    }

    /// Forgets every key; says nothing to watchers.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.deadlines.clear();
    }

    /// Live keys in no particular order.
    pub(crate) fn live(&self) -> impl Iterator<Item = (&Bytes, &Entry)> {
        self.entries.iter().filter(|(_, entry)| !self.is_past(entry))
    }

    /// The live entry at a position, for `SCAN` and `RANDOMKEY`.
    pub(crate) fn at(&self, position: usize) -> Option<(&Bytes, &Entry)> {
        self.entries.get_index(position).filter(|(_, entry)| !self.is_past(entry))
    }

    /// Milliseconds between the deadlines and now, on average, for `INFO`.
    pub(crate) fn mean_ttl_ms(&self) -> u64 {
        let sampled = self.deadlines.iter().take(20);
        let left = sampled.map(|(deadline_ms, _)| deadline_ms.saturating_sub(self.now_ms));
        let count = self.deadlines.len().min(20) as u64;
        left.sum::<u64>().checked_div(count).unwrap_or(0)
    }
}
