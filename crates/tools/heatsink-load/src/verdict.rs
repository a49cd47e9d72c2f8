//! What was wrong with replies: how often, and the first examples.
//!
//! Called by: connections, for each reply that is not as it should be.
//! Bound: [`EXAMPLES_MAX`] examples of at most [`EXAMPLE_BYTES_MAX`].

use serde::Serialize;

/// Examples that are kept.
pub const EXAMPLES_MAX: usize = 8;
/// Longer ones are cut.
pub const EXAMPLE_BYTES_MAX: usize = 300;

/// The ways in which a reply can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A value that was written to another key.
    OtherKey,
    /// A value with a wrong checksum, or something that is no value.
    Corrupted,
    /// A version that nobody has sent, or a value of an earlier run.
    NeverWritten,
    /// An older version than this connection has seen before.
    WentBack,
    /// Nothing, where something was written and never deleted.
    Missing,
    /// A counter's value that another increment was answered with.
    CounterRepeated,
    /// A counter's value below what this connection has seen before.
    CounterWentBack,
    /// A counter's value above the number of increments sent.
    CounterTooHigh,
    /// Increments that were acknowledged and are not in the counter at the end.
    CounterLost,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::OtherKey,
        Self::Corrupted,
        Self::NeverWritten,
        Self::WentBack,
        Self::Missing,
        Self::CounterRepeated,
        Self::CounterWentBack,
        Self::CounterTooHigh,
        Self::CounterLost,
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::OtherKey => "value of another key",
            Self::Corrupted => "damaged value",
            Self::NeverWritten => "version never written",
            Self::WentBack => "version went back",
            Self::Missing => "missing value",
            Self::CounterRepeated => "counter repeated",
            Self::CounterWentBack => "counter went back",
            Self::CounterTooHigh => "counter too high",
            Self::CounterLost => "increments lost",
        }
    }
}

/// How often something happened, with the first examples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// How often.
    pub count: u64,
    /// The first ones, in words.
    pub examples: Vec<String>,
}

impl Tally {
    /// One more; the words are asked for only if they are kept.
    pub fn add(&mut self, words: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES_MAX {
            let mut words = words();
            if words.len() > EXAMPLE_BYTES_MAX {
                let end = (0..=EXAMPLE_BYTES_MAX).rev().find(|at| words.is_char_boundary(*at));
                words.truncate(end.unwrap_or_default());
                words.push('…');
            }
            self.examples.push(words);
        }
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        let room = EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.iter().take(room).cloned());
    }
}

/// All mismatches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mismatches {
    counts: [u64; Kind::ALL.len()],
    all: Tally,
}

impl Mismatches {
    /// One more.
    pub fn add(&mut self, kind: Kind, words: impl FnOnce() -> String) {
        self.counts[kind as usize] += 1;
        self.all.add(|| format!("{}: {}", kind.words(), words()));
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.all.merge(&other.all);
    }

    /// How many in all.
    pub fn count(&self) -> u64 {
        self.all.count
    }

    /// How many of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// The first ones, in words.
    pub fn examples(&self) -> &[String] {
        &self.all.examples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_bounded_and_counts_are_not() {
        let mut tally = Tally::default();
        for number in 0..100 {
            tally.add(|| "ä".repeat(number * 10));
        }
        assert_eq!((tally.count, tally.examples.len()), (100, EXAMPLES_MAX));
        assert!(tally.examples.iter().all(|words| words.len() <= EXAMPLE_BYTES_MAX + 3));
    }

    #[test]
    fn kinds_are_told_apart() {
        let mut one = Mismatches::default();
        one.add(Kind::WentBack, || "item:1".to_owned());
        let mut sum = one.clone();
        sum.merge(&one);
        assert_eq!((sum.count(), sum.of(Kind::WentBack), sum.of(Kind::Missing)), (2, 2, 0));
        assert_eq!(sum.examples()[0], "version went back: item:1");
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
        }
    }
}
