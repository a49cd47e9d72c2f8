//! The servers of the shared tier: calls, and word of what changes.
//!
//! Called by: `shared`, with the keys of one cache; several caches may use one store.
//! Bound: one connection a server (two where changes are told over a channel); each call has a
//! timeout; [`PENDING_LIMIT`] deletions wait to be sent again.
//! Invariant: what was read through a link counts only while the link vouches for it (`fence`).
//! Every own write advances the key's epoch, so the server need not tell us of it (`NOLOOP`).

mod calls;
mod link;
mod locate;
mod nodes;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod watch;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use heatsink_cache::stampede::freshness::LONGEST;
use heatsink_coordination::Tls;
pub use heatsink_coordination::TlsFiles;
use heatsink_upstream::address::Url;
use redis::RedisConnectionInfo;
use tokio::task::AbortHandle;

pub(crate) use calls::{Looked, Span};
pub(crate) use watch::Watch;

use crate::clock::Clock;
use crate::error::BuildError;
use crate::fence::Fences;
use locate::Target;
use nodes::Nodes;
use watch::Watchers;

/// Deletions that wait to be sent again. Further ones are reported as unconfirmed all the same, and
/// forgotten.
const PENDING_LIMIT: usize = 10_000;
/// How long building a cache waits for the first connection.
const FIRST_CONNECTION: Duration = Duration::from_secs(1);

/// A Redis or Valkey that caches share: one server, Sentinel or Cluster. Cheap to clone; the
/// connections are closed with the last clone and the last cache.
#[derive(Clone)]
pub struct Store {
    pub(crate) core: Arc<Core>,
    _closer: Arc<Closer>,
}

/// Whether the shared tier can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreState {
    /// It can.
    Connected {
        /// Whether the server itself tells of every change (`CLIENT TRACKING`). If not, processes
        /// tell each other, and what others write is noticed when an entry is too old to be served.
        server_tells: bool,
    },
    /// Not all of it, and why.
    CutOff(Arc<str>),
}

/// Settings of a [`Store`].
#[derive(Debug, Clone)]
pub struct StoreBuilder {
    url: String,
    tls: TlsFiles,
    timeout: Duration,
    silence: Duration,
    clock: Clock,
}

pub(crate) struct Core {
    pub(crate) fences: Arc<Fences>,
    pub(crate) clock: Clock,
    target: Target,
    login: RedisConnectionInfo,
    sentinel_login: RedisConnectionInfo,
    tls: Option<Tls>,
    timeout: Duration,
    silence: Duration,
    nodes: RwLock<Nodes>,
    /// Sent when a link went up or down.
    changed: tokio::sync::watch::Sender<u64>,
    map_is_old: tokio::sync::Notify,
    watchers: Watchers,
    pending: Mutex<HashSet<Vec<u8>>>,
    has_pending: AtomicBool,
    /// Tells own messages on the channel from others'.
    id: [u8; 16],
    tasks: Mutex<Vec<AbortHandle>>,
}

/// A call that failed, in words.
#[derive(Debug, Clone)]
pub(crate) struct Down(pub(crate) Arc<str>);

impl Down {
    fn new(words: impl fmt::Display) -> Self {
        Self(words.to_string().into())
    }
}

struct Closer(Arc<Core>);

impl Drop for Closer {
    fn drop(&mut self) {
        for task in lock(&self.0.tasks).drain(..) {
            task.abort();
        }
    }
}

impl Store {
    /// Connects, with the default settings. It waits up to a second; a store that cannot be reached
    /// by then is tried again for ever.
    pub async fn connect(url: &str) -> Result<Self, BuildError> {
        Self::builder(url).connect().await
    }

    /// Begins to set up a store.
    pub fn builder(url: impl Into<String>) -> StoreBuilder {
        StoreBuilder {
            url: url.into(),
            tls: TlsFiles::default(),
            timeout: Duration::from_millis(500),
            silence: Duration::from_secs(1),
            clock: Clock::system(),
        }
    }

    /// Whether it can be asked.
    pub fn state(&self) -> StoreState {
        self.core.read_nodes().state()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl StoreBuilder {
    /// Certificates, for a URL with `rediss`.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = files;
        self
    }

    /// How long a call may take; 500 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.clamp(Duration::from_millis(1), LONGEST);
        self
    }

    /// How old what is served from a process may be while the server is not heard; 1 s. A server
    /// that says nothing for so long is given up, and connected to again.
    #[must_use]
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence.clamp(Duration::from_millis(100), LONGEST);
        self
    }

    pub(crate) fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Connects. It waits up to a second; a store that cannot be reached by then is tried again for
    /// ever.
    pub async fn connect(self) -> Result<Store, BuildError> {
        let core = self.core()?;
        let store = Store { _closer: Arc::new(Closer(Arc::clone(&core))), core };
        nodes::start(&store.core);
        let mut changed = store.core.changed.subscribe();
        let up = changed.wait_for(|_| matches!(store.state(), StoreState::Connected { .. }));
        if tokio::time::timeout(FIRST_CONNECTION, up).await.is_err() {
            tracing::warn!(state = ?store.state(), "the shared tier cannot be reached yet");
        }
        Ok(store)
    }

    /// Without a connection yet.
    fn core(self) -> Result<Arc<Core>, BuildError> {
        let wrong = |words: String| BuildError::Shared(words);
        let url: Url = self.url.parse().map_err(|error| wrong(format!("{error}")))?;
        let (db, uses_tls, credentials, sentinel_credentials) = match &url {
            Url::Embedded => return Err(wrong("there is no embedded store here".to_owned())),
            Url::Server(url) => (url.db, url.tls, &url.credentials, &None),
            Url::Cluster(url) => (0, url.tls, &url.credentials, &None),
            Url::Sentinel(url) => (url.db, url.tls, &url.credentials, &url.sentinel_credentials),
        };
        let tls = uses_tls.then(|| Tls::new(&self.tls)).transpose();
        let tls = tls.map_err(|error| wrong(error.to_string()))?;
        let login = link::login(credentials.as_ref())?.set_db(i64::from(db));
        Ok(Arc::new(Core {
            fences: Arc::new(Fences::of_store()),
            clock: self.clock,
            nodes: RwLock::new(Nodes::default()),
            target: Target::new(&url),
            login,
            sentinel_login: link::login(sentinel_credentials.as_ref())?,
            tls,
            timeout: self.timeout,
            silence: self.silence,
            changed: tokio::sync::watch::Sender::new(0),
            map_is_old: tokio::sync::Notify::new(),
            watchers: Watchers::default(),
            pending: Mutex::default(),
            has_pending: AtomicBool::new(false),
            id: fastrand::u128(..).to_be_bytes(),
            tasks: Mutex::default(),
        }))
    }
}

impl Core {
    fn read_nodes(&self) -> std::sync::RwLockReadGuard<'_, Nodes> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_nodes(&self) -> std::sync::RwLockWriteGuard<'_, Nodes> {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let handle = tokio::spawn(task).abort_handle();
        let mut tasks = lock(&self.tasks);
        tasks.retain(|task| !task.is_finished());
        tasks.push(handle.clone());
        handle
    }

    pub(crate) fn silence(&self) -> Duration {
        self.silence
    }

    /// The link along which the key is read; none if it cannot be.
    pub(crate) fn link_id(&self, key: &[u8]) -> u16 {
        self.read_nodes().link_of(key).map_or(crate::fence::NO_LINK, |link| link.id)
    }

    pub(crate) fn stripe(&self, key: &[u8]) -> u32 {
        self.fences.stripe(key)
    }

    /// Somebody wrote the key: nothing read before counts, and who waits for it looks again.
    pub(crate) fn key_changed(&self, key: &[u8]) {
        self.fences.advance(self.stripe(key));
        self.watchers.wake(key);
    }

    /// Anything may have changed.
    fn all_changed(&self) {
        self.fences.advance_all();
        self.watchers.wake_all();
    }

    /// A deletion whose fate is unknown: until it is confirmed, the key is not read.
    fn postpone_deletion(&self, key: &[u8]) {
        let mut pending = lock(&self.pending);
        if pending.len() < PENDING_LIMIT {
            pending.insert(key.to_vec());
            self.has_pending.store(true, Ordering::Release);
        }
    }

    fn is_pending(&self, key: &[u8]) -> bool {
        self.has_pending.load(Ordering::Acquire) && lock(&self.pending).contains(key)
    }

    fn pending(&self) -> Vec<Vec<u8>> {
        if !self.has_pending.load(Ordering::Acquire) {
            return Vec::new();
        }
        lock(&self.pending).iter().cloned().collect()
    }

    fn deletion_confirmed(&self, key: &[u8]) {
        let mut pending = lock(&self.pending);
        pending.remove(key);
        self.has_pending.store(!pending.is_empty(), Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
