//! How many requests that write go to each shard.
//!
//! Called by: whatever sends them, with each; `report` and `hot`, which pass the counts on.
//! Bound: a number a shard and worker, and one a shard for all workers.
//! Invariant: a worker counts in a row of its own, in which each hot key has a place by the set of
//! hot keys that the worker has: it is told before another set takes its place, so nothing is
//! counted for another key's shard. Counts of a split outlive changes of the set, by its id.
//!
//! Workers do not change sets at once:
//!
//! ```text
//! worker 1                       worker 2
//! tells of split A
//! takes the set without A, and
//! drops the totals of A
//!                                tells of split A: it is there again
//!                                takes the set without A, and drops the totals of A
//! ```

use std::sync::PoisonError;

use super::{Mitigations, Splits};
use crate::hot_keys::{HotKeys, SplitKey};
use crate::relay::Relay;
use crate::runtime::shared::CooledKeys;

impl Mitigations {
    /// A request that writes goes to a shard, which has this place among those of all hot keys.
    #[inline]
    pub(super) fn note_shard_write(&mut self, place: usize) {
        if let Some(count) = self.splitting.shard_writes.get_mut(place) {
            *count += 1;
        }
    }

    /// A request that writes goes to some shards of a key, if it is still split into them.
    pub(super) fn note_shard_writes(
        &mut self,
        key: &[u8],
        id: &str,
        shards: impl IntoIterator<Item = usize>,
    ) {
        let split = self.keys.split_key(key);
        let Some(split) = split.filter(|split| split.splitting.layout().id == id) else { return };
        let first = split.first;
        for shard in shards {
            self.note_shard_write(first + shard);
        }
    }

    /// Adds what was counted since the last time to what all workers have.
    pub(in crate::hot) fn tell_shard_writes(&mut self, totals: &mut CooledKeys) {
        let Self { keys: hot, splitting: Splits { shard_writes, .. }, .. } = self;
        for SplitKey { splitting, first } in hot.split_keys() {
            let layout = splitting.layout();
            let Some(counts) = shard_writes.get_mut(*first..first + layout.len()) else { continue };
            if counts.iter().all(|count| *count == 0) {
                continue;
            }
            let total = totals.shard_writes.entry(layout.id.clone()).or_default();
            total.resize(layout.len(), 0);
            total.iter_mut().zip(&*counts).for_each(|(total, count)| *total += count);
            counts.fill(0);
        }
    }
}

impl Mitigations {
    /// Other keys are about to be hot.
    pub(in crate::hot) fn end_shard_writes(&mut self, relay: &mut Relay, hot: &HotKeys) {
        let mut totals = relay.shared.cooled.lock().unwrap_or_else(PoisonError::into_inner);
        self.tell_shard_writes(&mut totals);
        // Not `hot`: others may have told of splits that are newer.
        let now = relay.shared.hot_keys();
        let is_there =
            |id: &String| now.split_keys().any(|split| split.splitting.layout().id == *id);
        totals.shard_writes.retain(|id, _| is_there(id));
        self.splitting.shard_writes.clear();
        self.splitting.shard_writes.resize(hot.shards(), 0);
    }
}
