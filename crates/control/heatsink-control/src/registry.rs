//! The copy of the registry that each process holds.
//!
//! Called by: the runtime feeds it with what the store says; agent, aggregator and API read.
//! Bound: [`MAX_RECORDS`] records, as many blocked keys, [`MAX_WAITING`] changes that wait for a snapshot.
//! Anything beyond is dropped, and a snapshot is asked for.
//! Invariant: the copy is what the store had at [`Registry::version`], plus this process's own
//! acknowledged changes. Changes are applied only in the order of their versions; whenever
//! one may be missing, nothing is applied until a snapshot has been read.
//!
//! A snapshot and the changes arrive on different connections. Changes that come while one is
//! read wait, so that neither of these goes wrong:
//!
//! ```text
//! snapshot taken at 10 | change 11 arrives | snapshot 10 arrives:  11 is applied after it
//! change 11 missed     | change 12 arrives | snapshot 12 arrives:  12 is not applied twice
//! ```

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;

mod orphans;
mod own;
mod record;

use orphans::{Found, Orphans};
use own::Own;
pub use record::{Change, Reclaim, Record, Snapshot, Stored, What};

/// Records that a copy holds at most.
pub const MAX_RECORDS: usize = 1 << 16;
/// Changes that wait for a snapshot.
pub const MAX_WAITING: usize = 4096;

/// After a snapshot, changes that are part of it may still arrive for this long. If one arrives later,
/// the store has begun to count anew.
const OVERLAP: Duration = Duration::from_secs(2);

type Map<V> = HashMap<Vec<u8>, V, RandomState>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    Good,
    /// A snapshot has to be read.
    Wanted,
    /// One is being read; another has to follow if too many changes came meanwhile.
    Reading {
        again: bool,
    },
}

/// The copy.
#[derive(Debug)]
pub struct Registry {
    records: Map<Record>,
    blocked: Map<Duration>,
    incarnation: Option<Vec<u8>>,
    version: u64,
    sync: Sync,
    snapshot_at: Duration,
    waiting: Vec<Change>,
    own: Own,
    orphans: Orphans,
    /// A key was removed, and for how long it is blocked is not known.
    is_unsure_of_blocks: bool,
    generation: u64,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// An empty copy that wants a snapshot.
    pub fn new() -> Self {
        Self {
            records: Map::default(),
            blocked: Map::default(),
            incarnation: None,
            version: 0,
            sync: Sync::Wanted,
            snapshot_at: Duration::ZERO,
            waiting: Vec::new(),
            own: Own::default(),
            orphans: Orphans::default(),
            is_unsure_of_blocks: false,
            generation: 0,
        }
    }

    /// Whether a snapshot has to be read. The reader calls [`Registry::begin_snapshot`]
    /// before it asks the store.
    pub fn wants_snapshot(&self) -> bool {
        self.sync == Sync::Wanted
    }

    /// Whether the copy is complete, as far as is known here.
    pub fn is_synced(&self) -> bool {
        self.sync == Sync::Good
    }

    /// Whether a snapshot would say nothing new: the store and the copy both have the version
    /// `confirmed`, all blocks are known, and no record has less than `soon` to live (no message tells of renewals).
    pub fn is_current(&self, now: Duration, confirmed: Option<u64>, soon: Duration) -> bool {
        let ends_soon =
            |record: &Record| record.remaining(now).is_some_and(|remaining| remaining < soon);
        self.is_synced()
            && !self.is_unsure_of_blocks
            && confirmed.is_some_and(|version| version <= self.version)
            && !self.records.values().any(ends_soon)
    }

    /// Changes may have been missed: the subscription was renewed, or it is time to look.
    pub fn desync(&mut self) {
        self.sync = match self.sync {
            Sync::Good | Sync::Wanted => Sync::Wanted,
            Sync::Reading { .. } => Sync::Reading { again: true },
        };
    }

    /// A snapshot is asked for now; changes wait until it is here.
    pub fn begin_snapshot(&mut self) {
        self.sync = Sync::Reading { again: false };
        // Changes that came before the question are in the answer. If not, the store counts anew, and they
        // mean nothing.
        self.waiting.clear();
        self.own.asked();
    }

    /// The snapshot could not be read; it is wanted again.
    pub fn snapshot_failed(&mut self) {
        self.sync = Sync::Wanted;
    }

    /// The snapshot is here.
    pub fn on_snapshot(&mut self, now: Duration, snapshot: Snapshot) {
        let Snapshot { incarnation, version, records, blocked } = snapshot;
        let other_store = self.incarnation.as_ref().is_some_and(|old| *old != incarnation);
        let went_back = version < self.version;
        let overflow = records.len() > MAX_RECORDS;
        let mut fresh: Map<Record> = Map::default();
        for (key, stored) in records.into_iter().take(MAX_RECORDS) {
            fresh.insert(key, Record::of(now, stored));
        }
        let blocks: Map<Duration> = blocked
            .into_iter()
            .take(MAX_RECORDS)
            .map(|(key, remaining)| (key, now + remaining))
            .filter(|(_, until)| *until > now)
            .collect();
        let found = |key: &[u8]| Found {
            record: fresh.get(key),
            blocked_until: blocks.get(key).copied(),
            other_store,
        };
        if other_store || went_back {
            let newest_kept = if other_store { 0 } else { version };
            for (key, record) in &self.records {
                if record.epoch > newest_kept {
                    self.orphans.add(now, key, record, &found(key));
                }
            }
        }
        self.own.settle(version, |key, record| {
            self.orphans.add(now, key, record, &found(key));
        });
        self.orphans.check(&fresh, &blocks);
        if other_store {
            // What was removed stays so in a store that does not know of it, until somebody
            // puts it there.
            self.blocked.retain(|key, until| *until > now && !fresh.contains_key(key));
            self.blocked.extend(blocks);
        } else {
            self.blocked = blocks;
        }
        self.is_unsure_of_blocks = false;
        let changed = fresh.len() != self.records.len()
            || fresh.iter().any(|(key, new)| {
                self.records.get(key).is_none_or(|old| old.epoch != new.epoch || other_store)
            });
        self.records = fresh;
        self.generation += u64::from(changed);
        self.incarnation = Some(incarnation);
        self.version = version;
        self.snapshot_at = now;
        let again = self.sync == Sync::Reading { again: true } || overflow;
        self.sync = Sync::Good;
        for (key, own) in self.own.later() {
            self.generation += 1;
            set(&mut self.records, &mut self.blocked, key, own.cloned());
        }
        // Whether the store still has what it acknowledged meanwhile, the next snapshot shows.
        let again = again || !self.own.is_empty();
        for change in std::mem::take(&mut self.waiting) {
            if change.version > self.version {
                self.on_change(now, change);
            }
        }
        if again {
            self.desync();
        }
    }

    /// A change message is here.
    pub fn on_change(&mut self, now: Duration, change: Change) {
        if self.sync != Sync::Good {
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push(change);
            } else {
                self.waiting.clear();
                self.desync();
            }
        } else if change.version == self.version + 1 {
            self.apply(now, change);
        } else if change.version > self.version {
            self.waiting.push(change);
            self.sync = Sync::Wanted;
        } else if now.saturating_sub(self.snapshot_at) > OVERLAP {
            // Either it was delivered twice, or the store counts anew: a snapshot shows which.
            self.sync = Sync::Wanted;
        }
    }

    fn apply(&mut self, now: Duration, change: Change) {
        let Change { version, key, what } = change;
        self.version = version;
        if self.own.outdates(&key, version) {
            return;
        }
        let record = match what {
            What::Put { entry, remaining } => {
                Some(Record::of(now, Stored { epoch: version, entry, remaining }))
            }
            What::Removed { blocked_for } => {
                if let Some(time) = blocked_for.filter(|_| self.blocked.len() < MAX_RECORDS) {
                    self.blocked.insert(key.clone(), now + time);
                }
                self.is_unsure_of_blocks |= blocked_for.is_none();
                None
            }
        };
        self.orphans.on_change(&key, record.as_ref());
        self.generation += 1;
        if self.records.len() >= MAX_RECORDS && record.is_some() {
            self.sync = Sync::Wanted;
            return;
        }
        set(&mut self.records, &mut self.blocked, &key, record);
    }

    /// The store has applied a change of this process. It is in force here at once, and is kept even if the
    /// store loses it before its message comes.
    pub fn acknowledge(&mut self, now: Duration, change: Change) {
        let Change { version, key, what } = change;
        if self.sync == Sync::Good && version <= self.version {
            return;
        }
        if self.records.get(&key).is_some_and(|record| record.epoch >= version) {
            return;
        }
        let record = match what {
            What::Put { entry, remaining } => {
                Some(Record::of(now, Stored { epoch: version, entry, remaining }))
            }
            What::Removed { blocked_for } => {
                if let Some(time) = blocked_for {
                    self.blocked.insert(key.clone(), now + time);
                }
                None
            }
        };
        self.orphans.on_change(&key, record.as_ref());
        set(&mut self.records, &mut self.blocked, &key, record.clone());
        self.own.add(key, version, record);
        self.generation += 1;
    }

    /// The store has blocked a key that has no record: an operator wants nothing done about it.
    pub fn block(&mut self, now: Duration, key: &[u8], time: Duration) {
        if self.blocked.len() < MAX_RECORDS {
            self.blocked.insert(key.to_vec(), now + time);
        }
    }

    /// The store has renewed a record.
    pub fn renewed(&mut self, now: Duration, key: &[u8], epoch: u64, ttl: Duration) {
        if let Some(record) = self.records.get_mut(key).filter(|record| record.epoch == epoch) {
            record.expires_at = Some(now + ttl);
        }
    }

    /// The record of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Record> {
        self.records.get(key)
    }

    /// All records, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Record)> {
        self.records.iter().map(|(key, record)| (key.as_slice(), record))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How long a key may still not be put automatically.
    pub fn blocked_for(&self, now: Duration, key: &[u8]) -> Option<Duration> {
        let until = self.blocked.get(key)?;
        until.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// The registry's version that the copy has.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Which store it is a copy of; nothing before the first snapshot.
    pub fn incarnation(&self) -> Option<&[u8]> {
        self.incarnation.as_deref()
    }

    /// Changes with every change of the records, renewals left out.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a key is blocked in the store by a removal that is older than a manual record
    /// that it has lost. The put that brings this back does not respect the block; every other
    /// automatic one does.
    pub fn outlives_block(&self, key: &[u8]) -> bool {
        self.orphans.outlives_block(key)
    }

    /// Manual records that the store has lost and that are to be put again, each at most once
    /// in `retry`. Whoever knows one asks for it: only the first put takes effect.
    pub fn reclaims(&mut self, now: Duration, retry: Duration) -> Vec<Reclaim> {
        self.orphans.reclaims(now, retry, &self.records)
    }
}

/// Sets or removes a record; what is put is not blocked any more.
fn set(records: &mut Map<Record>, blocked: &mut Map<Duration>, key: &[u8], record: Option<Record>) {
    match record {
        Some(record) => {
            blocked.remove(key);
            records.insert(key.to_vec(), record);
        }
        None => {
            records.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
