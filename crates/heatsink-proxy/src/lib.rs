//! The data plane: clients on one side, upstream pipelines on the other, a module a stage.
//!
//! | stage | module |
//! |---|---|
//! | accept, deal out to workers | `listener` |
//! | the event loop of one worker | `worker` |
//! | a client's connection and buffers | `connection` |
//! | bytes to requests | `intake` |
//! | what becomes of a request | `decide`, carried out by `act` |
//! | the shared pipelines | `lanes` |
//! | a connection of a client's own | `own` (its state), `own_link` (its life) |
//! | `AUTH`, `HELLO`, `SELECT`, `RESET` | `session` |
//! | `CLIENT …` | `client_command`, `directory` |
//! | replies back to clients, in order | `replies`, `clients` |
//! | writing, once a turn | `flush` |
//! | timeouts, idle clients, the end | `upkeep` |
//!
//! What is promised: replies in request order per client; commands of one client executed in
//! its order; a reply is given to the client that asked or to nobody; clients share an
//! upstream connection only with clients of the same user; no request is sent twice.

mod act;
mod client_command;
mod clients;
pub mod config;
mod connection;
mod decide;
mod directory;
mod flush;
mod intake;
mod lanes;
mod listener;
mod own;
mod own_link;
mod replies;
mod request;
mod session;
mod shared;
mod upkeep;
mod worker;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::{Poll, Waker};
use socket2::{Domain, SockRef, Socket, Type};

pub use config::Config;
use shared::{Mailbox, Message, Shared};
use worker::{MAIL, Worker};

/// Connections that wait to be accepted.
const LISTEN_BACKLOG: i32 = 1024;

/// A running proxy: its acceptor and its workers. Dropped without [`Proxy::shutdown`], it
/// closes every connection at once.
#[derive(Debug)]
pub struct Proxy {
    local_addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    listener: TcpListener,
    acceptor: Option<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
}

impl Proxy {
    /// Binds the listener and starts the threads. The upstream need not be up.
    pub fn start(config: Config) -> io::Result<Self> {
        let listener = listen(config.listen)?;
        let local_addr = listener.local_addr()?;
        let accepting = listener.try_clone()?;
        let mut mailboxes = Vec::new();
        let mut loops = Vec::new();
        for _ in 0..config.workers.max(1) {
            let poll = Poll::new()?;
            let waker = Arc::new(Waker::new(poll.registry(), MAIL)?);
            let (sender, mail) = mpsc::channel();
            mailboxes.push(Mailbox { sender, waker });
            loops.push((poll, mail));
        }
        let shared = Arc::new(Shared::new(config, mailboxes));
        let mut workers = Vec::new();
        for (index, (poll, mail)) in loops.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let work = move || match Worker::new(index, poll, mail, shared) {
                Ok(worker) => worker.run(),
                Err(error) => tracing::error!(%error, "a worker could not start"),
            };
            workers.push(thread::Builder::new().name(format!("worker-{index}")).spawn(work)?);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let acceptor = {
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(&stop));
            let accept = move || listener::accept_clients(&accepting, &shared, &stop);
            thread::Builder::new().name("acceptor".to_owned()).spawn(accept)?
        };
        Ok(Self { local_addr, shared, stop, listener, acceptor: Some(acceptor), workers })
    }

    /// The address clients connect to, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Stops accepting, lets requests in flight finish, then closes every connection.
    /// Returns how many requests were still unanswered when the bound passed.
    pub fn shutdown(mut self, bound: Duration) -> usize {
        self.end(bound)
    }

    fn end(&mut self, bound: Duration) -> usize {
        self.stop.store(true, Ordering::Release);
        if let Some(acceptor) = self.acceptor.take() {
            // The acceptor waits in `accept`, which this ends; it needs no further descriptor,
            // of which there may be none left.
            if let Err(error) = SockRef::from(&self.listener).shutdown(Shutdown::Both) {
                tracing::warn!(%error, "the listener could not be shut");
            }
            let _ = acceptor.join();
        }
        let until = Instant::now() + bound;
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Message::Drain(until));
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
        self.shared.unanswered.load(Ordering::Acquire)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket.into())
}
