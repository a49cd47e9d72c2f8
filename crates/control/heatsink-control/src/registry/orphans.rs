//! Manual records that were acknowledged and that the store has lost.
//!
//! Called by: the registry copy. Bound: [`MAX_ORPHANS`].
//! Invariant: an orphan is given up as soon as an operator's later word on its key is known:
//! another manual record, or a removal. It never takes the place of one. A block is such a
//! word unless it was there when the loss was found in a store that went back: what the
//! store still has is older than what it lost.
//!
//! ```text
//! 1. an operator removes the key          10, blocked
//! 2. an operator promotes it              11, the block ends
//! 3. the store goes back to 10            blocked again: the orphan is put anyway
//! 4. an operator removes it again         a block that ends later: the orphan is given up
//! ```
//!
//! What cannot be known: a removal that the store lost together with its data, and that this
//! process had not heard of, or that was made after a store went back and before this
//! process looked. Such a key comes back, and has to be removed again. Nor that a
//! store went back, once it has counted past the version that was known here; a store whose
//! failovers may lose writes gives itself a new incarnation at each.

use std::time::Duration;

use super::{Map, Reclaim, Record};

/// Records that are kept for a store that lost its data.
const MAX_ORPHANS: usize = 4096;
/// Those that are put again at once.
const MAX_RECLAIMS: usize = 64;
/// The same block may seem to end at times that differ by as much as an answer takes.
const SAME_BLOCK: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Orphan {
    record: Record,
    /// What the store had instead when the loss was found; 0 if nothing.
    over: u64,
    /// When the block ends that the store had then.
    over_block: Option<Duration>,
    asked_at: Option<Duration>,
}

/// What a store has in the place of a lost record.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) record: Option<&'a Record>,
    pub(super) blocked_until: Option<Duration>,
    /// It began anew, so whatever it has is younger than the loss.
    pub(super) other_store: bool,
}

/// The lost records.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    lost: Map<Orphan>,
}

impl Orphans {
    /// A record is lost.
    pub(super) fn add(&mut self, now: Duration, key: &[u8], record: &Record, found: &Found<'_>) {
        let held = found.other_store && found.record.is_some_and(Record::is_manual);
        if record.is_manual() && !record.is_expired(now) && !held && self.lost.len() < MAX_ORPHANS {
            let over = found.record.map_or(0, |instead| instead.epoch);
            let over_block = found.blocked_until.filter(|_| !found.other_store);
            let orphan = Orphan { record: record.clone(), over, over_block, asked_at: None };
            self.lost.insert(key.to_vec(), orphan);
        }
    }

    /// A key has changed: an operator's word ends the wait.
    pub(super) fn on_change(&mut self, key: &[u8], record: Option<&Record>) {
        if record.is_none_or(Record::is_manual) {
            self.lost.remove(key);
        }
    }

    /// A snapshot was read.
    pub(super) fn check(&mut self, records: &Map<Record>, blocked: &Map<Duration>) {
        self.lost.retain(|key, orphan| {
            let newer = records
                .get(key)
                .is_some_and(|record| record.is_manual() && record.epoch != orphan.over);
            let removed = blocked.get(key).is_some_and(|until| {
                orphan.over_block.is_none_or(|known| *until > known + SAME_BLOCK)
            });
            !newer && !removed
        });
    }

    /// Whether a lost record is younger than the block that the store has of its key.
    pub(super) fn outlives_block(&self, key: &[u8]) -> bool {
        self.lost.get(key).is_some_and(|orphan| orphan.over_block.is_some())
    }

    /// What to put again.
    pub(super) fn reclaims(
        &mut self,
        now: Duration,
        retry: Duration,
        records: &Map<Record>,
    ) -> Vec<Reclaim> {
        self.lost.retain(|_, orphan| !orphan.record.is_expired(now));
        let due = self.lost.iter_mut().filter(|(_, orphan)| {
            orphan.asked_at.is_none_or(|asked| now.saturating_sub(asked) >= retry)
        });
        due.take(MAX_RECLAIMS)
            .map(|(key, orphan)| {
                orphan.asked_at = Some(now);
                Reclaim {
                    key: key.clone(),
                    entry: orphan.record.entry.clone(),
                    expects_epoch: records.get(key).map_or(0, |record| record.epoch),
                    remaining: orphan.record.remaining(now),
                }
            })
            .collect()
    }
}
