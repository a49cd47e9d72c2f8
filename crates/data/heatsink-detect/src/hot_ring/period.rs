//! Periods: which slot or interval a time lies in, without a division.
//!
//! Called by: `aging` and `filter`, on every touch.
//! Bound: none; times and lengths outside the quick range are divided.
//! Invariant: `number` is `now_ms / length_ms`, always.

/// Times below this are in the quick range: the milliseconds of five centuries.
const QUICK_BELOW_MS: u64 = 1 << 44;

/// Equal stretches of time, numbered from zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Periods {
    length_ms: u64,
    /// 2^64 / `length_ms`, rounded up.
    reciprocal: u64,
    quick_below_ms: u64,
}

impl Periods {
    /// Periods of `length_ms`, at least one.
    pub(super) const fn of_ms(length_ms: u64) -> Self {
        // Rounding the reciprocal up makes the product too large by less than
        // time * length / 2^64 of a unit in `length`: harmless below 2^44 * 2^20.
        let is_quick = length_ms > 1 && length_ms < 1 << 20;
        Self {
            length_ms,
            reciprocal: if is_quick { u64::MAX / length_ms + 1 } else { 0 },
            quick_below_ms: if is_quick { QUICK_BELOW_MS } else { 0 },
        }
    }

    /// The number of the period that a time lies in.
    pub(super) const fn number(self, now_ms: u64) -> u64 {
        if now_ms < self.quick_below_ms {
            ((now_ms as u128 * self.reciprocal as u128) >> 64) as u64
        } else {
            now_ms / self.length_ms
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Periods, QUICK_BELOW_MS};

    proptest! {
        #[test]
        fn the_number_is_the_quotient(
            length_ms in prop_oneof![1..2_000_u64, 1..=u64::from(u32::MAX), (1_u64 << 20) - 3..(1 << 20) + 3],
            multiple in 0..QUICK_BELOW_MS,
            now_ms in any::<u64>(),
        ) {
            let periods = Periods::of_ms(length_ms);
            let edge_ms = (multiple / length_ms) * length_ms;
            for now_ms in [now_ms, now_ms % QUICK_BELOW_MS, edge_ms, edge_ms.saturating_sub(1), QUICK_BELOW_MS - 1, QUICK_BELOW_MS] {
                prop_assert_eq!(periods.number(now_ms), now_ms / length_ms);
            }
        }
    }
}
