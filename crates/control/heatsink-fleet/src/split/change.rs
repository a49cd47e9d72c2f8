//! Changes of one record that depend on what it says: compare and set, until it is done.
//!
//! Called by: movers and operators, in several processes at once.
//! Bound: [`MAX_TRIES`] attempts.
//! Invariant: a write was decided on the record that it replaces. So a promote and a removal at the same
//! moment both happen, one after the other, and an operator's write never loses what a mover wrote about
//! where the value is.

use std::time::Duration;

use heatsink_control::entry::Entry;
use heatsink_control::wire;
use heatsink_coordination::{Expects, Put, PutOutcome, RemoveOutcome, Store, StoreError};

use crate::records;
use crate::state::{State, unix_ms};

/// Attempts, if others keep changing the same record.
const MAX_TRIES: usize = 16;

/// A record as it is found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) epoch: u64,
    pub(crate) entry: Entry,
    pub(crate) remaining: Option<Duration>,
}

/// What is to be done about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    Put {
        entry: Box<Entry>,
        ttl: Option<Duration>,
    },
    Remove {
        block: Option<Duration>,
    },
    /// There is nothing to do.
    Leave,
}

impl Next {
    pub(crate) fn put(entry: Entry, ttl: Option<Duration>) -> Self {
        Self::Put { entry: Box::new(entry), ttl }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Changed {
    Put(Box<Entry>),
    Removed,
    /// There was nothing to remove; the key is blocked anyway.
    Absent,
    Left,
}

/// Why it was not done.
#[derive(Clone, Debug)]
pub(crate) enum NotChanged {
    Store(StoreError),
    Full,
    /// Others were always faster.
    Contended,
}

impl std::fmt::Display for NotChanged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Full => f.write_str("the registry is full"),
            Self::Contended => f.write_str("somebody else changed the entry at the same time"),
        }
    }
}

/// The record of a key, as the copy of the registry has it.
pub(crate) fn seen(state: &State, key: &[u8]) -> Option<Seen> {
    let now = state.now();
    let inner = state.lock();
    let record = inner.registry.get(key)?;
    let remaining = record.remaining(now);
    Some(Seen { epoch: record.epoch, entry: record.entry.clone(), remaining })
}

/// The record of a key, as the store has it.
pub(crate) async fn asked(
    state: &State,
    store: &Store,
    key: &[u8],
) -> Result<Option<Seen>, StoreError> {
    let snapshot = store.snapshot().await;
    if let Err(error) = &snapshot {
        state.lock().hearing.on_failure(error);
    }
    let snapshot = records::snapshot(snapshot?);
    let record = snapshot.records.into_iter().find(|(of, _)| of == key);
    Ok(record.map(|(_, stored)| Seen {
        epoch: stored.epoch,
        entry: stored.entry,
        remaining: stored.remaining,
    }))
}

/// Changes the record of a key as `decide` says, which may be asked several times.
pub(crate) async fn change(
    state: &State,
    store: &Store,
    key: &[u8],
    decide: impl FnMut(Option<&Seen>) -> Next,
) -> Result<Changed, NotChanged> {
    let changed = try_change(state, store, key, decide).await;
    if let Err(NotChanged::Store(error)) = &changed {
        state.lock().hearing.on_failure(error);
    }
    changed
}

async fn try_change(
    state: &State,
    store: &Store,
    key: &[u8],
    mut decide: impl FnMut(Option<&Seen>) -> Next,
) -> Result<Changed, NotChanged> {
    let is_synced = state.lock().registry.is_synced();
    let mut found = if is_synced {
        seen(state, key)
    } else {
        asked(state, store, key).await.map_err(NotChanged::Store)?
    };
    for _ in 0..MAX_TRIES {
        let epoch = found.as_ref().map_or(0, |seen| seen.epoch);
        let expects = Expects::Epoch(epoch);
        match decide(found.as_ref()) {
            Next::Leave => return Ok(Changed::Left),
            Next::Put { entry, ttl } => {
                let put = Put {
                    body: wire::encode_entry(&entry),
                    ttl,
                    expects,
                    respects_block: false,
                    keep_created: true,
                    survives: entry.survives(),
                };
                match store.put(key, put).await.map_err(NotChanged::Store)? {
                    PutOutcome::Applied { version } => {
                        let created = found.map(|seen| seen.entry.detected_at_ms);
                        let detected_at_ms = created.filter(|at| *at > 0).unwrap_or_else(unix_ms);
                        let entry = Entry { detected_at_ms, ..*entry };
                        let change = records::put(version, key, entry.clone(), ttl);
                        acknowledge(state, change);
                        return Ok(Changed::Put(Box::new(entry)));
                    }
                    PutOutcome::Full => return Err(NotChanged::Full),
                    PutOutcome::Stale { .. } | PutOutcome::Blocked { .. } => {}
                }
            }
            Next::Remove { block } => {
                let removed = store.remove(key, expects, block).await;
                match removed.map_err(NotChanged::Store)? {
                    RemoveOutcome::Applied { version } => {
                        acknowledge(state, records::removed(version, key, block));
                        return Ok(Changed::Removed);
                    }
                    RemoveOutcome::Absent if epoch == 0 => {
                        if let Some(block) = block {
                            let now = state.now();
                            state.lock().registry.block(now, key, block);
                        }
                        return Ok(Changed::Absent);
                    }
                    RemoveOutcome::Absent | RemoveOutcome::Stale { .. } => {}
                }
            }
        }
        found = asked(state, store, key).await.map_err(NotChanged::Store)?;
    }
    Err(NotChanged::Contended)
}

fn acknowledge(state: &State, change: heatsink_control::registry::Change) {
    let now = state.now();
    state.lock().registry.acknowledge(now, change);
    state.changed.notify_one();
}
