//! Recent successful logins, as keyed digests.
//!
//! Called by: `table`.
//! Bound: [`REMEMBERED_LIMIT`] digests of 32 bytes; a set that is full forgets its oldest.
//! Invariant: only successes enter; the key is random and lives and dies with the table, so
//! a digest says nothing to whoever reads it without the key.

use std::sync::{Mutex, PoisonError};

use argon2::password_hash::generate_salt;
use blake2::Blake2bMac;
use blake2::digest::consts::U32;
use blake2::digest::{KeyInit, Mac};
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

const SETS: usize = 128;
const WAYS: usize = 8;

/// How many successful logins are remembered at most.
pub const REMEMBERED_LIMIT: usize = SETS * WAYS;

type Digest = [u8; 32];

pub(crate) struct Recent {
    key: Zeroizing<Vec<u8>>,
    sets: Mutex<Box<[Set]>>,
}

#[derive(Clone)]
struct Set {
    digests: [Digest; WAYS],
    used: usize,
    next: usize,
}

impl Recent {
    pub(crate) fn new() -> Self {
        let set = Set { digests: [[0; 32]; WAYS], used: 0, next: 0 };
        Self {
            key: Zeroizing::new([generate_salt(), generate_salt()].concat()),
            sets: Mutex::new(vec![set; SETS].into_boxed_slice()),
        }
    }

    pub(crate) fn contains(&self, name: &[u8], password: &[u8], hash: &str) -> bool {
        let digest = self.digest(name, password, hash);
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets[set_of(&digest)].contains(&digest)
    }

    pub(crate) fn insert(&self, name: &[u8], password: &[u8], hash: &str) {
        let digest = self.digest(name, password, hash);
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let set = &mut sets[set_of(&digest)];
        if !set.contains(&digest) {
            set.digests[set.next] = digest;
            set.next = (set.next + 1) % WAYS;
            set.used = (set.used + 1).min(WAYS);
        }
    }

    /// Lengths go in as well, so that no byte can move from the name to the password.
    fn digest(&self, name: &[u8], password: &[u8], hash: &str) -> Digest {
        let mut mac = Blake2bMac::<U32>::new_from_slice(&self.key).expect("32 bytes are a key");
        for part in [name, password, hash.as_bytes()] {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl Set {
    /// Looks at every digest, whichever matches.
    fn contains(&self, digest: &Digest) -> bool {
        let used = &self.digests[..self.used];
        used.iter().fold(Choice::from(0), |found, held| found | held.ct_eq(digest)).into()
    }
}

fn set_of(digest: &Digest) -> usize {
    usize::from(digest[0]) % SETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_password_and_hash_are_all_part_of_what_is_remembered() {
        let recent = Recent::new();
        recent.insert(b"app", b"secret", "h");
        assert!(recent.contains(b"app", b"secret", "h"));
        assert!(!recent.contains(b"app", b"secret", "g"));
        assert!(!recent.contains(b"app", b"secrets", "h"));
        assert!(!recent.contains(b"apps", b"ecret", "h"));
        assert!(!Recent::new().contains(b"app", b"secret", "h"));
    }

    #[test]
    fn the_newest_stay_within_the_bound() {
        let recent = Recent::new();
        for number in 0..4 * REMEMBERED_LIMIT {
            recent.insert(b"app", &number.to_le_bytes(), "h");
            assert!(recent.contains(b"app", &number.to_le_bytes(), "h"));
        }
        let held = (0..4 * REMEMBERED_LIMIT)
            .filter(|number| recent.contains(b"app", &number.to_le_bytes(), "h"))
            .count();
        assert!(held <= REMEMBERED_LIMIT, "{held}");
    }

    #[test]
    fn a_login_remembered_twice_takes_one_place() {
        let recent = Recent::new();
        for _ in 0..2 * WAYS {
            recent.insert(b"app", b"secret", "h");
        }
        let sets = recent.sets.lock().unwrap();
        assert_eq!(sets.iter().map(|set| set.used).sum::<usize>(), 1);
    }
}
