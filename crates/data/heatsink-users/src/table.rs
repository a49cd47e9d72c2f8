//! The users of one reading of the file, and the check of a password against them.
//!
//! Called by: `verifier`, on its threads; `is_remembered` on event loops as well.
//! Bound: what `file` lets through, and [`crate::REMEMBERED_LIMIT`] remembered successes.
//! Invariant: a refusal does the same number of verifications whoever is asked for.
//!
//! What is remembered belongs to one reading of the file, so a reload forgets it without a
//! race to think about:
//!
//! 1. A worker takes the old table and verifies a password, successfully.
//! 2. A reload puts a new table, in which that password is gone.
//! 3. The worker remembers the success: in the old table, which nobody asks any more.

use std::collections::HashMap;
use std::{fmt, slice};

use argon2::Argon2;
use argon2::password_hash::phc::{Output, PasswordHash, Salt};
use argon2::password_hash::{PasswordVerifier, generate_salt};

use crate::Verdict;
use crate::recent::Recent;

/// The form of the hash that stands in where a file has none to copy the costs from.
const DECOY_FORM: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA\
                          $AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

pub(crate) struct User {
    pub(crate) enabled: bool,
    pub(crate) hashes: Vec<Hash>,
}

pub(crate) struct Hash {
    pub(crate) text: String,
    pub(crate) parsed: PasswordHash,
    /// To find the costliest: memory times passes.
    pub(crate) cost: u64,
}

pub(crate) struct Table {
    users: HashMap<Box<[u8]>, User>,
    /// Verified where a user has no (more) hash; costs what the costliest in the file does
    /// and matches nothing.
    decoy: Hash,
    /// The number of verifications of a refusal: the most hashes that one user has.
    rounds: usize,
    recent: Recent,
}

impl Table {
    pub(crate) fn new(users: HashMap<Box<[u8]>, User>) -> Self {
        let hashes = || users.values().flat_map(|user| &user.hashes);
        let costliest = hashes().max_by_key(|hash| hash.cost);
        let decoy = decoy(costliest.map(|hash| &hash.parsed));
        let rounds = users.values().map(|user| user.hashes.len()).max().unwrap_or(1);
        Self { users, decoy, rounds, recent: Recent::new() }
    }

    pub(crate) fn user_count(&self) -> usize {
        self.users.len()
    }

    /// Whether this login succeeded recently. Takes microseconds.
    pub(crate) fn is_remembered(&self, name: &[u8], password: &[u8]) -> bool {
        let (enabled, hashes) = self.find(name);
        hashes.iter().any(|hash| self.recent.contains(name, password, &hash.text)) && enabled
    }

    /// Verifies, at the cost that the hashes ask for unless the login is remembered.
    pub(crate) fn verify(&self, name: &[u8], password: &[u8]) -> Verdict {
        if self.is_remembered(name, password) {
            return Verdict::Granted;
        }
        let argon2 = Argon2::default();
        let (enabled, hashes) = self.find(name);
        let is_right = |hash: &&Hash| argon2.verify_password(password, &hash.parsed).is_ok();
        let Some(matched) = hashes.iter().find(is_right) else {
            for _ in hashes.len()..self.rounds {
                // Only the time it takes is wanted.
                let _ = argon2.verify_password(password, &self.decoy.parsed);
            }
            return Verdict::Refused;
        };
        if !enabled {
            return Verdict::Refused;
        }
        self.recent.insert(name, password, &matched.text);
        Verdict::Granted
    }

    /// The user's hashes, or the decoy, which no password matches.
    fn find(&self, name: &[u8]) -> (bool, &[Hash]) {
        match self.users.get(name) {
            Some(user) => (user.enabled, &user.hashes),
            None => (false, slice::from_ref(&self.decoy)),
        }
    }
}

/// A hash of the same costs as `like`, with random salt and output.
fn decoy(like: Option<&PasswordHash>) -> Hash {
    let mut parsed = match like {
        Some(like) => like.clone(),
        None => PasswordHash::new(DECOY_FORM).expect("the constant is a PHC string"),
    };
    let output = [generate_salt(), generate_salt()].concat();
    parsed.salt = Some(Salt::new(&generate_salt()).expect("16 bytes are a salt"));
    parsed.hash = Some(Output::new(&output).expect("32 bytes are an output"));
    Hash { text: parsed.to_string(), parsed, cost: 0 }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("user_count", &self.user_count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(costs: &str, cost: u64) -> Hash {
        let text = DECOY_FORM.replace("m=19456,t=2,p=1", costs);
        Hash { parsed: PasswordHash::new(&text).unwrap(), text, cost }
    }

    #[test]
    fn an_unknown_user_costs_as_much_as_the_costliest() {
        let cheap = User { enabled: true, hashes: vec![hash("m=8,t=1,p=1", 8)] };
        let dear = User { enabled: true, hashes: vec![hash("m=16,t=3,p=1", 48)] };
        let rotating = || vec![hash("m=8,t=1,p=1", 8), hash("m=8,t=2,p=1", 16)];
        let rotating = User { enabled: false, hashes: rotating() };
        let users = [("cheap", cheap), ("dear", dear), ("rotating", rotating)];
        let users = users.map(|(name, user)| (Box::from(name.as_bytes()), user));
        let table = Table::new(HashMap::from(users));
        assert_eq!(table.decoy.parsed.params.as_str(), "m=16,t=3,p=1");
        assert_eq!(table.rounds, 2);
    }

    #[test]
    fn a_decoy_is_a_hash_of_its_own_each_time() {
        let (one, other) = (decoy(None), decoy(None));
        assert!(one.text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", one.text);
        assert_ne!(one.parsed.salt, other.parsed.salt);
        assert_ne!(one.parsed.hash, other.parsed.hash);
    }
}
