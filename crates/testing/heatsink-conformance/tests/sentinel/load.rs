//! Clients that count while the primary changes, and keep the books.
//!
//! A primary may acknowledge a write and be gone before its replica has it; no proxy changes
//! that. So a write counts as durable only if the replica confirmed it (`WAIT`), or if the old
//! primary could not have been the one that acknowledged it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, Reply, poll_until};

const CLIENTS: usize = 4;
/// A confirmation that comes later than this may be that of another primary.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(400);

/// What became of the increments.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Acknowledged, and known to the primary that remains.
    pub(crate) durable: i64,
    /// Acknowledged.
    pub(crate) acknowledged: i64,
    /// Perhaps executed.
    pub(crate) unknown: i64,
    /// Certainly not executed.
    pub(crate) refused: i64,
    /// When something else than an acknowledgement was last answered.
    pub(crate) last_trouble: Option<Instant>,
}

impl Books {
    /// How long clients were still in trouble after `moment`.
    pub(crate) fn trouble_after(&self, moment: Instant) -> Duration {
        self.last_trouble.map_or(Duration::ZERO, |last| last.saturating_duration_since(moment))
    }

    /// No acknowledged write is lost, and none was executed twice.
    #[track_caller]
    pub(crate) fn check(&self, counted: i64) {
        let possible = self.durable..=self.acknowledged + self.unknown;
        assert!(possible.contains(&counted), "{counted} counted: {self:?}");
    }

    fn add(&mut self, other: &Self) {
        self.durable += other.durable;
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.refused += other.refused;
        self.last_trouble = self.last_trouble.max(other.last_trouble);
    }
}

/// Clients at work.
pub(crate) struct Load {
    addr: SocketAddr,
    stop: AtomicBool,
    /// The old primary acknowledges nothing that is sent from now on.
    old_is_out: AtomicBool,
}

impl Load {
    /// Counts `n` up at `addr` by several clients while `meanwhile` runs.
    pub(crate) fn run<T>(addr: SocketAddr, meanwhile: impl FnOnce(&Self) -> T) -> (Books, T) {
        let load = Self { addr, stop: AtomicBool::new(false), old_is_out: AtomicBool::new(false) };
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| load.count())).collect();
            let result = {
                // Also if `meanwhile` panics, or the clients would go on for ever.
                let _stop = StopOnDrop(&load.stop);
                meanwhile(&load)
            };
            let mut books = Books::default();
            for client in clients {
                books.add(&client.join().expect("the reason is above"));
            }
            (books, result)
        })
    }

    /// What is acknowledged to a request from now on is acknowledged by the new primary.
    pub(crate) fn old_is_out(&self) {
        self.old_is_out.store(true, Ordering::Release);
    }

    fn count(&self) -> Books {
        let mut books = Books::default();
        let mut client = RawClient::connect(self.addr);
        while !self.stop.load(Ordering::Acquire) {
            let by_new = self.old_is_out.load(Ordering::Acquire);
            match client.try_command(&["INCR", "n"]) {
                Ok(Reply::Integer(_)) => {
                    books.acknowledged += 1;
                    books.durable += i64::from(by_new || is_confirmed(&mut client));
                }
                Ok(reply) => {
                    books.last_trouble = Some(Instant::now());
                    let error = reply.error();
                    assert_one_line(&error);
                    if error.contains("unknown whether the command was executed") {
                        books.unknown += 1;
                    } else {
                        books.refused += 1;
                    }
                }
                Err(_) => {
                    books.last_trouble = Some(Instant::now());
                    books.unknown += 1;
                    client = RawClient::connect(self.addr);
                }
            }
            // Not again at once: there are few processors, and the Sentinels need them.
            poll_until(Duration::from_millis(1), || false);
        }
        books
    }
}

/// The replica has the client's last write. `WAIT` may meet another primary than the write did,
/// but not within so short a time one that has a replica already.
fn is_confirmed(client: &mut RawClient) -> bool {
    let start = Instant::now();
    let confirmed = matches!(client.try_command(&["WAIT", "1", "100"]), Ok(Reply::Integer(1..)));
    confirmed && start.elapsed() < CONFIRMED_WITHIN
}

#[track_caller]
fn assert_one_line(error: &str) {
    let known = ["ERR heatsink: upstream ", "READONLY ", "LOADING ", "MASTERDOWN "];
    assert!(known.iter().any(|start| error.starts_with(start)), "{error}");
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
