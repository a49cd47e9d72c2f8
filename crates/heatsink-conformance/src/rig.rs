//! A server with Heatsink in front of it, in this process.
//!
//! Called by: every test that looks at Heatsink from a client's side.
//! Bound: shutdown waits at most `SHUTDOWN_BOUND`.
//! Invariant: the proxy ends before the server, so that nothing is logged about a lost
//! upstream that only the end of the test lost.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use heatsink_proxy::config::{Limits, Timeouts};
use heatsink_proxy::{Config, Proxy};
use heatsink_testkit::{RawClient, RedisServer, RedisServerBuilder};
use heatsink_upstream::address::{Endpoint, Upstream};

const SHUTDOWN_BOUND: Duration = Duration::from_secs(5);

/// A `redis-server` and a Heatsink that serves it.
pub struct Rig {
    proxy: Option<Proxy>,
    server: RedisServer,
    addr: SocketAddr,
}

impl Rig {
    /// Starts a server with default settings and a proxy with `workers` threads.
    #[track_caller]
    pub fn new(workers: usize) -> Self {
        Self::with_server(RedisServer::builder(), workers)
    }

    /// Starts a server with settings of its own and a proxy with `workers` threads.
    #[track_caller]
    pub fn with_server(settings: RedisServerBuilder, workers: usize) -> Self {
        Self::with(settings, |config| config.workers = workers)
    }

    /// Starts a server and a proxy, both with settings of their own.
    #[track_caller]
    pub fn with(settings: RedisServerBuilder, adjust: impl FnOnce(&mut Config)) -> Self {
        let server = settings.start();
        let mut config = Config {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            upstream: Upstream {
                endpoint: Endpoint::tcp("127.0.0.1", server.port()),
                credentials: None,
                db: 0,
            },
            workers: 1,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
        };
        adjust(&mut config);
        let proxy = Proxy::start(config).expect("a free port can be bound");
        let addr = proxy.local_addr();
        Self { proxy: Some(proxy), server, addr }
    }

    /// Where clients of Heatsink connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The server behind, for looking past Heatsink.
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// The server behind, for stopping it.
    pub fn server_mut(&mut self) -> &mut RedisServer {
        &mut self.server
    }

    /// Shuts Heatsink down; returns how many requests it left unanswered.
    pub fn shutdown(&mut self, bound: Duration) -> usize {
        self.proxy.take().map_or(0, |proxy| proxy.shutdown(bound))
    }

    /// A new connection to Heatsink.
    #[track_caller]
    pub fn client(&self) -> RawClient {
        RawClient::connect(self.addr)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.shutdown(SHUTDOWN_BOUND);
        }
    }
}
