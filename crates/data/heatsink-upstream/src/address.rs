//! Where the upstream is and who we are there: parsed from the URL a user typed.
//!
//! Called by: the configuration, which parses; whoever connects, with the parts.
//! Invariant: neither `Debug` nor `Display` nor an error shows a password.

mod parse;

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

pub use parse::UrlError;

/// An upstream URL as a user writes it.
///
/// | form | upstream |
/// |---|---|
/// | `embedded://` | the in-process store |
/// | `redis://[user:pass@]host[:port][/db]` | one server |
/// | `redis+cluster://[user:pass@]host[:port][,host[:port]...]` | a cluster, from these nodes on |
/// | `redis+sentinel://[user:pass@]host[:port][,...]/name[/db][?sentinel_user=..&sentinel_password=..]` | the primary called `name` |
///
/// With `rediss` for `redis` every connection is encrypted, those to sentinels too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Url {
    /// The in-process store.
    Embedded,
    /// One Redis or Valkey server.
    Server(ServerUrl),
    /// A Redis or Valkey cluster.
    Cluster(ClusterUrl),
    /// A primary that sentinels watch.
    Sentinel(SentinelUrl),
}

impl Url {
    /// Whether both lead to the same server, cluster or primary, whoever logs in there.
    pub fn is_same_server(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Server(one), Self::Server(other)) => {
                (&one.host, one.port) == (&other.host, other.port)
            }
            (Self::Cluster(one), Self::Cluster(other)) => {
                one.seeds.iter().any(|seed| other.seeds.contains(seed))
            }
            (Self::Sentinel(one), Self::Sentinel(other)) => {
                let meet = one.sentinels.iter().any(|sentinel| other.sentinels.contains(sentinel));
                one.name == other.name && meet
            }
            _ => false,
        }
    }
}

/// The parts of a `redis://` or `rediss://` URL.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port, 6379 unless given.
    pub port: u16,
    /// Whether to speak TLS.
    pub tls: bool,
    /// Credentials for clients that do not authenticate themselves.
    pub credentials: Option<Credentials>,
    /// Database of clients that did not `SELECT` another one.
    pub db: u32,
}

/// The parts of a `redis+cluster://` or `rediss+cluster://` URL. A cluster has no databases.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterUrl {
    /// Nodes to learn the others from: host without brackets, and port (6379 unless given).
    /// Never empty.
    pub seeds: Vec<(String, u16)>,
    /// Whether to speak TLS to all nodes.
    pub tls: bool,
    /// Credentials, the same on all nodes, for clients that do not authenticate themselves.
    pub credentials: Option<Credentials>,
}

/// The parts of a `redis+sentinel://` or `rediss+sentinel://` URL.
#[derive(Clone, PartialEq, Eq)]
pub struct SentinelUrl {
    /// Sentinels to ask: host without brackets, and port (26379 unless given). Never empty.
    pub sentinels: Vec<(String, u16)>,
    /// What the sentinels call the primary.
    pub name: String,
    /// Whether to speak TLS to the servers and to the sentinels.
    pub tls: bool,
    /// Credentials on the servers, for clients that do not authenticate themselves.
    pub credentials: Option<Credentials>,
    /// Credentials on the sentinels themselves.
    pub sentinel_credentials: Option<Credentials>,
    /// Database of clients that did not `SELECT` another one.
    pub db: u32,
}

/// A user name and password, as sent with `AUTH`. `Debug` never shows the password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// ACL user; `None` for the old form with only a password, which means the default user
    /// but is refused where that user has no password.
    pub user: Option<Vec<u8>>,
    /// Password in the clear: it has to be sent again on every new connection.
    pub password: Vec<u8>,
}

/// Where an upstream listens.
#[derive(Clone)]
pub enum Endpoint {
    /// A TCP server.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A store in this process, which hands out one end of a socket pair per connection.
    InProcess(Arc<dyn Dial>),
    /// Not known yet; what is known of it is a description.
    Unknown(String),
}

/// A store in this process that can be connected to.
pub trait Dial: Send + Sync {
    /// Opens a connection; the store serves the other end.
    fn dial(&self) -> io::Result<UnixStream>;
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &String::from_utf8_lossy(self.user_name()))
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// The user these credentials are for.
    pub fn user_name(&self) -> &[u8] {
        self.user.as_deref().unwrap_or(b"default")
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Shown without credentials.
impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = scheme(self.tls);
        write!(f, "{scheme}://{}/{}", Endpoint::tcp(&self.host, self.port), self.db)
    }
}

impl fmt::Debug for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Shown without credentials.
impl fmt::Display for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+cluster://{}", scheme(self.tls), host_list(&self.seeds))
    }
}

impl fmt::Debug for SentinelUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Shown without credentials.
impl fmt::Display for SentinelUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, hosts) = (scheme(self.tls), host_list(&self.sentinels));
        write!(f, "{scheme}+sentinel://{hosts}/{}/{}", self.name, self.db)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded://"),
            Self::Server(server) => server.fmt(f),
            Self::Cluster(cluster) => cluster.fmt(f),
            Self::Sentinel(sentinel) => sentinel.fmt(f),
        }
    }
}

fn scheme(tls: bool) -> &'static str {
    if tls { "rediss" } else { "redis" }
}

fn host_list(hosts: &[(String, u16)]) -> String {
    let shown: Vec<String> =
        hosts.iter().map(|(host, port)| Endpoint::tcp(host, *port).to_string()).collect();
    shown.join(",")
}

impl Endpoint {
    /// A TCP endpoint.
    pub fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp { host: host.to_owned(), port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::InProcess(_) => f.write_str("embedded"),
            Self::Unknown(what) => f.write_str(what),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
