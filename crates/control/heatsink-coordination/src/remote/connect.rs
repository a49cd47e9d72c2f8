//! Opens a connection to a server and checks that it is the right one.
//!
//! Called by: `link`, for calls; `subscriber`, for its own; `locate`, to ask nodes.
//! Bound: [`STEP_TIMEOUT`] for one server, with at most [`HOPS`] from one to the next.
//! Invariant: a connection that is handed out has answered the pulse: it leads to a server
//! that takes writes for our slot.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heatsink_upstream::address::{Credentials, Endpoint, Url};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushInfo, RedisConnectionInfo,
    RedisError, ServerErrorKind, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::locate::Target;
use super::scripts::{Call, Source};
use super::tls::{Tls, TlsFiles};
use super::wire;
use crate::error::StoreError;
use crate::seal::Seal;
use crate::settings::{Names, Settings, SettingsError};

/// How long dialling one server and asking it something may take.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(1);
/// How often one attempt follows a redirection.
const HOPS: usize = 3;

/// A host and port.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Endpoint::tcp(&self.host, self.port).fmt(f)
    }
}

/// Where the store is and how to get in.
pub(super) struct Place {
    pub(super) target: Target,
    pub(super) names: Names,
    /// Nodes of a cluster that were named by others, the best one first.
    pub(super) heard_of: Mutex<Vec<Address>>,
    pub(super) seal: Arc<Seal>,
    settings: Settings,
    login: RedisConnectionInfo,
    pub(super) sentinel_login: RedisConnectionInfo,
    tls: Option<Tls>,
}

/// What happens with what a server says unasked.
pub(super) type OnPush = Box<dyn Fn(PushInfo) + Send + Sync>;

/// A connection that answered.
#[derive(Clone)]
pub(super) struct Line {
    connection: MultiplexedConnection,
    /// Keeps the socket until the last clone is gone, and no longer.
    _driver: Arc<Driver>,
    pub(super) address: Address,
    /// The other end of the socket: a server may be known under several names.
    peer: SocketAddr,
    /// Whether to use sharded channels.
    pub(super) sharded: bool,
}

/// The task that reads and writes. It would wait for outstanding answers for ever.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Place {
    pub(super) fn new(
        target: &Url,
        tls: Option<&TlsFiles>,
        settings: Settings,
    ) -> Result<Self, SettingsError> {
        let (db, uses_tls, credentials, sentinel_credentials) = match target {
            Url::Embedded => return Err(SettingsError::Embedded),
            Url::Server(url) => (url.db, url.tls, &url.credentials, &None),
            Url::Cluster(url) => (0, url.tls, &url.credentials, &None),
            Url::Sentinel(url) => (url.db, url.tls, &url.credentials, &url.sentinel_credentials),
        };
        let no_files = TlsFiles::default();
        let tls = uses_tls.then(|| Tls::new(tls.unwrap_or(&no_files))).transpose()?;
        // Messages arrive beside answers in the newer protocol only; a Sentinel sends none.
        let login = login(credentials.as_ref(), ProtocolVersion::RESP3)?.set_db(i64::from(db));
        Ok(Self {
            target: Target::new(target),
            names: Names::new(settings.namespace(), db),
            heard_of: Mutex::new(Vec::new()),
            seal: Arc::new(Seal::new(&settings)),
            settings,
            login,
            sentinel_login: self::login(sentinel_credentials.as_ref(), ProtocolVersion::RESP2)?,
            tls,
        })
    }

    pub(super) fn login(&self) -> &RedisConnectionInfo {
        &self.login
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Finds the server, connects to it and has it run a script that only the right one runs.
    /// `on_push` is called by the connection's task and must not wait.
    pub(super) async fn connect(
        &self,
        on_push: impl Fn() -> OnPush,
        pulse: &'static Source,
    ) -> Result<Line, StoreError> {
        let mut redirected_to = None;
        for _ in 0..HOPS {
            let address = match redirected_to.take() {
                Some(address) => address,
                None => self.locate().await?,
            };
            let mut line = self.dial(&address, &self.login, Some(on_push())).await?;
            if matches!(self.target, Target::Cluster(_)) {
                line.sharded = within(&address, line.knows_sharded_channels()).await??;
            }
            match within(&address, line.call(&Call::once(pulse), &self.names)).await? {
                Ok(_) => return Ok(line),
                Err(error) => match moved_to(&error, &address) {
                    Some(next) => redirected_to = Some(next),
                    None => return Err(failure(&address, &error)),
                },
            }
        }
        Err(StoreError::unreachable(format!("{self}: redirected again and again")))
    }

    /// Connects to one server and logs in.
    pub(super) async fn dial(
        &self,
        address: &Address,
        login: &RedisConnectionInfo,
        on_push: Option<OnPush>,
    ) -> Result<Line, StoreError> {
        within(address, self.dial_unbounded(address, login, on_push)).await?
    }

    async fn dial_unbounded(
        &self,
        address: &Address,
        login: &RedisConnectionInfo,
        on_push: Option<OnPush>,
    ) -> Result<Line, StoreError> {
        let fault = |why: String| StoreError::unreachable(format!("{address}: {why}"));
        let (stream, peer) = self.stream(address).await.map_err(fault)?;
        let mut config = AsyncConnectionConfig::new().set_response_timeout(None);
        if let Some(on_push) = on_push {
            let sender = move |push: PushInfo| -> Result<(), ()> {
                on_push(push);
                Ok(())
            };
            config = config.set_push_sender(sender);
        }
        let (connection, driver) = MultiplexedConnection::new_with_config(login, stream, config)
            .await
            .map_err(|error| failure(address, &error))?;
        let driver = Arc::new(Driver(tokio::spawn(driver)));
        let address = address.clone();
        Ok(Line { connection, _driver: driver, address, peer, sharded: false })
    }

    async fn stream(&self, address: &Address) -> Result<(Box<dyn Stream>, SocketAddr), String> {
        let connect = async {
            let socket = TcpStream::connect((address.host.as_str(), address.port)).await?;
            socket.set_nodelay(true)?;
            let peer = socket.peer_addr()?;
            Ok::<_, io::Error>((socket, peer))
        };
        let (socket, peer) = connect.await.map_err(|error| error.to_string())?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => Box::new(tls.connect(socket, &address.host).await?),
            None => Box::new(socket),
        };
        Ok((stream, peer))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

impl Line {
    pub(super) fn is_same_server(&self, other: &Self) -> bool {
        self.address == other.address || self.peer == other.peer
    }

    /// Sends a command and waits for its answer.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        command.query_async(&mut self.connection.clone()).await
    }

    /// The question how many listen to a channel.
    pub(super) fn count_subscribers(&self, channel: &str) -> Cmd {
        let mut question = redis::cmd("PUBSUB");
        question.arg(if self.sharded { "SHARDNUMSUB" } else { "NUMSUB" }).arg(channel);
        question
    }

    /// Whether the server has sharded channels: a cluster before Redis 7 has none.
    async fn knows_sharded_channels(&self) -> Result<bool, StoreError> {
        let mut question = redis::cmd("COMMAND");
        question.arg("INFO").arg("SPUBLISH");
        let reply = self.send(&question).await;
        let reply = reply.map_err(|error| failure(&self.address, &error))?;
        Ok(matches!(wire::items(&reply)?, [Value::Array(_)]))
    }

    /// Makes a call; a script that the server does not know is sent whole.
    pub(super) async fn call(&self, call: &Call, names: &Names) -> Result<Value, RedisError> {
        let result = self.send(&call.command(names, self.sharded)).await;
        let is_unknown =
            |error: &RedisError| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript);
        match (result, call.whole_command(names, self.sharded)) {
            (Err(error), Some(whole)) if is_unknown(&error) => self.send(&whole).await,
            (result, _) => result,
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

fn login(
    credentials: Option<&Credentials>,
    protocol: ProtocolVersion,
) -> Result<RedisConnectionInfo, SettingsError> {
    // Naming the client library would need a right that is of no use otherwise.
    let login = RedisConnectionInfo::default().set_protocol(protocol).set_skip_set_lib_name();
    let Some(credentials) = credentials else {
        return Ok(login);
    };
    let utf8 = |bytes| std::str::from_utf8(bytes).map_err(|_| SettingsError::Credentials);
    let login = login.set_password(utf8(&credentials.password)?);
    Ok(match &credentials.user {
        Some(user) => login.set_username(utf8(user)?),
        None => login,
    })
}

/// Bounds a step with one server.
pub(super) async fn within<T>(
    address: &Address,
    step: impl Future<Output = T>,
) -> Result<T, StoreError> {
    timeout(STEP_TIMEOUT, step).await.map_err(|_| {
        let ms = STEP_TIMEOUT.as_millis();
        StoreError::unreachable(format!("{address}: no answer within {ms} ms"))
    })
}

/// Where a server says that our slot is.
pub(super) fn moved_to(error: &RedisError, from: &Address) -> Option<Address> {
    if error.kind() != ErrorKind::Server(ServerErrorKind::Moved) {
        return None;
    }
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    // A node that does not know the other's name means its own.
    let host = if host.is_empty() { &from.host } else { host };
    Some(Address { host: host.to_owned(), port: port.parse().ok()? })
}

/// Whether a replica refused to write. Servers before Redis 7 wrap what a script met in an
/// error of their own.
pub(super) fn is_read_only(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::ReadOnly) => true,
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            error.detail().is_some_and(|words| words.contains("-READONLY "))
        }
        _ => false,
    }
}

/// An error in our terms: the server's words where it said something.
pub(super) fn failure(address: &Address, error: &RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Server(_)
        | ErrorKind::Extension
        | ErrorKind::AuthenticationFailed
        | ErrorKind::RESP3NotSupported => {
            let words = [error.code(), error.detail()];
            let words: Vec<&str> = words.into_iter().flatten().collect();
            let words = if words.is_empty() { error.to_string() } else { words.join(" ") };
            StoreError::Refused { words: format!("{address}: {words}") }
        }
        _ => StoreError::unreachable(format!("{address}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_known_by_either_form_of_its_refusal() {
        let error = |kind, words: &str| RedisError::from((kind, "", words.to_owned()));
        let new = error(ErrorKind::Server(ServerErrorKind::ReadOnly), "You can't write");
        assert!(is_read_only(&new));
        let words = "Error running script (call to f_0): @user_script:9: @user_script: 9: \
                     -READONLY You can't write against a read only replica.";
        assert!(is_read_only(&error(ErrorKind::Server(ServerErrorKind::ResponseError), words)));
        let other = error(ErrorKind::Server(ServerErrorKind::ResponseError), "wrong type");
        assert!(!is_read_only(&other));
    }

    #[test]
    fn a_redirection_without_a_host_means_the_same_host() {
        let from = Address { host: "here".to_owned(), port: 1 };
        let target = |words: &str| {
            let moved = ErrorKind::Server(ServerErrorKind::Moved);
            let error = RedisError::from((moved, "", words.to_owned()));
            moved_to(&error, &from).map(|address| address.to_string())
        };
        assert_eq!(target("7 10.0.0.1:7001").as_deref(), Some("10.0.0.1:7001"));
        assert_eq!(target("7 :7001").as_deref(), Some("here:7001"));
        assert_eq!(target("7 [::1]:7001").as_deref(), Some("[::1]:7001"));
        assert_eq!(target("7 ::1:7001").as_deref(), Some("[::1]:7001"));
        assert_eq!(target("7 somewhere"), None);
    }
}
