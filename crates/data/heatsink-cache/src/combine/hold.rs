//! How long a batch is held for company when the one before it has been answered.
//!
//! Called by: the proxy, when a batch is answered and others wait, and once a turn of its event
//! loop while they are held.
//! Bound: [`HOLD`] for each batch; nothing at all unless a crowd is there ([`Crowd`]).
//! Invariant: what is held has not been sent, so whoever comes meanwhile may join.
//!
//! A batch is as large as what comes within one round trip. If the server answers quickly, that
//! is little, however many clients there are: most of them have been answered and are about to
//! come back.
//!
//! 1. a batch of 5 is answered while 5 others wait; 190 clients are elsewhere
//! 2. sent at once, the next batch has 5 members again, and so on for ever
//! 3. sent a moment later it has 20, and the server does a quarter of the work
//!
//! With 16 clients the batches are as large, but there is nobody to wait for: those who could
//! come are those who were just answered, and they would wait for each other. So it takes many
//! different clients, and none of them notices: they outnumber a batch by far, and whoever
//! serves them all has enough to do meanwhile.

use std::time::Duration;

/// A batch is held if at least this many were answered and wait; fewer are no burst.
const FEWEST: usize = 8;
/// A batch of this many leaves at once: more would save little. So does one of half the crowd, so
/// that the other half never waits for it.
const ENOUGH: usize = 20;
/// The longest time from an answer to the next batch.
const HOLD: Duration = Duration::from_micros(200);
/// If nobody has come for this long, nobody is expected.
const LULL: Duration = Duration::from_micros(40);
/// Writes after which it is known who writes.
const WINDOW: u32 = 64;
/// So many different connections among them are a crowd.
const DIFFERENT: u32 = 24;

/// Whether many clients write the same thing: a few writes of many, or many writes of a few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Crowd {
    /// A bit for each connection that has written; several may share one.
    seen: u128,
    writes: u32,
    /// Connections in the window before, as far as they could be told apart.
    size: u32,
}

impl Crowd {
    /// A connection has written.
    pub(super) fn note(&mut self, connection: u64) {
        // The golden ratio: numbers that follow each other, however far apart, do not meet.
        let bit = connection.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - 7);
        self.seen |= 1 << bit;
        self.writes += 1;
        if self.writes == WINDOW {
            *self = Self { size: self.seen.count_ones(), ..Self::default() };
        }
    }

    /// So many make a batch that leaves at once; `None` if this is no crowd.
    fn enough(self) -> Option<usize> {
        (self.size >= DIFFERENT).then(|| ENOUGH.min(self.size as usize / 2))
    }
}

/// A batch that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    enough: usize,
    until: Duration,
    members: usize,
    last_came: Duration,
}

impl Hold {
    /// A batch of `answered` members has just been answered and `waiting` others make the next
    /// one. `None` if that is to leave at once.
    pub(super) fn begin(
        now: Duration,
        crowd: Crowd,
        answered: usize,
        waiting: usize,
    ) -> Option<Self> {
        let enough = crowd.enough()?;
        let pays = answered > 1 && waiting > 0 && answered + waiting >= FEWEST;
        let hold = Self { enough, until: now + HOLD, members: waiting, last_came: now };
        (pays && waiting < enough).then_some(hold)
    }

    /// Whether the batch, which has `waiting` members by now, leaves.
    pub(super) fn is_over(&mut self, now: Duration, waiting: usize) -> bool {
        if waiting > self.members {
            self.members = waiting;
            self.last_came = now;
        }
        let lull = now.saturating_sub(self.last_came) >= LULL;
        waiting == 0 || waiting >= self.enough || lull || now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn crowd(connections: u64) -> Crowd {
        let mut crowd = Crowd::default();
        (0..u64::from(WINDOW)).for_each(|write| crowd.note(write % connections * 3));
        crowd
    }

    fn begin(answered: usize, waiting: usize) -> Option<Hold> {
        Hold::begin(at(0), crowd(100), answered, waiting)
    }

    #[test]
    fn nothing_is_held_for_few() {
        for few in [1, 2, 16, 20] {
            assert_eq!(Hold::begin(at(0), crowd(few), 10, 5), None, "{few} clients");
        }
        for many in [32, 50, 64, 200, 10_000] {
            assert!(Hold::begin(at(0), crowd(many), 10, 5).is_some(), "{many} clients");
        }
        assert_eq!(Hold::begin(at(0), Crowd::default(), 10, 5), None, "not known yet");
        assert_eq!(begin(1, 7), None, "the one before went alone");
        assert_eq!(begin(4, 3), None);
        assert_eq!(begin(10, 0), None, "nobody waits, or somebody must go alone");
        assert_eq!(begin(5, ENOUGH), None, "enough are there");
        assert!(begin(5, 5).is_some());
    }

    #[test]
    fn a_crowd_that_has_gone_is_forgotten() {
        let mut crowd = crowd(100);
        assert_eq!(crowd.enough(), Some(ENOUGH));
        (0..WINDOW).for_each(|_| crowd.note(7));
        assert_eq!(crowd.enough(), None);
    }

    #[test]
    fn half_of_a_small_crowd_is_enough() {
        let enough = crowd(32).enough().unwrap();
        assert!((14..=16).contains(&enough), "{enough}");
    }

    #[test]
    fn a_batch_leaves_when_it_is_large_enough() {
        let mut hold = begin(5, 5).unwrap();
        assert!(!hold.is_over(at(0), 5), "the turn in which the answer came");
        assert!(!hold.is_over(at(20), ENOUGH - 1));
        assert!(hold.is_over(at(25), ENOUGH));
    }

    #[test]
    fn a_batch_leaves_when_nobody_comes_any_more() {
        let mut hold = begin(5, 5).unwrap();
        assert!(!hold.is_over(at(30), 6));
        assert!(!hold.is_over(at(69), 6));
        assert!(hold.is_over(at(70), 6));
        let mut hold = begin(5, 5).unwrap();
        assert!(hold.is_over(at(1), 0), "those who waited have waited too long");
    }

    #[test]
    fn a_batch_leaves_after_a_while_even_if_they_still_come() {
        let mut hold = begin(4, 4).unwrap();
        let over = (1..).map(|turn| (turn * 25, 4 + turn as usize));
        let (time, members) =
            over.into_iter().find(|&(time, members)| hold.is_over(at(time), members)).unwrap();
        assert_eq!((at(time), members), (HOLD, 12));
    }
}
