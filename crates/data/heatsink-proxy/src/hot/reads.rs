//! Reads of hot keys: from the cache, or one for all who wait (`fills`).
//!
//! Invariant: nobody is given a reply that was read before it asked; see
//! [`heatsink_cache::flights`].
//!
//! # Requests past the cache
//! Writes and reads of several keys, commands of which nobody knows what they touch, large requests that
//! are passed on before they are complete, transactions without end, commands that block, and whatever was
//! under way when a key became hot: all of them may change, or show, hot keys past the cache. Their own
//! client is never told an older value than it has seen, or written, before. Nobody else is concerned: the
//! server tells of what such a request changes as it does of any other change. So one client cannot take
//! the cache from all, whatever it tries; only what changes a key ends what is cached of it.
//!
//! ```text
//! 1. k is cached, read along T             2. C's request goes along another link
//! 3. it is executed and changes k: word of it is on its way along T
//! 4. C is answered                         5. C reads k: served from here, it would be the old value
//! ```
//!
//! So from 2 on C is not served from the cache. Word of the change stands before the answer to anything
//! that is asked along T after 4: the first read of C itself, which goes along T as when nothing is
//! cached, and the question whether T is there, every [`crate::hot::PULSE`]. Then C is served again. Where
//! the client's login has several such links, one to each node of a cluster, C's read asks the others
//! at once.
//!
//! This is also why what was under way when a key became hot need not be followed, however often it
//! is redirected or tried again:
//!
//! ```text
//! 1. C: SET k -> node A; k is not hot      2. k becomes hot, and is read and cached from A
//! 3. A: TRYAGAIN; SET k is sent again      4. it is executed; word of it is on its way; C is answered
//! ```
//!
//! C had something unanswered at 2, so after 4 it is not served from the cache until word has come.
//!
//! Where the server does not tell of changes, Heatsinks do. There is no answer that word of a change
//! stands before, but what is cached lives for [`RIGHTS_TIME`] at most: C waits that long.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use heatsink_cache::commands::cacheable;
use heatsink_cache::flights::{FlightId, FlightLimits, Flights, Joined};
use heatsink_cache::identity::{LoginId, Protocol as Spoken, Reader};
use heatsink_cache::local::{Limits, LinkId, LocalCache};
use heatsink_resp::command::Access;
use heatsink_upstream::Protocol;

use crate::hot::Incoming;
use crate::hot::mitigation::{self, Mitigation, Verdict};
use crate::hot::reads::broadcast::Listening;
use crate::hot::reads::fills::Fill;
use crate::hot::reads::stale_replies::StaleReplies;

pub(super) mod broadcast;
mod fills;
mod hash_fields;
pub(super) mod pass_through;
mod stale_replies;
mod tracking;

use super::{Mitigations, longest_wait};
use crate::config;
use crate::downstream::clients::Clients;
use crate::downstream::clients::{MAX_OUTSTANDING, error_line};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Flow;
use crate::downstream::request::Request;
use crate::downstream::shared_reply::Reply;
use crate::observe::Mark;
use crate::relay::Relay;
use crate::upstream;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

/// What is cached for a user of the server's is read again after this time at the latest, so
/// that a right that was taken away is noticed. So is what the server does not tell changes of.
pub(super) const RIGHTS_TIME: Duration = Duration::from_secs(1);

/// A client that waits for a read, and the place of its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(super) client: ClientKey,
    pub(super) place: u32,
}

impl Waiter {
    pub(super) fn new(client: ClientKey, place: u32) -> Self {
        Self { client, place }
    }

    pub(super) fn is_of(&self, client: ClientKey) -> bool {
        self.client == client
    }
}

/// A link of the cache that is ready.
#[derive(Debug)]
pub(super) struct TrackedLink {
    slot: usize,
    pool: usize,
    /// Whose changes are told of on it.
    node: NodeId,
    generation: u32,
    /// What the cache calls it.
    id: LinkId,
    /// When it was asked whether it is there, until it answers.
    asked_at: Option<Instant>,
    /// Invalidations for all writes that were executed before this time have come.
    heard_up_to: Instant,
    /// How long the last answer took, including time in which this loop was busy. An invalidation comes
    /// along the same link, in less.
    pub(super) delay: Duration,
}

/// The local cache, reads that others join, and those that go as usual because there are none.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) cache: LocalCache,
    /// The links of the cache that are ready.
    pub(super) links: Vec<TrackedLink>,
    /// Word of other Heatsinks, where the server does not tell itself.
    pub(super) listening: Listening,
    pub(super) flights: Flights<Waiter>,
    /// Reads that are on their way to the server, by the number in their tickets.
    pub(super) fills: HashMap<u32, Fill, RandomState>,
    /// Reads that were queued in this turn and can still be joined.
    leaving: Vec<FlightId>,
    /// What was read of keys in mode `relaxed`.
    pub(super) stale: StaleReplies,
    /// Of how many hot keys reads go as usual; see the module `pass_through`.
    pub(super) passing: usize,
    /// Tells reads apart that pass.
    pub(super) hasher: RandomState,
}

impl Reads {
    pub(super) fn new(live: &config::Live, workers: usize) -> Self {
        Self {
            cache: LocalCache::new(cache_limits(&live.local_cache, workers)),
            links: Vec::new(),
            listening: Listening::default(),
            flights: Flights::new(Self::limits(live)),
            fills: HashMap::default(),
            leaving: Vec::new(),
            stale: StaleReplies::default(),
            passing: 0,
            hasher: RandomState::default(),
        }
    }

    pub(super) fn limits(live: &config::Live) -> FlightLimits {
        FlightLimits { max_wait: longest_wait(live), ..FlightLimits::default() }
    }
}

/// A worker's share.
pub(super) fn cache_limits(settings: &config::LocalCache, workers: usize) -> Limits {
    let workers = workers.max(1);
    Limits {
        entries: settings.entries.div_ceil(workers),
        bytes: usize::try_from(settings.max_bytes).unwrap_or(usize::MAX) / workers,
        ..Limits::default()
    }
}

impl Mitigation for Reads {
    type Inquiry = ();

    fn on_request(hot: &mut Mitigations, relay: &mut Relay, incoming: Incoming<'_>) -> Verdict {
        let Incoming { request, command, together, .. } = incoming;
        if command.access != Access::Read {
            return Verdict::Pass;
        }
        if together {
            hot.note_as_usual(request, command);
            return Verdict::Pass;
        }
        hot.serve_read(relay, incoming).into()
    }

    fn on_reply(
        hot: &mut Mitigations,
        relay: &mut Relay,
        ticket: Ticket,
        reply: mitigation::Reply<'_>,
    ) {
        match (ticket.purpose, reply) {
            (Purpose::Fill(fill), mitigation::Reply::Frame { frame, redirected }) => {
                hot.fill_arrived(relay, fill, frame, redirected);
            }
            (Purpose::FillFields(fill), mitigation::Reply::Frame { frame, .. }) => {
                hot.fill_fields_arrived(fill, frame);
            }
            (Purpose::FillTtl(fill), mitigation::Reply::Frame { frame, .. }) => {
                hot.fill_ttl_arrived(relay, fill, frame);
            }
            (Purpose::Fill(fill), mitigation::Reply::Lost(error))
                if hot.may_read_as_usual(fill) =>
            {
                hot.fill_as_usual(relay, fill, error);
            }
            (Purpose::Fill(fill), mitigation::Reply::Lost(error)) => {
                hot.fill_failed(relay, fill, error);
            }
            (Purpose::FillFields(fill) | Purpose::FillTtl(fill), mitigation::Reply::Lost(_)) => {
                hot.fill_ttl_failed(fill);
            }
            _ => {}
        }
    }

    fn on_invalidation(hot: &mut Mitigations, key: Option<&[u8]>) {
        match key {
            Some(key) => hot.reads.cache.invalidated(key),
            None => hot.reads.cache.flushed(),
        }
    }

    fn on_tick(hot: &mut Mitigations, relay: &mut Relay) {
        hot.expire_waits(relay);
    }
}

impl Mitigations {
    /// Answers a read of a hot key, or sees to it that it is answered; `None` if its reply cannot be
    /// kept, or if it goes around the link that others wait on, and is not cached.
    pub(super) fn serve_read(&mut self, relay: &mut Relay, incoming: Incoming<'_>) -> Option<Flow> {
        let Incoming { key, request, command, .. } = incoming;
        let (name, treatment) = self.treated(incoming)?;
        let around = relay.routing().goes_around(key, name);
        let client = relay.clients.get(key)?;
        let pool = client.pool;
        let writes = client.hot.writes + client.hot.changes;
        if writes > 0 || client.hot.apart {
            return Some(Flow::Wait);
        }
        if treatment.may_pass() && client.has_passed_reads() {
            return Some(Flow::Wait);
        }
        let alone =
            client.hot.reads.is_empty() && treatment.local_cache && self.may_hit(relay, key);
        let client = relay.clients.get(key)?;
        if !client.hot.reads.is_empty() && self.would_overtake_read(relay, key, name, request.bytes)
        {
            return Some(Flow::Wait);
        }
        let reader = relay.upstream.reader(pool);
        let time = self.time(relay.now);
        if alone {
            let Relay { clients, observer, .. } = relay;
            if let Some(hit) = self.reads.cache.hit(time, reader, request.bytes) {
                clients.reply_cached(key, hit.shared.map_or(Reply::Small(hit.reply), Reply::Large));
                if let Some(observer) = observer {
                    observer.absorbed(command, request, hit.reply.len());
                }
                if hit.refresh {
                    self.refresh(relay, pool, reader, request, name);
                }
                return Some(Flow::Taken);
            }
        }
        if around {
            self.note_as_usual(request, command);
            return None;
        }
        let args: Vec<&[u8]> = request.args_from(0).collect();
        let how = cacheable(&args)?;
        if reader.protocol == Spoken::Resp2 && !how.is_known_in_resp2() {
            return None;
        }
        if let Some(flow) = relay.routing().without_map(key) {
            return Some(flow);
        }
        let (client, buffers) = relay.clients.get_with_buffers(key)?;
        if client.order.outstanding() >= MAX_OUTSTANDING {
            return Some(Flow::Wait);
        }
        let place = client.order.reserve(buffers);
        let waiter = Waiter { client: key, place };
        match self.reads.flights.join(time, reader, name, request.bytes, waiter) {
            Joined::Send(flight) => {
                let mark = relay.routing().observe(key, command, request);
                relay.clients.begin_wait(waiter, flight);
                self.send_flight(relay, pool, flight, how, mark);
                if treatment.may_pass() {
                    self.note_led(name);
                }
            }
            Joined::Next(flight) => {
                // It stands for those who come behind it. What it is answered does not matter.
                let mark = relay.routing().observe(key, command, request);
                relay.routing().give_up(mark);
                relay.clients.begin_wait(waiter, flight);
                if treatment.may_pass() {
                    self.note_led(name);
                }
            }
            Joined::Waiting(flight) => {
                relay.clients.begin_wait(waiter, flight);
                if let Some(work) = self.work.get_mut(name) {
                    work.joined += 1;
                    work.joins.joined();
                }
                if let Some(observer) = &mut relay.observer {
                    observer.absorbed(command, request, 0);
                }
            }
            Joined::Refused(waiter) => {
                let mark = relay.routing().observe(key, command, request);
                if let Some(observer) = &mut relay.observer {
                    observer.given_up(mark);
                }
                relay.read_alone(pool, waiter, name, request.bytes);
            }
        }
        Some(Flow::Taken)
    }

    /// Reads again what is about to expire. Nobody waits for it.
    fn refresh(
        &mut self,
        relay: &mut Relay,
        pool: usize,
        reader: Reader,
        request: Request<'_>,
        name: &[u8],
    ) {
        let args: Vec<&[u8]> = request.args_from(0).collect();
        let Some(how) = cacheable(&args) else { return };
        let time = self.time(relay.now);
        let nobody = Waiter { client: ClientKey::NOBODY, place: 0 };
        if let Joined::Send(flight) =
            self.reads.flights.join(time, reader, name, request.bytes, nobody)
        {
            self.send_flight(relay, pool, flight, how, Mark::Nothing);
        }
    }

    /// Whether a client may be served from the cache.
    #[inline]
    pub(in crate::hot) fn may_hit(&mut self, relay: &mut Relay, key: ClientKey) -> bool {
        let Some(client) = relay.clients.get(key) else { return false };
        let Some(since) = client.hot.unseen_since else { return true };
        let pool = client.pool;
        let has_heard = self.has_heard_up_to(pool, since, relay.now);
        if has_heard {
            client.hot.unseen_since = None;
        } else if relay.cluster.view.is_some() {
            self.ask_for_word(relay, pool, since);
        }
        has_heard
    }

    /// Whether nothing is served to those of a pool that was overwritten before that time.
    fn has_heard_up_to(&self, pool: usize, time: Instant, now: Instant) -> bool {
        let announced = self.reads.listening.is_open() && now < time + RIGHTS_TIME;
        let mut links = self.reads.links.iter().filter(|link| link.pool == pool);
        !announced && links.all(|link| link.heard_up_to > time)
    }

    /// Whether a read could be executed before one of the same client and the same key that it
    /// stands behind. Equal ones cannot: the later waits for the same read as the earlier, or
    /// for the next.
    ///
    /// 1. A's `GET` is out. C sends `GET`, which waits for the next, and `STRLEN`, which none is
    ///    out of: it leaves at once.
    /// 2. Somebody writes.
    /// 3. C would see the new value, and the length of the old one behind it.
    fn would_overtake_read(
        &self,
        relay: &Relay,
        key: ClientKey,
        name: &[u8],
        bytes: &[u8],
    ) -> bool {
        let reads = relay.clients.get_ref(key).map(|client| client.hot.reads.as_slice());
        reads.unwrap_or_default().iter().any(|(_, flight)| {
            let request = self.reads.flights.request(*flight);
            request.is_some_and(|(_, of_key, command)| of_key == name && command != bytes)
        })
    }

    /// The reads that leave now; nobody joins them any more.
    pub(crate) fn close_flights(&mut self) {
        for flight in self.reads.leaving.drain(..) {
            self.reads.flights.sent(flight);
        }
    }
}

impl upstream::Room {
    pub(in crate::hot) fn reader(&self, pool: usize) -> Reader {
        let pool = &self.pools[pool];
        let protocol = match pool.login.protocol {
            Protocol::Resp2 => Spoken::Resp2,
            Protocol::Resp3 => Spoken::Resp3,
        };
        Reader { login: LoginId(pool.serial as u32), protocol }
    }
}

impl Clients {
    /// Keys have become hot: so far nobody has noted what is under way for them.
    pub(in crate::hot) fn suspect_unanswered(&mut self) {
        for (_, client) in &mut self.slab {
            if !client.is_drained() {
                client.hot.apart = true;
                client.hot.unknown = true;
            }
        }
    }

    /// A request of a client may touch any key, or take for ever.
    pub(in crate::hot) fn keep_unseen(&mut self, key: ClientKey) {
        if let Some(client) = self.get(key) {
            client.hot.apart = true;
            client.hot.unknown = true;
        }
    }

    pub(in crate::hot) fn end_wait(&mut self, waiter: Waiter) {
        if let Some(client) = self.get(waiter.client) {
            client.hot.reads.retain(|(place, _)| *place != waiter.place);
        }
    }

    pub(in crate::hot) fn begin_wait(&mut self, waiter: Waiter, flight: FlightId) {
        if let Some(client) = self.get(waiter.client) {
            client.hot.reads.push((waiter.place, flight));
        }
    }
}

impl Relay {
    /// Reads for one client only, along the shared link.
    fn read_alone(&mut self, pool: usize, waiter: Waiter, name: &[u8], request: &[u8]) {
        let node = self.node_of(name);
        self.clients.end_wait(waiter);
        // Not one of those that others are told of: whatever is behind it waits.
        self.clients.keep_unseen(waiter.client);
        let purpose = Purpose::Redirect(waiter.place);
        let ticket = Ticket { client: waiter.client, seq: 0, purpose };
        match self.links().pool_link(pool, node) {
            Ok(link) => self.upstream.push_to_link(self.now, link, request, ticket),
            Err(why) => self.clients.fill(waiter.client, waiter.place, &error_line(&why)),
        }
    }
}
