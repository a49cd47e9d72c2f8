//! The servers behind, by number: one, or the nodes of a cluster as they become known.
//!
//! Called by: `pools` to connect, `cluster` to find the number of an address.
//! Bound: a number is never given to another address; a cluster that has had
//! [`NodeId::MAX`] different addresses is not followed further.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use heatsink_cluster::topology::NodeAddress;
use heatsink_tls::ClientTls;
use heatsink_upstream::address::Endpoint;
use heatsink_upstream::dialer::Dialer;

use crate::upstream::health::Health;

/// The number of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u16);

impl NodeId {
    /// The only server, the primary that sentinels tell of, or the first seed of a cluster.
    pub(crate) const FIRST: Self = Self(0);
    /// Nobody.
    pub(crate) const NONE: Self = Self(u16::MAX);
    /// The last one that is given out.
    const MAX: usize = u16::MAX as usize - 1;

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// One server.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) dialer: Dialer,
    /// Requests sent to it, by all workers.
    pub(crate) requests: AtomicU64,
    /// Clients have sent it blocking commands; see [`crate::session::dedicated`].
    pub(crate) blocks: AtomicBool,
    /// Whether it can be reached.
    pub(crate) health: Health,
}

impl Node {
    fn new(dialer: Dialer) -> Self {
        Self {
            dialer,
            requests: AtomicU64::new(0),
            blocks: AtomicBool::new(false),
            health: Health::default(),
        }
    }
}

/// All servers that are known.
#[derive(Debug)]
pub(crate) struct Nodes {
    list: RwLock<Vec<Arc<Node>>>,
    tls: Option<ClientTls>,
    sampled: Mutex<Sample>,
}

/// When the rates were last looked at, and what they were.
#[derive(Debug)]
struct Sample {
    at: Instant,
    totals: Vec<u64>,
    per_second: Vec<f64>,
}

impl Nodes {
    pub(crate) fn new(endpoints: Vec<Endpoint>, tls: Option<ClientTls>) -> Self {
        let node = |endpoint| {
            let dialer = Dialer::new(endpoint, tls.clone());
            Arc::new(Node::new(dialer))
        };
        let sampled = Sample { at: Instant::now(), totals: Vec::new(), per_second: Vec::new() };
        Self {
            list: RwLock::new(endpoints.into_iter().map(node).collect()),
            tls,
            sampled: Mutex::new(sampled),
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of the node at `address`, which is new if nobody has heard of it.
    pub(crate) fn id_of(&self, address: &NodeAddress) -> NodeId {
        let is_it = |node: &Arc<Node>| match node.dialer.endpoint() {
            Endpoint::Tcp { host, port } => host == address.host && port == address.port,
            _ => false,
        };
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = list.iter().position(is_it) {
            return NodeId(index as u16);
        }
        if list.len() >= NodeId::MAX {
            return NodeId::NONE;
        }
        let endpoint = Endpoint::tcp(&address.host, address.port);
        let dialer = Dialer::unresolved(endpoint, self.tls.clone());
        list.push(Arc::new(Node::new(dialer)));
        NodeId((list.len() - 1) as u16)
    }

    /// Looks at how many requests each node has got since the last look.
    pub(crate) fn sample_rates(&self, now: Instant) {
        let totals: Vec<u64> =
            self.all().iter().map(|node| node.requests.load(Ordering::Relaxed)).collect();
        let mut sample = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = now.saturating_duration_since(sample.at).as_secs_f64();
        if seconds > 0.0 {
            let before = |index: usize| sample.totals.get(index).copied().unwrap_or(0);
            sample.per_second = totals
                .iter()
                .enumerate()
                .map(|(index, total)| (total - before(index)) as f64 / seconds)
                .collect();
            sample.totals = totals;
            sample.at = now;
        }
    }

    /// Requests per second of a node, at the last look.
    pub(crate) fn rate(&self, id: NodeId) -> f64 {
        let sample = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        sample.per_second.get(id.index()).copied().unwrap_or(0.0)
    }
}
