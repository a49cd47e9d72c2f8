//! The listener and its connections.
//!
//! Called by: the process, with a listener that is bound already, so that it can be handed
//! over and tests need no fixed port.
//! Bound: [`crate::Limits`]: connections at a time (see [`crate::peers`]), time for headers, time for a peer to take
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
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::{self, Shared};
use crate::control::Control;
use crate::peers::{Peer, Peers};
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
        let peers = Peers::new(self.limits.strangers, self.limits.connections);
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
            let (stream, address) = tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&listener) => accepted,
            };
            limit_unread(&stream, self.limits.read_timeout);
            let visit = peers.arrived(address);
            let service = PeerService {
                routes: TowerToHyperService::new(self.router.clone()),
                peer: Arc::clone(&visit.0),
            };
            let connection =
                graceful.watch(protocol.serve_connection(TokioIo::new(stream), service));
            connections.spawn(async move {
                tokio::select! {
                    // An error is the peer's doing: it broke off, was too slow, or spoke no HTTP.
                    _ = connection => {}
                    () = visit.0.is_sent_away() => {}
                }
            });
            // What has arrived of it is read before the next one comes, who may have it sent away.
            tokio::task::yield_now().await;
        }
        drop(listener);
        self.stopping.send_replace(true);
        let _ = tokio::time::timeout(self.limits.shutdown_grace, graceful.shutdown()).await;
        // What is left is aborted with the set.
        Ok(())
    }
}

/// The routes, for one connection: each request carries who sent it.
struct PeerService {
    routes: TowerToHyperService<Router>,
    peer: Arc<Peer>,
}

impl Service<Request<Incoming>> for PeerService {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.peer));
        self.routes.call(request)
    }
}

/// The next connection.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
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
