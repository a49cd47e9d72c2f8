//! Servers with Heatsink in front of them, in this process.
//!
//! Called by: every test that looks at Heatsink from a client's side.
//! Bound: shutdown waits at most `SHUTDOWN_BOUND`.
//! Invariant: the proxy ends before the servers, so that nothing is logged about a lost
//! upstream that only the end of the test lost.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use heatsink_detect::config::Settings;
use heatsink_proxy::config::{Config, Target, Upstream};
use heatsink_proxy::{Detector, Proxy};
use heatsink_testkit::{
    RawClient, RedisCluster, RedisClusterBuilder, RedisServer, RedisServerBuilder,
};
use heatsink_upstream::address::Endpoint;

const SHUTDOWN_BOUND: Duration = Duration::from_secs(5);

/// A Heatsink before whatever it was told.
pub struct Heatsink {
    proxy: Option<Proxy>,
    addr: SocketAddr,
}

impl Heatsink {
    /// Starts one before `upstream`, with settings of its own.
    #[track_caller]
    pub fn before(upstream: Upstream, adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new((Ipv4Addr::LOCALHOST, 0).into(), upstream);
        config.detect = Some(Settings::default());
        adjust(&mut config);
        let proxy = Proxy::start(config).expect("a free port can be bound");
        let addr = proxy.local_addr();
        Self { proxy: Some(proxy), addr }
    }

    /// Starts one before what a URL says, without TLS.
    #[track_caller]
    pub fn before_url(url: &str, adjust: impl FnOnce(&mut Config)) -> Self {
        let url = url.parse().expect("a URL");
        let upstream = Upstream::from_url(url, None).expect("not the embedded store");
        Self::before(upstream, adjust)
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What its workers count; only the first call gets it.
    pub fn take_detector(&mut self) -> Option<Detector> {
        self.proxy.as_mut()?.take_detector()
    }

    /// The proxy itself.
    pub fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("not shut down yet")
    }

    /// A new connection.
    #[track_caller]
    pub fn client(&self) -> RawClient {
        RawClient::connect(self.addr)
    }

    /// Shuts it down; returns how many requests it left unanswered.
    pub fn shutdown(&mut self, bound: Duration) -> usize {
        self.proxy.take().map_or(0, |proxy| proxy.shutdown(bound))
    }
}

impl Drop for Heatsink {
    fn drop(&mut self) {
        self.shutdown(SHUTDOWN_BOUND);
    }
}

/// A `redis-server` and a Heatsink that serves it.
pub struct Rig {
    heatsink: Heatsink,
    server: RedisServer,
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
        let endpoint = Endpoint::tcp("127.0.0.1", server.port());
        let heatsink = Heatsink::before(Upstream::new(Target::Server(endpoint)), adjust);
        Self { heatsink, server }
    }

    /// Where clients of Heatsink connect.
    pub fn addr(&self) -> SocketAddr {
        self.heatsink.addr()
    }

    /// The server behind, for looking past Heatsink.
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// The server behind, for stopping it.
    pub fn server_mut(&mut self) -> &mut RedisServer {
        &mut self.server
    }

    /// The Heatsink in front.
    pub fn heatsink(&self) -> &Heatsink {
        &self.heatsink
    }

    /// The Heatsink in front, for taking something from it.
    pub fn heatsink_mut(&mut self) -> &mut Heatsink {
        &mut self.heatsink
    }

    /// Shuts Heatsink down; returns how many requests it left unanswered.
    pub fn shutdown(&mut self, bound: Duration) -> usize {
        self.heatsink.shutdown(bound)
    }

    /// A new connection to Heatsink.
    #[track_caller]
    pub fn client(&self) -> RawClient {
        self.heatsink.client()
    }
}

/// A cluster and a Heatsink that serves it.
pub struct ClusterRig {
    /// In front; it ends first.
    pub heatsink: Heatsink,
    /// Behind.
    pub cluster: RedisCluster,
}

impl ClusterRig {
    /// Starts a cluster and a proxy, both with settings of their own.
    #[track_caller]
    pub fn with(settings: RedisClusterBuilder, adjust: impl FnOnce(&mut Config)) -> Self {
        let cluster = settings.start();
        let heatsink = Heatsink::before_url(&cluster.seed_url(), adjust);
        Self { heatsink, cluster }
    }

    /// Three primaries with a replica each, and a proxy with `workers` threads.
    #[track_caller]
    pub fn new(workers: usize) -> Self {
        Self::with(RedisCluster::builder(), |config| config.workers = workers)
    }

    /// A new connection to Heatsink.
    #[track_caller]
    pub fn client(&self) -> RawClient {
        self.heatsink.client()
    }
}
