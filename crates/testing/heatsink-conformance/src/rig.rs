//! Servers with Heatsink in front of them, in this process.
//!
//! ```no_run
//! use heatsink_conformance::Rig;
//! use heatsink_proxy::hot_keys::Treatment;
//!
//! let rig = Rig::cluster()
//!     .servers(|cluster| cluster.replicas_per_primary(0))
//!     .workers(2)
//!     .hot(&["k"], Treatment::COHERENT)
//!     .start();
//! rig.client().command(&["GET", "k"]);
//! ```
//!
//! Called by: every test that looks at Heatsink from a client's side.
//! Bound: shutdown waits at most `SHUTDOWN_BOUND`.
//! Invariant: the proxy ends before the servers, so that nothing is logged about a lost
//! upstream that only the end of the test lost.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use heatsink_detect::config::Settings;
use heatsink_proxy::config::{Config, Target, Upstream};
use heatsink_proxy::hot_keys::Treatment;
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

    /// Makes these keys hot, and no others; returns the version of this set.
    pub fn heat(&self, keys: &[impl AsRef<[u8]>], treatment: Treatment) -> u64 {
        let hot = keys.iter().map(|key| (key.as_ref().to_vec(), treatment)).collect();
        self.proxy().handle().set_hot_keys(hot)
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

/// What a Heatsink can be put before.
pub trait Servers {
    /// The servers with the Heatsink before them.
    type Rig;

    /// Starts the servers and the Heatsink.
    fn start(self, adjust: impl FnOnce(&mut Config)) -> Self::Rig;

    /// The Heatsink of a rig.
    fn heatsink(rig: &Self::Rig) -> &Heatsink;
}

impl Servers for RedisServerBuilder {
    type Rig = Rig;

    #[track_caller]
    fn start(self, adjust: impl FnOnce(&mut Config)) -> Rig {
        let server = self.start();
        let endpoint = Endpoint::tcp("127.0.0.1", server.port());
        let heatsink = Heatsink::before(Upstream::new(Target::Server(endpoint)), adjust);
        Rig { heatsink, server }
    }

    fn heatsink(rig: &Rig) -> &Heatsink {
        &rig.heatsink
    }
}

impl Servers for RedisClusterBuilder {
    type Rig = ClusterRig;

    #[track_caller]
    fn start(self, adjust: impl FnOnce(&mut Config)) -> ClusterRig {
        let cluster = self.start();
        let heatsink = Heatsink::before_url(&cluster.seed_url(), adjust);
        ClusterRig { heatsink, cluster }
    }

    fn heatsink(rig: &ClusterRig) -> &Heatsink {
        &rig.heatsink
    }
}

type Adjustment<'a> = Box<dyn FnOnce(&mut Config) + 'a>;

/// What is to be started; see [`Rig::one_server`] and [`Rig::cluster`].
#[must_use]
pub struct RigBuilder<'a, S> {
    servers: S,
    adjustments: Vec<Adjustment<'a>>,
    hot: Option<(Vec<Vec<u8>>, Treatment)>,
}

impl<'a, S: Servers> RigBuilder<'a, S> {
    /// Before these servers.
    pub fn before(servers: S) -> Self {
        Self { servers, adjustments: Vec::new(), hot: None }
    }

    /// Settings of the servers.
    pub fn servers(mut self, settings: impl FnOnce(S) -> S) -> Self {
        self.servers = settings(self.servers);
        self
    }

    /// Threads of the Heatsink.
    pub fn workers(self, workers: usize) -> Self {
        self.config(move |config| config.workers = workers)
    }

    /// How keys are counted.
    pub fn detect(self, settings: Settings) -> Self {
        self.config(|config| config.detect = Some(settings))
    }

    /// Any setting of the Heatsink; what is said later holds.
    pub fn config(mut self, adjust: impl FnOnce(&mut Config) + 'a) -> Self {
        self.adjustments.push(Box::new(adjust));
        self
    }

    /// Keys that are hot from the start.
    pub fn hot(mut self, keys: &[impl AsRef<[u8]>], treatment: Treatment) -> Self {
        let keys = keys.iter().map(|key| key.as_ref().to_vec()).collect();
        self.hot = Some((keys, treatment));
        self
    }

    /// Starts all of it.
    #[track_caller]
    pub fn start(self) -> S::Rig {
        let Self { servers, adjustments, hot } = self;
        let rig = servers.start(|config| adjustments.into_iter().for_each(|adjust| adjust(config)));
        if let Some((keys, treatment)) = hot {
            S::heatsink(&rig).heat(&keys, treatment);
        }
        rig
    }
}

/// A `redis-server` and a Heatsink that serves it.
pub struct Rig {
    heatsink: Heatsink,
    server: RedisServer,
}

impl Rig {
    /// One server, with a Heatsink before it.
    pub fn one_server<'a>() -> RigBuilder<'a, RedisServerBuilder> {
        RigBuilder::before(RedisServer::builder())
    }

    /// A cluster of three primaries with a replica each, with a Heatsink before it.
    pub fn cluster<'a>() -> RigBuilder<'a, RedisClusterBuilder> {
        RigBuilder::before(RedisCluster::builder())
    }

    /// One server and a Heatsink with `workers` threads.
    #[track_caller]
    pub fn new(workers: usize) -> Self {
        Self::one_server().workers(workers).start()
    }

    /// A server and a Heatsink, both with settings of their own.
    #[track_caller]
    pub fn with(settings: RedisServerBuilder, adjust: impl FnOnce(&mut Config)) -> Self {
        RigBuilder::before(settings).config(adjust).start()
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
    /// A cluster and a Heatsink, both with settings of their own.
    #[track_caller]
    pub fn with(settings: RedisClusterBuilder, adjust: impl FnOnce(&mut Config)) -> Self {
        RigBuilder::before(settings).config(adjust).start()
    }

    /// Three primaries with a replica each, and a Heatsink with `workers` threads.
    #[track_caller]
    pub fn new(workers: usize) -> Self {
        Rig::cluster().workers(workers).start()
    }

    /// A new connection to Heatsink.
    #[track_caller]
    pub fn client(&self) -> RawClient {
        self.heatsink.client()
    }
}
