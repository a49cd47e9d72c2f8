//! Where the upstream is and who we are there: parsed from the URL a user typed.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::sync::Arc;

/// An upstream URL as a user writes it; `embedded://` or `redis://[user:pass@]host[:port][/db]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Url {
    /// The in-process store.
    Embedded,
    /// One Redis or Valkey server.
    Server(ServerUrl),
}

/// The parts of a `redis://` URL.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port, 6379 unless given.
    pub port: u16,
    /// Credentials for clients that do not authenticate themselves.
    pub credentials: Option<Credentials>,
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

/// Everything needed to open a connection to the upstream on behalf of nobody in particular.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Where to connect.
    pub endpoint: Endpoint,
    /// Used for clients that do not authenticate.
    pub credentials: Option<Credentials>,
    /// Database such clients start in.
    pub db: u32,
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
        write!(f, "redis://{}/{}", Endpoint::tcp(&self.host, self.port), self.db)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded://"),
            Self::Server(server) => server.fmt(f),
        }
    }
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
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ServerUrl> for Upstream {
    fn from(url: ServerUrl) -> Self {
        Self {
            endpoint: Endpoint::Tcp { host: url.host, port: url.port },
            credentials: url.credentials,
            db: url.db,
        }
    }
}

/// What is wrong with an upstream URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError(String);

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UrlError {}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let fail = |what: String| Err(UrlError(what));
        let Some((scheme, rest)) = text.split_once("://") else {
            return fail(
                "not a URL: expected redis://[user:pass@]host:port[/db] or embedded://".to_owned(),
            );
        };
        match scheme {
            "embedded" if rest.is_empty() || rest == "/" => return Ok(Self::Embedded),
            "embedded" => return fail("embedded:// takes no host".to_owned()),
            "redis" => {}
            "rediss" | "redis+cluster" | "redis+sentinel" => {
                return fail(format!("{scheme}:// is not supported by this version"));
            }
            _ => return fail(format!("unknown scheme {scheme}://; use redis:// or embedded://")),
        }
        let (authority, db) = match rest.split_once('/') {
            None | Some((_, "")) => (rest.trim_end_matches('/'), 0),
            Some((authority, db)) => match db.parse() {
                Ok(db) => (authority, db),
                Err(_) => return fail(format!("database {db:?} is not a number")),
            },
        };
        let (credentials, host_port) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((user_info, host_port)) => {
                let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
                let user = if user.is_empty() { None } else { Some(percent_decode(user)?) };
                let credentials = Credentials { user, password: percent_decode(password)? };
                (Some(credentials), host_port)
            }
        };
        let (host, port) = split_host_port(host_port)?;
        Ok(Self::Server(ServerUrl { host, port, credentials, db }))
    }
}

fn split_host_port(text: &str) -> Result<(String, u16), UrlError> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((host, after)) = rest.split_once(']') else {
            return Err(UrlError(format!("missing ] in {text:?}")));
        };
        (host, after.strip_prefix(':'))
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err(UrlError("no host given".to_owned()));
    }
    let port = match port {
        None | Some("") => 6379,
        Some(port) => match port.parse() {
            Ok(port) if port != 0 => port,
            _ => return Err(UrlError(format!("port {port:?} is not a number from 1 to 65535"))),
        },
    };
    Ok((host.to_owned(), port))
}

fn percent_decode(text: &str) -> Result<Vec<u8>, UrlError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => decoded.push((high * 16 + low) as u8),
            _ => return Err(UrlError("% in user or password needs two hex digits".to_owned())),
        }
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> ServerUrl {
        match text.parse() {
            Ok(Url::Server(server)) => server,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn urls_are_taken_apart() {
        assert_eq!("embedded://".parse(), Ok(Url::Embedded));
        let plain = server("redis://localhost");
        assert_eq!((plain.host.as_str(), plain.port, plain.db), ("localhost", 6379, 0));
        let full = server("redis://bob:p%40ss@[::1]:7000/3");
        assert_eq!((full.host.as_str(), full.port, full.db), ("::1", 7000, 3));
        assert_eq!(
            full.credentials,
            Some(Credentials { user: Some(b"bob".to_vec()), password: b"p@ss".to_vec() })
        );
        assert_eq!(full.to_string(), "redis://[::1]:7000/3");
        let only_password = server("redis://:secret@h:1");
        assert_eq!(only_password.credentials.map(|c| c.user), Some(None));
    }

    #[test]
    fn passwords_are_not_shown() {
        let url = server("redis://bob:hunter2@h:1");
        assert!(!format!("{url:?} {:?} {url}", url.credentials).contains("hunter2"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("localhost:6379", "not a URL"),
            ("http://h", "unknown scheme"),
            ("redis://", "no host"),
            ("redis://h:0", "port"),
            ("redis://h:99999", "port"),
            ("redis://h/x", "database"),
            ("redis://a:%zz@h", "hex"),
            ("redis+cluster://h", "not supported"),
        ] {
            let error = text.parse::<Url>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
