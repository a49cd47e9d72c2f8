//! One server of the shared tier: its connection, watched over by a task.
//!
//! Called by: `nodes`, which starts the task; `calls`.
//! Bound: a server that does not answer a ping within the silence is given up; a new attempt comes
//! after 20 ms to 1 s.
//! Invariant: pushes are handled in the order in which the server sent them, before the answers
//! that came after them. So an answered ping shows that every change from before it is known here.

use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use heatsink_upstream::address::Credentials;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
    RedisError, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::calls::CHANNEL;
use super::locate::Address;
use super::{Core, Down, lock};
use crate::clock::whole_ms;
use crate::error::BuildError;

const BACKOFF_LEAST: Duration = Duration::from_millis(20);
const BACKOFF_MOST: Duration = Duration::from_secs(1);
/// How long connecting to one server may take.
const STEP: Duration = Duration::from_secs(1);

pub(super) struct Link {
    pub(super) id: u16,
    /// `None`: wherever the target's one server is at the moment.
    pub(super) address: Option<Address>,
    current: RwLock<Option<Speaking>>,
    words: Mutex<Arc<str>>,
    pub(super) task: Mutex<Option<AbortHandle>>,
}

/// A connection that is logged in.
#[derive(Clone)]
pub(super) struct Speaking {
    pub(super) connection: MultiplexedConnection,
    /// Whether the server tells of changes, and not the other processes.
    pub(super) server_tells: bool,
    /// Rung when it is lost. Each has its own: what ended an earlier one is no word on this one.
    broken: Arc<Notify>,
    _tasks: Arc<Tasks>,
}

/// Ends with the last who speaks.
struct Tasks(Vec<AbortHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Speaking {
    /// An error that ends the connection is noticed at once.
    pub(super) fn note(&self, error: &RedisError) {
        let is_elsewhere = matches!(
            error.kind(),
            ErrorKind::Server(
                redis::ServerErrorKind::ReadOnly | redis::ServerErrorKind::MasterDown
            )
        );
        if error.is_unrecoverable_error() || error.is_io_error() || is_elsewhere {
            self.broken.notify_one();
        }
    }
}

impl Link {
    pub(super) fn new(id: u16, address: Option<Address>) -> Self {
        Self {
            id,
            address,
            current: RwLock::new(None),
            words: Mutex::new("not connected yet".into()),
            task: Mutex::new(None),
        }
    }

    pub(super) fn speaking(&self) -> Result<Speaking, Down> {
        let current = self.current.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        current.clone().ok_or_else(|| Down(self.words()))
    }

    pub(super) fn words(&self) -> Arc<str> {
        Arc::clone(&lock(&self.words))
    }

    /// Gives back what was there before.
    fn set(&self, speaking: Option<Speaking>) -> Option<Speaking> {
        let mut current = self.current.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::mem::replace(&mut *current, speaking)
    }

    /// Connects, and again whenever the connection is lost.
    pub(super) async fn run(self: Arc<Self>, core: Arc<Core>) {
        let mut backoff = BACKOFF_LEAST;
        loop {
            let opened = core.open(&self).await;
            let down = match opened {
                Ok(speaking) => {
                    backoff = BACKOFF_LEAST;
                    self.serve(&core, speaking).await
                }
                Err(down) => down,
            };
            let was_connected = self.set(None).is_some();
            core.fences.vouch(self.id, 0);
            *lock(&self.words) = Arc::clone(&down.0);
            // Loud once, and quiet while it lasts. An attempt that fails changes nothing: what was
            // loaded meanwhile, and what other servers have, counts as before.
            if was_connected {
                tracing::warn!(error = %down.0, "a server of the shared tier was lost");
                core.all_changed();
            } else {
                tracing::debug!(error = %down.0, "a server of the shared tier is out of reach");
            }
            core.changed.send_modify(|turn| *turn += 1);
            core.map_is_old.notify_one();
            sleep(backoff.mul_f64(0.5 + fastrand::f64())).await;
            backoff = (backoff * 2).min(BACKOFF_MOST);
        }
    }

    /// Vouches for what comes along the connection until it fails.
    async fn serve(&self, core: &Arc<Core>, speaking: Speaking) -> Down {
        core.all_changed();
        let mut connection = speaking.connection.clone();
        let mut is_known = false;
        let silence = whole_ms(core.silence);
        loop {
            let asked_at = core.clock.now();
            let ping = redis::cmd("PING");
            match timeout(core.silence, ping.query_async::<Value>(&mut connection)).await {
                Ok(Ok(_)) => core.fences.vouch(self.id, asked_at + silence),
                Ok(Err(error)) => return Down::new(error),
                Err(_) => return Down::new("the server is silent"),
            }
            if !is_known {
                is_known = true;
                self.set(Some(speaking.clone()));
                core.changed.send_modify(|turn| *turn += 1);
                tracing::info!(
                    server_tells = speaking.server_tells,
                    "connected to a server of the shared tier"
                );
            }
            core.send_pending(self).await;
            tokio::select! {
                () = speaking.broken.notified() => return Down::new("the connection is lost"),
                () = sleep(core.silence / 4) => {}
            }
        }
    }
}

impl Core {
    async fn open(self: &Arc<Self>, link: &Link) -> Result<Speaking, Down> {
        let address = match &link.address {
            Some(address) => address.clone(),
            None => self.locate().await?,
        };
        let speaking = match self.open_tracked(&address).await? {
            Some(speaking) => speaking,
            None => self.open_with_channel(&address).await?,
        };
        self.check_role(&speaking).await?;
        Ok(speaking)
    }

    /// `None`: the server does not tell of changes, or not to this user.
    async fn open_tracked(self: &Arc<Self>, address: &Address) -> Result<Option<Speaking>, Down> {
        let broken = Arc::new(Notify::new());
        let (core, lost) = (Arc::downgrade(self), Arc::clone(&broken));
        let on_push = move |push: PushInfo| -> Result<(), ()> {
            match (push.kind, core.upgrade()) {
                (PushKind::Invalidate, Some(core)) => core.invalidated(&push.data),
                (PushKind::Disconnection, _) => lost.notify_one(),
                _ => {}
            }
            Ok(())
        };
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(on_push);
        let login = self.login.clone().set_protocol(ProtocolVersion::RESP3);
        let (mut connection, tasks) = match self.dial(address, &login, config).await {
            Ok(opened) => opened,
            Err(Dialled::Refused(error)) => {
                tracing::debug!(%error, "no RESP3 here; processes tell each other of changes");
                return Ok(None);
            }
            Err(Dialled::Down(down)) => return Err(down),
        };
        let mut tracking = redis::cmd("CLIENT");
        tracking.arg(&["TRACKING", "ON", "OPTIN", "NOLOOP"]);
        let answer = timeout(STEP, tracking.query_async::<Value>(&mut connection)).await;
        match answer {
            Ok(Ok(_)) => {
                let tasks = Arc::new(tasks);
                Ok(Some(Speaking { connection, server_tells: true, broken, _tasks: tasks }))
            }
            Ok(Err(error)) if is_servers_word(&error) => {
                tracing::debug!(%error, "no tracking here; processes tell each other of changes");
                Ok(None)
            }
            Ok(Err(error)) => Err(Down::new(format_args!("{address}: {error}"))),
            Err(_) => Err(no_answer(address)),
        }
    }

    /// A connection for calls, and one on which other processes tell of their writes.
    async fn open_with_channel(self: &Arc<Self>, address: &Address) -> Result<Speaking, Down> {
        let fault = |error: Dialled| match error {
            Dialled::Refused(error) => Down::new(format_args!("{address}: {error}")),
            Dialled::Down(down) => down,
        };
        let login = self.login.clone().set_protocol(ProtocolVersion::RESP2);
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (connection, mut tasks) = self.dial(address, &login, config).await.map_err(fault)?;
        let stream = within(address, self.stream(address)).await??;
        let refused = |error: RedisError| Down::new(format_args!("{address}: {error}"));
        let mut listening = within(address, PubSub::new(&login, stream)).await?.map_err(refused)?;
        within(address, listening.subscribe(CHANNEL)).await?.map_err(refused)?;
        let broken = Arc::new(Notify::new());
        // The listener ends with the connection, and the connection with the store.
        let (core, lost, silence) = (Arc::downgrade(self), Arc::clone(&broken), self.silence);
        let listener = tokio::spawn(async move {
            let (mut sink, mut messages) = listening.split();
            let hear = async {
                while let Some(message) = next(&mut messages).await {
                    let Some(core) = core.upgrade() else { return };
                    core.heard(message.get_payload_bytes());
                }
            };
            let ask = async {
                while matches!(timeout(silence, sink.ping::<Value>()).await, Ok(Ok(_))) {
                    sleep(silence / 4).await;
                }
            };
            tokio::select! { () = hear => {}, () = ask => {} }
            lost.notify_one();
        });
        tasks.0.push(listener.abort_handle());
        Ok(Speaking { connection, server_tells: false, broken, _tasks: Arc::new(tasks) })
    }

    /// What Sentinels named may have become a replica by now.
    async fn check_role(&self, speaking: &Speaking) -> Result<(), Down> {
        if !self.target.is_watched() {
            return Ok(());
        }
        let mut connection = speaking.connection.clone();
        let role = redis::cmd("ROLE");
        match timeout(STEP, role.query_async::<Value>(&mut connection)).await {
            Ok(Ok(Value::Array(items))) => match items.first() {
                Some(Value::BulkString(role)) if role == b"master" => Ok(()),
                _ => Err(Down::new("the server is no primary any more")),
            },
            // A user without that right has to trust the Sentinels.
            Ok(Err(error)) if is_servers_word(&error) => Ok(()),
            Ok(Err(error)) => Err(Down::new(error)),
            _ => Err(Down::new("no answer to ROLE")),
        }
    }

    fn invalidated(&self, data: &[Value]) {
        match data.first() {
            Some(Value::Array(keys)) => {
                for key in keys {
                    if let Value::BulkString(key) = key {
                        self.key_changed(key);
                    }
                }
            }
            // The whole server was flushed.
            _ => self.all_changed(),
        }
    }

    fn heard(&self, message: &[u8]) {
        if let Some((from, key)) = message.split_at_checked(self.id.len())
            && from != self.id
        {
            self.key_changed(key);
        }
    }

    pub(super) async fn ask_once(
        &self,
        address: &Address,
        login: &RedisConnectionInfo,
        question: &redis::Cmd,
    ) -> Result<Value, Down> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let login = login.clone().set_protocol(ProtocolVersion::RESP2);
        let (mut connection, _tasks) =
            self.dial(address, &login, config).await.map_err(|error| match error {
                Dialled::Refused(error) => Down::new(format_args!("{address}: {error}")),
                Dialled::Down(down) => down,
            })?;
        let answer = within(address, question.query_async::<Value>(&mut connection)).await?;
        answer.map_err(|error| Down::new(format_args!("{address}: {error}")))
    }

    async fn dial(
        &self,
        address: &Address,
        login: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Tasks), Dialled> {
        let stream = within(address, self.stream(address)).await.map_err(Dialled::Down)?;
        let stream = stream.map_err(Dialled::Down)?;
        let opening = MultiplexedConnection::new_with_config(login, stream, config);
        match within(address, opening).await.map_err(Dialled::Down)? {
            Ok((connection, driver)) => {
                Ok((connection, Tasks(vec![tokio::spawn(driver).abort_handle()])))
            }
            Err(error) if is_servers_word(&error) => Err(Dialled::Refused(error)),
            Err(error) => Err(Dialled::Down(Down::new(format_args!("{address}: {error}")))),
        }
    }

    async fn stream(&self, address: &Address) -> Result<Box<dyn Stream>, Down> {
        let fault = |error: std::io::Error| Down::new(format_args!("{address}: {error}"));
        let socket = TcpStream::connect((address.host.as_str(), address.port)).await;
        let socket = socket.map_err(fault)?;
        socket.set_nodelay(true).map_err(fault)?;
        Ok(match &self.tls {
            Some(tls) => {
                let stream = tls.connect(socket, &address.host).await;
                Box::new(stream.map_err(|words| Down::new(format_args!("{address}: {words}")))?)
            }
            None => Box::new(socket),
        })
    }
}

/// Why there is no connection.
enum Dialled {
    /// The server said so.
    Refused(RedisError),
    Down(Down),
}

fn is_servers_word(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::RESP3NotSupported
    )
}

async fn within<T>(address: &Address, step: impl Future<Output = T>) -> Result<T, Down> {
    timeout(STEP, step).await.map_err(|_| no_answer(address))
}

fn no_answer(address: &Address) -> Down {
    Down::new(format_args!("{address}: no answer within {} ms", STEP.as_millis()))
}

pub(super) fn login(credentials: Option<&Credentials>) -> Result<RedisConnectionInfo, BuildError> {
    // Naming the client library would need a right that is of no use otherwise.
    let login = RedisConnectionInfo::default().set_skip_set_lib_name();
    let Some(credentials) = credentials else { return Ok(login) };
    let utf8 = |bytes| {
        std::str::from_utf8(bytes)
            .map_err(|_| BuildError::Shared("user and password must be UTF-8".to_owned()))
    };
    let login = login.set_password(utf8(&credentials.password)?);
    Ok(match &credentials.user {
        Some(user) => login.set_username(utf8(user)?),
        None => login,
    })
}

/// The next message; `None` when the connection is lost.
async fn next(messages: &mut redis::aio::PubSubStream) -> Option<redis::Msg> {
    use futures_util::StreamExt;
    messages.next().await
}
