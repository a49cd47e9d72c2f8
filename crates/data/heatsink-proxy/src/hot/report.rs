//! The figures of its mitigations that a worker publishes.
//!
//! Called by: the worker, with its other counts.
//! Bound: one entry a hot key.

use std::sync::atomic::Ordering;

use super::Mitigations;
use crate::hot::reads::Reads;
use crate::hot_keys::{Guard, Told};
use crate::relay::Relay;
use crate::runtime::shared::CooledKeys;

impl Mitigations {
    /// Publishes what was done for each key since the last time.
    pub(crate) fn report(&mut self, relay: &mut Relay) {
        let Reads { links, listening, .. } = &self.reads;
        let delay = links.iter().map(|link| link.delay).max();
        // The weaker of the two, where servers differ.
        let guard = match (listening.is_open(), links.is_empty()) {
            (true, _) => Guard::Broadcast,
            (false, false) => Guard::Tracking,
            (false, true) => Guard::Nothing,
        };
        let told = Told { guard, delay };
        relay.shared.told[relay.index].store(told.pack(), Ordering::Relaxed);
        if !self.is_active() && self.told.is_empty() {
            return;
        }
        let mut totals =
            relay.shared.cooled.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.tell_shard_writes(&mut totals);
        let Self { reads: Reads { cache, .. }, told, work, keys: hot, .. } = self;
        for (key, work) in work.iter() {
            let counters = cache.counters(key).copied().unwrap_or_default();
            let now = (counters, *work);
            if told.get(key) == Some(&now) {
                continue;
            }
            let before = told.entry(key.clone()).or_default();
            let (counters_before, work_before) = *before;
            let more = |now: u64, before: u64| now.saturating_sub(before);
            let CooledKeys { keys, all, .. } = &mut *totals;
            for total in [keys.entry(key.clone()).or_default(), all] {
                total.hits += more(counters.hits, counters_before.hits);
                let passed = more(work.passed, work_before.passed);
                total.reads += more(work.flights, work_before.flights) + passed;
                total.passed += passed;
                total.joined += more(work.joined, work_before.joined);
                total.changes += more(work.changes, work_before.changes);
                total.batches += more(work.batches, work_before.batches);
                total.invalidations += more(counters.invalidations, counters_before.invalidations);
                total.bytes_served += more(counters.bytes_served, counters_before.bytes_served);
            }
            *before = now;
        }
        told.retain(|key, _| hot.get(key).is_some());
        let hot = relay.shared.hot_keys();
        totals.keys.retain(|key, _| hot.get(key).is_some());
    }
}
