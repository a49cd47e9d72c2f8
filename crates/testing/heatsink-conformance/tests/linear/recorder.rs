//! Clients that write down what they asked, when, and what they were told.
//!
//! Called by: every test that records a history.
//! Bound: as many operations as the workload says; every wait ends after [`PATIENCE`].
//! Invariant: the time of a call is taken before anything is sent, that of a reply after it has
//! come, both of one clock; whatever may have been executed is written down.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use heatsink_testkit::{RawClient, Reply, encode, eventually, poll_until};

use crate::history::{History, Recorded};
use crate::model::{Command, is_own_error};
use crate::workload::Workload;

/// Longer than anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Between two tries while something is down.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
/// Times that a client hangs up in a history.
const HANG_UPS: usize = 2;
/// What a server, or Heatsink, says instead of carrying something out. Nothing else is believed
/// to have had no effect.
const NOT_CARRIED_OUT: [&str; 9] = [
    " unavailable: ",
    "; it was not carried out",
    "the read of a hot key that this one waited for takes too long",
    "the cluster's map is not known",
    "ERR heatsink: given up",
    "LOADING ",
    "CLUSTERDOWN ",
    "TRYAGAIN ",
    "MASTERDOWN ",
];

/// One history in the making.
#[derive(Debug)]
pub(crate) struct Session {
    keys: Vec<String>,
    workload: Workload,
    /// Where to connect; proxies that are started again are elsewhere.
    doors: Vec<Mutex<SocketAddr>>,
    clock: AtomicU64,
    /// Operations that nobody has taken upon itself.
    left: AtomicUsize,
    answered: AtomicUsize,
    connections: AtomicUsize,
    /// The last quarter of the operations waits for this, so that there are some after a fault.
    is_open: AtomicBool,
    /// Nobody begins before all are connected.
    start: Barrier,
}

/// What became of a request.
enum Fate {
    Answered(Reply),
    Unknown,
    /// It had no effect.
    Refused,
}

impl Session {
    pub(crate) fn new(workload: Workload, keys: Vec<String>, doors: &[SocketAddr]) -> Self {
        Self {
            keys,
            doors: doors.iter().copied().map(Mutex::new).collect(),
            clock: AtomicU64::new(0),
            left: AtomicUsize::new(workload.operations),
            answered: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            is_open: AtomicBool::new(false),
            start: Barrier::new(workload.clients),
            workload,
        }
    }

    /// Records a history while `meanwhile` does what it does.
    pub(crate) fn record(&self, rng: &mut Rng, meanwhile: impl FnOnce(&mut Rng)) -> History {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..self.workload.clients)
                .map(|number| {
                    let rng = rng.fork();
                    scope.spawn(move || Client::new(self, number, rng).run())
                })
                .collect();
            meanwhile(rng);
            self.is_open.store(true, Ordering::Release);
            let recorded = clients.into_iter().map(|client| client.join().expect("it records"));
            History { operations: recorded.flatten().collect() }
        })
    }

    /// Waits until so much has been answered, out of a hundred.
    pub(crate) fn wait_for_percent(&self, percent: usize) {
        eventually(PATIENCE, || self.has_percent(percent));
    }

    /// Whether so much has been answered; three quarters are, whatever else happens.
    pub(crate) fn has_percent(&self, percent: usize) -> bool {
        self.answered.load(Ordering::Acquire) * 100 >= self.workload.operations * percent
    }

    /// A proxy is elsewhere now.
    pub(crate) fn move_door(&self, index: usize, addr: SocketAddr) {
        *self.doors[index].lock().unwrap_or_else(PoisonError::into_inner) = addr;
    }

    fn door(&self, index: usize) -> SocketAddr {
        *self.doors[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Takes at most `count` operations upon oneself.
    fn take(&self, count: usize) -> usize {
        let less = |left: usize| Some(left - left.min(count));
        let before = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        before.map_or(0, |left| left.min(count))
    }

    fn wait_at_gate(&self) {
        let is_early = || self.left.load(Ordering::Acquire) > self.workload.operations / 4;
        eventually(PATIENCE, || is_early() || self.is_open.load(Ordering::Acquire));
    }
}

/// One client; it has one connection at a time.
struct Client<'a> {
    session: &'a Session,
    number: usize,
    rng: Rng,
    depth: usize,
    hang_ups: usize,
    serial: usize,
    connection: Option<(usize, RawClient)>,
    recorded: Vec<Recorded>,
}

impl<'a> Client<'a> {
    fn new(session: &'a Session, number: usize, rng: Rng) -> Self {
        let depth = if number.is_multiple_of(2) { session.workload.depth } else { 1 };
        let hang_ups = if session.workload.hangs_up { HANG_UPS } else { 0 };
        let (connection, recorded) = (None, Vec::new());
        Self { session, number, rng, depth, hang_ups, serial: 0, connection, recorded }
    }

    fn run(mut self) -> Vec<Recorded> {
        let session = self.session;
        self.connection = Some(self.connect());
        session.start.wait();
        loop {
            session.wait_at_gate();
            let count = session.take(self.rng.usize(1..=self.depth));
            if count == 0 {
                return self.recorded;
            }
            let burst: Vec<(Range<usize>, Command)> = (0..count).map(|_| self.request()).collect();
            let refused = self.ask(burst);
            if refused > 0 {
                session.left.fetch_add(refused, Ordering::AcqRel);
                thread::sleep(RETRY_PAUSE);
            }
            if session.workload.pause_us > 0 {
                let pause_us = self.rng.u64(..session.workload.pause_us);
                thread::sleep(Duration::from_micros(pause_us));
            }
        }
    }

    fn request(&mut self) -> (Range<usize>, Command) {
        self.serial += 1;
        let serial = self.serial * self.session.workload.clients + self.number;
        self.session.workload.request(&mut self.rng, serial)
    }

    /// Sends requests at once and waits for what becomes of each; how many had no effect.
    fn ask(&mut self, burst: Vec<(Range<usize>, Command)>) -> usize {
        let session = self.session;
        let (number, mut client) = self.connection.take().unwrap_or_else(|| self.connect());
        let encoded = |(keys, command): &(Range<usize>, Command)| {
            let keys: Vec<&str> = session.keys[keys.clone()].iter().map(String::as_str).collect();
            encode(&command.words(&keys))
        };
        let bytes: Vec<u8> = burst.iter().flat_map(encoded).collect();
        let called: Vec<u64> = burst.iter().map(|_| session.now()).collect();
        let mut is_open = client.try_send_raw(&bytes).is_ok();
        if self.hang_ups > 0 && self.rng.u8(..8) == 0 {
            self.hang_ups -= 1;
            is_open = false;
        }
        let mut refused = 0;
        for ((keys, command), called) in burst.into_iter().zip(called) {
            let fate = if is_open { fate_of(&mut client, &command) } else { None };
            is_open &= fate.is_some();
            let answer = match fate.unwrap_or(Fate::Unknown) {
                Fate::Answered(reply) => Some((session.now(), reply)),
                Fate::Unknown => None,
                Fate::Refused => {
                    refused += 1;
                    continue;
                }
            };
            session.answered.fetch_add(1, Ordering::AcqRel);
            self.recorded.push(Recorded { connection: number, keys, command, called, answer });
        }
        if is_open {
            self.connection = Some((number, client));
        }
        refused
    }

    fn connect(&self) -> (usize, RawClient) {
        let session = self.session;
        let door = self.number % session.doors.len();
        let client = poll_until(PATIENCE, || RawClient::try_connect(session.door(door)).ok());
        let mut client = client.expect("somebody listens");
        client.set_timeout(PATIENCE);
        (session.connections.fetch_add(1, Ordering::Relaxed), client)
    }
}

/// What became of the next request; `None` if the connection was closed instead of an answer.
fn fate_of(client: &mut RawClient, command: &Command) -> Option<Fate> {
    let reply = match client.try_read_reply() {
        Ok(reply) => reply,
        Err(error) => {
            let is_closed = error.kind() != std::io::ErrorKind::TimedOut;
            assert!(is_closed, "{command} is not answered");
            return None;
        }
    };
    let Reply::Error(text) = &reply else { return Some(Fate::Answered(reply)) };
    if is_own_error(text) {
        return Some(Fate::Answered(reply));
    }
    if text.contains("unknown whether") {
        return Some(Fate::Unknown);
    }
    let is_known = NOT_CARRIED_OUT.iter().any(|known| text.contains(known));
    assert!(is_known, "{command}: {text}");
    Some(Fate::Refused)
}
