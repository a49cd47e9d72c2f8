//! Sorted set: members with scores, by member and by (score, member).
//!
//! Called by: the handlers in `commands::sorted_sets` and its neighbours.
//! Bound: finding by member or score is logarithmic; finding by rank walks the set.
//! Invariant: both indexes hold the same pairs; no score is NaN.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use crate::value::{Bytes, Map, remove};

/// A score that can be ordered: never NaN, and both zeros are equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Score(f64);

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SortedSet {
    scores: Map<f64>,
    order: BTreeSet<(Score, Bytes)>,
}

/// A member with its score, borrowed from the set.
pub(crate) type Pair<'a> = (&'a [u8], f64);

impl SortedSet {
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Sets the score of a member; the answer is its score before.
    pub(crate) fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let before = match self.scores.get_mut(member) {
            Some(slot) => Some(std::mem::replace(slot, score)),
            None => self.scores.insert(member.to_vec(), score),
        };
        if let Some(before) = before {
            self.order.remove(&(Score(before), member.to_vec()));
        }
        self.order.insert((Score(score), member.to_vec()));
        before
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = remove(&mut self.scores, member)?;
        self.order.remove(&(Score(score), member.to_vec()));
        Some(score)
    }

    /// Pairs from the lowest score up.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Pair<'_>> {
        self.order.iter().map(|(score, member)| (member.as_slice(), score.0))
    }

    /// Pairs from the first whose score is at least `min`.
    pub(crate) fn iter_from(&self, min: f64) -> impl Iterator<Item = Pair<'_>> {
        let start = Bound::Included((Score(min), Bytes::new()));
        self.order
            .range((start, Bound::Unbounded))
            .map(|(score, member)| (member.as_slice(), score.0))
    }

    /// How many members come before this one.
    pub(crate) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.order.range(..(Score(score), member.to_vec())).count())
    }

    /// The pair at a position that has no meaning but is stable until the next removal.
    pub(crate) fn at(&self, position: usize) -> Option<Pair<'_>> {
        self.scores.get_index(position).map(|(member, score)| (member.as_slice(), *score))
    }
}
