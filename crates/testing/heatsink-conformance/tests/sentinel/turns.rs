//! One rig at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held while a rig runs. Sentinels that do not get a processor for half a second take the
/// primary for dead, and each other: five processes a rig are enough at once.
pub(crate) fn my_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
