//! From what the store holds to the registry, and back.
//!
//! A body that cannot be read (of a newer version, or somebody else's) is left out: its key
//! counts as not registered here.

use std::time::Duration;

use heatsink_admin::Privacy;
use heatsink_control::entry::Entry;
use heatsink_control::registry::{Change, Snapshot, Stored, What};
use heatsink_control::wire;
use heatsink_coordination as store;

fn entry(record: &store::Record) -> Option<Entry> {
    match wire::decode_entry(&record.body) {
        Ok(entry) => Some(Entry { detected_at_ms: record.created_at_ms, ..entry }),
        Err(error) => {
            let key = Privacy::Hash.log_name(&record.key);
            tracing::warn!(key, %error, "an entry of the registry is not understood");
            None
        }
    }
}

/// A snapshot of the store as the registry wants it.
pub(crate) fn snapshot(snapshot: store::Snapshot) -> Snapshot {
    let stored = |record: store::Record| {
        let entry = entry(&record)?;
        let stored = Stored { epoch: record.epoch, entry, remaining: record.expires_in };
        Some((record.key, stored))
    };
    Snapshot {
        incarnation: snapshot.incarnation.into_bytes(),
        version: snapshot.version,
        records: snapshot.records.into_iter().filter_map(stored).collect(),
        blocked: snapshot.blocked.into_iter().map(|b| (b.key, b.remaining)).collect(),
    }
}

/// A change as the store tells it. How long a removed key is blocked is not told; whoever
/// proposes it again is refused.
pub(crate) fn change(version: u64, key: Vec<u8>, record: Option<&store::Record>) -> Change {
    let what = match record.and_then(|record| Some((entry(record)?, record.expires_in))) {
        Some((entry, remaining)) => What::Put { entry, remaining },
        None => What::Removed { blocked_for: None },
    };
    Change { version, key, what }
}

/// A change of our own that the store has acknowledged.
pub(crate) fn put(version: u64, key: &[u8], entry: Entry, ttl: Option<Duration>) -> Change {
    Change { version, key: key.to_vec(), what: What::Put { entry, remaining: ttl } }
}

/// A removal of our own that the store has acknowledged.
pub(crate) fn removed(version: u64, key: &[u8], blocked_for: Option<Duration>) -> Change {
    Change { version, key: key.to_vec(), what: What::Removed { blocked_for } }
}
