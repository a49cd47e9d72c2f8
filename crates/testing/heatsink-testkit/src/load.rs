//! Requests at a fixed rate, by the clock.
//!
//! Called by: tests of the control plane, which count requests a second.
//! Bound: one thread and one connection; what is late by more than [`CATCH_UP`] is left out,
//! so that a stall is not made up for by a burst.
//! Invariant: every reply is compared with the one expected. A failure counts unless
//! [`Load::interrupt`] was called before it: then the server is meant to be gone.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::client::{RawClient, encode};
use crate::reply::Reply;

const CATCH_UP: Duration = Duration::from_millis(100);
const RETRY: Duration = Duration::from_millis(10);
/// Failures that are kept in words.
const KEPT_FAILURES: usize = 8;

/// What nobody has to wait for a reply from this machine, unless the machine does something
/// else.
pub const SLOW: Duration = Duration::from_millis(250);

/// What came of a load so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests that got the expected reply.
    pub answered: u64,
    /// Requests that did not.
    pub failed: u64,
    /// The first of those, in words.
    pub failures: Vec<String>,
    /// The longest time that a request took.
    pub slowest: Duration,
    /// Requests that took longer than [`SLOW`].
    pub slow: u64,
}

#[derive(Debug)]
struct State {
    tally: Tally,
    /// Nowhere: the server is meant to be gone.
    target: Option<SocketAddr>,
    /// Differs after each change of the target.
    generation: u64,
    stopped: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that sends one command again and again. Ended on drop.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Sends `args` to `target`, `per_second` times a second, and expects `reply` each time.
    pub fn start(target: SocketAddr, args: &[&str], per_second: u32, reply: Reply) -> Self {
        let state =
            State { tally: Tally::default(), target: Some(target), generation: 0, stopped: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let sender = Sender {
            shared: Arc::clone(&shared),
            request: encode(args),
            reply,
            interval: Duration::from_secs(1) / per_second.max(1),
        };
        let thread = thread::spawn(move || sender.run());
        Self { shared, thread: Some(thread) }
    }

    /// What came of it so far.
    pub fn tally(&self) -> Tally {
        self.shared.lock().tally.clone()
    }

    /// Begins to count anew.
    pub fn reset(&self) {
        self.shared.lock().tally = Tally::default();
    }

    /// The server is about to be killed: failures from now on are no failures.
    pub fn interrupt(&self) {
        self.change(None);
    }

    /// The server is here now.
    pub fn redirect(&self, target: SocketAddr) {
        self.change(Some(target));
    }

    fn change(&self, target: Option<SocketAddr>) {
        let mut state = self.shared.lock();
        state.target = target;
        state.generation += 1;
        self.shared.changed.notify_all();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Sender {
    shared: Arc<Shared>,
    request: Vec<u8>,
    reply: Reply,
    interval: Duration,
}

impl Sender {
    fn run(&self) {
        while let Some((target, generation)) = self.next_target() {
            if let Err(why) = self.send(target, generation) {
                let mut state = self.shared.lock();
                if state.generation == generation && !state.stopped {
                    state.tally.failed += 1;
                    if state.tally.failures.len() < KEPT_FAILURES {
                        state.tally.failures.push(why);
                    }
                }
                drop(state);
                self.wait_until(Instant::now() + RETRY, generation);
            }
        }
    }

    fn next_target(&self) -> Option<(SocketAddr, u64)> {
        let mut state = self.shared.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(target) = state.target {
                return Some((target, state.generation));
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends over one connection, until the target changes or something fails.
    fn send(&self, target: SocketAddr, generation: u64) -> Result<(), String> {
        let mut client =
            RawClient::try_connect(target).map_err(|error| format!("connecting: {error}"))?;
        let mut due = Instant::now();
        loop {
            let now = Instant::now();
            due = due.max(now.checked_sub(CATCH_UP).unwrap_or(now));
            let mut count = 0;
            while due <= now {
                due += self.interval;
                count += 1;
            }
            client
                .try_send_raw(&self.request.repeat(count))
                .map_err(|error| format!("sending: {error}"))?;
            for _ in 0..count {
                let reply = client
                    .try_read_reply()
                    .map_err(|error| format!("no reply after {:?}: {error}", now.elapsed()))?;
                if reply != self.reply {
                    return Err(format!("the reply was {reply}"));
                }
                let took = now.elapsed();
                let mut state = self.shared.lock();
                if state.generation != generation {
                    return Ok(());
                }
                let tally = &mut state.tally;
                tally.answered += 1;
                tally.slowest = tally.slowest.max(took);
                tally.slow += u64::from(took > SLOW);
            }
            if !self.wait_until(due, generation) {
                return Ok(());
            }
        }
    }

    /// Whether there is more to send to the same target.
    fn wait_until(&self, due: Instant, generation: u64) -> bool {
        let mut state = self.shared.lock();
        loop {
            if state.stopped || state.generation != generation {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let woken = self.shared.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
