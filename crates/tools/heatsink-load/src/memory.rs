//! What one connection has seen, and whether the next reply fits to it.
//!
//! Called by: a connection, for each reply; those of the demo, too.
//! Bound: a number of keys that is given; of those beyond it nothing is remembered, and for
//! them only "went back" goes unnoticed.
//! Invariant: nothing is held against a server that it may do; see [`crate::ledger`].

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::ledger::Ledger;
use crate::stamp::{self, Damage, Stamp};
use crate::verdict::{Kind, Mismatches};

#[derive(Clone, Copy, Debug)]
struct Seen {
    version: u64,
    floor: u64,
}

/// The past of one connection.
#[derive(Debug)]
pub struct Memory {
    keys: HashMap<usize, Seen, FixedState>,
    keys_max: usize,
    /// The highest value seen of each counter.
    counters: Vec<u64>,
}

/// A value that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Its place in the ledger.
    pub at: usize,
    /// Its name.
    pub key: &'a [u8],
    /// What was certainly overwritten when the question was sent.
    pub superseded: u64,
}

impl Memory {
    /// Remembers this many keys and counters; nothing was seen yet.
    pub fn new(keys_max: usize, counters: usize) -> Self {
        Self { keys: HashMap::default(), keys_max, counters: vec![0; counters] }
    }

    /// Judges a value. True if it was certainly overwritten before it was asked for: no
    /// mismatch, as a cache may be behind by as much as it says, but worth a count.
    pub fn judge_value(
        &mut self,
        question: Question<'_>,
        value: &[u8],
        ledger: &Ledger,
        mismatches: &mut Mismatches,
    ) -> bool {
        let Question { at, key, superseded } = question;
        let shown = || key.escape_ascii().to_string();
        let stamp = match stamp::read(value, key) {
            Ok(stamp) => stamp,
            Err(Damage::Corrupted) => {
                mismatches.add(Kind::Corrupted, || format!("{}, {} bytes", shown(), value.len()));
                return false;
            }
            Err(Damage::OtherKey(other)) => {
                let words = || format!("{} holds one of {}", shown(), other.escape_ascii());
                mismatches.add(Kind::OtherKey, words);
                return false;
            }
        };
        let Stamp { run, version, floor } = stamp;
        if run != ledger.run || !ledger.was_issued(at, version) {
            let earlier = if run == ledger.run { "" } else { " of an earlier run" };
            mismatches
                .add(Kind::NeverWritten, || format!("{} version {version}{earlier}", shown()));
            return false;
        }
        if let Some(seen) = self.keys.get(&at)
            && version <= seen.floor
        {
            let before = seen.version;
            let words = || format!("{} version {version} after {before}", shown());
            mismatches.add(Kind::WentBack, words);
        }
        self.remember(at, version, floor);
        version <= superseded
    }

    /// A write of this connection was acknowledged, or a version was seen.
    pub fn remember(&mut self, at: usize, version: u64, floor: u64) {
        if let Some(seen) = self.keys.get_mut(&at) {
            if version > seen.version {
                *seen = Seen { version, floor: floor.max(seen.floor) };
            }
        } else if self.keys.len() < self.keys_max {
            self.keys.insert(at, Seen { version, floor });
        }
    }

    /// Judges the `ordinal`-th value of a counter, as the reply to an increment or a read.
    pub fn judge_counter(
        &mut self,
        at: usize,
        ordinal: u64,
        increment: bool,
        ledger: &Ledger,
        mismatches: &mut Mismatches,
    ) {
        let counter = ledger.counter(at);
        let (last, shown) = (self.counters[at], || format!("counter {at}, value {ordinal}"));
        if increment && !counter.acknowledge(ordinal) {
            mismatches.add(Kind::CounterRepeated, shown);
        } else if ordinal < last || (increment && ordinal == last) {
            mismatches.add(Kind::CounterWentBack, || format!("{} after {last}", shown()));
        } else if ordinal > counter.issued() {
            mismatches.add(Kind::CounterTooHigh, || {
                format!("{} after {} increments", shown(), counter.issued())
            });
        }
        self.counters[at] = last.max(ordinal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Rig {
        ledger: Ledger,
        memory: Memory,
        mismatches: Mismatches,
    }

    impl Rig {
        fn new() -> Self {
            let (ledger, memory) = (Ledger::new(9, 2, 1), Memory::new(10, 1));
            Self { ledger, memory, mismatches: Mismatches::default() }
        }

        /// Reads back a value that was issued with `(version, floor)`.
        fn read(&mut self, (version, floor): (u64, u64)) -> bool {
            let mut value = Vec::new();
            stamp::write(&mut value, b"k", Stamp { run: 9, version, floor }, 64);
            self.judge(&value)
        }

        fn judge(&mut self, value: &[u8]) -> bool {
            let question = Question { at: 0, key: b"k", superseded: self.ledger.superseded(0) };
            self.memory.judge_value(question, value, &self.ledger, &mut self.mismatches)
        }
    }

    #[test]
    fn going_back_behind_an_acknowledged_write_is_noticed() {
        let mut rig = Rig::new();
        let first = rig.ledger.issue(0);
        rig.ledger.acknowledge(0, 0);
        let second = rig.ledger.issue(0);
        rig.read(first);
        rig.read(second);
        assert_eq!(rig.mismatches.count(), 0);
        rig.read(first);
        assert_eq!(rig.mismatches.of(Kind::WentBack), 1);
        rig.read(second);
        assert_eq!(rig.mismatches.count(), 1);
    }

    #[test]
    fn writes_that_overlapped_may_come_in_any_order() {
        let mut rig = Rig::new();
        let (first, second) = (rig.ledger.issue(0), rig.ledger.issue(0));
        for version in [second, first, second, first] {
            rig.read(version);
        }
        assert_eq!(rig.mismatches.count(), 0);
    }

    #[test]
    fn an_own_write_counts_as_seen() {
        let mut rig = Rig::new();
        let first = rig.ledger.issue(0);
        rig.ledger.acknowledge(0, 0);
        let (version, floor) = rig.ledger.issue(0);
        rig.ledger.acknowledge(0, floor);
        rig.memory.remember(0, version, floor);
        assert!(rig.read(first), "overwritten before it was asked for");
        assert_eq!(rig.mismatches.of(Kind::WentBack), 1);
    }

    #[test]
    fn stale_is_told_from_wrong() {
        let mut rig = Rig::new();
        let first = rig.ledger.issue(0);
        rig.ledger.acknowledge(0, 0);
        assert!(!rig.read(first));
        let (_, floor) = rig.ledger.issue(0);
        assert!(!rig.read(first), "the newer write may not have been applied yet");
        rig.ledger.acknowledge(0, floor);
        assert!(rig.read(first), "another connection's newer write was acknowledged");
        assert_eq!(rig.mismatches.count(), 0);
    }

    #[test]
    fn values_that_cannot_be() {
        let mut rig = Rig::new();
        rig.ledger.issue(0);
        rig.read((2, 1));
        assert_eq!(rig.mismatches.of(Kind::NeverWritten), 1);
        let mut value = Vec::new();
        stamp::write(&mut value, b"k", Stamp { run: 8, version: 1, floor: 0 }, 64);
        rig.judge(&value);
        assert_eq!(rig.mismatches.of(Kind::NeverWritten), 2);
        value.clear();
        stamp::write(&mut value, b"other", Stamp { run: 9, version: 1, floor: 0 }, 64);
        rig.judge(&value);
        assert_eq!(rig.mismatches.of(Kind::OtherKey), 1);
        rig.judge(b"something else");
        assert_eq!(rig.mismatches.of(Kind::Corrupted), 1);
    }

    #[test]
    fn counters_rise_and_repeat_nothing() {
        let mut rig = Rig::new();
        let mut count = |ordinal, increment| {
            let Rig { ledger, memory, mismatches } = &mut rig;
            memory.judge_counter(0, ordinal, increment, ledger, mismatches);
            (mismatches.count(), mismatches.examples().last().cloned().unwrap_or_default())
        };
        assert_eq!(count(1, true).0, 1, "nothing was sent, so 1 is too high");
        for _ in 0..5 {
            count(0, false); // behind what was seen: goes back
        }
        let (_, example) = count(1, true);
        assert!(example.starts_with("counter repeated"), "{example}");

        let mut rig = Rig::new();
        let Rig { ledger, memory, mismatches } = &mut rig;
        for _ in 0..4 {
            ledger.counter(0).issue();
        }
        memory.judge_counter(0, 2, true, ledger, mismatches);
        memory.judge_counter(0, 2, false, ledger, mismatches);
        memory.judge_counter(0, 4, true, ledger, mismatches);
        assert_eq!(mismatches.count(), 0);
        memory.judge_counter(0, 3, false, ledger, mismatches);
        assert_eq!(mismatches.of(Kind::CounterWentBack), 1);
        memory.judge_counter(0, 5, true, ledger, mismatches);
        assert_eq!(mismatches.of(Kind::CounterTooHigh), 1);
    }
}
