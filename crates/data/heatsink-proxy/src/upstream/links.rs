//! The connections to servers: opened, used no more, lost.
//!
//! Called by: `pools`, which has them shared; the rooms above, when one fails, or is no longer to be used;
//! the event loop with what becomes of each.
//! Effects that it notes: see [`Effect`]. What hangs on a lost connection is told in the order in which it
//! was asked there.
//! Bound: `Shared::max_links` for all that are there for one client.
//! Invariant: what may have been executed is not sent twice, but for reads of a lost replica.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use heatsink_upstream::Protocol;
use heatsink_upstream::address::Endpoint;
use heatsink_upstream::error::LinkError;
use heatsink_upstream::link::{Framing, Link, Use};

use crate::downstream::clients::error_line;
use crate::downstream::connection::ClientKey;
use crate::downstream::order::Source;
use crate::downstream::request::may_write;
use crate::observe::Mark;
use crate::runtime::world::link_token;
use crate::upstream::effects::{Effect, Note, Unsent};
use crate::upstream::monitor::Kind;
use crate::upstream::nodes::NodeId;
use crate::upstream::silent_nodes::LAST_WORD;
use crate::upstream::suspect_replies::{Suspect, SuspectReplies};
use crate::upstream::ticket::{Purpose, Ticket};
use crate::upstream::{Links, Room};

/// Above this much unsent on a link, its clients are not read from.
pub(crate) const BACKLOG_BYTES: usize = 1 << 20;
/// Above this many bytes that are sent, unanswered and kept on a link, its clients are not read from.
pub(crate) const KEPT_BYTES: usize = 16 << 20;
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

    /// What clients are told, as a reply.
    pub(crate) fn told(&self) -> Vec<u8> {
        error_line(&self.text)
    }
}

impl<N: Note<Effect>> Links<'_, N> {
    pub(crate) fn open_link(
        &mut self,
        pool: usize,
        node: NodeId,
        owner: Owner,
    ) -> Result<usize, LinkError> {
        let purpose = Use {
            shared: owner == Owner::Pool,
            keeps_requests: matches!(owner, Owner::Pool | Owner::Tracked)
                && self.room.keeps_requests,
            replica: self.room.replicas.contains(&node),
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
        self.room.generation = self.room.generation.wrapping_add(1);
        let generation = self.room.generation;
        let entry = self.room.links.vacant_entry();
        let slot = entry.key();
        let mut login = self.room.pools[pool].login.clone();
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
        let outage = !self.room.is_clients_own(pool, error);
        if error.is_refused_login() {
            self.set_proven(pool, false);
        }
        if matches!(error, LinkError::Refused(text) if text.starts_with(b"WRONGPASS")) {
            let serial = self.room.pools[pool].serial;
            self.effects.note(Effect::PasswordRefused(pool, serial));
        }
        let way = self.room.pools[pool].way(node);
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
            self.effects.note(Effect::NodeFailed(node));
        }
    }

    /// Called when a link has read something. True if it is ready from now on: whoever waits for a
    /// connection has its turn then, and after that [`Self::begin_on`] is to be called.
    pub(crate) fn note_ready(&mut self, slot: usize) -> bool {
        let Some(upstream) = self.room.links.get_mut(slot) else { return false };
        if upstream.announced_ready || !upstream.link.is_ready() {
            return false;
        }
        upstream.announced_ready = true;
        // Clients that were stopped because too much waited for this are resumed by a flush.
        if !upstream.dirty {
            upstream.dirty = true;
            self.room.dirty_links.push(slot);
        }
        let (pool, node, owner) = (upstream.pool, upstream.node, upstream.owner);
        let needs_auth = upstream.link.needs_auth();
        let way = self.room.pools[pool].way(node);
        way.failed = None;
        if std::mem::take(&mut way.reported) {
            tracing::warn!("upstream {} is back", self.endpoint(node));
        }
        self.room.pools[pool].needs_auth = needs_auth;
        self.set_proven(pool, true);
        let again =
            owner == Owner::Pool && std::mem::take(&mut self.room.pools[pool].way(node).was_lost);
        self.note_reachable(slot, again);
        true
    }

    /// Closes a link; whoever waited on it has been seen to.
    pub(crate) fn drop_link(&mut self, slot: usize) {
        if let Some(mut upstream) = self.room.links.try_remove(slot) {
            self.shared.link_count.fetch_sub(1, Ordering::Relaxed);
            self.world.remove_link(&mut upstream.link);
            if let Some(address) = upstream.noted {
                self.shared.sockets.closed(address);
            }
            for mark in upstream.link.take_marks().filter(|mark| *mark != Mark::Nothing) {
                self.effects.note(Effect::GivenUp(mark));
            }
            let pool = &mut self.room.pools[upstream.pool];
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
                self.room.forget_tracked(self.now, upstream.pool, upstream.node, refused);
                self.effects.note(Effect::TrackedLost(upstream.generation));
            }
            if upstream.owner == Owner::Listener {
                self.effects.note(Effect::ListenerLost(upstream.generation));
            }
            self.node(upstream.node).requests.fetch_add(upstream.requests, Ordering::Relaxed);
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
        let slots: Vec<_> = self.room.links.iter().filter_map(of_node).collect();
        for slot in slots {
            let Some(upstream) = self.room.links.get(slot) else { continue };
            let idle = upstream.link.waiting() == 0 && !matches!(upstream.owner, Owner::Client(_));
            if idle {
                self.drop_link(slot);
            } else {
                let ready = upstream.link.is_ready();
                self.lose_link(slot, &LinkError::Replaced { ready });
            }
        }
        for (_, pool) in &mut self.room.pools {
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
        let Some(upstream) = self.room.links.get_mut(slot) else { return };
        if upstream.link.waiting() == 0 {
            self.drop_link(slot);
            return;
        }
        let ready = upstream.link.is_ready();
        let tracked = upstream.owner == Owner::Tracked;
        upstream.owner = Owner::Retired { since };
        let (index, node, generation) = (upstream.pool, upstream.node, upstream.generation);
        if tracked {
            self.room.forget_tracked(self.now, index, node, false);
            self.effects.note(Effect::TrackedLost(generation));
        } else {
            let way = self.room.pools[index].way(node);
            for link in [&mut way.link, &mut way.second] {
                link.take_if(|link| *link == slot);
            }
        }
        let pool = &mut self.room.pools[index];
        self.clients.resume.append(&mut pool.throttled);
        if ready && replaced {
            if self.room.links[slot].link.partly_told().is_some() {
                // Half a reply cannot be taken back.
                self.lose_link(slot, &LinkError::Replaced { ready: true });
                return;
            }
            self.room.links[slot].link.hold_replies();
            let requests = self.room.unanswered_requests(slot);
            for (at, (_, request)) in requests.iter().enumerate() {
                let in_vain = may_write(self.table, request);
                self.room.links[slot].suspects.at(at).in_vain = in_vain;
            }
            self.room.links[slot].is_replaced = true;
            *self.next_tick = (*self.next_tick).min(since + LAST_WORD);
        }
        if !ready {
            // Nothing of it has been sent: all of it can go where it belongs now.
            let requests = self.room.unanswered_requests(slot);
            self.drop_link(slot);
            self.send_elsewhere(index, requests, false);
        }
    }

    /// The server does not track what is read along a link of the cache: it is used no more, and
    /// no other is tried for a while.
    pub(crate) fn refuse_tracked(&mut self, slot: usize) {
        let Some(upstream) = self.room.links.get(slot).filter(|link| link.owner == Owner::Tracked)
        else {
            return;
        };
        let (pool, node) = (upstream.pool, upstream.node);
        self.retire_link(slot, false);
        self.room.forget_tracked(self.now, pool, node, true);
    }

    /// A link that is only there for what it was asked, and may have answered that. True if it is free
    /// from now on: whoever waits for a connection has its turn then.
    pub(crate) fn look_at_passing(&mut self, slot: usize) -> bool {
        let Some(upstream) = self.room.links.get_mut(slot) else { return false };
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

    /// Ends a link that failed: everyone who waits is told, state that is lost is dealt with.
    pub(crate) fn lose_link(&mut self, slot: usize, error: &LinkError) {
        let Some(upstream) = self.room.links.get_mut(slot) else { return };
        let (pool, node, owner) = (upstream.pool, upstream.node, upstream.owner);
        let (address, endpoint) = (upstream.link.address(), upstream.endpoint.clone());
        let replica = upstream.replica;
        let mut reads = if replica { self.room.unanswered_requests(slot) } else { Vec::new() };
        let Some(upstream) = self.room.links.get_mut(slot) else { return };
        let mut suspects = std::mem::take(&mut upstream.suspects);
        let (part_sent, abandoned) = upstream.link.abandon();
        let mut abandoned: Vec<_> = abandoned.collect();
        self.drop_link(slot);
        if let (Owner::Tracked, LinkError::Refused(text)) = (owner, error) {
            let error = LinkError::Refused(text.clone());
            self.effects.note(Effect::TrackingRefused(node, error));
        } else if error.before_ready() {
            self.note_failure(pool, node, &endpoint, error, address);
        } else if owner == Owner::Pool {
            tracing::warn!(waiting = abandoned.len(), "upstream {endpoint} lost: {error}");
            self.note_lost(error);
            if let Some(pool) = self.room.pools.get_mut(pool) {
                pool.way(node).was_lost = true;
            }
            self.shared.forget_commands();
            self.effects.note(Effect::NodeFailed(node));
        }
        if matches!(owner, Owner::Pool | Owner::Tracked) && !matches!(error, LinkError::Refused(_))
        {
            self.effects.note(Effect::NodeLost(node));
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
            self.send_elsewhere(pool, reads, true);
            abandoned.clear();
        }
        let told = error_line(&text);
        let failure = Rc::new(Failure::new(error, text));
        let each = |(ticket, count)| std::iter::repeat_n(ticket, count as usize);
        for ticket in abandoned.into_iter().flat_map(each) {
            self.leave_unanswered(ticket, suspects.pop(), &told, &failure);
        }
        if let Owner::Client(key) = owner {
            self.effects.note(Effect::DedicatedLost(key, slot, failure));
        }
        // The pool may have gone with the last that hoped for it.
        if let Some(pool) = self.room.pools.get_mut(pool) {
            self.clients.resume.append(&mut pool.throttled);
        }
    }

    /// A request will not be answered: its client is told so, or whoever knows what it was for.
    fn leave_unanswered(
        &mut self,
        ticket: Ticket,
        suspect: Suspect,
        told: &[u8],
        failure: &Rc<Failure>,
    ) {
        if let Some(replayed) = suspect.replayed {
            let ticket = self.clients.redirect(ticket);
            let failure = Rc::clone(failure);
            return self.effects.note(Effect::ReplayedLost(replayed, ticket, failure));
        }
        match ticket.purpose {
            Purpose::Forward => {
                self.clients.deliver(ticket.client, ticket.seq, &[told.len()], told);
            }
            Purpose::Commands => self.shared.forget_commands(),
            Purpose::Redirect(_)
            | Purpose::Part { .. }
            | Purpose::Session
            | Purpose::Topology
            | Purpose::Fill(_)
            | Purpose::FillFields(_)
            | Purpose::FillTtl(_)
            | Purpose::Combined(_) => {
                self.effects.note(Effect::Unanswered(ticket, Rc::clone(failure)));
            }
            Purpose::Members
            | Purpose::Ignored
            | Purpose::Dedicated
            | Purpose::Pulse
            | Purpose::Health(_)
            | Purpose::Caching(_) => {}
        }
    }

    /// A link is given up, and what it was asked goes elsewhere: all of it, or only what reads.
    fn send_elsewhere(&mut self, pool: usize, requests: Vec<(Ticket, Vec<u8>)>, only_reads: bool) {
        let serial = self.room.pools.get(pool).map(|pool| pool.serial);
        let unsent = Unsent { way: (pool, serial), requests, only_reads };
        self.effects.note(Effect::SendElsewhere(Box::new(unsent)));
    }

    /// Links that take too long, each with its generation, and why they are to be given up.
    pub(crate) fn overdue_links(&self) -> Vec<(usize, u32, LinkError)> {
        let timeouts = &self.live.timeouts;
        self.room
            .links
            .iter()
            .filter_map(|(slot, upstream)| {
                if upstream.is_outlived(self.now) {
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
                let silence = bound.filter(|_| upstream.owes_answer(slot, self.clients));
                let way = self.room.pools[upstream.pool].ways.get(upstream.node.index());
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

    /// A connection of which nobody else expects a reply, until it has given one.
    pub(crate) fn link_apart(&mut self, pool: usize, node: NodeId) -> Result<usize, String> {
        let link = self.take_link(pool, node, Owner::Once)?;
        self.room.links[link].link.set_framing(Framing::Replies);
        Ok(link)
    }
}

impl Room {
    /// The connections that a client has for requests apart.
    pub(crate) fn links_apart(&self, key: ClientKey) -> Vec<usize> {
        let asks = |(slot, upstream): (usize, &Upstream)| {
            let mut waiters = upstream.link.waiters();
            let asks = upstream.owner == Owner::Once && waiters.any(|w| w.client == key);
            asks.then_some(slot)
        };
        self.links.iter().filter_map(asks).collect()
    }

    /// The requests that a link has not answered.
    fn unanswered_requests(&self, slot: usize) -> Vec<(Ticket, Vec<u8>)> {
        let Some(upstream) = self.links.get(slot) else { return Vec::new() };
        let unanswered = upstream.link.unanswered();
        unanswered.map(|(ticket, request)| (ticket, request.to_vec())).collect()
    }
}

/// What clients are told when the upstream cannot be reached.
pub(super) fn unavailable(endpoint: &Endpoint, error: &LinkError) -> String {
    match error {
        // While a script hangs, a new connection cannot even select its database. On one that is there
        // already a client would be told just that.
        LinkError::Refused(words) if words.starts_with(b"BUSY ") => {
            String::from_utf8_lossy(words).into_owned()
        }
        _ => format!("ERR heatsink: upstream {endpoint} unavailable: {error}"),
    }
}
