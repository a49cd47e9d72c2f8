//! Threads that verify passwords, so that no event loop waits for one.
//!
//! Called by: event loops, for `AUTH` and `HELLO` under `auth = "service"`.
//! Bound: [`QUEUE_LIMIT_PER_THREAD`] waiting logins for each thread, each of at most
//! [`NAME_LIMIT_BYTES`] and [`PASSWORD_LIMIT_BYTES`]; at the bound a login is told [`Busy`].
//! Memory: each thread holds what the hash under verification asks for (19 MiB).
//! Invariant: each accepted ticket gets exactly one verdict unless the verifier is dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::{error, fmt, io};

use zeroize::Zeroizing;

use crate::{Users, Verdict};

/// Logins that wait for each thread at most: about three seconds' worth, after which
/// clients have given up anyway.
pub const QUEUE_LIMIT_PER_THREAD: usize = 128;
/// The longest user name.
pub const NAME_LIMIT_BYTES: usize = 256;
/// The longest password; a longer one is refused.
pub const PASSWORD_LIMIT_BYTES: usize = 4096;

/// The queue is full: too many logins at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many logins at once")
    }
}

impl error::Error for Busy {}

/// Verifies logins on its own threads. `T` tells the caller which login a verdict is for.
///
/// Dropping it ends the threads after the verification that each is at; logins that still
/// wait get no verdict.
pub struct Verifier<T> {
    users: Users,
    /// Present until drop.
    queue: Option<SyncSender<Login<T>>>,
    stopping: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

struct Login<T> {
    ticket: T,
    name: Box<[u8]>,
    password: Zeroizing<Box<[u8]>>,
}

impl<T: Send + 'static> Verifier<T> {
    /// Starts `threads` threads (at least one). `on_done` is called on them and should only
    /// pass the verdict on.
    pub fn start(
        users: Users,
        threads: usize,
        on_done: impl Fn(T, Verdict) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let threads = threads.max(1);
        let (sender, receiver) = mpsc::sync_channel(threads * QUEUE_LIMIT_PER_THREAD);
        let receiver = Arc::new(Mutex::new(receiver));
        let on_done = Arc::new(on_done);
        let mut verifier = Self {
            users,
            queue: Some(sender),
            stopping: Arc::default(),
            workers: Vec::with_capacity(threads),
        };
        for index in 0..threads {
            let (users, receiver) = (verifier.users.clone(), Arc::clone(&receiver));
            let (stopping, on_done) = (Arc::clone(&verifier.stopping), Arc::clone(&on_done));
            let work = move || work(&users, &receiver, &stopping, &*on_done);
            let worker = thread::Builder::new().name(format!("verify-{index}")).spawn(work)?;
            verifier.workers.push(worker);
        }
        Ok(verifier)
    }

    /// Whether this login succeeded recently and need not be submitted. Takes microseconds,
    /// so it may be asked on an event loop; `false` says nothing about the login.
    pub fn is_remembered(&self, name: &[u8], password: &[u8]) -> bool {
        password.len() <= PASSWORD_LIMIT_BYTES && self.users.table().is_remembered(name, password)
    }

    /// Queues a login; its verdict goes to `on_done`.
    pub fn submit(&self, ticket: T, name: &[u8], password: &[u8]) -> Result<(), Busy> {
        // What is too long to be right takes its time like any wrong password, but no memory:
        // no user has an empty name.
        let sizes_valid = name.len() <= NAME_LIMIT_BYTES && password.len() <= PASSWORD_LIMIT_BYTES;
        let (name, password) = if sizes_valid { (name, password) } else { (&b""[..], &b""[..]) };
        let login = Login { ticket, name: name.into(), password: Zeroizing::new(password.into()) };
        let queue = self.queue.as_ref().ok_or(Busy)?;
        queue.try_send(login).map_err(|_| Busy)
    }
}

fn work<T>(
    users: &Users,
    receiver: &Mutex<Receiver<Login<T>>>,
    stopping: &AtomicBool,
    on_done: &impl Fn(T, Verdict),
) {
    loop {
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(login) = next else { return };
        if stopping.load(Ordering::Relaxed) {
            return;
        }
        let verdict = users.table().verify(&login.name, &login.password);
        drop(login.password);
        on_done(login.ticket, verdict);
    }
}

impl<T> Drop for Verifier<T> {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.queue = None;
        for worker in self.workers.drain(..) {
            // `on_done` may own the last handle to the verifier: a thread cannot wait for
            // itself. One that panicked has said so.
            if worker.thread().id() != thread::current().id() {
                let _ = worker.join();
            }
        }
    }
}

impl<T> fmt::Debug for Verifier<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("threads", &self.workers.len()).finish_non_exhaustive()
    }
}
