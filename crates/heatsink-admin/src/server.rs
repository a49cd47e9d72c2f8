//! The listener and its connections.
//!
//! Called by: the process, with a listener that is bound already, so that it can be handed
//! over and tests need no fixed port.
//! Bound: [`crate::Limits`]: connections at a time, time for headers, time for a peer to take
//! what was sent to it, grace at the end.
//! Invariant: never open to another machine without a token.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::api::{self, Shared};
use crate::control::Control;
use crate::settings::{Limits, Settings};

/// Bytes of a request's line and headers: room for a key of some thousand bytes,
/// percent-encoded.
const HEAD_BYTES: usize = 32 * 1024;

/// Headers of a request.
const HEADERS: usize = 64;

/// The HTTP side, ready to run.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    router: Router,
    shared: Arc<Shared>,
    limits: Limits,
    stopping: watch::Sender<bool>,
}

/// Why a server cannot be started.
#[derive(Debug)]
pub enum StartError {
    /// It would be open to other machines.
    TokenNeeded(SocketAddr),
    /// The listener cannot be used.
    Listener(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenNeeded(address) => write!(
                f,
                "the admin address {address} can be reached from other machines: configure a \
                 token, or listen on loopback (127.0.0.1)"
            ),
            Self::Listener(error) => write!(f, "the admin listener cannot be used: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl Server {
    /// A server on `listener`, over `control`.
    pub fn new(
        listener: std::net::TcpListener,
        settings: Settings,
        control: Arc<dyn Control>,
    ) -> Result<Self, StartError> {
        let address = listener.local_addr().map_err(StartError::Listener)?;
        listener.set_nonblocking(true).map_err(StartError::Listener)?;
        if settings.token.is_none() && !address.ip().to_canonical().is_loopback() {
            return Err(StartError::TokenNeeded(address));
        }
        let limits = settings.limits;
        let (stopping, stopped) = watch::channel(false);
        let shared = Arc::new(Shared::new(control, settings, stopped));
        let router = api::router(&shared);
        Ok(Self { listener, address, router, shared, limits, stopping })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is done; then takes no more connections, ends the streams of
    /// events, and waits for open requests as long as the grace allows.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let slots = Arc::new(Semaphore::new(self.limits.connections));
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        // Ends with this function, whichever way it ends.
        let mut recorder = JoinSet::new();
        recorder.spawn(api::record(self.shared));
        let mut shutdown = pin!(shutdown);
        let mut protocol = http1::Builder::new();
        protocol
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.read_timeout)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEADERS);
        loop {
            let (stream, slot) = tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&listener, &slots) => accepted,
            };
            limit_unread(&stream, self.limits.read_timeout);
            let service = TowerToHyperService::new(self.router.clone());
            let connection =
                graceful.watch(protocol.serve_connection(TokioIo::new(stream), service));
            connections.spawn(async move {
                // An error is the peer's doing: it broke off, was too slow, or spoke no HTTP.
                let _ = connection.await;
                drop(slot);
            });
        }
        drop(listener);
        self.stopping.send_replace(true);
        let _ = tokio::time::timeout(self.limits.shutdown_grace, graceful.shutdown()).await;
        // What is left is aborted with the set.
        Ok(())
    }
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            // Out of descriptors, or a peer that is gone already: go on, but not in circles.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Has the kernel end a connection whose peer takes nothing of what was sent to it. Best
/// effort: where the system cannot, the number of connections is still bounded.
fn limit_unread(stream: &TcpStream, limit: Duration) {
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(limit));
    #[cfg(not(target_os = "linux"))]
    let _ = limit;
}
