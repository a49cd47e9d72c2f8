//! A relay between Heatsink and a server, for arranging who hears what when.
//!
//! Called by: tests of interleavings, which put a Heatsink before [`Relay::addr`].
//! Bound: two threads a connection, which end with it or with the relay.
//! Invariant: bytes of one direction keep their order; what was swallowed once is never
//! followed by anything, the connection is cut instead.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use heatsink_testkit::eventually;

/// Time after which a thread looks again what it is to do.
const LOOK: Duration = Duration::from_millis(1);
const SOON: Duration = Duration::from_secs(10);

/// What becomes of bytes.
#[derive(Clone, Debug, Default)]
pub enum Way {
    /// They are passed on.
    #[default]
    Open,
    /// What servers say is kept back, on all connections, but for the greeting of new ones: a second
    /// connection may be opened around one that is silent.
    HoldReplies,
    /// What servers say is kept back where they tell of changes.
    HoldTracked,
    /// The same; what is kept back is passed on up to the end of these bytes, then the
    /// connection is cut.
    CutTrackedBehind(Vec<u8>),
    /// Connections are cut that have something kept back.
    CutHeld,
    /// What servers say vanishes, and nobody is told.
    SwallowReplies,
    /// A connection on which these bytes are asked is silent towards the server from then on;
    /// others are open.
    HoldRequest(Vec<u8>),
}

#[derive(Default)]
struct State {
    way: Mutex<Way>,
    /// What is kept back of replies, one for each connection.
    held: Mutex<Vec<(u64, Vec<u8>)>>,
    requests_held: AtomicU64,
    is_over: AtomicBool,
}

/// A relay; its connections end with it.
pub struct Relay {
    addr: SocketAddr,
    state: Arc<State>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

impl Relay {
    /// A relay to this server.
    pub fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for (number, client) in (0..).zip(listener.incoming().map_while(Result::ok)) {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                // Without a server the client is cut.
                let Ok(server) = TcpStream::connect(server) else { continue };
                Connection::start(number, &shared, &client, &server);
            }
        });
        Self { addr, state }
    }

    /// What to connect to instead of the server.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Changes what becomes of bytes.
    pub fn set(&self, way: Way) {
        *lock(&self.state.way) = way;
    }

    /// Waits until replies are kept back that have these bytes in them, on one connection.
    #[track_caller]
    pub fn wait_held(&self, wanted: &[u8]) {
        eventually(SOON, || self.holds(wanted));
    }

    /// Whether replies are kept back that have these bytes in them.
    pub fn holds(&self, wanted: &[u8]) -> bool {
        lock(&self.state.held).iter().any(|(_, bytes)| position(bytes, wanted).is_some())
    }

    /// Waits until a request is kept back.
    #[track_caller]
    pub fn wait_request_held(&self) {
        eventually(SOON, || self.state.requests_held.load(Ordering::Relaxed) > 0);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        // The listener's thread sees it at the next connection; there may be none to come.
        drop(TcpStream::connect(self.addr));
    }
}

/// One direction of a connection.
struct Connection {
    number: u64,
    state: Arc<State>,
    from: TcpStream,
    to: TcpStream,
    /// The client has asked to be told of changes.
    is_tracked: Arc<AtomicBool>,
    pending: Vec<u8>,
}

impl Connection {
    fn start(number: u64, state: &Arc<State>, client: &TcpStream, server: &TcpStream) {
        let is_tracked = Arc::<AtomicBool>::default();
        let direction = |from: &TcpStream, to: &TcpStream| {
            from.set_nodelay(true).expect("a socket");
            from.set_read_timeout(Some(LOOK)).expect("a socket");
            let (from, to) = (from.try_clone().expect("a socket"), to.try_clone());
            Self {
                number,
                state: Arc::clone(state),
                from,
                to: to.expect("a socket"),
                is_tracked: Arc::clone(&is_tracked),
                pending: Vec::new(),
            }
        };
        let (up, down) = (direction(client, server), direction(server, client));
        thread::spawn(move || up.carry_requests());
        thread::spawn(move || down.carry_replies());
    }

    /// Reads what there is; false at the end.
    fn read(&mut self) -> bool {
        let mut chunk = [0; 16 << 10];
        match self.from.read(&mut chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.pending.extend_from_slice(&chunk[..count]);
                true
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    fn is_over(&self) -> bool {
        self.state.is_over.load(Ordering::Relaxed)
    }

    fn carry_requests(mut self) {
        let mut holds = false;
        let mut is_open = true;
        while is_open && !self.is_over() {
            is_open = self.read();
            if position(&self.pending, b"TRACKING").is_some() {
                self.is_tracked.store(true, Ordering::Relaxed);
            }
            // What is kept back is passed on even if its sender has gone.
            loop {
                let held = match &*lock(&self.state.way) {
                    Way::HoldRequest(bytes) => holds || position(&self.pending, bytes).is_some(),
                    _ => false,
                };
                if held && !holds {
                    self.state.requests_held.fetch_add(1, Ordering::Relaxed);
                }
                holds = held;
                if !holds || self.is_over() {
                    break;
                }
                thread::sleep(LOOK);
            }
            if self.to.write_all(&self.pending).is_err() {
                break;
            }
            self.pending.clear();
        }
        self.to.shutdown(Shutdown::Write).ok();
        self.from.shutdown(Shutdown::Read).ok();
    }

    fn carry_replies(mut self) {
        let mut lost = false;
        let mut is_greeted = false;
        while !self.is_over() && self.read() {
            let way = lock(&self.state.way).clone();
            let is_tracked = self.is_tracked.load(Ordering::Relaxed);
            let passes = match way {
                Way::HoldReplies => !is_greeted,
                Way::HoldTracked => !is_tracked,
                Way::CutTrackedBehind(bytes) if is_tracked => {
                    if let Some(at) = position(&self.pending, &bytes) {
                        self.to.write_all(&self.pending[..at + bytes.len()]).ok();
                        break;
                    }
                    false
                }
                Way::CutHeld if !self.pending.is_empty() => break,
                Way::Open | Way::HoldRequest(_) | Way::CutTrackedBehind(_) | Way::CutHeld => true,
                Way::SwallowReplies => {
                    lost |= !self.pending.is_empty();
                    self.pending.clear();
                    continue;
                }
            };
            if lost {
                break;
            }
            // The last word of a greeting is the number of the connection.
            is_greeted |= self.pending.contains(&b':');
            if passes {
                if self.to.write_all(&self.pending).is_err() {
                    break;
                }
                self.pending.clear();
            }
            self.tell_held();
        }
        self.pending.clear();
        self.tell_held();
        self.to.shutdown(Shutdown::Both).ok();
        self.from.shutdown(Shutdown::Both).ok();
    }

    /// Lets the test see what is kept back.
    fn tell_held(&self) {
        let mut held = lock(&self.state.held);
        held.retain(|(number, _)| *number != self.number);
        if !self.pending.is_empty() {
            held.push((self.number, self.pending.clone()));
        }
    }
}
