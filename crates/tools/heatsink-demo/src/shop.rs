//! The shop: asks for its items by the clock, through all proxies, and checks every reply.
//!
//! Called by: `director`, which takes what was counted twice a second.
//! Bound: one thread; [`CONNECTIONS`] connections with [`PIPELINE`] requests out each; whoever
//! has waited for [`PATIENCE`] gives up.
//! Invariant: a request's time counts from when it was due, so that a shop that is held up
//! does not look fast.

mod connection;
mod stock;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use heatsink_load::ledger::Ledger;
use heatsink_load::verdict::{self, Mismatches};
use heatsink_load::workload::{Shape, Workload};
use mio::{Events, Poll};

use crate::acts::Timeline;
use crate::options::{EXPONENT, ITEMS, Options, WRITE_SHARE};
use connection::Connection;

/// Connections, over all proxies.
const CONNECTIONS: u32 = 32;
/// Requests that a connection has out at once.
const PIPELINE: usize = 8;
/// How long a customer waits.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long replies are waited for at the end.
const LAST_REPLIES: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);

/// What was counted since it was last taken.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Microseconds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) answered: u64,
    pub(crate) given_up: u64,
    pub(crate) errors: verdict::Tally,
    pub(crate) mismatches: Mismatches,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let most_us = 60_000_000;
        let latency = Histogram::new_with_bounds(1, most_us, 3).expect("valid bounds");
        Self {
            latency,
            answered: 0,
            given_up: 0,
            errors: verdict::Tally::default(),
            mismatches: Mismatches::default(),
        }
    }

    fn record(&mut self, time: Duration) {
        self.latency.saturating_record(time.as_micros() as u64);
    }

    /// Adds what another one counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.latency.add(&other.latency).expect("the same bounds");
        self.answered += other.answered;
        self.given_up += other.given_up;
        self.errors.merge(&other.errors);
        self.mismatches.merge(&other.mismatches);
    }

    /// So many of 1 were faster.
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.latency.value_at_quantile(quantile))
    }
}

/// What the shop's connections share.
#[derive(Debug)]
struct Ground {
    prefix: &'static str,
    ledger: Ledger,
    epoch: Instant,
    tally: Mutex<Tally>,
    stop: AtomicBool,
}

impl Ground {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A shop that is open.
pub(crate) struct Shop {
    ground: Arc<Ground>,
    thread: Option<JoinHandle<io::Result<()>>>,
    door: SocketAddr,
    viral: u32,
}

impl Shop {
    /// Puts the items on the shelves and opens.
    pub(crate) fn open(options: &Options, proxies: &[SocketAddr]) -> io::Result<Self> {
        let shape =
            Shape { keys: ITEMS, exponent: EXPONENT, write_share: WRITE_SHARE, seed: options.seed };
        let script = Timeline::new(options.duration).script(&shape);
        let workload = Workload::new(shape, script).map_err(io::Error::other)?;
        let ledger = Ledger::new(stock::run_number(), ITEMS as usize, 1);
        let door = proxies[0];
        stock::fill(door, options.prefix(), &ledger)?;
        let ground = Arc::new(Ground {
            prefix: options.prefix(),
            ledger,
            epoch: Instant::now(),
            tally: Mutex::new(Tally::new()),
            stop: AtomicBool::new(false),
        });
        let poll = Poll::new()?;
        let connections = (0..CONNECTIONS)
            .map(|number| {
                let proxy = proxies[number as usize % proxies.len()];
                Connection::new(number, proxy, workload.stream(number))
            })
            .collect();
        let rate = f64::from(options.rate_per_second);
        let mut counter = Loop { poll, connections, rate, ground: Arc::clone(&ground) };
        let thread = thread::Builder::new().name("shop".to_owned()).spawn(move || counter.run())?;
        Ok(Self { ground, thread: Some(thread), door, viral: shape.cold_item(0) })
    }

    /// Since it opened.
    pub(crate) fn elapsed(&self) -> Duration {
        self.ground.epoch.elapsed()
    }

    /// The number of the item that goes viral.
    pub(crate) fn viral(&self) -> u32 {
        self.viral
    }

    /// Takes what was counted since the last time.
    pub(crate) fn take(&self) -> Tally {
        std::mem::replace(&mut *self.ground.tally(), Tally::new())
    }

    /// Closes, checks the counter, and clears the shelves if `clean`. What was counted since the
    /// last time.
    pub(crate) fn close(mut self, clean: bool) -> io::Result<Tally> {
        self.end()?;
        let mut tally = self.take();
        let ground = &self.ground;
        stock::check_counter(self.door, ground.prefix, &ground.ledger, &mut tally.mismatches)?;
        if clean {
            stock::clear(self.door, ground.prefix)?;
        }
        Ok(tally)
    }

    fn end(&mut self) -> io::Result<()> {
        self.ground.stop.store(true, Ordering::Release);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the shop has collapsed")),
            None => Ok(()),
        }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        // Whoever wants to know how it ended has asked before.
        let _ = self.end();
    }
}

/// The thread's own.
struct Loop {
    poll: Poll,
    connections: Vec<Connection>,
    rate: f64,
    ground: Arc<Ground>,
}

impl Loop {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        let mut made: u64 = 0;
        let mut end = None;
        loop {
            let now = self.ground.epoch.elapsed();
            if end.is_none() && self.ground.stop.load(Ordering::Acquire) {
                end = Some(now + LAST_REPLIES);
                for connection in &mut self.connections {
                    connection.send_home();
                }
            }
            if let Some(end) = end
                && (now >= end || self.connections.iter().all(Connection::is_idle))
            {
                return Ok(());
            }
            let due = |number: u64| Duration::from_secs_f64(number as f64 / self.rate);
            while end.is_none() && due(made) <= now {
                let at = made as usize % self.connections.len();
                self.connections[at].enqueue(due(made));
                made += 1;
            }
            let ground = Arc::clone(&self.ground);
            {
                let mut tally = ground.tally();
                for connection in &mut self.connections {
                    connection.serve(&ground, now, self.poll.registry(), &mut tally);
                }
            }
            let wait = due(made).saturating_sub(ground.epoch.elapsed()).min(LOOK);
            match self.poll.poll(&mut events, Some(wait.max(Duration::from_millis(1)))) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                result => result?,
            }
            let mut tally = ground.tally();
            for event in &events {
                let at = event.token().0;
                self.connections[at].receive(&ground, &mut tally);
            }
        }
    }
}
