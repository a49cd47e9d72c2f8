//! Keys whose values lay elsewhere lately: replicas may not know yet that they do no more.
//!
//! Called by: `hot` when other keys are hot, `cluster::route` before a replica is asked.
//! Bound: a key for each split or set of copies that ended within [`BEHIND`].
//!
//! ```text
//! 1. a key is split: its replica has the marker
//! 2. the replica falls behind
//! 3. the key is made whole
//! 4. a read that may go to the replica would find the marker
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Mitigations;
use crate::hot_keys::HotKeys;

/// Replicas are taken to be behind by no more than this.
const BEHIND: Duration = Duration::from_secs(60);

impl Mitigations {
    /// Remembers whose values lie elsewhere no more.
    pub(super) fn note_moved(&mut self, now: Instant, old: &HotKeys) {
        self.recently_moved.retain(|_, until| *until > now);
        let hot = Arc::clone(&self.keys);
        for key in old.moved().filter(|key| !hot.is_moved(key)) {
            self.recently_moved.insert(key.to_vec(), now + BEHIND);
        }
    }

    /// Whether a replica may have something else than the value at a key: the marker of a split
    /// that has ended, or less than a copy has shown.
    pub(crate) fn misleads_replicas(&self, name: &[u8], now: Instant) -> bool {
        self.keys.is_moved(name) || self.recently_moved.get(name).is_some_and(|until| now < *until)
    }
}
