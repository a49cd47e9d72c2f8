//! Signals that end `serve`: the first asks, the second insists.
//!
//! ```text
//! first signal:   armed? no -> arm -> wake `wait` -> orderly shutdown, exit 0
//! second signal:  armed? yes -> exit 1 at once, inside the handler
//! ```
//!
//! Invariant: for each signal the check is registered before the arming, since handlers run
//! in the order of their registration; the other way round the first signal would kill.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

/// Exit status of a process that was not given the time to finish.
const INSISTED: i32 = 1;

/// Handlers are installed as long as the process lives.
pub(super) struct Signals {
    wake: UnixStream,
}

impl Signals {
    /// Installs the handlers of SIGTERM and SIGINT.
    pub(super) fn register() -> io::Result<Self> {
        let (wake, sender) = UnixStream::pair()?;
        let armed = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            flag::register_conditional_shutdown(signal, INSISTED, armed.clone())?;
            flag::register(signal, armed.clone())?;
            pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self { wake })
    }

    /// Blocks until the first signal, which may have come already.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        self.wake.read_exact(&mut [0])
    }
}
