//! Whether a process that only adds up hears of what there is to add up.
//!
//! Called by: the loop, which tells what came of calls; `control`, for `/readyz`.
//! Invariant: reading the whole registry again, as is done now and then, is no trouble unless
//! it takes long.

use std::time::Duration;

/// What was last heard of the store.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    is_subscribed: bool,
    answered_at: Option<Duration>,
    synced_at: Option<Duration>,
    why: Option<String>,
}

impl Hearing {
    /// The subscription is there, or is gone and why.
    pub(crate) fn on_subscription(&mut self, lost: Option<&str>) {
        self.is_subscribed = lost.is_none();
        if let Some(why) = lost {
            self.why = Some(why.to_owned());
        }
    }

    /// The store has answered, or has not and why.
    pub(crate) fn on_answer(&mut self, now: Duration, trouble: Option<&str>) {
        match trouble {
            Some(why) => self.why = Some(why.to_owned()),
            None => self.answered_at = Some(now),
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
