//! The state that the loop and the API share.
//!
//! Bound: the registry's size, the number of members, one histogram each.
//! Invariant: the lock is held for the time of a look or a change, never across a wait.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heatsink_admin::Privacy;
use heatsink_admin::metrics::Histogram;
use heatsink_control::agent::Agent;
use heatsink_control::aggregate::Aggregator;
use heatsink_control::registry::Registry;
use heatsink_detect::report::Report;
use heatsink_proxy::Handle as ProxyHandle;
use tokio::sync::Notify;

use crate::hearing::Hearing;
use crate::members::{Card, Present};
use crate::news::News;
use crate::split;
use crate::{Live, Role};

/// The shared state: what never changes, and behind the lock what does.
pub(crate) struct State {
    pub(crate) id: String,
    pub(crate) role: Role,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) proxy: Option<ProxyHandle>,
    /// The store is the upstream itself: an outage of one is that of the other.
    pub(crate) store_is_upstream: bool,
    pub(crate) started_at_ms: u64,
    /// How keys are named in the log.
    pub(crate) privacy: Privacy,
    /// Log lines that could not be written, if somebody counts them.
    pub(crate) log_lines_dropped: Option<Arc<AtomicU64>>,
    /// This process itself has changed the copy of the registry: the loop need not wait for the store's
    /// message.
    pub(crate) changed: Notify,
    /// There may be values to move.
    pub(crate) moves: Notify,
    /// The registry was read, and what it says of split keys was looked at, once.
    pub(crate) informed: Arc<Gate>,
    origin: Instant,
    inner: Mutex<Inner>,
}

/// What changes.
pub(crate) struct Inner {
    pub(crate) live: Live,
    pub(crate) registry: Registry,
    pub(crate) agent: Option<Agent>,
    pub(crate) aggregator: Option<Aggregator>,
    pub(crate) members: Vec<Present>,
    /// When they were last heard of, if ever, and the same in milliseconds of Unix time.
    pub(crate) members_at: Option<Duration>,
    pub(crate) members_at_ms: u64,
    /// What this process last said of itself.
    pub(crate) card: Card,
    /// What this process's workers saw at the last tick.
    pub(crate) report: Report,
    /// When the agent's local entries were found, in milliseconds of Unix time.
    pub(crate) local_since: HashMap<Vec<u8>, u64>,
    /// What is heard of the store.
    pub(crate) hearing: Hearing,
    pub(crate) news: News,
    pub(crate) counts: Counts,
    pub(crate) tick_seconds: Histogram,
    pub(crate) detection_seconds: Histogram,
    pub(crate) splits: split::Figures,
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reports_sent: u64,
    pub(crate) reports_received: u64,
    pub(crate) reports_dropped: u64,
    pub(crate) miss_storms: u64,
    pub(crate) write_contentions: u64,
    pub(crate) underestimates: u64,
    /// Reports and watch lists that came faster than they were taken.
    pub(crate) messages_dropped: u64,
    /// How many records or messages were not understood, or not signed by a member; and when the last was.
    pub(crate) ignored: u64,
    pub(crate) ignored_at: Option<Duration>,
    /// Entries among them that the store itself accepts.
    pub(crate) entries_ignored: u64,
}

impl State {
    pub(crate) fn new(
        id: &str,
        role: Role,
        address: Option<SocketAddr>,
        live: Live,
        proxy: Option<ProxyHandle>,
        log_lines_dropped: Option<Arc<AtomicU64>>,
    ) -> Self {
        let now = Duration::ZERO;
        let settings = live.settings();
        let agent = role.is_proxy().then(|| {
            let boot = fastrand::u64(..);
            Agent::new(now, id, boot, settings.clone(), Arc::clone(&live.policies))
        });
        let aggregator = role
            .is_aggregator()
            .then(|| Aggregator::new(now, settings.clone(), Arc::clone(&live.policies)));
        Self {
            id: id.to_owned(),
            role,
            address,
            proxy,
            store_is_upstream: false,
            started_at_ms: unix_ms(),
            privacy: live.privacy,
            log_lines_dropped,
            changed: Notify::new(),
            moves: Notify::new(),
            informed: Arc::default(),
            origin: Instant::now(),
            inner: Mutex::new(Inner {
                live,
                registry: Registry::new(),
                agent,
                aggregator,
                members: Vec::new(),
                members_at: None,
                members_at_ms: 0,
                card: Card::first(role, address),
                report: Report::default(),
                local_since: HashMap::new(),
                hearing: Hearing::default(),
                news: News::default(),
                counts: Counts::default(),
                tick_seconds: Histogram::default(),
                detection_seconds: Histogram::default(),
                splits: split::Figures::default(),
            }),
        }
    }

    /// The time that the control plane's logic is told.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Whether the coordination store does not answer at this moment, by what is known.
    pub(crate) fn is_store_away(&self) -> bool {
        self.lock().hearing.is_away()
    }

    /// A key as the log names it.
    pub(crate) fn named(&self, key: &[u8]) -> String {
        self.privacy.log_name(key)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that happens once, for threads to wait for.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is open, at the latest after this time.
    pub(crate) fn wait(&self, bound: Duration) -> bool {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.opened.wait_timeout_while(is_open, bound, |is_open| !*is_open);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The time of day, for people to see; nothing is decided by it.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
