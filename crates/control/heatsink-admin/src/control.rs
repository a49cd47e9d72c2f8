//! What the HTTP side needs of a running control plane.
//!
//! Called by: the routes, for every request; implemented by the process that joins the proxy,
//! the registry and the store.
//! Bound: every answer is a copy of state that is in memory already, so asking never waits,
//! except for [`Control::promote`] and [`Control::demote`], which wait for the store and are
//! given up after the request timeout.
//! Invariant: keys are bytes and values never pass here. The texts (`reason`, `why`, details)
//! must not quote raw keys or values: with `privacy = "hash"` they are shown to people who may
//! not see keys.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use heatsink_control::entry::{Entry, Mitigation};
use tokio::sync::broadcast;

pub use crate::load::{Load, NodeRate};
use crate::metrics::Metrics;

/// An answer that has to wait for the coordination store.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ControlError>> + Send + 'a>>;

/// A running control plane, as seen from the HTTP side.
pub trait Control: Send + Sync + 'static {
    /// Every hot key that is known here: the registry's and, while degraded, the local ones.
    fn hot_keys(&self) -> Vec<HotKey>;

    /// One hot key.
    fn hot_key(&self, key: &[u8]) -> Option<HotKey> {
        self.hot_keys().into_iter().find(|hot| hot.key == key)
    }

    /// Forces `key` into the registry. Answers when the store has acknowledged it.
    fn promote<'a>(&'a self, key: &'a [u8], promotion: Promotion) -> Answer<'a, HotKey>;

    /// Removes `key` from the registry and blocks automatic promotion for a while. Answers
    /// when the store has acknowledged it. Never [`ControlError::Invalid`] or
    /// [`ControlError::Full`].
    fn demote<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Demotion>;

    /// What the mitigation of a hot key achieves; nothing if the key is not registered.
    fn stats(&self, key: &[u8]) -> Option<Stats>;

    /// The live members of the fleet.
    fn proxies(&self) -> Vec<Proxy>;

    /// The policy that holds for a key, hot or not.
    fn policy(&self, key: &[u8]) -> Policy;

    /// The policies in force here: that of each rule, in order, and behind them the default.
    fn policies(&self) -> Vec<Policy>;

    /// Whether this process should be given traffic.
    fn readiness(&self) -> Readiness;

    /// The figures of this moment.
    fn metrics(&self) -> Metrics;

    /// Changes from now on. The channel is bounded: a reader that is too slow loses the
    /// oldest events, and is told so.
    fn events(&self) -> broadcast::Receiver<Event>;
}

/// One hot key.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// The key itself.
    pub key: Vec<u8>,
    /// What the registry holds of it, with the rates, the status and the reason of this moment.
    pub entry: Entry,
    /// What keeps a cached copy of it from growing old; nothing if there is no copy.
    pub guard: Option<Guard>,
}

/// What keeps a cached copy from growing old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// The server pushes invalidations.
    Tracking,
    /// Proxies tell each other of writes; the TTL cap bounds what others can do.
    Announcements,
}

impl Guard {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Tracking, Self::Announcements];

    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tracking => "tracking",
            Self::Announcements => "announcements",
        }
    }
}

/// What an operator asked for. Checked already: a split has a factor of 2 or more if any,
/// nothing else has one, and a TTL is at least a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// What to do about the key.
    pub mitigation: Mitigation,
    /// Physical keys to split over; nothing leaves it to the control plane.
    pub split_factor: Option<u32>,
    /// Seconds that the entry lives; nothing means until it is removed.
    pub ttl_seconds: Option<u64>,
}

impl fmt::Display for Promotion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "promoted to {}", self.mitigation)?;
        if let Some(factor) = self.split_factor {
            write!(f, " in {factor}")?;
        }
        if let Some(seconds) = self.ttl_seconds {
            write!(f, " for {seconds} s")?;
        }
        Ok(())
    }
}

/// What came of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demotion {
    /// Seconds for which the key is not promoted again automatically.
    pub blocked_seconds: u64,
}

/// Why the control plane did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlError {
    /// The key is not in the registry.
    UnknownKey,
    /// The policy of the key does not allow it.
    NotAllowed {
        /// Which rule forbids what.
        why: String,
    },
    /// The key is one of Heatsink's own, about which nothing is ever done.
    OwnKey,
    /// What was asked for makes no sense for this key.
    Invalid {
        /// What is wrong with it.
        why: String,
    },
    /// Somebody else changed the entry at the same time.
    Conflict {
        /// What happened.
        why: String,
    },
    /// The registry is full.
    Full,
    /// The coordination store did not acknowledge the change.
    StoreUnavailable {
        /// What was seen of it.
        why: String,
    },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey => f.write_str("the key is not in the registry"),
            Self::NotAllowed { why } | Self::Invalid { why } | Self::Conflict { why } => {
                f.write_str(why)
            }
            Self::OwnKey => f.write_str("the key is one of Heatsink's own"),
            Self::Full => f.write_str("the registry is full"),
            Self::StoreUnavailable { why } => {
                write!(f, "the coordination store is unavailable: {why}")
            }
        }
    }
}

impl std::error::Error for ControlError {}

/// What the mitigation of one hot key achieves. What nobody measures is absent, not zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Requests/s over the fleet.
    pub requests_per_second: f64,
    /// Reads/s among them.
    pub reads_per_second: f64,
    /// Writes/s among them.
    pub writes_per_second: f64,
    /// Share of the requests that never reached the upstream, 0 to 1.
    pub hit_ratio: Option<f64>,
    /// Share of the reads that were answered from the local cache, 0 to 1.
    pub local_cache_hit_ratio: Option<f64>,
    /// Requests that shared one upstream request, on average; 1 if none did.
    pub collapse_ratio: Option<f64>,
    /// What the proxy that answers has done for the key since it is hot.
    pub own: Option<OwnStats>,
    /// The shards of a split key.
    pub shards: Option<Vec<Shard>>,
    /// The nodes that they lie on.
    pub nodes: Option<Vec<ShardNode>>,
}

/// What one proxy has done for a key since it is hot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnStats {
    /// Requests of clients that took no request to the upstream.
    pub upstream_saved_total: u64,
    /// Reads answered from the local cache.
    pub cache_hits_total: u64,
    /// Bytes of those answers.
    pub bytes_served_total: u64,
    /// Changes of the key that the cache heard of.
    pub invalidations_total: u64,
    /// Writes that were carried out as part of another.
    pub combined_writes_total: u64,
    /// By what the cache hears of changes, if by anything.
    pub guard: Option<Guard>,
    /// What word of a change takes at most, as the last look at the links to the upstream
    /// showed.
    pub invalidation_delay_ms: Option<f64>,
}

/// One shard of a split key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its number, from 0.
    pub index: u32,
    /// The name of the physical key.
    pub name: String,
    /// The node that holds it, as host:port; empty if that is not known here.
    pub node: String,
    /// What is in it, as of the last look.
    pub content: Option<ShardContent>,
    /// Requests that write which the proxy that answers has sent to it.
    pub writes_total: Option<u64>,
}

/// What is in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardContent {
    /// So many members, fields or elements.
    Count(u64),
    /// A counter's part, which may be negative.
    Value(i64),
    /// Registers of a `HyperLogLog`, in bytes: they are not elements that could be counted.
    Bytes(u64),
}

/// A node that holds shards of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardNode {
    /// As host:port; empty if that is not known here.
    pub node: String,
    /// How many it holds.
    pub shards: u32,
    /// Requests that write which the proxy that answers has sent to them.
    pub writes_total: Option<u64>,
    /// What part of all such requests that is, 0 to 1; none before the first.
    pub write_share: Option<f64>,
}

impl ShardNode {
    /// The nodes that shards lie on, in the order of the first shard of each.
    pub fn of_shards(shards: &[Shard]) -> Vec<Self> {
        let all: Option<u64> = shards.iter().map(|shard| shard.writes_total).sum();
        let mut nodes: Vec<Self> = Vec::new();
        for shard in shards {
            let at = nodes.iter().position(|node| node.node == shard.node);
            let at = at.unwrap_or_else(|| {
                let node = shard.node.clone();
                let writes_total = all.map(|_| 0);
                nodes.push(Self { node, shards: 0, writes_total, write_share: None });
                nodes.len() - 1
            });
            let node = &mut nodes[at];
            node.shards += 1;
            node.writes_total =
                node.writes_total.zip(shard.writes_total).map(|(sum, more)| sum + more);
        }
        let share = |writes: u64, all: u64| writes as f64 / all as f64;
        for node in &mut nodes {
            let counted = node.writes_total.zip(all).filter(|(_, all)| *all > 0);
            node.write_share = counted.map(|(writes, all)| share(writes, all));
        }
        nodes
    }
}

/// One live member of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxy {
    /// Its id, unique in the fleet.
    pub id: String,
    /// `all`, `proxy` or `aggregator`.
    pub role: String,
    /// Where clients reach it, if it takes clients.
    pub address: Option<String>,
    /// The version of Heatsink that it runs.
    pub version: String,
    /// When it was last heard of, in milliseconds of Unix time.
    pub last_seen_ms: u64,
    /// The version of the registry that it has, if it has said so.
    pub registry_version: Option<u64>,
    /// Requests/s that it serves, if it has said so.
    pub requests_per_second: Option<f64>,
    /// What it takes from clients and sends upstream, if it has said so.
    pub load: Option<Load>,
    /// It works on what it sees itself, without the others.
    pub degraded: bool,
    /// The servers behind it that it cannot reach.
    pub upstream_down: Vec<UpstreamNode>,
    /// It is the member that answers.
    pub is_self: bool,
}

/// A policy: of a key, or of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// `off`, `observe`, `exact`, `coherent` or `relaxed`.
    pub mode: String,
    /// The rule that decided; nothing if none matched and the default holds.
    pub rule: Option<PolicyRule>,
    /// The mitigations that its mode allows; what moves data is automatic only where the rule
    /// says that all clients go through Heatsink.
    pub allowed: Vec<Mitigation>,
    /// The further settings in force, by the names of the configuration file.
    pub settings: Vec<(String, String)>,
}

/// The rule that decided a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    /// Its place in the configuration, from 1.
    pub number: u32,
    /// Its pattern.
    pub pattern: Vec<u8>,
}

/// Whether this process should be given traffic, and in which state it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// It serves requests.
    pub ready: bool,
    /// It works on what it sees itself: the store or all aggregators are gone.
    pub degraded: bool,
    /// Why it is not ready or degraded, or which servers behind it are down; a sentence each.
    pub reasons: Vec<String>,
    /// The servers behind it, as far as they were tried.
    pub upstream: Vec<UpstreamNode>,
    /// The version of the registry that is in force here.
    pub registry_version: Option<u64>,
}

/// A server behind a process, as that sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamNode {
    /// host:port.
    pub node: String,
    /// It can be reached.
    pub up: bool,
    /// Since when it can, or cannot, in milliseconds of Unix time.
    pub since_ms: u64,
    /// Why it cannot.
    pub error: Option<String>,
}

/// Something changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Counts up by one with each event of this process, from 1.
    pub id: u64,
    /// When, in milliseconds of Unix time.
    pub at_ms: u64,
    /// What.
    pub change: Change,
}

/// What changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A key came into the registry, or its entry changed.
    HotKey(Box<HotKey>),
    /// A key left the registry.
    Removed {
        /// The key.
        key: Vec<u8>,
        /// Why it left: removed, retired, expired.
        reason: String,
    },
    /// The process became degraded, or is so no longer; or the fleet changed.
    Readiness(Readiness),
}
