//! What a reader does after it has looked at the shared store.
//!
//! A key holds one of: nothing; a *marker*, which is the lease of the one who loads it; a value.
//! The marker lies under the key itself, so whatever deletes or overwrites the key also ends the
//! lease, and a holder that is late finds that its marker is gone:
//!
//! ```text
//! holder                         anybody
//!   SET k marker NX PX lease
//!   ... loads what is true now
//!                                changes the database, DEL k
//!   replace k if it is marker    <- refused: what was loaded is from before the change
//! ```
//!
//! A value that is refreshed stays where it is and goes on being served. Who refreshes it is agreed
//! on by a lease beside it, which is only there to save work; what is stored replaces exactly the
//! value that was seen, which is what makes it safe.
//!
//! Called by: the library's flights, after each look.
//! Bound: a reader waits no longer than its patience, however often it is woken.
//! Invariant: nobody polls. A reader that waits has asked the store to tell of the next change of
//! the key before it looked, and has a timer for the lease's end.

use std::time::Duration;

use super::freshness::Freshness;

/// What lies under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Nothing,
    /// The lease of somebody who loads the key, and how long it lasts unless it is renewed.
    Lease(Duration),
    /// A value, and what it is good for.
    Value(Freshness),
    /// Bytes that mean nothing to this reader: of another version, or damaged.
    Foreign,
}

/// What the reader does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Takes the value.
    Serve,
    /// Takes the value, and tries to be the one who refreshes it.
    ServeAndRefresh,
    /// Tries to put its marker where nothing is; if somebody was faster it looks again.
    Acquire,
    /// Tries to get the lease beside the key, to replace what lies there; else it waits.
    Replace,
    /// Waits for a change of the key, and at most for this long; then it looks again.
    Wait(Duration),
    /// Has waited long enough: the fallback decides.
    GiveUp,
}

/// How a reader looks at a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reader {
    /// How long it goes on waiting for others.
    pub patience: Duration,
    /// Whether it was sent to refresh a value that others go on serving.
    pub refreshes: bool,
}

impl Reader {
    /// The step after a look.
    #[must_use]
    pub fn step(self, seen: Seen) -> Step {
        match seen {
            Seen::Value(Freshness::Fresh) if !self.refreshes => Step::Serve,
            Seen::Value(Freshness::Fresh | Freshness::Early | Freshness::Stale) => {
                Step::ServeAndRefresh
            }
            Seen::Value(Freshness::OnError | Freshness::Gone) | Seen::Foreign => Step::Replace,
            Seen::Nothing => Step::Acquire,
            Seen::Lease(_) if self.patience.is_zero() => Step::GiveUp,
            // A moment longer than the lease: the store counts in whole milliseconds.
            Seen::Lease(left) => Step::Wait((left + Duration::from_millis(1)).min(self.patience)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_get_the_best_there_is() {
        let patience = Duration::from_millis(300);
        let reader = Reader { patience, refreshes: false };
        let left = Duration::from_millis(99);
        let steps = [
            (Seen::Value(Freshness::Fresh), Step::Serve),
            (Seen::Value(Freshness::Early), Step::ServeAndRefresh),
            (Seen::Value(Freshness::Stale), Step::ServeAndRefresh),
            (Seen::Value(Freshness::OnError), Step::Replace),
            (Seen::Value(Freshness::Gone), Step::Replace),
            (Seen::Foreign, Step::Replace),
            (Seen::Nothing, Step::Acquire),
            (Seen::Lease(left), Step::Wait(Duration::from_millis(100))),
            (Seen::Lease(Duration::from_secs(5)), Step::Wait(patience)),
        ];
        for (seen, step) in steps {
            assert_eq!(reader.step(seen), step, "{seen:?}");
        }
        let refresher = Reader { refreshes: true, ..reader };
        assert_eq!(refresher.step(Seen::Value(Freshness::Fresh)), Step::ServeAndRefresh);
    }

    #[test]
    fn who_has_no_patience_left_never_waits() {
        let reader = Reader { patience: Duration::ZERO, refreshes: false };
        assert_eq!(reader.step(Seen::Lease(Duration::from_secs(5))), Step::GiveUp);
        assert_eq!(reader.step(Seen::Nothing), Step::Acquire);
    }
}
