//! Server: the engine on a thread of its own, serving one end of socket pairs, and those who
//! connect to its port if it has one.
//!
//! Called by: whoever starts a proxy on the embedded store.
//! Bound: one read buffer for all connections; output per connection by the engine's limit
//! (and as much again in the process of being written); `HANDOVERS_MAX` connections that
//! were dialled and not taken over yet, beyond which dialling waits.
//! Invariant: all connections that are readable are served before any output is written, so
//! that replies leave in few system calls.

mod cluster;
mod connection;
mod pace;
mod stream;

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use foldhash::fast::RandomState;
use heatsink_upstream::address::Dial;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::client::ConnId;
use crate::cluster::Membership;
use crate::engine::Engine;
use connection::{Connection, Progress};
use pace::Held;
use stream::Stream;

pub use cluster::Cluster;
pub use pace::Pace;

const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);
const HANDOVERS_MAX: usize = 1024;
const EVENTS_MAX: usize = 1024;
const READ_BUFFER_BYTES: usize = 64 * 1024;
/// How often keys past their deadline are looked for.
const TICK: Duration = Duration::from_millis(100);

/// A running store; it stops when dropped.
#[derive(Debug)]
pub struct Server {
    dialer: Arc<Dialer>,
    thread: Option<JoinHandle<()>>,
}

/// How a store is started.
#[derive(Debug)]
struct Setup {
    seed: u64,
    listener: Option<TcpListener>,
    membership: Option<Membership>,
    pace: Pace,
}

/// Opens connections to a running store.
#[derive(Debug)]
struct Dialer {
    handover: SyncSender<UnixStream>,
    waker: Waker,
    is_stopped: AtomicBool,
    requests_total: AtomicU64,
}

impl Server {
    /// Starts a store with a random seed.
    pub fn start() -> io::Result<Self> {
        Self::start_with_seed(fastrand::u64(..))
    }

    /// Starts a store whose random choices follow from `seed`.
    pub fn start_with_seed(seed: u64) -> io::Result<Self> {
        Self::start_with(Setup { seed, listener: None, membership: None, pace: Pace::default() })
    }

    fn start_with(setup: Setup) -> io::Result<Self> {
        let Setup { seed, listener, membership, pace } = setup;
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let mut listener = match listener {
            Some(listener) => {
                listener.set_nonblocking(true)?;
                Some(mio::net::TcpListener::from_std(listener))
            }
            None => None,
        };
        if let Some(listener) = &mut listener {
            poll.registry().register(listener, LISTENER, Interest::READABLE)?;
        }
        let (handover, arrivals) = sync_channel(HANDOVERS_MAX);
        let dialer = Arc::new(Dialer {
            handover,
            waker,
            is_stopped: AtomicBool::new(false),
            requests_total: AtomicU64::new(0),
        });
        let shared = Arc::clone(&dialer);
        let thread =
            std::thread::Builder::new().name("heatsink-embedded".to_owned()).spawn(move || {
                let engine = Engine::new(seed, now_ms());
                let mut event_loop = EventLoop {
                    poll,
                    arrivals,
                    listener,
                    engine: match membership {
                        Some(membership) => engine.in_cluster(membership),
                        None => engine,
                    },
                    held: Held::new(pace, Instant::now()),
                    connections: HashMap::default(),
                    buffer: vec![0; READ_BUFFER_BYTES],
                    unfinished: Vec::new(),
                };
                // Without a poll that works there is nothing to serve: connections close.
                let _ = event_loop.run(&shared);
                shared.is_stopped.store(true, Ordering::Release);
            })?;
        Ok(Self { dialer, thread: Some(thread) })
    }

    /// What opens connections to this store; it outlives the server, and fails then.
    pub fn dialer(&self) -> Arc<dyn Dial> {
        Arc::<Dialer>::clone(&self.dialer)
    }
}

impl Server {
    /// Requests that the store was sent so far.
    pub fn requests_total(&self) -> u64 {
        self.dialer.requests_total.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.dialer.is_stopped.store(true, Ordering::Release);
        let woken = self.dialer.waker.wake();
        if let (Ok(()), Some(thread)) = (woken, self.thread.take()) {
            // A panic of the store was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Dial for Dialer {
    fn dial(&self) -> io::Result<UnixStream> {
        let stopped = || io::Error::new(io::ErrorKind::ConnectionRefused, "the store has stopped");
        if self.is_stopped.load(Ordering::Acquire) {
            return Err(stopped());
        }
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        self.handover.send(theirs).map_err(|_| stopped())?;
        self.waker.wake()?;
        Ok(ours)
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

struct EventLoop {
    poll: Poll,
    arrivals: Receiver<UnixStream>,
    listener: Option<mio::net::TcpListener>,
    engine: Engine,
    /// Replies whose time has not come, if there is a pace.
    held: Option<Held>,
    connections: HashMap<ConnId, Connection, RandomState>,
    buffer: Vec<u8>,
    /// Connections that had more to read than one turn takes.
    unfinished: Vec<ConnId>,
}

impl EventLoop {
    fn run(&mut self, dialer: &Dialer) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut next_tick_ms = 0;
        while !dialer.is_stopped.load(Ordering::Acquire) {
            let unfinished = std::mem::take(&mut self.unfinished);
            let wait = self.wait(unfinished.is_empty());
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                result => result?,
            }
            let now_ms = now_ms();
            for event in &events {
                if event.token() == WAKER {
                    self.take_over(now_ms);
                    continue;
                }
                if event.token() == LISTENER {
                    self.accept(now_ms);
                    continue;
                }
                let conn = ConnId(event.token().0 as u64);
                if event.is_writable() {
                    self.write(conn);
                }
                if event.is_readable() || event.is_read_closed() {
                    self.read(conn, event.is_read_closed(), now_ms);
                }
            }
            for conn in unfinished {
                // It may have closed meanwhile: read up to the end, whatever that is.
                self.read(conn, true, now_ms);
            }
            if now_ms >= next_tick_ms {
                self.engine.tick(now_ms);
                next_tick_ms = now_ms + TICK.as_millis() as u64;
            }
            dialer.requests_total.store(self.engine.requests_total(), Ordering::Relaxed);
            self.hold();
            self.release();
            while let Some(conn) = self.engine.next_dirty() {
                self.write(conn);
            }
        }
        Ok(())
    }

    /// How long there is nothing to do.
    fn wait(&self, all_read: bool) -> Duration {
        let next = self.held.as_ref().and_then(Held::next);
        let until_next = next.map_or(TICK, |at| at.saturating_duration_since(Instant::now()));
        let is_full = self.held.as_ref().is_some_and(Held::is_full);
        if all_read || is_full { until_next.min(TICK) } else { Duration::ZERO }
    }

    /// Takes over connections that were dialled.
    fn take_over(&mut self, now_ms: u64) {
        while let Ok(stream) = self.arrivals.try_recv() {
            self.welcome(Stream::Unix(mio::net::UnixStream::from_std(stream)), now_ms);
        }
    }

    /// Accepts connections from outside.
    fn accept(&mut self, now_ms: u64) {
        // Whatever an error says, the next one who connects is heard of.
        while let Some(Ok((stream, _))) = self.listener.as_ref().map(mio::net::TcpListener::accept)
        {
            // It is a matter of speed alone.
            let _ = stream.set_nodelay(true);
            self.welcome(Stream::Tcp(stream), now_ms);
        }
    }

    fn welcome(&mut self, mut stream: Stream, now_ms: u64) {
        let conn = self.engine.connect(now_ms);
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self.poll.registry().register(&mut stream, Token(conn.0 as usize), interest) {
            Ok(()) => drop(self.connections.insert(conn, Connection::new(stream))),
            // Out of kernel memory for one more: this one closes, the others go on.
            Err(_) => self.engine.disconnect(conn),
        }
    }

    /// With a pace: takes all output there is, to be written when its time has come.
    fn hold(&mut self) {
        let Some(held) = &mut self.held else { return };
        let now = Instant::now();
        // What is to be closed at once, or was, has nothing to wait for.
        let mut rest = Vec::new();
        while let Some(conn) = self.engine.next_dirty() {
            let connection = self.connections.get_mut(&conn);
            let (Some(connection), false) = (connection, self.engine.is_dropped(conn)) else {
                rest.push(conn);
                continue;
            };
            let output = self.engine.take_output(conn);
            if output.is_empty() {
                rest.push(conn);
            } else {
                connection.held_count += 1;
                held.hold(now, conn, output);
            }
        }
        for conn in rest {
            self.write(conn);
        }
    }

    /// With a pace: writes what has waited long enough.
    fn release(&mut self) {
        let now = Instant::now();
        while let Some((conn, reply)) = self.held.as_mut().and_then(|held| held.due(now)) {
            if let Some(connection) = self.connections.get_mut(&conn) {
                connection.held_count -= 1;
                connection.released.extend_from_slice(&reply);
            }
            self.write(conn);
        }
    }

    fn read(&mut self, conn: ConnId, is_closed: bool, now_ms: u64) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if self.held.as_ref().is_some_and(Held::is_full) {
            self.unfinished.push(conn);
            return;
        }
        let engine = &mut self.engine;
        let before = engine.requests_total();
        let feed = |bytes: &[u8]| engine.feed(conn, bytes, now_ms);
        let progress = connection.read(&mut self.buffer, is_closed, feed);
        if let Some(held) = &mut self.held {
            held.charge(Instant::now(), engine.requests_total() - before);
            self.hold();
        }
        match progress {
            Progress::Done | Progress::Blocked => {}
            Progress::Unfinished => self.unfinished.push(conn),
            Progress::Closed => {
                // The other end may have closed only its sending half, and wait for replies.
                self.write(conn);
                self.close(conn);
            }
        }
    }

    fn write(&mut self, conn: ConnId) {
        if self.engine.is_dropped(conn) {
            self.close(conn);
            return;
        }
        let (Some(connection), Some(output)) =
            (self.connections.get_mut(&conn), self.engine.output(conn))
        else {
            return;
        };
        let progress = match self.held {
            Some(_) => connection.write_released(),
            None => connection.write(output),
        };
        let is_held = connection.held_count > 0;
        match progress {
            Progress::Blocked | Progress::Unfinished => {}
            Progress::Done if is_held || !self.engine.is_closing(conn) => {}
            Progress::Done | Progress::Closed => self.close(conn),
        }
    }

    fn close(&mut self, conn: ConnId) {
        self.engine.disconnect(conn);
        if let Some(mut connection) = self.connections.remove(&conn) {
            // Closing takes it out of the poll as well; an error here changes nothing.
            let _ = self.poll.registry().deregister(connection.stream());
        }
    }
}
