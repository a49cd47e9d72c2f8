//! Split keys: their commands go to the shards, or wait until the value has been moved.

use super::Cooling;
use crate::splits::Splitting;
use crate::worker::Worker;

impl Cooling {
    /// Writes of keys that are held are under way all the same: they were taken before.
    pub(super) fn combines_held(&self) -> bool {
        let held = |splitting: &Splitting| !matches!(splitting, Splitting::Split(_));
        !self.batches.is_empty()
            && self.hot.splits().any(|(key, how)| held(how) && self.batches.concerns(key))
    }
}

impl Worker {
    /// Other keys are hot, or their values have been moved: whoever waited for that goes on.
    pub(super) fn release_held(&mut self) {
        self.clients.resume.append(&mut self.cooling.held);
    }
}
