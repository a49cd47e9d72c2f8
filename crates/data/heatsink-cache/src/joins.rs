//! Whether reads of one key find others to join.
//!
//! Called by: the proxy, with what becomes of each read of a key that is coalesced.
//! Bound: [`Joins`] is 64 small numbers and a few counts for each hot key; nothing is allocated.
//!
//! A flight costs more than a request that is passed on, and it pays only if others join it. Where
//! all reads are different, as `SISMEMBER` of random members is, there is nothing to join. So each
//! key has a credit: a read that takes a flight of its own lowers it, one that joins another's
//! raises it. A key without credit *passes*: its reads go on as if it were not hot. Then all that is
//! done here is to remember the last of them, and to notice that they are equal again: eight equal
//! reads in a row, or a share of more than an eighth, are tried as flights at once. If these find
//! nothing to join nevertheless, because one client repeats one request, the key passes
//! for a while without a look.

/// Reads that fly without finding others before a key passes that was not known before.
const CREDIT: i32 = 128;
/// The same for a trial.
const TRIAL: i32 = 32;
/// No key gathers more.
const MOST: i32 = 256;
/// What a read that was spared is worth in reads that were not.
const SPARED: i32 = 8;
/// What an equal read among the last ones is worth in others.
const REPEAT: u32 = 7;
/// So much of it, and flights are tried again.
const ENOUGH: u32 = 8 * REPEAT;
/// Reads that pass without a look after a trial that found nothing to join.
const REST: u32 = 512;
/// Places for the last reads.
const SEEN: usize = 64;

/// What is known of the reads of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joins {
    /// Whether reads pass.
    passes: bool,
    /// While they fly: how many more may do so without finding others.
    credit: i32,
    /// Flights were tried, and have not paid yet.
    on_trial: bool,
    /// While they pass: how much they are alike.
    alike: u32,
    /// Reads that pass before anybody looks at them.
    rest: u32,
    /// Some of the last reads.
    seen: [u32; SEEN],
}

impl Default for Joins {
    fn default() -> Self {
        Self { passes: false, credit: CREDIT, on_trial: false, alike: 0, rest: 0, seen: [0; SEEN] }
    }
}

impl Joins {
    /// Whether reads of the key pass.
    #[inline]
    pub fn passes(&self) -> bool {
        self.passes
    }

    /// A read has joined another's flight.
    pub fn joined(&mut self) {
        self.credit = (self.credit + SPARED).min(MOST);
        self.on_trial &= self.credit < MOST;
    }

    /// A read has taken a flight of its own. True if later ones pass.
    pub fn led(&mut self) -> bool {
        if self.passes {
            // Of a time before.
            return false;
        }
        self.credit -= 1;
        if self.credit > 0 {
            return false;
        }
        self.passes = true;
        self.alike = 0;
        self.rest = if self.on_trial { REST } else { 0 };
        self.seen = [0; SEEN];
        true
    }

    /// A read has passed that is equal to others with the same `hash`. False if later ones fly.
    #[inline]
    pub fn passed(&mut self, hash: u64) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return true;
        }
        // The place is told by other bits than what stands in it.
        let place = (hash >> 32) as usize % SEEN;
        let read = hash as u32;
        if self.seen[place] != read {
            self.seen[place] = read;
            self.alike = self.alike.saturating_sub(1);
            return true;
        }
        self.alike += REPEAT;
        if self.alike < ENOUGH {
            return true;
        }
        self.passes = false;
        self.on_trial = true;
        self.credit = TRIAL;
        false
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use foldhash::fast::FixedState;

    use super::*;

    fn hash(read: u64) -> u64 {
        FixedState::default().hash_one(read)
    }

    /// Has found nothing to join.
    fn passing() -> Joins {
        let mut joins = Joins::default();
        while !joins.led() {}
        assert!(joins.passes());
        joins
    }

    /// How many reads pass before one is to fly.
    fn passes(joins: &mut Joins, reads: impl IntoIterator<Item = u64>) -> Option<usize> {
        reads.into_iter().position(|read| !joins.passed(hash(read)))
    }

    #[test]
    fn reads_that_find_nothing_to_join_pass_soon() {
        let mut joins = Joins::default();
        for _ in 1..CREDIT {
            assert!(!joins.led());
        }
        assert!(joins.led());
        assert!(joins.passes());
    }

    #[test]
    fn reads_of_which_one_in_eight_joins_do_not_pass() {
        let mut joins = Joins::default();
        for read in 0..100_000 {
            if read % 8 == 0 {
                joins.joined();
            } else {
                assert!(!joins.led(), "after {read}");
            }
        }
    }

    #[test]
    fn reads_of_which_few_join_pass() {
        let mut joins = Joins::default();
        for _ in 0..100 {
            for _ in 0..40 {
                if joins.led() {
                    return;
                }
            }
            joins.joined();
        }
        panic!("one in forty was joined, and they fly for ever");
    }

    #[test]
    fn a_key_that_was_joined_for_long_passes_soon_as_well() {
        let mut joins = Joins::default();
        for _ in 0..1_000_000 {
            joins.joined();
        }
        assert_eq!((1..=2 * MOST).find(|_| joins.led()), Some(MOST));
    }

    #[test]
    fn different_reads_go_on_to_pass() {
        let mut joins = passing();
        assert_eq!(passes(&mut joins, 0..1_000_000), None);
        // Also if some of ten thousand come again by chance.
        assert_eq!(passes(&mut joins, (0..1_000_000).map(|read| hash(read) % 10_000)), None);
    }

    #[test]
    fn equal_reads_fly_again_at_once() {
        let mut joins = passing();
        assert_eq!(passes(&mut joins, 0..1000), None);
        assert!(passes(&mut joins, std::iter::repeat_n(7, 20)).is_some());
        assert!(!joins.passes());
        // They have found each other.
        for _ in 0..1000 {
            assert!(!joins.led());
            joins.joined();
        }
    }

    #[test]
    fn equal_reads_among_others_fly_again_soon() {
        let mut joins = passing();
        let viral = (0..).map(|read| if read % 3 == 0 { 7 } else { 1000 + read });
        assert!(passes(&mut joins, viral.take(300)).is_some());
        let mut joins = passing();
        // A dozen of them, whichever they are.
        assert!(passes(&mut joins, (0..300).map(|read| hash(read) % 12)).is_some());
    }

    /// One client asks the same again and again: alike, and nothing to join.
    #[test]
    fn a_trial_in_vain_is_short_and_not_made_again_at_once() {
        let mut joins = passing();
        let (mut flew, mut passed) = (0, 0);
        for _ in 0..100_000 {
            if joins.passes() {
                passed += 1;
                joins.passed(hash(7));
            } else {
                flew += 1;
                joins.led();
            }
        }
        assert!(flew * 15 < passed, "{flew} flew, {passed} passed");
        // Company is noticed within some hundred reads anyway.
        let begun = std::iter::from_fn(|| joins.passes().then(|| joins.passed(hash(7)))).count();
        assert!(begun < 600, "{begun}");
    }

    #[test]
    fn a_trial_that_pays_is_none_any_more() {
        let mut joins = passing();
        assert!(passes(&mut joins, std::iter::repeat_n(7, 20)).is_some());
        for _ in 0..100 {
            joins.joined();
        }
        while !joins.led() {}
        // No rest behind it.
        assert!(passes(&mut joins, std::iter::repeat_n(7, 20)).is_some());
    }

    #[test]
    fn what_is_answered_late_changes_nothing() {
        let mut joins = passing();
        joins.joined();
        assert!(!joins.led());
        assert!(joins.passes());
    }
}
