//! What can be shown while a run is under way.
//!
//! Called by: [`crate::run()`], on the thread that it was called on.

use std::time::Duration;

/// Something to be shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The keys of a target are being written.
    Preparing {
        /// The target.
        target: &'a str,
    },
    /// A round of a target begins.
    RoundStarted {
        /// The target.
        target: &'a str,
        /// From 0.
        round: u32,
        /// How long it takes, warm-up included.
        length: Duration,
    },
    /// A round of a target goes on; a few times a second.
    Pulse(Pulse<'a>),
    /// A round of a target has ended.
    RoundEnded {
        /// The target.
        target: &'a str,
        /// From 0.
        round: u32,
    },
}

/// The time since the last one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pulse<'a> {
    /// The target.
    pub target: &'a str,
    /// From 0.
    pub round: u32,
    /// Since the round began, warm-up included.
    pub elapsed: Duration,
    /// Requests/s.
    pub requests_per_second: f64,
    /// The median.
    pub p50: Duration,
    /// 99 of 100 were faster.
    pub p99: Duration,
    /// Errors of the round so far.
    pub errors: u64,
    /// Mismatches of the round so far.
    pub mismatches: u64,
}

/// Somebody who shows it.
pub trait Progress {
    /// Something happened.
    fn on(&mut self, event: Event<'_>);
}

/// Nobody.
impl Progress for () {
    fn on(&mut self, _: Event<'_>) {}
}
