//! Pools: the upstream connections that clients of one user, database and protocol share.
//!
//! Called by: `forward` and `switch` for the shared links, `dedicated_link` for links of a
//! client's own.
//! Bound: one shared link per pool, node and worker, and a second one around it (see [`bypass`]); at
//! most [`MAX_SPARE`] spare ones a pool; a pool nobody uses is given up after [`POOL_IDLE`].
//! Invariant: clients of different users never share a link.

mod bypass;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use heatsink_upstream::address::Endpoint;
use heatsink_upstream::error::LinkError;
use heatsink_upstream::link::{Link, Use};
use heatsink_upstream::{Login, Protocol};

use crate::cluster::replay::{Outcome, SuspectReplies};
use crate::cluster::silent_nodes::LAST_WORD;
use crate::downstream::clients::error_line;
use crate::downstream::connection::ClientKey;
use crate::downstream::order::Source;
use crate::relay::Relay;
use crate::relay::effects::Effect;
use crate::runtime::world::link_token;
use crate::upstream;
use crate::upstream::monitor::Kind;
use crate::upstream::nodes::NodeId;
pub(crate) use crate::upstream::ticket::{Purpose, Ticket};

/// Above this much unsent on a link, its clients are not read from.
pub(crate) const BACKLOG_BYTES: usize = 1 << 20;
/// Above this many bytes that are sent, unanswered and kept on a link, its clients are not read from.
pub(crate) const KEPT_BYTES: usize = 16 << 20;
/// Spare connections kept for the next client that needs one of its own.
const MAX_SPARE: usize = 32;
/// Pools of a worker: different users, databases and protocols at once.
const MAX_POOLS: usize = 1024;
/// A pool without clients is kept this long.
const POOL_IDLE: Duration = Duration::from_secs(30);
/// After a failed attempt to connect, requests are refused without a new one this long.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// A server that refused to track is asked again after this time.
pub(crate) const TRACKING_RETRY: Duration = Duration::from_secs(5);
/// A tracked link that owes an answer and is silent for so long is given up. What was
/// overwritten may be served for as long, for the time until it was asked ([`PULSE`]), and for
/// that until somebody looks: less than a second, also on a busy machine.
pub(crate) const SILENCE: Duration = Duration::from_millis(600);
/// A link that is no longer used may take this long to answer what it was asked.
const RETIRED: Duration = Duration::from_secs(30);

/// Who uses a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// All clients of its pool.
    Pool,
    /// One client.
    Client(ClientKey),
    /// Nobody at the moment.
    Spare,
    /// Whoever waits for its replies; then it is spare.
    Once,
    /// The cache: reads of hot keys, and word of their changes.
    Tracked,
    /// The cache: word of other Heatsinks.
    Listener,
    /// Whoever still waits for its replies; then it is closed, or some time later.
    Retired { since: Instant },
}

/// A link and its place in the worker.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one machine")]
pub(crate) struct Upstream {
    pub(crate) link: Link<Ticket>,
    /// The address that it is noted under, for those who monitor the server.
    noted: Option<SocketAddr>,
    pub(crate) pool: usize,
    pub(crate) node: NodeId,
    /// Where the node was when the link was opened: a primary that sentinels tell of moves.
    endpoint: Endpoint,
    /// The node was a replica when the link was opened.
    pub(crate) replica: bool,
    /// Of the replies that are still to come.
    pub(crate) suspects: SuspectReplies,
    /// Another node has taken the place of its node.
    pub(crate) is_replaced: bool,
    /// Requests since the node was last told of them.
    pub(crate) requests: u64,
    pub(crate) owner: Owner,
    pub(crate) generation: u32,
    pub(crate) dirty: bool,
    /// The socket may have more to read.
    pub(crate) readable: bool,
    announced_ready: bool,
    /// The server has closed its side; what it sent before may still be unread.
    pub(crate) hung_up: bool,
    /// The name the server knows the connection by, on a link for one client.
    pub(crate) name: Vec<u8>,
}

impl Upstream {
    /// More waits to be sent, or to be answered, than should.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.link.backlog_bytes() > BACKLOG_BYTES || self.link.kept_bytes() > KEPT_BYTES
    }

    /// What replies of this link come from, as far as their order goes.
    #[inline]
    pub(crate) fn source(&self, slot: usize) -> Source {
        Source(u64::from(self.generation) << 32 | slot as u64)
    }
}

/// One user, database and protocol.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) login: Login,
    /// Tells a later pool in the same place apart.
    pub(crate) serial: u64,
    /// The way to each node.
    ways: Vec<Way>,
    pub(crate) spare: Vec<usize>,
    pub(crate) clients: usize,
    idle_since: Instant,
    /// Clients whose own connection to a node is not there yet, the first to ask first.
    pub(crate) waiting: VecDeque<(NodeId, ClientKey)>,
    /// Clients that are not read from until the shared link has taken what is queued.
    pub(crate) throttled: Vec<ClientKey>,
    /// The server wants these clients to authenticate first.
    pub(crate) needs_auth: bool,
    /// The server has accepted the login, and not refused it since.
    pub(crate) is_proven: bool,
    /// The server has refused the last command of these clients of whose changes it tells nobody.
    pub(crate) untold_refused: bool,
    /// The links of the cache to each node, or when the server last refused one.
    tracked: Vec<TrackedWay>,
}

/// A pool's link of the cache to one node.
#[derive(Clone, Debug, Default)]
struct TrackedWay {
    link: Option<usize>,
    refused_at: Option<Instant>,
}

/// Why a link was lost, as far as that matters to those who waited on it.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The server has refused what a connection begins with, in these words.
    pub(crate) refusal: Option<Vec<u8>>,
    /// What it has refused is the login.
    pub(crate) is_refused_login: bool,
    /// Nothing had been sent.
    pub(crate) before_ready: bool,
    /// What clients are told.
    pub(crate) text: String,
}

impl Failure {
    fn new(error: &LinkError, text: String) -> Self {
        let refusal = match error {
            LinkError::Refused(words) => Some(words.clone()),
            _ => None,
        };
        let (is_refused_login, before_ready) = (error.is_refused_login(), error.before_ready());
        Self { refusal, is_refused_login, before_ready, text }
    }
}

/// A pool's way to one node.
#[derive(Clone, Debug, Default)]
struct Way {
    link: Option<usize>,
    /// A second one, while the server says nothing on the first.
    second: Option<usize>,
    /// When and why the last attempt to connect failed.
    failed: Option<(Instant, String)>,
    /// The log says that there is no way.
    reported: bool,
    /// The last connection was lost, or could not be had.
    was_lost: bool,
    /// The server was asked whether it is there, and has not answered yet.
    is_asked: bool,
}

impl Pool {
    fn way(&mut self, node: NodeId) -> &mut Way {
        if self.ways.len() <= node.index() {
            self.ways.resize(node.index() + 1, Way::default());
        }
        &mut self.ways[node.index()]
    }

    /// The shared link to a node, if there is one.
    #[inline]
    pub(crate) fn open_link(&self, node: NodeId) -> Option<usize> {
        self.ways.get(node.index())?.link
    }

    /// Whether a server was asked if it is there, and has not answered yet.
    pub(crate) fn is_asked(&mut self, node: NodeId) -> &mut bool {
        &mut self.way(node).is_asked
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.ways.iter().any(|way| way.link.is_some())
    }
}

impl Relay {
    /// Notes that a server has accepted, or has refused, the login of a pool: for all workers, since
    /// what one of them uses is no guess at another.
    pub(crate) fn set_proven(&mut self, pool: usize, is_proven: bool) {
        let pool = &mut self.upstream.pools[pool];
        if std::mem::replace(&mut pool.is_proven, is_proven) == is_proven {
            return;
        }
        let mut proven = self.shared.proven.lock().unwrap_or_else(PoisonError::into_inner);
        if is_proven {
            *proven.entry(pool.login.clone()).or_default() += 1;
        } else if let Some(workers) = proven.get_mut(&pool.login) {
            *workers -= 1;
            if *workers == 0 {
                proven.remove(&pool.login);
            }
        }
    }

    /// The pool for a login, made if there is none; `None` if there are too many.
    pub(crate) fn pool_for(&mut self, login: &Login) -> Option<usize> {
        if let Some(slot) = self.upstream.find_pool(login) {
            return Some(slot);
        }
        if self.upstream.pools.len() >= MAX_POOLS {
            let unused = |(slot, pool): &(usize, &Pool)| {
                *slot != self.upstream.base_pool && pool.clients == 0
            };
            let oldest = self
                .upstream
                .pools
                .iter()
                .filter(unused)
                .min_by_key(|(_, pool)| pool.idle_since)?
                .0;
            self.drop_pool(oldest);
        }
        self.upstream.pool_serial += 1;
        Some(self.upstream.pools.insert(Pool {
            login: login.clone(),
            serial: self.upstream.pool_serial,
            ways: Vec::new(),
            spare: Vec::new(),
            clients: 0,
            idle_since: self.now,
            waiting: VecDeque::new(),
            throttled: Vec::new(),
            needs_auth: false,
            is_proven: false,
            untold_refused: false,
            tracked: Vec::new(),
        }))
    }

    /// The shared link of a pool to a node, opened if it is not there; else why there is none.
    #[inline]
    pub(crate) fn pool_link(&mut self, pool: usize, node: NodeId) -> Result<usize, String> {
        match self.upstream.pools[pool].open_link(node) {
            Some(link) => Ok(link),
            None => self.open_pool_link(pool, node),
        }
    }

    fn open_pool_link(&mut self, pool: usize, node: NodeId) -> Result<usize, String> {
        self.upstream.silence_failed(self.now, pool, node)?;
        let opened = self.open_link(pool, node, Owner::Pool);
        let link = opened.map_err(|error| unavailable(&self.endpoint(node), &error))?;
        self.upstream.pools[pool].way(node).link = Some(link);
        Ok(link)
    }

    /// The link of a pool on which the server tells of changes, opened if it is not there;
    /// `None` if there is none to be had at the moment.
    pub(crate) fn tracked_link(&mut self, pool: usize, node: NodeId) -> Option<usize> {
        let ways = &mut self.upstream.pools[pool].tracked;
        if ways.len() <= node.index() {
            ways.resize(node.index() + 1, TrackedWay::default());
        }
        let way = &ways[node.index()];
        if way.link.is_some() {
            return way.link;
        }
        let now = self.now;
        if way.refused_at.is_some_and(|at| now.saturating_duration_since(at) < TRACKING_RETRY) {
            return None;
        }
        let link = self.open_link(pool, node, Owner::Tracked).ok()?;
        self.upstream.pools[pool].tracked[node.index()].link = Some(link);
        Some(link)
    }

    /// The server does not track what is read along a link of the cache: it is used no more, and
    /// no other is tried for a while.
    pub(crate) fn refuse_tracked(&mut self, slot: usize) {
        let Some(upstream) =
            self.upstream.links.get(slot).filter(|link| link.owner == Owner::Tracked)
        else {
            return;
        };
        let (pool, node) = (upstream.pool, upstream.node);
        self.retire_link(slot, false);
        self.upstream.forget_tracked(self.now, pool, node, true);
    }

    /// A link for one use: a spare one, or a new one.
    pub(crate) fn take_link(
        &mut self,
        pool: usize,
        node: NodeId,
        owner: Owner,
    ) -> Result<usize, String> {
        let Self { upstream: upstream::Room { pools, links, .. }, .. } = self;
        let of_node = |slot: &usize| links.get(*slot).is_some_and(|link| link.node == node);
        let is_ready = |slot: &usize| of_node(slot) && links[*slot].link.is_ready();
        let spare = &pools[pool].spare;
        let at = spare.iter().rposition(is_ready).or_else(|| spare.iter().rposition(of_node));
        if let Some(at) = at {
            let slot = pools[pool].spare.swap_remove(at);
            links[slot].owner = owner;
            return Ok(slot);
        }
        self.upstream.silence_failed(self.now, pool, node)?;
        let opened = self.open_link(pool, node, owner);
        opened.map_err(|error| unavailable(&self.endpoint(node), &error))
    }

    /// Gives a link back that no client needs any more and that carries no state.
    pub(crate) fn spare_link(&mut self, slot: usize) {
        let Some(upstream) = self.upstream.links.get_mut(slot) else { return };
        let pool = &mut self.upstream.pools[upstream.pool];
        if pool.spare.len() < MAX_SPARE && !upstream.link.is_shut() {
            upstream.owner = Owner::Spare;
            pool.spare.push(slot);
        } else {
            self.drop_link(slot);
        }
    }

    /// Closes a link; whoever waited on it has been seen to.
    pub(crate) fn drop_link(&mut self, slot: usize) {
        if let Some(mut upstream) = self.upstream.links.try_remove(slot) {
            self.shared.link_count.fetch_sub(1, Ordering::Relaxed);
            self.world.remove_link(&mut upstream.link);
            if let Some(address) = upstream.noted {
                self.shared.sockets.closed(address);
            }
            for mark in upstream.link.take_marks() {
                self.give_up(mark);
            }
            let pool = &mut self.upstream.pools[upstream.pool];
            pool.spare.retain(|spare| *spare != slot);
            if let Owner::Client(key) = upstream.owner {
                pool.waiting.retain(|(_, waiting)| *waiting != key);
            }
            let way = pool.way(upstream.node);
            if way.link == Some(slot) {
                way.link = None;
            }
            if way.second == Some(slot) {
                way.second = None;
            }
            if upstream.owner == Owner::Tracked {
                let refused = !upstream.link.is_ready();
                self.upstream.forget_tracked(self.now, upstream.pool, upstream.node, refused);
                self.effects.push(Effect::TrackedLost(upstream.generation));
            }
            if upstream.owner == Owner::Listener {
                self.effects.push(Effect::ListenerLost(upstream.generation));
            }
            self.report_requests(upstream.node, upstream.requests);
        }
    }

    /// Nothing is heard from this node any more: another has taken its place, and what it still
    /// acknowledges is lost.
    ///
    /// 1. A request waits at a primary that stands still (or on a connection to it that is not
    ///    greeted yet); the sentinels name another one.
    /// 2. The old one goes on, executes it and says so, before a sentinel makes it a replica.
    /// 3. Passed on, that would acknowledge a write that nobody will ever see.
    pub(crate) fn abandon_links(&mut self, node: NodeId) {
        let of_node =
            |(slot, upstream): (usize, &Upstream)| (upstream.node == node).then_some(slot);
        let slots: Vec<_> = self.upstream.links.iter().filter_map(of_node).collect();
        for slot in slots {
            let Some(upstream) = self.upstream.links.get(slot) else { continue };
            let idle = upstream.link.waiting() == 0 && !matches!(upstream.owner, Owner::Client(_));
            if idle {
                self.drop_link(slot);
            } else {
                let ready = upstream.link.is_ready();
                self.lose_link(slot, &LinkError::Replaced { ready });
            }
        }
        for (_, pool) in &mut self.upstream.pools {
            let way = pool.way(node);
            way.failed = None;
            way.reported = false;
        }
    }

    /// Uses a shared link no more; what was asked on it may still be answered, or be sent on
    /// from there. If its node was `replaced` by another one, it may not have noticed, and
    /// acknowledge what the other will never know of.
    pub(crate) fn retire_link(&mut self, slot: usize, replaced: bool) {
        let since = self.now;
        let Some(upstream) = self.upstream.links.get_mut(slot) else { return };
        if upstream.link.waiting() == 0 {
            self.drop_link(slot);
            return;
        }
        let ready = upstream.link.is_ready();
        let tracked = upstream.owner == Owner::Tracked;
        upstream.owner = Owner::Retired { since };
        let (index, node, generation) = (upstream.pool, upstream.node, upstream.generation);
        if tracked {
            self.upstream.forget_tracked(self.now, index, node, false);
            self.effects.push(Effect::TrackedLost(generation));
        } else {
            let way = self.upstream.pools[index].way(node);
            for link in [&mut way.link, &mut way.second] {
                link.take_if(|link| *link == slot);
            }
        }
        let pool = &mut self.upstream.pools[index];
        self.clients.resume.append(&mut pool.throttled);
        if ready && replaced {
            if self.upstream.links[slot].link.partly_told().is_some() {
                // Half a reply cannot be taken back.
                self.lose_link(slot, &LinkError::Replaced { ready: true });
                return;
            }
            self.upstream.links[slot].link.hold_replies();
            let requests = self.upstream.unanswered_requests(slot);
            for (at, (_, request)) in requests.iter().enumerate() {
                let in_vain = self.may_write(request);
                self.upstream.links[slot].suspects.at(at).in_vain = in_vain;
            }
            self.upstream.links[slot].is_replaced = true;
            self.next_tick = self.next_tick.min(since + LAST_WORD);
        }
        if !ready {
            // Nothing of it has been sent: all of it can go where it belongs now.
            let requests = self.upstream.unanswered_requests(slot);
            self.drop_link(slot);
            self.send_elsewhere(index, requests, |_, _| true);
        }
    }

    /// A link that is only there for what it was asked, and may have answered that. True if it is free
    /// from now on: whoever waits for a connection has its turn then.
    pub(crate) fn look_at_passing(&mut self, slot: usize) -> bool {
        let Some(upstream) = self.upstream.links.get_mut(slot) else { return false };
        if upstream.link.waiting() > 0 {
            return false;
        }
        match upstream.owner {
            Owner::Once => {
                self.spare_link(slot);
                return true;
            }
            Owner::Retired { .. } => self.drop_link(slot),
            Owner::Pool | Owner::Client(_) | Owner::Spare | Owner::Tracked | Owner::Listener => {}
        }
        false
    }

    pub(crate) fn open_link(
        &mut self,
        pool: usize,
        node: NodeId,
        owner: Owner,
    ) -> Result<usize, LinkError> {
        let purpose = Use {
            shared: owner == Owner::Pool,
            keeps_requests: matches!(owner, Owner::Pool | Owner::Tracked)
                && self.cluster.view.is_some(),
            replica: self.cluster.is_replica(node),
            marks: true,
            tracking: owner == Owner::Tracked,
        };
        let link_count = self.shared.link_count.load(Ordering::Relaxed);
        if matches!(owner, Owner::Client(_) | Owner::Spare) && link_count >= self.shared.max_links {
            let why = "too many clients have a connection of their own for the limit of open files";
            return Err(LinkError::Connect(io::Error::other(why)));
        }
        let dialer = self.node(node);
        let endpoint = dialer.dialer.endpoint();
        self.next_generation = self.next_generation.wrapping_add(1);
        let generation = self.next_generation;
        let entry = self.upstream.links.vacant_entry();
        let slot = entry.key();
        let mut login = self.upstream.pools[pool].login.clone();
        if purpose.tracking {
            // What the server tells by itself comes only in this form.
            login.protocol = Protocol::Resp3;
        }
        if owner == Owner::Listener {
            // Every server speaks it.
            login.protocol = Protocol::Resp2;
        }
        let token = link_token(slot, generation);
        let connection = self.world.connect(&dialer.dialer, token).map_err(LinkError::Connect);
        match connection {
            Ok(connection) => {
                let link = Link::over(connection, &login, purpose, self.now);
                let kind = match owner {
                    Owner::Tracked | Owner::Listener => Some(Kind::Cache),
                    Owner::Client(_) | Owner::Spare | Owner::Once => Some(Kind::Dedicated),
                    Owner::Pool | Owner::Retired { .. } => None,
                };
                let noted = kind.and_then(|kind| Some((link.local_address()?, kind)));
                if let Some((address, kind)) = noted {
                    self.shared.sockets.opened(address, kind);
                }
                let upstream = Upstream {
                    link,
                    noted: noted.map(|(address, _)| address),
                    pool,
                    node,
                    endpoint,
                    replica: purpose.replica,
                    suspects: SuspectReplies::default(),
                    is_replaced: false,
                    requests: 0,
                    owner,
                    generation,
                    dirty: false,
                    readable: false,
                    announced_ready: false,
                    hung_up: false,
                    name: Vec::new(),
                };
                entry.insert(upstream);
                self.shared.link_count.fetch_add(1, Ordering::Relaxed);
                Ok(slot)
            }
            Err(error) => {
                self.note_failure(pool, node, &endpoint, &error, None);
                Err(error)
            }
        }
    }

    fn note_failure(
        &mut self,
        pool: usize,
        node: NodeId,
        endpoint: &Endpoint,
        error: &LinkError,
        address: Option<SocketAddr>,
    ) {
        let why = unavailable(endpoint, error);
        let told = &why["ERR heatsink: ".len()..];
        let outage = !self.upstream.is_clients_own(pool, error);
        if error.is_refused_login() {
            self.set_proven(pool, false);
        }
        if matches!(error, LinkError::Refused(text) if text.starts_with(b"WRONGPASS")) {
            let serial = self.upstream.pools[pool].serial;
            self.effects.push(Effect::PasswordRefused(pool, serial));
        }
        let way = self.upstream.pools[pool].way(node);
        if !outage {
            tracing::debug!("{told}");
        } else if !way.reported {
            tracing::warn!("{told}");
            way.reported = true;
        }
        way.failed = Some((self.now, why));
        if outage {
            way.was_lost = true;
            self.note_unreachable(pool, node, error);
        }
        if !matches!(error, LinkError::Refused(_)) {
            if let Some(address) = address {
                self.node(node).dialer.failed(address);
            }
            self.node_failed(node);
        }
    }

    /// Called when a link has read something. True if it is ready from now on: whoever waits for a
    /// connection has its turn then, and after that [`Self::begin_on`] is to be called.
    pub(crate) fn note_ready(&mut self, slot: usize) -> bool {
        let Some(upstream) = self.upstream.links.get_mut(slot) else { return false };
        if upstream.announced_ready || !upstream.link.is_ready() {
            return false;
        }
        upstream.announced_ready = true;
        // Clients that were stopped because too much waited for this are resumed by a flush.
        if !upstream.dirty {
            upstream.dirty = true;
            self.upstream.dirty_links.push(slot);
        }
        let (pool, node, owner) = (upstream.pool, upstream.node, upstream.owner);
        let needs_auth = upstream.link.needs_auth();
        let way = self.upstream.pools[pool].way(node);
        way.failed = None;
        if std::mem::take(&mut way.reported) {
            tracing::warn!("upstream {} is back", self.endpoint(node));
        }
        self.upstream.pools[pool].needs_auth = needs_auth;
        self.set_proven(pool, true);
        let again = owner == Owner::Pool
            && std::mem::take(&mut self.upstream.pools[pool].way(node).was_lost);
        self.note_reachable(slot, again);
        true
    }

    /// A link is ready, and whose it is is settled: what is to be asked on it first.
    pub(crate) fn begin_on(&mut self, slot: usize) {
        let Some(upstream) = self.upstream.links.get(slot) else { return };
        match upstream.owner {
            Owner::Pool if !upstream.link.needs_auth() => {
                self.ask_commands(slot);
                self.ask_topology(slot);
            }
            Owner::Client(key) => {
                let id = upstream.link.connection_id();
                if let Some(client) = self.clients.get(key) {
                    client.record.set_upstream_id(id);
                }
            }
            Owner::Tracked => self.effects.push(Effect::TrackedReady(slot)),
            Owner::Pool | Owner::Spare | Owner::Once | Owner::Listener | Owner::Retired { .. } => {}
        }
    }

    /// Ends a link that failed: everyone who waits is told, state that is lost is dealt with.
    pub(crate) fn lose_link(&mut self, slot: usize, error: &LinkError) {
        let Some(upstream) = self.upstream.links.get_mut(slot) else { return };
        let (pool, node, owner) = (upstream.pool, upstream.node, upstream.owner);
        let (address, endpoint) = (upstream.link.address(), upstream.endpoint.clone());
        let replica = upstream.replica;
        let mut reads = if replica { self.upstream.unanswered_requests(slot) } else { Vec::new() };
        let Some(upstream) = self.upstream.links.get_mut(slot) else { return };
        let mut suspects = std::mem::take(&mut upstream.suspects);
        let (part_sent, abandoned) = upstream.link.abandon();
        let mut abandoned: Vec<_> = abandoned.collect();
        self.drop_link(slot);
        if let (Owner::Tracked, LinkError::Refused(text)) = (owner, error) {
            let error = LinkError::Refused(text.clone());
            self.effects.push(Effect::TrackingRefused(node, error));
        } else if error.before_ready() {
            self.note_failure(pool, node, &endpoint, error, address);
        } else if owner == Owner::Pool {
            tracing::warn!(waiting = abandoned.len(), "upstream {endpoint} lost: {error}");
            self.note_lost(error);
            if let Some(pool) = self.upstream.pools.get_mut(pool) {
                pool.way(node).was_lost = true;
            }
            self.forget_commands();
            self.node_failed(node);
        }
        if matches!(owner, Owner::Pool | Owner::Tracked) && !matches!(error, LinkError::Refused(_))
        {
            self.effects.push(Effect::NodeLost(node));
        }
        let mut text = unavailable(&endpoint, error);
        if !error.before_ready() {
            text.push_str("; it is unknown whether the command was executed");
        }
        let is_read_again = !reads.is_empty();
        if part_sent
            && let Some((ticket, count)) = abandoned.first_mut()
            && self.clients.cut(ticket.client, ticket.seq)
        {
            // Half a reply cannot be mended: whatever follows, from here or from elsewhere, would
            // be taken for the rest of it.
            *count -= 1;
            suspects.pop();
            reads.drain(..reads.len().min(1));
        }
        if is_read_again {
            // Its primary has what it had. What is no read, since the node was more than a
            // replica meanwhile, may have been executed and is not repeated.
            self.send_elsewhere(pool, reads, Self::is_read);
            abandoned.clear();
        }
        let told = error_line(&text);
        let failure = Rc::new(Failure::new(error, text));
        let each = |(ticket, count)| std::iter::repeat_n(ticket, count as usize);
        for ticket in abandoned.into_iter().flat_map(each) {
            if let Some(replayed) = suspects.pop().replayed {
                let ticket = self.clients.redirect(ticket);
                self.replay_answered(replayed, ticket, Outcome::Reply(told.clone()));
                continue;
            }
            match ticket.purpose {
                Purpose::Forward => {
                    self.clients.deliver(ticket.client, ticket.seq, &[told.len()], &told);
                }
                Purpose::Redirect(_) | Purpose::Part { .. } => self.effects.conclude(ticket, &told),
                Purpose::Session => {
                    self.end_redirect(ticket);
                    self.effects.push(Effect::SessionFailed(ticket, Rc::clone(&failure)));
                }
                Purpose::Commands => self.forget_commands(),
                Purpose::Topology => self.forget_topology_question(),
                Purpose::Fill(_)
                | Purpose::FillFields(_)
                | Purpose::FillTtl(_)
                | Purpose::Combined(_) => {
                    self.effects.push(Effect::Unanswered(ticket, told.clone()));
                }
                Purpose::Members
                | Purpose::Ignored
                | Purpose::Dedicated
                | Purpose::Pulse
                | Purpose::Health(_)
                | Purpose::Caching(_) => {}
            }
        }
        if let Owner::Client(key) = owner {
            self.effects.push(Effect::DedicatedLost(key, slot, failure));
        }
        // The pool may have gone with the last that hoped for it.
        if let Some(pool) = self.upstream.pools.get_mut(pool) {
            self.clients.resume.append(&mut pool.throttled);
        }
    }

    /// Links that take too long, each with its generation, and why they are to be given up.
    pub(crate) fn overdue_links(&self) -> Vec<(usize, u32, LinkError)> {
        let timeouts = &self.live.timeouts;
        self.upstream
            .links
            .iter()
            .filter_map(|(slot, upstream)| {
                if self.is_outlived(upstream) {
                    let error = LinkError::Replaced { ready: true };
                    return Some((slot, upstream.generation, error));
                }
                if let Owner::Retired { since } = upstream.owner
                    && self.now >= since + RETIRED
                {
                    return Some((slot, upstream.generation, LinkError::Silent));
                }
                let bound = match upstream.owner {
                    // What the cache may believe rests on what the server says; that it takes
                    // bytes is not enough.
                    Owner::Tracked | Owner::Listener => Some(SILENCE),
                    _ => timeouts.silence.map(|time| time + upstream.link.taking_time()),
                };
                let silence = bound.filter(|_| self.clients.owes_answer(slot, upstream));
                let way = self.upstream.pools[upstream.pool].ways.get(upstream.node.index());
                let connect = match way {
                    // The server says nothing anyway.
                    Some(way) if way.second == Some(slot) => {
                        timeouts.silence.map_or(Duration::MAX, |time| time.max(timeouts.connect))
                    }
                    _ => timeouts.connect,
                };
                let error = upstream.link.overdue(self.now, connect, silence)?;
                Some((slot, upstream.generation, error))
            })
            .collect()
    }

    /// Gives up pools that nobody needs.
    pub(crate) fn look_after_pools(&mut self) {
        let unused: Vec<_> = self
            .upstream
            .pools
            .iter()
            .filter(|(slot, pool)| {
                *slot != self.upstream.base_pool
                    && pool.clients == 0
                    && self.now.saturating_duration_since(pool.idle_since) >= POOL_IDLE
            })
            .map(|(slot, _)| slot)
            .collect();
        for pool in unused {
            self.drop_pool(pool);
        }
    }

    /// Gives a pool up that never came to life: nobody is in it and it has no connection.
    pub(crate) fn drop_pool_if_unused(&mut self, pool: usize) {
        if pool != self.upstream.base_pool
            && self.upstream.pools[pool].clients == 0
            && !self.upstream.pools[pool].is_connected()
        {
            self.drop_pool(pool);
        }
    }

    /// Gives pools up that were left for a shared one, unless somebody has come since.
    pub(crate) fn drop_surplus_pools(&mut self) {
        while let Some((pool, serial)) = self.upstream.surplus_pools.pop() {
            if self
                .upstream
                .pools
                .get(pool)
                .is_some_and(|pool| pool.serial == serial && pool.clients == 0)
            {
                self.drop_pool(pool);
            }
        }
    }

    fn drop_pool(&mut self, pool: usize) {
        self.set_proven(pool, false);
        let of_pool =
            |(slot, upstream): (usize, &Upstream)| (upstream.pool == pool).then_some(slot);
        loop {
            let links: Vec<_> = self.upstream.links.iter().filter_map(of_pool).collect();
            if links.is_empty() {
                break;
            }
            for link in links {
                match self.upstream.links.get(link) {
                    // Whoever waits is told. What was kept from somebody until then may be sent on
                    // for it, along another link of the pool; what waits there is told next.
                    Some(upstream) if upstream.link.waiting() > 0 => {
                        self.lose_link(link, &LinkError::Closed);
                    }
                    _ => self.drop_link(link),
                }
            }
        }
        if let Some(pool) = self.upstream.pools.try_remove(pool) {
            self.effects.push(Effect::PoolGone(pool.serial));
        }
    }
}

impl upstream::Room {
    /// A client leaves a pool.
    pub(crate) fn leave_pool(&mut self, now: Instant, pool: usize) {
        self.pools[pool].clients -= 1;
        self.pools[pool].idle_since = now;
    }

    pub(crate) fn silence_failed(
        &mut self,
        now: Instant,
        pool: usize,
        node: NodeId,
    ) -> Result<(), String> {
        match &self.pools[pool].way(node).failed {
            Some((at, why)) if now.saturating_duration_since(*at) < RETRY_AFTER => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// The last attempt to connect has failed, and not longer ago than that.
    pub(crate) fn has_failed_within(
        &mut self,
        now: Instant,
        pool: usize,
        node: NodeId,
        time: Duration,
    ) -> bool {
        let failed = self.pools[pool].way(node).failed.as_ref();
        failed.is_some_and(|(at, _)| now.saturating_duration_since(*at) < time)
    }

    /// A tracked link is gone. If it never worked, it is not tried again for a while.
    pub(crate) fn forget_tracked(
        &mut self,
        now: Instant,
        pool: usize,
        node: NodeId,
        refused: bool,
    ) {
        if let Some(way) = self.pools.get_mut(pool).and_then(|l| l.tracked.get_mut(node.index())) {
            way.link = None;
            way.refused_at = refused.then_some(now);
        }
    }

    /// The pool of a login, if there is one.
    pub(crate) fn find_pool(&self, login: &Login) -> Option<usize> {
        self.pools.iter().find(|(_, pool)| pool.login == *login).map(|(slot, _)| slot)
    }

    /// A client joins a pool.
    pub(crate) fn enter_pool(&mut self, pool: usize) {
        self.pools[pool].clients += 1;
    }

    /// Nodes that a pool has a shared link to.
    pub(crate) fn connected_nodes(&self, pool: usize) -> impl Iterator<Item = NodeId> {
        let ways = self.pools[pool].ways.iter().enumerate();
        ways.filter(|(_, way)| way.link.is_some()).map(|(node, _)| NodeId(node as u16))
    }

    /// Whether one of a pool's shared links has more to send, or to wait for, than it should.
    pub(crate) fn is_pool_full(&self, pool: usize) -> bool {
        let links = self.pools[pool].ways.iter().flat_map(|way| [way.link, way.second]);
        links.flatten().filter_map(|link| self.links.get(link)).any(Upstream::is_full)
    }

    /// Whether a connection failed for who a client says it is, or for the database or protocol
    /// that it wants. Anybody can bring that about, and all others are served.
    pub(crate) fn is_clients_own(&self, pool: usize, error: &LinkError) -> bool {
        let (login, base) = (&self.pools[pool].login, &self.pools[self.base_pool].login);
        let wrong_password =
            matches!(error, LinkError::Refused(text) if text.starts_with(b"WRONGPASS"));
        let clients_word =
            login.credentials != base.credentials || (login != base && !wrong_password);
        clients_word && error.is_refused_login()
    }
}

/// What clients are told when the upstream cannot be reached.
fn unavailable(endpoint: &Endpoint, error: &LinkError) -> String {
    match error {
        // While a script hangs, a new connection cannot even select its database. On one that is there
        // already a client would be told just that.
        LinkError::Refused(words) if words.starts_with(b"BUSY ") => {
            String::from_utf8_lossy(words).into_owned()
        }
        _ => format!("ERR heatsink: upstream {endpoint} unavailable: {error}"),
    }
}
