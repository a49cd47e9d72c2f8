//! Accepts clients and deals them out to the workers in turn.
//!
//! Bound: `limits.max_clients`; a client beyond that gets an error and is closed. So does one for which
//! there is no file descriptor left: one descriptor is kept in reserve to tell it.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use heatsink_tls::ServerTls;
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, Socket, Type};

use crate::config::Listen;
use crate::runtime::shared::{Message, Shared};
use crate::runtime::socket::Accepted;

/// Connections that wait to be accepted.
const LISTEN_BACKLOG: i32 = 1024;
/// The pause after a client that could neither be accepted nor be given an error.
const ACCEPT_RETRY: Duration = Duration::from_millis(10);
const STOP: Token = Token(0);
const CLIENT: Token = Token(1);

/// The worker that got the last client.
static LAST_WORKER: AtomicUsize = AtomicUsize::new(0);

/// A thread that accepts clients on one socket.
#[derive(Debug)]
pub(crate) struct Acceptor {
    pub(crate) local_addr: SocketAddr,
    /// None once it accepts no more clients.
    listener: Option<TcpListener>,
    /// What the thread will use; none once the thread runs.
    idle: Option<(Poll, Option<ServerTls>)>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Listens, unless the socket does already.
    pub(crate) fn bind(listen: Listen) -> io::Result<TcpListener> {
        match listen {
            Listen::Address(address) => bind(address),
            Listen::Socket(listener) => Ok(listener),
        }
    }

    /// Of a socket that listens. Clients wait there until [`Self::start`].
    pub(crate) fn new(listener: TcpListener, tls: Option<ServerTls>) -> io::Result<Self> {
        let local_addr = listener.local_addr()?;
        // Another process may have the same socket and accept what this one was woken for.
        listener.set_nonblocking(true)?;
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), STOP)?;
        let stop = Arc::new(AtomicBool::new(false));
        let idle = Some((poll, tls));
        Ok(Self { local_addr, listener: Some(listener), idle, stop, waker, thread: None })
    }

    /// Starts to accept, unless it has, or has stopped.
    pub(crate) fn start(&mut self, shared: &Arc<Shared>) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let Some((poll, tls)) = self.idle.take() else { return Ok(()) };
        let mut accepting = mio::net::TcpListener::from_std(listener.try_clone()?);
        poll.registry().register(&mut accepting, CLIENT, Interest::READABLE)?;
        let (shared, stop) = (Arc::clone(shared), Arc::clone(&self.stop));
        let listener = listener.try_clone()?;
        let accept = move || {
            // What the events are for; the same socket is accepted on below.
            let _registered = accepting;
            accept_clients(poll, &listener, tls.as_ref(), &shared, &stop);
        };
        self.thread = Some(thread::Builder::new().name("acceptor".to_owned()).spawn(accept)?);
        Ok(())
    }

    /// Another handle of the socket, for a process that takes over.
    pub(crate) fn socket(&self) -> io::Result<TcpListener> {
        match &self.listener {
            Some(listener) => listener.try_clone(),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Accepts no more. What waits to be accepted is left to whoever else has the socket.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            if let Err(error) = self.waker.wake() {
                tracing::error!(%error, "the acceptor could not be woken");
            }
            let _ = thread.join();
        }
        self.listener = None;
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket.into())
}

/// Runs until `stop` is set.
fn accept_clients(
    mut poll: Poll,
    listener: &TcpListener,
    tls: Option<&ServerTls>,
    shared: &Arc<Shared>,
    stop: &AtomicBool,
) {
    let mut events = Events::with_capacity(4);
    let mut reserve = Reserve::new();
    // The first look may find clients that came before the registration.
    let mut patience = Some(Duration::ZERO);
    while !stop.load(Ordering::Acquire) {
        if let Err(error) = poll.poll(&mut events, patience)
            && error.kind() != io::ErrorKind::Interrupted
        {
            tracing::error!(%error, "waiting for clients failed");
            return;
        }
        patience = None;
        while !stop.load(Ordering::Acquire) {
            match listener.accept() {
                Ok((socket, addr)) => deal_out(socket, addr, tls, shared),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "a client could not be accepted");
                    // Out of descriptors, most likely. If it cannot be told either, clients wait
                    // in the backlog for a moment.
                    if !reserve.turn_away_one(listener, tls.is_some()) {
                        thread::sleep(ACCEPT_RETRY);
                    }
                }
            }
        }
    }
}

/// A spare file descriptor. When there is no other left, it is given up to accept a client and tell it
/// so.
#[derive(Debug)]
struct Reserve(Option<File>);

impl Reserve {
    fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Whether a client was told, or there was none any more.
    fn turn_away_one(&mut self, listener: &TcpListener, tls: bool) -> bool {
        if self.0.take().is_none() {
            *self = Self::new();
            return false;
        }
        // Another thread may take the descriptor first; then this fails as before.
        let accepted = listener.accept();
        if let Ok((socket, _)) = &accepted {
            tell_too_many(socket, tls);
        }
        let is_done = !accepted.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
        *self = Self::new();
        is_done
    }
}

fn deal_out(socket: TcpStream, addr: SocketAddr, tls: Option<&ServerTls>, shared: &Arc<Shared>) {
    let count = shared.client_count.fetch_add(1, Ordering::AcqRel);
    if count >= shared.live().limits.max_clients {
        shared.client_count.fetch_sub(1, Ordering::AcqRel);
        turn_away(&socket, tls.is_some());
        return;
    }
    let next = LAST_WORKER.fetch_add(1, Ordering::Relaxed) % shared.mailboxes.len();
    let accepted = Accepted { socket, addr, tls: tls.cloned(), within: false };
    shared.mailboxes[next].send(Message::Accept(accepted));
}

/// A client of this process's own, which no limit applies to.
pub(crate) fn connect_within(shared: &Arc<Shared>) -> io::Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    ours.set_nodelay(true)?;
    // Somebody else may have been faster.
    let (socket, addr) = loop {
        let (socket, addr) = listener.accept()?;
        if addr == ours.local_addr()? {
            break (socket, addr);
        }
    };
    // Not one of the clients that are counted, nor listed.
    let next = LAST_WORKER.fetch_add(1, Ordering::Relaxed) % shared.mailboxes.len();
    let accepted = Accepted { socket, addr, tls: None, within: true };
    shared.mailboxes[next].send(Message::Accept(accepted));
    Ok(ours)
}

fn turn_away(socket: &TcpStream, tls: bool) {
    tracing::warn!("a client was turned away: limits.max_clients is reached");
    tell_too_many(socket, tls);
}

/// The last word to a client that is not accepted; with TLS there is no way to say it.
fn tell_too_many(socket: &TcpStream, tls: bool) {
    let _ = socket.set_nonblocking(true);
    if !tls {
        let _ = (&*socket).write_all(b"-ERR max number of clients reached\r\n");
    }
    let _ = socket.shutdown(Shutdown::Write);
}
