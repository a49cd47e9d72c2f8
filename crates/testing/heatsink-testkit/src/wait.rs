//! Waiting for a condition that nothing announces.
//!
//! Called by: tests, and the kit itself for readiness and exit.
//! Bound: the timeout the caller gives.
//! Invariant: the condition is tried at least once, and once more after the deadline, so that
//! a machine that stalls for the whole timeout does not fail the test by itself.

use std::thread;
use std::time::{Duration, Instant};

const PAUSE_FIRST: Duration = Duration::from_micros(200);
const PAUSE_LONGEST: Duration = Duration::from_millis(10);

/// What a condition may answer: `bool`, or `Option` when there is something to hand back.
pub trait Outcome {
    /// What the wait returns.
    type Value;

    /// The value once the condition holds.
    fn met(self) -> Option<Self::Value>;
}

impl Outcome for bool {
    type Value = ();

    fn met(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Outcome for Option<T> {
    type Value = T;

    fn met(self) -> Option<T> {
        self
    }
}

/// Tries `condition` until it holds and returns its value; `None` after `timeout`.
pub fn poll_until<O: Outcome>(
    timeout: Duration,
    mut condition: impl FnMut() -> O,
) -> Option<O::Value> {
    let deadline = Instant::now() + timeout;
    let mut pause = PAUSE_FIRST;
    loop {
        let last = Instant::now() >= deadline;
        if let Some(value) = condition().met() {
            return Some(value);
        }
        if last {
            return None;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_LONGEST);
    }
}

/// Tries `condition` until it holds and returns its value; panics after `timeout`.
#[track_caller]
pub fn eventually<O: Outcome>(timeout: Duration, condition: impl FnMut() -> O) -> O::Value {
    match poll_until(timeout, condition) {
        Some(value) => value,
        None => panic!("the condition did not come to hold within {timeout:?}"),
    }
}

/// Tries `check` until it succeeds and returns its value; panics after `timeout` with the last
/// reason it gave.
#[track_caller]
pub fn eventually_ok<T>(timeout: Duration, mut check: impl FnMut() -> Result<T, String>) -> T {
    let mut reason = String::new();
    let met = poll_until(timeout, || match check() {
        Ok(value) => Some(value),
        Err(why) => {
            reason = why;
            None
        }
    });
    match met {
        Some(value) => value,
        None => panic!("not within {timeout:?}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_value_at_the_first_success() {
        let mut tries = 0;
        let value = eventually(Duration::from_secs(5), || {
            tries += 1;
            (tries == 4).then_some("there")
        });
        assert_eq!((value, tries), ("there", 4));
    }

    #[test]
    fn gives_up_after_the_timeout_but_tries_at_least_once() {
        let mut tries = 0;
        let met = poll_until(Duration::ZERO, || {
            tries += 1;
            false
        });
        assert_eq!((met, tries), (None, 1));
    }

    #[test]
    #[should_panic(expected = "two of three")]
    fn a_check_that_never_succeeds_says_why() {
        let mut reasons = ["none", "one", "two of three"].iter();
        let mut last = "";
        eventually_ok(Duration::from_millis(5), || {
            last = reasons.next().unwrap_or(&last);
            Err::<(), _>(last.to_owned())
        });
    }

    #[test]
    #[should_panic(expected = "did not come to hold")]
    fn eventually_panics_when_it_never_holds() {
        eventually(Duration::from_millis(5), || false);
    }
}
