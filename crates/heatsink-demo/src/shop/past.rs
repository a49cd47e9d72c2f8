//! What one connection has seen, and whether the next reply fits to it.
//!
//! The rules are those of `heatsink load`; see [`heatsink_load::ledger`]. Only what is certain
//! is held against a server: writes that overlapped have no order.

use heatsink_load::ledger::Ledger;
use heatsink_load::stamp::{self, Damage};
use heatsink_load::verdict::{Kind, Mismatches};

use crate::options::ITEMS;

/// The past of one connection.
#[derive(Debug)]
pub(super) struct Past {
    /// Of each item the highest version seen, and what it has certainly replaced.
    items: Vec<(u64, u64)>,
    counter: u64,
}

impl Past {
    pub(super) fn new() -> Self {
        Self { items: vec![(0, 0); ITEMS as usize], counter: 0 }
    }

    /// A version was seen, or a write of this connection acknowledged.
    pub(super) fn saw(&mut self, number: u32, version: u64, floor: u64) {
        let (highest, replaced) = &mut self.items[number as usize];
        if version > *highest {
            *highest = version;
            *replaced = (*replaced).max(floor);
        }
    }

    pub(super) fn judge_item(
        &mut self,
        number: u32,
        name: &[u8],
        value: Option<&[u8]>,
        ledger: &Ledger,
        mismatches: &mut Mismatches,
    ) {
        let shown = || name.escape_ascii().to_string();
        let Some(value) = value else { return mismatches.add(Kind::Missing, shown) };
        let stamp = match stamp::read(value, name) {
            Ok(stamp) => stamp,
            Err(Damage::Corrupted) => return mismatches.add(Kind::Corrupted, shown),
            Err(Damage::OtherKey(_)) => return mismatches.add(Kind::OtherKey, shown),
        };
        let version = stamp.version;
        if stamp.run != ledger.run || !ledger.was_issued(number as usize, version) {
            return mismatches.add(Kind::NeverWritten, shown);
        }
        let (highest, replaced) = self.items[number as usize];
        if version <= replaced {
            let words = || format!("{} version {version} after {highest}", shown());
            mismatches.add(Kind::WentBack, words);
        }
        self.saw(number, version, stamp.floor);
    }

    pub(super) fn judge_counter(
        &mut self,
        value: Option<u64>,
        is_increment: bool,
        ledger: &Ledger,
        mismatches: &mut Mismatches,
    ) {
        let counter = ledger.counter(0);
        let Some(value) = value else {
            return mismatches.add(Kind::Corrupted, || "the counter is no number".to_owned());
        };
        let (last, shown) = (self.counter, || format!("the counter is {value}"));
        if is_increment && !counter.acknowledge(value) {
            mismatches.add(Kind::CounterRepeated, shown);
        } else if value < last || (is_increment && value == last) {
            mismatches.add(Kind::CounterWentBack, || format!("{} after {last}", shown()));
        } else if value > counter.issued() {
            mismatches.add(Kind::CounterTooHigh, shown);
        }
        self.counter = last.max(value);
    }
}

#[cfg(test)]
mod tests {
    use heatsink_load::stamp::Stamp;

    use super::*;

    fn value(name: &[u8], version: u64, floor: u64) -> Vec<u8> {
        let mut value = Vec::new();
        stamp::write(&mut value, name, Stamp { run: 7, version, floor }, 80);
        value
    }

    #[test]
    fn what_is_wrong_is_noticed_and_what_may_be_is_not() {
        let ledger = Ledger::new(7, ITEMS as usize, 1);
        let (mut past, mut wrong) = (Past::new(), Mismatches::default());
        for _ in 0..3 {
            let (_, floor) = ledger.issue(5);
            ledger.acknowledge(5, floor);
        }
        let mut judge = |value: Option<&[u8]>| {
            past.judge_item(5, b"k", value, &ledger, &mut wrong);
            wrong.count()
        };
        assert_eq!(judge(Some(&value(b"k", 2, 0))), 0);
        assert_eq!(judge(Some(&value(b"k", 1, 0))), 0, "they may have overlapped");
        assert_eq!(judge(Some(&value(b"k", 3, 2))), 0);
        assert_eq!(judge(Some(&value(b"k", 2, 0))), 1, "went back");
        assert_eq!(judge(Some(&value(b"k", 4, 3))), 2, "never written");
        assert_eq!(judge(Some(&value(b"l", 3, 2))), 3, "another key's");
        assert_eq!(judge(Some(b"x")), 4, "damaged");
        assert_eq!(judge(None), 5, "missing");
    }

    #[test]
    fn a_counter_goes_up_and_gives_each_number_once() {
        let ledger = Ledger::new(7, 0, 1);
        let (mut past, mut wrong) = (Past::new(), Mismatches::default());
        ledger.counter(0).issue();
        ledger.counter(0).issue();
        let mut judge = |value: Option<u64>, is_increment| {
            past.judge_counter(value, is_increment, &ledger, &mut wrong);
            wrong.count()
        };
        assert_eq!(judge(Some(1), true), 0);
        assert_eq!(judge(Some(1), false), 0);
        assert_eq!(judge(Some(2), true), 0);
        assert_eq!(judge(Some(2), true), 1, "given twice");
        assert_eq!(judge(Some(1), false), 2, "went back");
        assert_eq!(judge(Some(3), false), 3, "too high");
        assert_eq!(judge(None, false), 4);
    }
}
