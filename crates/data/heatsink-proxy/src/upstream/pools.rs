//! Pools: the upstream connections that clients of one user, database and protocol share.
//!
//! Called by: `forward` and `switch` for the shared links, `dedicated_link` for links of a
//! client's own.
//! Bound: one shared link per pool, node and worker, and a second one around it (see [`bypass`]); at
//! most [`MAX_SPARE`] spare ones a pool; a pool nobody uses is given up after [`POOL_IDLE`].
//! Invariant: clients of different users never share a link.

mod bypass;

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use heatsink_upstream::Login;
use heatsink_upstream::error::LinkError;

use crate::downstream::connection::ClientKey;
use crate::observe::Mark;
use crate::upstream::effects::{Effect, Note};
use crate::upstream::links::{Owner, Upstream, unavailable};
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::Ticket;
use crate::upstream::{Links, Room};

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

/// One user, database and protocol.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) login: Login,
    /// Tells a later pool in the same place apart.
    pub(crate) serial: u64,
    /// The way to each node.
    pub(super) ways: Vec<Way>,
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

/// A pool's way to one node.
#[derive(Clone, Debug, Default)]
pub(super) struct Way {
    pub(super) link: Option<usize>,
    /// A second one, while the server says nothing on the first.
    pub(super) second: Option<usize>,
    /// When and why the last attempt to connect failed.
    pub(super) failed: Option<(Instant, String)>,
    /// The log says that there is no way.
    pub(super) reported: bool,
    /// The last connection was lost, or could not be had.
    pub(super) was_lost: bool,
    /// The server was asked whether it is there, and has not answered yet.
    is_asked: bool,
}

impl Pool {
    pub(super) fn way(&mut self, node: NodeId) -> &mut Way {
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

impl<N: Note<Effect>> Links<'_, N> {
    /// Notes that a server has accepted, or has refused, the login of a pool: for all workers, since
    /// what one of them uses is no guess at another.
    pub(crate) fn set_proven(&mut self, pool: usize, is_proven: bool) {
        let pool = &mut self.room.pools[pool];
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
        if let Some(slot) = self.room.find_pool(login) {
            return Some(slot);
        }
        if self.room.pools.len() >= MAX_POOLS {
            let unused =
                |(slot, pool): &(usize, &Pool)| *slot != self.room.base_pool && pool.clients == 0;
            let oldest =
                self.room.pools.iter().filter(unused).min_by_key(|(_, pool)| pool.idle_since)?.0;
            self.drop_pool(oldest);
        }
        self.room.pool_serial += 1;
        Some(self.room.pools.insert(Pool {
            login: login.clone(),
            serial: self.room.pool_serial,
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

    /// The shared link for what a client sends now.
    #[inline]
    pub(crate) fn link_for(
        &mut self,
        key: ClientKey,
        pool: usize,
        node: NodeId,
    ) -> Result<usize, String> {
        let link = self.pool_link(pool, node)?;
        if self.room.goes_around { Ok(self.link_around(key, pool, node, link)) } else { Ok(link) }
    }

    /// The shared link of a pool to a node, opened if it is not there; else why there is none.
    #[inline]
    pub(crate) fn pool_link(&mut self, pool: usize, node: NodeId) -> Result<usize, String> {
        match self.room.pools[pool].open_link(node) {
            Some(link) => Ok(link),
            None => self.open_pool_link(pool, node),
        }
    }

    /// The shared link of clients that have not authenticated.
    pub(crate) fn base_link(&mut self, node: NodeId) -> Result<usize, String> {
        self.pool_link(self.room.base_pool, node)
    }

    fn open_pool_link(&mut self, pool: usize, node: NodeId) -> Result<usize, String> {
        self.room.silence_failed(self.now, pool, node)?;
        let opened = self.open_link(pool, node, Owner::Pool);
        let link = opened.map_err(|error| unavailable(&self.endpoint(node), &error))?;
        self.room.pools[pool].way(node).link = Some(link);
        Ok(link)
    }

    /// The link of a pool on which the server tells of changes, opened if it is not there;
    /// `None` if there is none to be had at the moment.
    pub(crate) fn tracked_link(&mut self, pool: usize, node: NodeId) -> Option<usize> {
        let ways = &mut self.room.pools[pool].tracked;
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
        self.room.pools[pool].tracked[node.index()].link = Some(link);
        Some(link)
    }

    /// A link for one use: a spare one, or a new one.
    pub(crate) fn take_link(
        &mut self,
        pool: usize,
        node: NodeId,
        owner: Owner,
    ) -> Result<usize, String> {
        let Room { pools, links, .. } = &mut *self.room;
        let of_node = |slot: &usize| links.get(*slot).is_some_and(|link| link.node == node);
        let is_ready = |slot: &usize| of_node(slot) && links[*slot].link.is_ready();
        let spare = &pools[pool].spare;
        let at = spare.iter().rposition(is_ready).or_else(|| spare.iter().rposition(of_node));
        if let Some(at) = at {
            let slot = pools[pool].spare.swap_remove(at);
            links[slot].owner = owner;
            return Ok(slot);
        }
        self.room.silence_failed(self.now, pool, node)?;
        let opened = self.open_link(pool, node, owner);
        opened.map_err(|error| unavailable(&self.endpoint(node), &error))
    }

    /// Gives a link back that no client needs any more and that carries no state.
    pub(crate) fn spare_link(&mut self, slot: usize) {
        let Some(upstream) = self.room.links.get_mut(slot) else { return };
        let pool = &mut self.room.pools[upstream.pool];
        if pool.spare.len() < MAX_SPARE && !upstream.link.is_shut() {
            upstream.owner = Owner::Spare;
            pool.spare.push(slot);
        } else {
            self.drop_link(slot);
        }
    }

    /// Gives up pools that nobody needs.
    pub(crate) fn look_after_pools(&mut self) {
        let unused: Vec<_> = self
            .room
            .pools
            .iter()
            .filter(|(slot, pool)| {
                *slot != self.room.base_pool
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
        if pool != self.room.base_pool
            && self.room.pools[pool].clients == 0
            && !self.room.pools[pool].is_connected()
        {
            self.drop_pool(pool);
        }
    }

    /// Gives pools up that were left for a shared one, unless somebody has come since.
    pub(crate) fn drop_surplus_pools(&mut self) {
        while let Some((pool, serial)) = self.room.surplus_pools.pop() {
            if self
                .room
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
        let links: Vec<_> = self.room.links.iter().filter_map(of_pool).collect();
        for link in links {
            match self.room.links.get(link) {
                // Whoever waits is told.
                Some(upstream) if upstream.link.waiting() > 0 => {
                    self.lose_link(link, &LinkError::Closed);
                }
                _ => self.drop_link(link),
            }
        }
        if let Some(pool) = self.room.pools.try_remove(pool) {
            self.effects.note(Effect::PoolGone(pool.serial));
        }
    }
}

impl Room {
    /// Queues a request on a link; it is flushed at the end of the turn.
    #[inline]
    pub(crate) fn push_to_link(&mut self, now: Instant, slot: usize, bytes: &[u8], ticket: Ticket) {
        let upstream = &mut self.links[slot];
        upstream.requests += 1;
        upstream.link.push(bytes, ticket, 1, now);
        if !upstream.dirty {
            upstream.dirty = true;
            self.dirty_links.push(slot);
        }
    }

    /// Queues requests of which something is remembered; the link is flushed at the end of the turn.
    #[inline]
    pub(crate) fn push_marked(
        &mut self,
        now: Instant,
        slot: usize,
        bytes: &[u8],
        ticket: Ticket,
        marks: &[Mark],
    ) {
        let upstream = &mut self.links[slot];
        upstream.requests += marks.len() as u64;
        upstream.link.push_marked(bytes, ticket, marks, now);
        if !upstream.dirty {
            upstream.dirty = true;
            self.dirty_links.push(slot);
        }
    }

    /// A link has something to send.
    pub(crate) fn touch_link(&mut self, slot: usize) {
        if let Some(upstream) = self.links.get_mut(slot)
            && !upstream.dirty
        {
            upstream.dirty = true;
            self.dirty_links.push(slot);
        }
    }

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
