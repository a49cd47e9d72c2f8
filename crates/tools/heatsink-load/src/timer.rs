//! Wakes an event loop at a moment finer than a millisecond.
//!
//! Called by: the engine, and other load at a given rate: `epoll` waits in whole milliseconds,
//! which would be added to the times measured.
//! Bound: one file descriptor.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A timer that is an event source.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
}

impl Timer {
    /// A timer that tells `registry` by `token`.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { fd })
    }

    /// Wakes the loop once, after this time.
    pub fn set(&self, after: Duration) -> io::Result<()> {
        // Zero would mean never.
        let after = after.max(Duration::from_nanos(1));
        let it_value =
            Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }

    /// To be called when it has woken the loop, which otherwise is not woken again.
    pub fn acknowledge(&self) {
        let mut expirations = [0; 8];
        let _ = rustix::io::read(&self.fd, &mut expirations);
    }
}
