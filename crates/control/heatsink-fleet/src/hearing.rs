//! Whether the store answers, and whether an aggregator hears the reports that it is to add up.
//!
//! Called by: the loop and the movers of values, which tell what came of calls; `control`, for
//! `/readyz`; whoever would have a client wait for a call.
//! Bound: a store that has gone silent is known to be away after one call that got no answer: a
//! heartbeat, which takes at most `HEARTBEAT` and the time that a call may take, or any call before.
//! Invariant: reading the whole registry again, as is done regularly, counts as trouble only if it
//! takes long.

use std::time::Duration;

use heatsink_coordination::StoreError;

/// What was last heard of the store.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    is_subscribed: bool,
    answered_at: Option<Duration>,
    synced_at: Option<Duration>,
    why: Option<String>,
    is_away: bool,
}

impl Hearing {
    /// A call was not answered, or refused, so that it need not be tried again before a heartbeat
    /// gets through.
    pub(crate) fn on_failure(&mut self, error: &StoreError) {
        let is_own =
            matches!(error, StoreError::TooLarge { .. } | StoreError::TooManyMembers { .. });
        self.is_away |= !is_own;
    }

    /// Whether the store does not answer at this moment, by what is known.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away
    }

    /// The subscription is there, or is gone and why.
    pub(crate) fn on_subscription(&mut self, lost: Option<&str>) {
        self.is_subscribed = lost.is_none();
        if let Some(why) = lost {
            self.why = Some(why.to_owned());
        }
    }

    /// The store has answered a heartbeat, or has not answered something and why.
    pub(crate) fn on_answer(&mut self, now: Duration, trouble: Option<&str>) {
        if let Some(why) = trouble {
            self.why = Some(why.to_owned());
        } else {
            self.answered_at = Some(now);
            self.is_away = false;
        }
    }

    /// The registry is complete.
    pub(crate) fn on_synced(&mut self, now: Duration) {
        self.synced_at = Some(now);
    }

    /// What is wrong, in words.
    pub(crate) fn trouble(&self, now: Duration, patience: Duration) -> Option<String> {
        let is_recent =
            |at: Option<Duration>| at.is_some_and(|at| now.saturating_sub(at) <= patience);
        let what = if !self.is_subscribed || !is_recent(self.answered_at) {
            "the coordination store cannot be reached"
        } else if !is_recent(self.synced_at) {
            "the registry of hot keys cannot be read"
        } else {
            return None;
        };
        Some(match &self.why {
            Some(why) => format!("{what}: {why}"),
            None => what.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn all_of_it_is_needed_and_a_moment_without_is_none() {
        let mut hearing = Hearing::default();
        assert!(hearing.trouble(at(0), PATIENCE).is_some());
        hearing.on_subscription(None);
        hearing.on_answer(at(10), None);
        let trouble = hearing.trouble(at(10), PATIENCE).expect("not read yet");
        assert_eq!(trouble, "the registry of hot keys cannot be read");
        hearing.on_synced(at(20));
        assert_eq!(hearing.trouble(at(20), PATIENCE), None);
        // Read again: not complete for a moment.
        hearing.on_answer(at(1_015), None);
        assert_eq!(hearing.trouble(at(1_015), PATIENCE), None);
        assert!(hearing.trouble(at(1_021), PATIENCE).is_some());
        hearing.on_synced(at(1_022));
        assert_eq!(hearing.trouble(at(1_022), PATIENCE), None);
    }

    #[test]
    fn a_store_is_away_from_one_failed_call_until_a_heartbeat_gets_through() {
        let mut hearing = Hearing::default();
        assert!(!hearing.is_away());
        for error in [
            StoreError::TooLarge { bytes: 2, limit_bytes: 1 },
            StoreError::TooManyMembers { limit: 1 },
        ] {
            hearing.on_failure(&error);
            assert!(!hearing.is_away(), "{error}");
        }
        let failures = [
            StoreError::Timeout { after: at(500) },
            StoreError::Unreachable { why: "refused".to_owned() },
            StoreError::Refused { words: "READONLY".to_owned() },
        ];
        for error in failures {
            hearing.on_failure(&error);
            assert!(hearing.is_away(), "{error}");
            hearing.on_answer(at(1), Some("trouble"));
            assert!(hearing.is_away(), "{error}");
            hearing.on_answer(at(2), None);
            assert!(!hearing.is_away(), "{error}");
        }
    }

    #[test]
    fn a_store_that_is_lost_or_silent_is_named() {
        let mut hearing = Hearing::default();
        hearing.on_subscription(None);
        hearing.on_answer(at(0), None);
        hearing.on_synced(at(0));
        hearing.on_subscription(Some("refused"));
        let trouble = hearing.trouble(at(1), PATIENCE).expect("lost");
        assert_eq!(trouble, "the coordination store cannot be reached: refused");
        hearing.on_subscription(None);
        assert_eq!(hearing.trouble(at(1), PATIENCE), None);
        hearing.on_answer(at(900), Some("timeout"));
        hearing.on_synced(at(1_001));
        let trouble = hearing.trouble(at(1_001), PATIENCE).expect("silent");
        assert_eq!(trouble, "the coordination store cannot be reached: timeout");
    }
}
