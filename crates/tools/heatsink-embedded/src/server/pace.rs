//! Pace: how fast a store answers, so that one that has too much to do is slow.
//!
//! Called by: the event loop in `server`, for a store with a capacity.
//! Bound: as many replies as clients have requests out; with [`HELD_MAX`] of them nothing more
//! is read.
//! Invariant: replies leave in the order in which the requests were run, whichever connection
//! they go to. A request takes effect when it is read and is answered when its turn has come,
//! hence in between, as with any server.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::client::ConnId;

/// Replies held back, at most.
const HELD_MAX: usize = 65_536;

/// How fast a store answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Requests it can answer a second; what comes beyond waits. `None`: as many as it can.
    pub capacity_per_second: Option<u32>,
    /// What every reply takes longer, as over a network.
    pub latency: Duration,
}

/// Replies whose time has not come.
#[derive(Debug)]
pub(super) struct Held {
    cost: Duration,
    latency: Duration,
    /// When all that was run so far is done.
    busy_until: Instant,
    replies: VecDeque<(Instant, ConnId, Vec<u8>)>,
}

impl Held {
    /// `None` if nothing is to be held back.
    pub(super) fn new(pace: Pace, now: Instant) -> Option<Self> {
        let cost = match pace.capacity_per_second {
            Some(capacity) => Duration::from_secs(1) / capacity.max(1),
            None => Duration::ZERO,
        };
        let latency = pace.latency;
        let held = Self { cost, latency, busy_until: now, replies: VecDeque::new() };
        (pace != Pace::default()).then_some(held)
    }

    /// So many requests were run now.
    pub(super) fn charge(&mut self, now: Instant, requests: u64) {
        let work = self.cost * u32::try_from(requests).unwrap_or(u32::MAX);
        self.busy_until = self.busy_until.max(now) + work;
    }

    /// Keeps what the requests up to now were answered with.
    pub(super) fn hold(&mut self, now: Instant, conn: ConnId, reply: Vec<u8>) {
        let at = self.busy_until.max(now) + self.latency;
        self.replies.push_back((at, conn, reply));
    }

    /// The next reply whose time has come.
    pub(super) fn due(&mut self, now: Instant) -> Option<(ConnId, Vec<u8>)> {
        let (at, ..) = self.replies.front()?;
        if *at > now {
            return None;
        }
        self.replies.pop_front().map(|(_, conn, reply)| (conn, reply))
    }

    /// When the next one's time comes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.replies.front().map(|(at, ..)| *at)
    }

    /// Nothing more is to be read for now.
    pub(super) fn is_full(&self) -> bool {
        self.replies.len() >= HELD_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn requests_beyond_the_capacity_wait_for_those_before() {
        let start = Instant::now();
        let pace = Pace { capacity_per_second: Some(1000), latency: 5 * MS };
        let mut held = Held::new(pace, start).expect("a pace");
        held.charge(start, 3);
        held.hold(start, ConnId(1), b"a".to_vec());
        held.charge(start, 1);
        held.hold(start, ConnId(2), b"b".to_vec());
        assert_eq!(held.next(), Some(start + 8 * MS));
        assert_eq!(held.due(start + 7 * MS), None);
        assert_eq!(held.due(start + 8 * MS), Some((ConnId(1), b"a".to_vec())));
        assert_eq!(held.due(start + 8 * MS), None);
        // What comes to an idle store waits for nobody.
        let later = start + 100 * MS;
        assert!(held.due(later).is_some());
        held.charge(later, 1);
        held.hold(later, ConnId(1), b"c".to_vec());
        assert_eq!(held.next(), Some(later + 6 * MS));
    }

    #[test]
    fn without_a_pace_nothing_is_held() {
        assert!(Held::new(Pace::default(), Instant::now()).is_none());
    }
}
