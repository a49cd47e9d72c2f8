//! Slots of time: which sub-slot of the window a moment belongs to.
//!
//! Called by: [`crate::heavy`] at each tick.
//! Invariant: slots only move forward; a clock that goes back moves nothing.

use std::time::Duration;

/// Counts the slots that pass.
#[derive(Debug, Clone)]
pub(crate) struct SlotClock {
    slot_length: Duration,
    slot: u128,
}

impl SlotClock {
    pub(crate) fn new(slot_length: Duration, now: Duration) -> Self {
        assert!(!slot_length.is_zero(), "a slot has a length");
        Self { slot_length, slot: now.as_nanos() / slot_length.as_nanos() }
    }

    /// Moves to `now`; how many slots ended since the last call.
    pub(crate) fn advance(&mut self, now: Duration) -> usize {
        let slot = now.as_nanos() / self.slot_length.as_nanos();
        let steps = slot.saturating_sub(self.slot);
        self.slot = self.slot.max(slot);
        usize::try_from(steps).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::SlotClock;

    #[test]
    fn slots_end_at_their_edges_and_never_run_back() {
        let ms = Duration::from_millis;
        let mut clock = SlotClock::new(ms(50), ms(120));
        assert_eq!(clock.advance(ms(149)), 0);
        assert_eq!(clock.advance(ms(150)), 1);
        assert_eq!(clock.advance(ms(10)), 0);
        assert_eq!(clock.advance(ms(199)), 0);
        assert_eq!(clock.advance(ms(400)), 5);
    }
}
