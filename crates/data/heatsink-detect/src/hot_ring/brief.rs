//! The brief form of a key's counters: a whole window in one word.
//!
//! Called by: `aging`, for windows of up to eight slots.
//! Bound: fifteen touches in one period; then the word is full and never changes again, and
//! further touches are counted in the key's line of counters.
//! Invariant: all of a window is in one atomic word, so that a swap counts a touch and lets
//! periods pass at once.
//!
//! Most keys of a long-tailed stream are touched a few times in a window. In this form they need
//! no memory beside their node, so that a touch of one is one cache miss and one page, not two.

/// Periods that the word covers.
pub(super) const BRIEF_SLOTS: u32 = 8;

const BITS: u32 = 4;
const ONES: u32 = 0x1111_1111;

/// The newest period that was touched, in the high half, and the touches of that one (lowest)
/// and of the seven before it, in four bits each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Brief(pub(super) u64);

impl Brief {
    const fn newest(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn counts(self) -> u32 {
        self.0 as u32
    }

    /// Whether one of the counts is at its end.
    pub(super) const fn is_full(self) -> bool {
        let pairs = self.counts() & (self.counts() >> 1);
        pairs & (pairs >> 2) & ONES != 0
    }

    /// Whether even the newest period is out of a window of `slots` periods.
    pub(super) const fn is_over(self, slots: u32, now: u32) -> bool {
        now.wrapping_sub(self.newest()).cast_signed() >= slots.cast_signed()
    }

    /// The touches that count in a window of `slots` periods; those of a period that has not
    /// begun, by a thread whose clock is ahead, count too.
    pub(super) fn count(self, slots: u32, now: u32) -> u64 {
        let age = now.wrapping_sub(self.newest()).cast_signed();
        let periods = (i64::from(slots) - i64::from(age)).clamp(0, i64::from(BRIEF_SLOTS));
        let counts = u64::from(self.counts()) & ((1 << (BITS * periods as u32)) - 1);
        let pairs = (counts & 0x0f0f_0f0f) + ((counts >> BITS) & 0x0f0f_0f0f);
        ((pairs * 0x0101_0101) >> 24) & 0xff
    }

    /// The word after a touch; it must not be full. A touch that comes late counts in its own
    /// period, or in the newer one that has taken its place.
    pub(super) fn touched(self, now: u32) -> Self {
        let age = now.wrapping_sub(self.newest()).cast_signed();
        let (newest, counts) = if self.counts() == 0 {
            (now, 1)
        } else if age >= 0 {
            let kept = self.counts().checked_shl(BITS * age.cast_unsigned().min(BRIEF_SLOTS));
            (now, kept.unwrap_or(0) + 1)
        } else {
            let behind = age.unsigned_abs() % BRIEF_SLOTS;
            (self.newest(), self.counts() + (1 << (BITS * behind)))
        };
        Self(u64::from(newest) << 32 | u64::from(counts))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{BRIEF_SLOTS, Brief};

    proptest! {
        #[test]
        fn it_counts_like_a_map_until_it_is_full(
            start in prop_oneof![Just(0_u32), Just(u32::MAX - 20), any::<u32>()],
            steps in prop::collection::vec(prop_oneof![4 => Just(0_u32), 2 => 1_u32..4, 1 => 4_u32..20], 1..60),
            slots in 1..=BRIEF_SLOTS,
        ) {
            let (mut brief, mut exact) = (Brief(0), BTreeMap::new());
            let mut passed = 0;
            for step in steps {
                passed += step;
                if brief.is_full() {
                    break;
                }
                let now = start.wrapping_add(passed);
                brief = brief.touched(now);
                *exact.entry(passed).or_insert(0_u64) += 1;
                for later in 0..12 {
                    let inside = (passed + later + 1).saturating_sub(slots)..;
                    let count: u64 = exact.range(inside).map(|(_, count)| count).sum();
                    prop_assert_eq!(brief.count(slots, now.wrapping_add(later)), count);
                    prop_assert_eq!(brief.is_over(slots, now.wrapping_add(later)), count == 0);
                }
            }
            let most = exact.values().max().copied().unwrap_or(0);
            prop_assert!(most <= 15 && (!brief.is_full() || most == 15));
        }
    }

    #[test]
    fn a_late_touch_counts_in_its_own_period_and_the_newest_stays() {
        let brief = Brief(0).touched(100).touched(97).touched(100);
        assert_eq!([97, 98, 100].map(|now| brief.count(1, now)), [3, 2, 2]);
        assert_eq!([100, 101, 103, 104, 108].map(|now| brief.count(4, now)), [3, 2, 2, 0, 0]);
        // A word that was never touched has no newest period.
        assert_eq!(Brief(0).touched(u32::MAX - 3).count(8, u32::MAX), 1);
        assert_eq!(Brief(0).count(8, 3), 0);
    }

    #[test]
    fn fifteen_touches_of_one_period_fill_it_for_good() {
        let mut brief = Brief(0).touched(6);
        for touches in 1..=15 {
            brief = brief.touched(7);
            assert_eq!(brief.is_full(), touches == 15);
            assert_eq!(brief.count(8, 7), touches + 1);
        }
        assert_eq!((brief.count(8, 14), brief.count(8, 15)), (15, 0));
    }
}
