//! Calls to the store: each in a task of its own, so that the loop waits for none of them.
//!
//! Bound: one heartbeat, one snapshot, one sweep and one report at a time, [`MAX_CHANGES`]
//! changes; what finds no room is not done now, and is proposed again by a later tick.

use std::time::Duration;

use heatsink_control::aggregate::Intent;
use heatsink_control::entry::Entry;
use heatsink_control::wire;
use heatsink_coordination::{
    Channel, Expects, Member, Put, PutOutcome, RemoveOutcome, RenewOutcome, Snapshot, Store,
    StoreError,
};
use tokio::sync::mpsc;

/// Changes that may be under way at once.
const MAX_CHANGES: usize = 64;

/// What came of a call.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a few of them at a time")]
pub(crate) enum Done {
    Heartbeat(Result<Vec<Member>, StoreError>),
    Snapshot(Result<Snapshot, StoreError>),
    Swept(Result<usize, StoreError>),
    Reported(Result<(), StoreError>),
    Watched(Result<(), StoreError>),
    Put {
        key: Vec<u8>,
        entry: Entry,
        ttl: Option<Duration>,
        outcome: Result<PutOutcome, StoreError>,
    },
    Removed {
        key: Vec<u8>,
        outcome: Result<RemoveOutcome, StoreError>,
    },
    Renewed {
        key: Vec<u8>,
        epoch: u64,
        ttl: Duration,
        outcome: Result<RenewOutcome, StoreError>,
    },
}

/// The calls under way.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one machine")]
pub(crate) struct Calls {
    store: Store,
    sender: mpsc::UnboundedSender<Done>,
    heartbeat: bool,
    snapshot: bool,
    sweep: bool,
    report: bool,
    changes: usize,
}

impl Calls {
    pub(crate) fn new(store: Store) -> (Self, mpsc::UnboundedReceiver<Done>) {
        let (sender, results) = mpsc::unbounded_channel();
        let calls = Self {
            store,
            sender,
            heartbeat: false,
            snapshot: false,
            sweep: false,
            report: false,
            changes: 0,
        };
        (calls, results)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// A call has ended: the next of its kind may begin.
    pub(crate) fn ended(&mut self, done: &Done) {
        match done {
            Done::Heartbeat(_) => self.heartbeat = false,
            Done::Snapshot(_) => self.snapshot = false,
            Done::Swept(_) => self.sweep = false,
            Done::Reported(_) => self.report = false,
            Done::Watched(_) | Done::Put { .. } | Done::Removed { .. } | Done::Renewed { .. } => {
                self.changes -= 1;
            }
        }
    }

    pub(crate) fn heartbeat(&mut self, id: &str, card: Vec<u8>, ttl: Duration) {
        if std::mem::replace(&mut self.heartbeat, true) {
            return;
        }
        let (store, sender, id) = (self.store.clone(), self.sender.clone(), id.to_owned());
        tokio::spawn(async move {
            let _ = sender.send(Done::Heartbeat(store.heartbeat(&id, &card, ttl).await));
        });
    }

    /// Begins to read everything; false if that is under way.
    pub(crate) fn snapshot(&mut self) -> bool {
        if std::mem::replace(&mut self.snapshot, true) {
            return false;
        }
        let (store, sender) = (self.store.clone(), self.sender.clone());
        tokio::spawn(async move {
            let _ = sender.send(Done::Snapshot(store.snapshot().await));
        });
        true
    }

    pub(crate) fn sweep(&mut self) {
        if std::mem::replace(&mut self.sweep, true) {
            return;
        }
        let (store, sender) = (self.store.clone(), self.sender.clone());
        tokio::spawn(async move {
            let _ = sender.send(Done::Swept(store.sweep().await));
        });
    }

    /// Publishes a report; false if the one before is still under way.
    pub(crate) fn report(&mut self, body: Vec<u8>) -> bool {
        if std::mem::replace(&mut self.report, true) {
            return false;
        }
        let (store, sender) = (self.store.clone(), self.sender.clone());
        tokio::spawn(async move {
            let _ = sender.send(Done::Reported(store.publish(Channel::Reports, body).await));
        });
        true
    }

    /// Does what is wanted, as far as there is room.
    pub(crate) fn carry_out(&mut self, intent: Intent, respects_block: bool) {
        if self.changes >= MAX_CHANGES {
            return;
        }
        self.changes += 1;
        let (store, sender) = (self.store.clone(), self.sender.clone());
        tokio::spawn(async move {
            let _ = sender.send(carry_out(&store, intent, respects_block).await);
        });
    }
}

async fn carry_out(store: &Store, intent: Intent, respects_block: bool) -> Done {
    match intent {
        Intent::Put { key, entry, expects_epoch, ttl } => {
            let put = Put {
                body: wire::encode_entry(&entry),
                ttl,
                expects: Expects::Epoch(expects_epoch),
                respects_block,
                keep_created: true,
                survives: entry.survives(),
            };
            let outcome = store.put(&key, put).await;
            Done::Put { key, entry, ttl, outcome }
        }
        Intent::Remove { key, expects_epoch } => {
            let outcome = store.remove(&key, Expects::Epoch(expects_epoch), None).await;
            Done::Removed { key, outcome }
        }
        Intent::Renew { key, expects_epoch: epoch, ttl } => {
            let outcome = store.renew(&key, epoch, ttl).await;
            Done::Renewed { key, epoch, ttl, outcome }
        }
        Intent::Watch(keys) => {
            Done::Watched(store.publish(Channel::Watch, wire::encode_watch(&keys)).await)
        }
    }
}
