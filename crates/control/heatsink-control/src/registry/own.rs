//! This process's own changes that the store has acknowledged and whose message is not here.
//!
//! Called by: the registry copy. Bound: [`MAX_OWN`]; the oldest gives way, which only means
//! that it waits for its message like everybody else's.
//! Invariant: an own change holds until its message, or a snapshot that was asked for after
//! it, has come.

use super::Record;

/// Own changes that are remembered.
const MAX_OWN: usize = 1024;

#[derive(Debug)]
struct OwnChange {
    key: Vec<u8>,
    version: u64,
    record: Option<Record>,
    /// A snapshot was asked for since.
    asked: bool,
}

/// The own changes, oldest first.
#[derive(Debug, Default)]
pub(super) struct Own {
    changes: Vec<OwnChange>,
}

impl Own {
    pub(super) fn add(&mut self, key: Vec<u8>, version: u64, record: Option<Record>) {
        self.changes.retain(|own| own.key != key);
        if self.changes.len() >= MAX_OWN {
            self.changes.remove(0);
        }
        self.changes.push(OwnChange { key, version, record, asked: false });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// A snapshot is asked for now.
    pub(super) fn asked(&mut self) {
        for own in &mut self.changes {
            own.asked = true;
        }
    }

    /// Whether there is a later change of this key; one of this version has now come.
    pub(super) fn outdates(&mut self, key: &[u8], version: u64) -> bool {
        if self.changes.is_empty() {
            return false;
        }
        self.changes.retain(|own| own.key != key || own.version > version);
        self.changes.iter().any(|own| own.key == key)
    }

    /// Forgets what a snapshot of this version holds; tells what it should hold and does not.
    pub(super) fn settle(&mut self, version: u64, mut lost: impl FnMut(&[u8], &Record)) {
        self.changes.retain(|own| {
            let missing = own.version > version;
            if let Some(record) = own.record.as_ref().filter(|_| missing && own.asked) {
                lost(&own.key, record);
            }
            missing && !own.asked
        });
    }

    /// What holds on top of a snapshot.
    pub(super) fn later(&self) -> impl Iterator<Item = (&[u8], Option<&Record>)> {
        self.changes.iter().map(|own| (own.key.as_slice(), own.record.as_ref()))
    }
}
