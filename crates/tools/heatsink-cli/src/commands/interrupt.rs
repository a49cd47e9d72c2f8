//! Ctrl-C and SIGTERM of commands that end early with what they have.
//!
//! Called by: `load`, `scan` and `demo`.
//! Invariant: a second signal ends the process at once; see `serve::events` for the order of
//! the handlers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Failure;

/// Exit status of a process that was not given the time to finish.
const INSISTED: i32 = 1;

/// Becomes true with the first signal.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = flag::register_conditional_shutdown(signal, INSISTED, stop.clone())
            .and_then(|_| flag::register(signal, stop.clone()));
        registered.map_err(|error| Failure::Runtime(format!("cannot handle signals: {error}")))?;
    }
    Ok(stop)
}
