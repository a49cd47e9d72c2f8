//! What the data plane is told at start. Every value is already validated by the caller.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use heatsink_tls::{ClientTls, ServerTls};
use heatsink_upstream::address::{Credentials, Endpoint, SentinelUrl, Url};
use heatsink_users::Users;

/// Settings of one proxy.
#[derive(Debug)]
pub struct Config {
    /// Where clients connect, unencrypted.
    pub listen: Listen,
    /// Where clients connect with TLS.
    pub listen_tls: Option<(Listen, ServerTls)>,
    /// The Redis side.
    pub upstream: Upstream,
    /// Who checks the passwords of clients.
    pub auth: Auth,
    /// The address that cluster clients are told; the one they connected to if `None`.
    pub announce: Option<(String, u16)>,
    /// Worker threads, at least one.
    pub workers: usize,
    /// How keys are counted; `None` counts nothing. Valid, see
    /// [`heatsink_detect::config::Settings::validate`].
    pub detect: Option<heatsink_detect::config::Settings>,
    /// Upstream connections of all workers together from which on clients get none of their own, so
    /// that descriptors are left for others.
    pub max_links: usize,
    /// What can be changed while the proxy runs.
    pub live: Live,
}

impl Config {
    /// Clients at `listen` before `upstream`; everything else at its default.
    pub fn new(listen: SocketAddr, upstream: Upstream) -> Self {
        Self {
            listen: Listen::Address(listen),
            listen_tls: None,
            upstream,
            auth: Auth::PassThrough,
            announce: None,
            workers: 1,
            detect: None,
            max_links: usize::MAX,
            live: Live::default(),
        }
    }
}

/// Where to accept clients.
#[derive(Debug)]
pub enum Listen {
    /// At this address; port 0 picks a free one.
    Address(SocketAddr),
    /// On a socket that is listening already, such as one taken over from another process.
    Socket(TcpListener),
}

/// The Redis side.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Where it is.
    pub target: Target,
    /// Used for clients that do not authenticate.
    pub credentials: Option<Credentials>,
    /// Database such clients start in.
    pub db: u32,
    /// How to encrypt, if at all.
    pub tls: Option<ClientTls>,
}

impl Upstream {
    /// Without credentials and TLS.
    pub fn new(target: Target) -> Self {
        Self { target, credentials: None, db: 0, tls: None }
    }

    /// What a URL says, encrypted as `tls` says if the URL asks for it. `None` for
    /// `embedded://`, which is no address.
    pub fn from_url(url: Url, tls: Option<ClientTls>) -> Option<Self> {
        let (target, credentials, db, encrypted) = match url {
            Url::Embedded => return None,
            Url::Server(url) => {
                let endpoint = Endpoint::tcp(&url.host, url.port);
                (Target::Server(endpoint), url.credentials, url.db, url.tls)
            }
            Url::Cluster(url) => (Target::Cluster(url.seeds), url.credentials, 0, url.tls),
            Url::Sentinel(url) => {
                let (credentials, db, encrypted) = (url.credentials.clone(), url.db, url.tls);
                (Target::Sentinel(url), credentials, db, encrypted)
            }
        };
        Some(Self { target, credentials, db, tls: tls.filter(|_| encrypted) })
    }
}

/// Where the Redis side is.
#[derive(Clone, Debug)]
pub enum Target {
    /// One server.
    Server(Endpoint),
    /// A cluster; these nodes tell of the others.
    Cluster(Vec<(String, u16)>),
    /// The primary that sentinels tell of.
    Sentinel(SentinelUrl),
}

/// Who checks the passwords of clients.
#[derive(Clone, Debug, Default)]
pub enum Auth {
    /// The servers: each client is there what it says it is.
    #[default]
    PassThrough,
    /// Heatsink, by its own list; to the servers all clients are the user of the upstream URL.
    Service(Users),
}

/// Settings that can be changed while the proxy runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// Bounds on what a client may use.
    pub limits: Limits,
    /// Bounds on how long things may take.
    pub timeouts: Timeouts,
    /// What keys may be treated how; the first rule that matches holds.
    pub policy: Arc<[Rule]>,
    /// Keys that no rule matches are counted.
    pub counts_others: bool,
    /// Bounds of what is cached of hot keys.
    pub local_cache: LocalCache,
    /// Bounds of requests that wait for each other.
    pub coalesce: Coalesce,
    /// The thresholds of these hold from now on; `None` leaves them as they are. What else they
    /// say is looked at only when the proxy starts, in [`Config::detect`].
    pub detect: Option<heatsink_detect::config::Settings>,
}

/// Bounds of requests for hot keys that wait for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coalesce {
    /// In mode `relaxed`: a read that has waited so long gets what was read before.
    pub max_wait: Duration,
    /// What a read gets that has waited too long is not older, where old is allowed at all.
    pub max_stale: Duration,
}

impl Default for Coalesce {
    fn default() -> Self {
        Self { max_wait: Duration::from_secs(1), max_stale: Duration::from_secs(10) }
    }
}

/// Bounds of what is cached of hot keys, all workers together.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalCache {
    /// Replies.
    pub entries: usize,
    /// Bytes of requests and replies.
    pub max_bytes: u64,
    /// Age of a reply.
    pub max_ttl: Duration,
    /// Age of a reply, as a fraction of the time that the key had left to live.
    pub ttl_fraction: f64,
}

impl Default for LocalCache {
    fn default() -> Self {
        Self {
            entries: 2048,
            max_bytes: 64 << 20,
            max_ttl: Duration::from_secs(60),
            ttl_fraction: 0.2,
        }
    }
}

impl Default for Live {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            policy: Arc::default(),
            counts_others: true,
            local_cache: LocalCache::default(),
            coalesce: Coalesce::default(),
            detect: None,
        }
    }
}

/// What keys of a pattern may be treated how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// A glob, as in Redis.
    pub pattern: Box<[u8]>,
    /// Reads may be answered by replicas.
    pub replica_reads: bool,
    /// Requests are counted.
    pub counted: bool,
}

/// Bounds on what a client may use. Over a limit the client gets an error and is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open client connections, all workers together.
    pub max_clients: usize,
    /// Bytes of one request, all arguments together.
    pub max_request_bytes: u64,
    /// Bytes of one argument.
    pub max_bulk_bytes: u64,
    /// Arguments of one request.
    pub max_args: u64,
    /// Arguments of one request before authentication.
    pub unauthenticated_max_args: u64,
    /// Bytes of one request before authentication.
    pub unauthenticated_max_bytes: u64,
    /// Reply bytes a client has not read yet.
    pub max_output_bytes: u64,
    /// Reply bytes that all clients together have not read yet; over it, the slowest are closed.
    pub max_total_output_bytes: u64,
    /// Bytes of requests that are not complete, or have to wait, of all clients together; over it,
    /// those with most of them are closed.
    pub max_total_input_bytes: u64,
    /// Close a client that was silent this long; `None` keeps it.
    pub idle: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_clients: 10_000,
            max_request_bytes: 1 << 30,
            max_bulk_bytes: 512 << 20,
            max_args: 1 << 20,
            unauthenticated_max_args: 10,
            unauthenticated_max_bytes: 16 << 10,
            max_output_bytes: 512 << 20,
            max_total_output_bytes: 1 << 30,
            max_total_input_bytes: 1 << 30,
            idle: None,
        }
    }
}

/// Bounds on how long things may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Connect and handshake, to the servers.
    pub connect: Duration,
    /// Requests wait for replies and the server sends nothing at all: the connection is
    /// given up. `None` waits for ever.
    pub silence: Option<Duration>,
    /// A request that a cluster cannot execute at the moment (`TRYAGAIN`, `CLUSTERDOWN`) is
    /// tried again this long.
    pub cluster_retry: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            silence: Some(Duration::from_secs(10)),
            cluster_retry: Duration::from_secs(1),
        }
    }
}
