//! What a client has written, so that it does not read it from a replica that may not have
//! it yet.
//!
//! Called by: `cluster::route`, for keys that may be read from replicas.
//! Bound: [`MAX_KEYS`] a client; one that has written more reads nothing from replicas.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// Keys that are remembered.
const MAX_KEYS: usize = 256;

/// The keys a client has written, by their hash: another key with the same hash is only
/// read from the primary without need.
#[derive(Debug, Default)]
pub(crate) struct Written(Vec<u64>);

impl Written {
    pub(crate) fn add(&mut self, key: &[u8]) {
        let hash = hash(key);
        if self.0.len() <= MAX_KEYS && !self.0.contains(&hash) {
            self.0.push(hash);
        }
    }

    /// Anything may have been written.
    pub(crate) fn add_all(&mut self) {
        self.0.resize(MAX_KEYS + 1, 0);
    }

    pub(crate) fn may_hold(&self, key: &[u8]) -> bool {
        self.0.len() > MAX_KEYS || (!self.0.is_empty() && self.0.contains(&hash(key)))
    }
}

fn hash(key: &[u8]) -> u64 {
    FixedState::default().hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_known_and_too_much_is_everything() {
        let mut written = Written::default();
        assert!(!written.may_hold(b"0"));
        for key in 0..MAX_KEYS {
            written.add(key.to_string().as_bytes());
            written.add(key.to_string().as_bytes());
        }
        assert!(written.may_hold(b"0") && written.may_hold(b"255"));
        assert!(!written.may_hold(b"other"));
        written.add(b"one more");
        assert!(written.may_hold(b"other"));
        let mut written = Written::default();
        written.add_all();
        assert!(written.may_hold(b"other"));
    }
}
