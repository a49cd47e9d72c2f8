//! What the workers of one proxy have in common: read-mostly, or touched only when a
//! connection comes or goes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use heatsink_resp::command::CommandTable;
use heatsink_upstream::address::Endpoint;
use heatsink_upstream::sentinel::SentinelWatch;
use heatsink_upstream::{Login, Protocol};
use heatsink_users::{Verdict, Verifier};
use mio::Waker;

use crate::cluster::topology::Cluster;
use crate::config::{Live, Target, Upstream};
use crate::downstream::connection::ClientKey;
use crate::downstream::directory::Directory;
use crate::downstream::total::Total;
use crate::hot_keys::{Cooled, HotKeys};
use crate::runtime::clock::Clock;
use crate::runtime::socket::Accepted;
use crate::session::client_tracking::Pin;
use crate::session::login_attempts::Attempts;
use crate::splits::SplitMailbox;
use crate::upstream::health::Troubles;
use crate::upstream::monitor::Sockets;
use crate::upstream::nodes::{NodeId, Nodes};

/// A message to a worker.
#[derive(Debug)]
pub(crate) enum Message {
    /// A new client.
    Accept(Accepted),
    /// Close a client.
    Kill(ClientKey),
    /// A login has been checked.
    Verified(ClientKey, Verdict),
    /// Give a client a dedicated connection that it keeps.
    Pin(Pin),
    /// It is there, with the server's id of it; or there will be none.
    Pinned(ClientKey, Option<i64>),
    /// The primary is another server now.
    PrimaryMoved,
    /// All clients together have too much unread output: the worker, which has the slowest, closes it.
    BoundOutput,
    /// All clients together have too much held input: the worker, which has the client with most, closes it.
    BoundInput,
    /// Take no more requests, answer what is in flight, be done by then.
    Drain(Instant),
}

/// Keys of the fleet in the upstream.
#[derive(Debug)]
pub(crate) struct OwnKeys {
    pub(crate) always: Vec<Vec<u8>>,
    pub(crate) while_split: Vec<Vec<u8>>,
}

/// A worker's mailbox.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    pub(crate) sender: Sender<Message>,
    /// None if its worker never sleeps, because a test takes its turns.
    pub(crate) waker: Option<Arc<Waker>>,
}

impl Mailbox {
    /// Delivers a message; a worker that has ended takes no more.
    pub(crate) fn send(&self, message: Message) {
        if self.sender.send(message).is_ok() {
            self.wake();
        }
    }

    /// Makes a worker look at what has changed.
    pub(crate) fn wake(&self) {
        if let Some(Err(error)) = self.waker.as_ref().map(|waker| waker.wake()) {
            tracing::error!(%error, "a worker could not be woken");
        }
    }
}

/// What the workers have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Keys that clients do not see.
    pub(crate) own_keys: OnceLock<OwnKeys>,
    /// What the connections of clients that did not authenticate begin with.
    pub(crate) base_login: Login,
    pub(crate) announce: Option<(String, u16)>,
    pub(crate) nodes: Nodes,
    /// What went wrong with connections to them.
    pub(crate) troubles: Troubles,
    /// Set if the upstream is a cluster.
    pub(crate) cluster: Option<Cluster>,
    /// Set if sentinels tell where the primary is.
    pub(crate) sentinel: OnceLock<SentinelWatch>,
    /// Set if logins are checked here.
    pub(crate) verifier: Option<Verifier<(usize, ClientKey)>>,
    /// Logins that were tried, by address; looked at only for logins that are not in use.
    pub(crate) attempts: Mutex<Attempts>,
    pub(crate) directory: Directory,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) client_count: AtomicUsize,
    /// Upstream connections of all workers, and how many there may be for clients to get their own.
    pub(crate) link_count: AtomicUsize,
    pub(crate) max_links: usize,
    /// Logins that a server has accepted, by how many workers use them.
    pub(crate) proven: Mutex<HashMap<Login, u32>>,
    /// Upstream connections, for those who monitor the server.
    pub(crate) sockets: Arc<Sockets>,
    /// Output that clients have not read yet.
    pub(crate) output: Total,
    /// Input of requests that are not taken yet.
    pub(crate) input: Total,
    /// Requests that were taken from clients, as of the workers' last ticks.
    pub(crate) requests_total: AtomicU64,
    pub(crate) pauses_total: AtomicU64,
    /// Requests that were not answered when the time to drain was over.
    pub(crate) unanswered: AtomicUsize,
    /// What was done for each hot key, as of the workers' last ticks.
    pub(crate) cooled: Mutex<CooledKeys>,
    /// What each worker says of its cache, as of its last tick; see [`crate::hot_keys::Told`].
    pub(crate) told: Vec<AtomicU64>,
    hot_keys: RwLock<Arc<HotKeys>>,
    /// Changes with the hot keys; workers look at it once a turn.
    pub(crate) hot_keys_version: AtomicU64,
    /// What is told of split keys.
    pub(crate) split_mailbox: SplitMailbox,
    /// Counts what may have changed any key and the server need not tell of (`SWAPDB`); workers
    /// look at it once a turn.
    pub(crate) upheavals: AtomicU64,
    live: RwLock<Arc<Live>>,
    live_version: AtomicU64,
    table: RwLock<Arc<CommandTable>>,
    /// Changes with the table; workers look at it once a turn.
    pub(crate) table_version: AtomicU64,
    /// Some worker has asked the server for its commands since it was last lost.
    pub(crate) table_asked: AtomicBool,
}

/// What was done for each hot key, and for all that ever were.
#[derive(Debug, Default)]
pub(crate) struct CooledKeys {
    pub(crate) keys: HashMap<Vec<u8>, Cooled>,
    pub(crate) all: Cooled,
    /// By the ids of splits: requests that write which went to each shard.
    pub(crate) shard_writes: HashMap<String, Vec<u64>>,
}

impl Shared {
    pub(crate) fn new(
        upstream: &Upstream,
        announce: Option<(String, u16)>,
        verifier: Option<Verifier<(usize, ClientKey)>>,
        live: Live,
        max_links: usize,
        mailboxes: Vec<Mailbox>,
        clock: Clock,
    ) -> Self {
        let (endpoints, cluster) = match &upstream.target {
            Target::Server(endpoint) => (vec![endpoint.clone()], None),
            Target::Cluster(seeds) => {
                let seed = |(host, port): &(String, u16)| Endpoint::tcp(host, *port);
                (seeds.iter().map(seed).collect(), Some(Cluster::new(seeds.len())))
            }
            Target::Sentinel(url) => {
                (vec![Endpoint::Unknown(format!("primary {}", url.name))], None)
            }
        };
        let base_login = Login {
            credentials: upstream.credentials.clone(),
            db: upstream.db,
            protocol: Protocol::Resp2,
        };
        let told_workers = mailboxes.len();
        Self {
            own_keys: OnceLock::new(),
            base_login,
            announce,
            nodes: Nodes::new(endpoints, upstream.tls.clone()),
            troubles: Troubles::default(),
            cluster,
            sentinel: OnceLock::new(),
            verifier,
            attempts: Mutex::default(),
            directory: Directory::default(),
            told: mailboxes.iter().map(|_| AtomicU64::new(0)).collect(),
            mailboxes,
            client_count: AtomicUsize::new(0),
            link_count: AtomicUsize::new(0),
            max_links,
            proven: Mutex::default(),
            sockets: Arc::default(),
            output: Total::new(told_workers),
            input: Total::new(told_workers),
            requests_total: AtomicU64::new(0),
            pauses_total: AtomicU64::new(0),
            unanswered: AtomicUsize::new(0),
            cooled: Mutex::default(),
            hot_keys: RwLock::new(Arc::default()),
            hot_keys_version: AtomicU64::new(0),
            split_mailbox: SplitMailbox::new(told_workers, clock),
            upheavals: AtomicU64::new(0),
            live: RwLock::new(Arc::new(live)),
            live_version: AtomicU64::new(0),
            table: RwLock::new(Arc::new(CommandTable::default())),
            table_version: AtomicU64::new(0),
            table_asked: AtomicBool::new(false),
        }
    }

    pub(crate) fn table(&self) -> Arc<CommandTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn publish_table(&self, table: CommandTable) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        self.table_version.fetch_add(1, Ordering::Release);
    }

    /// The hot keys as they are now.
    pub(crate) fn hot_keys(&self) -> Arc<HotKeys> {
        Arc::clone(&self.hot_keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of what is handed over.
    pub(crate) fn publish_hot_keys(&self, hot_keys: HotKeys) -> u64 {
        let version = {
            let mut place = self.hot_keys.write().unwrap_or_else(PoisonError::into_inner);
            *place = Arc::new(hot_keys);
            self.hot_keys_version.fetch_add(1, Ordering::Release) + 1
        };
        for mailbox in &self.mailboxes {
            mailbox.wake();
        }
        version
    }

    /// The settings as they are now.
    pub(crate) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes with the settings; workers look at it once a turn.
    pub(crate) fn live_version(&self) -> u64 {
        self.live_version.load(Ordering::Acquire)
    }

    pub(crate) fn publish_live(&self, live: Live) {
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(live);
        self.live_version.fetch_add(1, Ordering::Release);
        for mailbox in &self.mailboxes {
            mailbox.wake();
        }
    }

    /// The primaries of a cluster, in the order of their slots; else the only server.
    pub(crate) fn primaries(&self) -> Vec<NodeId> {
        match &self.cluster {
            Some(cluster) => cluster.routes().shards.iter().map(|shard| shard.primary).collect(),
            None => vec![NodeId::FIRST],
        }
    }

    /// The servers in use: the primaries of a cluster, or its seeds until it is known; else the only
    /// server.
    pub(crate) fn nodes_in_use(&self) -> Vec<NodeId> {
        let primaries = self.primaries();
        match &self.cluster {
            Some(cluster) if primaries.is_empty() => {
                (0..cluster.seeds as u16).map(NodeId).collect()
            }
            _ => primaries,
        }
    }

    /// The server may come back with other commands.
    pub(crate) fn forget_commands(&self) {
        self.table_asked.store(false, Ordering::Release);
    }

    /// The primary cannot be reached, or is none any more: the sentinels may know a new one.
    pub(crate) fn primary_lost(&self) {
        if let Some(sentinel) = self.sentinel.get() {
            sentinel.nudge();
        }
    }
}
