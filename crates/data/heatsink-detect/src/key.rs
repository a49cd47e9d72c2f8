//! A key with its hash: hashed once per request, used by every structure.
//!
//! Called by: the request path, before anything is counted.
//! Invariant: all counters whose snapshots are merged share one [`KeyHasher`].

use std::hash::{BuildHasher, Hasher};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// The bytes of a key and their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key<'a> {
    bytes: &'a [u8],
    hash: u64,
}

impl<'a> Key<'a> {
    /// The key as the client sent it.
    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The hash by the process's [`KeyHasher`]; never zero.
    #[inline]
    pub const fn hash(self) -> u64 {
        self.hash
    }
}

/// Hashes keys; one per process, cloned to every worker.
///
/// The hash is seeded, so that nobody outside can choose keys that fall together. It means
/// nothing to another process: reports between processes carry the raw key.
#[derive(Debug, Clone)]
pub struct KeyHasher {
    state: SeedableRandomState,
}

impl KeyHasher {
    /// A hasher with a seed of its own.
    pub fn random() -> Self {
        Self { state: SeedableRandomState::random() }
    }

    /// A hasher that gives the same hashes in every run: for tests and simulations.
    pub fn with_seed(seed: u64) -> Self {
        Self { state: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()) }
    }

    /// `bytes` with their hash.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        let mut hasher = self.state.build_hasher();
        hasher.write(bytes);
        Key { bytes, hash: hasher.finish().max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::KeyHasher;

    #[test]
    fn a_clone_agrees_and_another_seed_does_not() {
        let hasher = KeyHasher::random();
        assert_eq!(hasher.key(b"user:1").hash(), hasher.clone().key(b"user:1").hash());
        let (one, two) = (KeyHasher::with_seed(1), KeyHasher::with_seed(2));
        assert_eq!(one.key(b"user:1").hash(), KeyHasher::with_seed(1).key(b"user:1").hash());
        assert_ne!(one.key(b"user:1").hash(), two.key(b"user:1").hash());
    }
}
