//! What wakes the main thread of `serve`: signals, a successor, the clock.
//!
//! ```text
//! first SIGTERM:   armed? no -> arm -> wake `wait` -> orderly shutdown, exit 0
//! second SIGTERM:  armed? yes -> exit 1 at once, inside the handler
//! ```
//!
//! Bound: signals of one kind that come before they are looked at count as one; one successor.
//! Invariant: for each signal the check is registered before the arming, since handlers run
//! in the order of their registration; the other way round the first signal would kill.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

/// Exit status of a process that was not given the time to finish.
const INSISTED: i32 = 1;

/// Something to do.
#[derive(Debug)]
pub(super) enum Event {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
    /// A process that was given the listening sockets is ready; it waits on this connection.
    Successor(UnixStream),
    /// The time that was waited for has come.
    Tick,
}

/// Handlers are installed as long as the process lives.
pub(super) struct Events {
    wake: UnixStream,
    waker: UnixStream,
    stop: Arc<AtomicBool>,
    hangup: Arc<AtomicBool>,
    successors: (Sender<UnixStream>, Receiver<UnixStream>),
}

/// The other end, for the thread that hands over.
pub(super) struct Announcer {
    sender: Sender<UnixStream>,
    waker: UnixStream,
}

impl Announcer {
    /// Tells the main thread of a successor.
    pub(super) fn announce(&mut self, successor: UnixStream) {
        // Without a main thread there is nothing left to hand over.
        let _ = self.sender.send(successor);
        let _ = self.waker.write_all(&[0]);
    }
}

impl Events {
    /// Installs the handlers of SIGTERM, SIGINT and SIGHUP.
    pub(super) fn register() -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            flag::register_conditional_shutdown(signal, INSISTED, stop.clone())?;
            flag::register(signal, stop.clone())?;
            pipe::register(signal, waker.try_clone()?)?;
        }
        let hangup = Arc::new(AtomicBool::new(false));
        flag::register(SIGHUP, hangup.clone())?;
        pipe::register(SIGHUP, waker.try_clone()?)?;
        Ok(Self { wake, waker, stop, hangup, successors: channel() })
    }

    /// For the thread that hands over.
    pub(super) fn announcer(&self) -> io::Result<Announcer> {
        Ok(Announcer { sender: self.successors.0.clone(), waker: self.waker.try_clone()? })
    }

    /// Blocks until there is something to do, which may be so already, or until `tick`.
    pub(super) fn wait(&mut self, tick: Instant) -> io::Result<Event> {
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Ok(Event::Stop);
            }
            if let Ok(successor) = self.successors.1.try_recv() {
                return Ok(Event::Successor(successor));
            }
            if self.hangup.swap(false, Ordering::AcqRel) {
                return Ok(Event::Reload);
            }
            let left = tick.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Event::Tick);
            }
            // A byte that comes after the looks above is found here.
            self.wake.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.wake.read(&mut [0; 64]) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
