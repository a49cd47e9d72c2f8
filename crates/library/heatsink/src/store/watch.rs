//! Who waits for a change of which key.
//!
//! Called by: flights that wait for another process; links, when the server tells of a change.
//! Bound: one entry for each key that a flight is about.
//! Invariant: a waiter takes the epoch before it looks at the key, so a change between its look and
//! its wait is not missed:
//!
//! ```text
//! waiter                       link
//!   epoch 7
//!   reads: a lease
//!                              the holder wrote: epoch 8, wakes nobody yet
//!   waits for other than 7     <- returns at once
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use foldhash::fast::RandomState;
use tokio::sync::Notify;

use super::{Core, lock};
use crate::sync::step;

#[derive(Default)]
pub(super) struct Watchers {
    keys: Mutex<HashMap<Vec<u8>, Watched, RandomState>>,
}

struct Watched {
    notify: Arc<Notify>,
    watches: usize,
}

/// The wish to be told of changes of one key.
pub(crate) struct Watch {
    core: Arc<Core>,
    key: Vec<u8>,
    stripe: u32,
    notify: Arc<Notify>,
}

impl Watchers {
    #[cfg(all(test, feature = "shuttle"))]
    pub(super) fn len(&self) -> usize {
        lock(&self.keys).len()
    }

    pub(super) fn wake(&self, key: &[u8]) {
        step();
        if let Some(watched) = lock(&self.keys).get(key) {
            watched.notify.notify_waiters();
        }
    }

    pub(super) fn wake_all(&self) {
        for watched in lock(&self.keys).values() {
            watched.notify.notify_waiters();
        }
    }
}

impl Watch {
    pub(crate) fn new(core: &Arc<Core>, key: &[u8]) -> Self {
        let mut keys = lock(&core.watchers.keys);
        let watched = keys
            .entry(key.to_vec())
            .or_insert_with(|| Watched { notify: Arc::new(Notify::new()), watches: 0 });
        watched.watches += 1;
        let notify = Arc::clone(&watched.notify);
        drop(keys);
        Self { core: Arc::clone(core), key: key.to_vec(), stripe: core.stripe(key), notify }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.core.fences.epoch(self.stripe)
    }

    /// Waits until the key has changed since `epoch`; now and then another key's change will do.
    pub(crate) async fn changed_since(&self, epoch: u64) {
        loop {
            let mut notified = std::pin::pin!(self.notify.notified());
            notified.as_mut().enable();
            step();
            if self.epoch() != epoch {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut keys = lock(&self.core.watchers.keys);
        if let Some(watched) = keys.get_mut(&self.key) {
            watched.watches -= 1;
            if watched.watches == 0 {
                keys.remove(&self.key);
            }
        }
    }
}
