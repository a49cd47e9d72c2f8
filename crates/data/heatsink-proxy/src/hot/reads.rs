//! Reads of hot keys: from the cache, or one for all who wait.
//!
//! Invariant: nobody is given a reply that was read before it asked; see
//! [`heatsink_cache::flights`].

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use heatsink_cache::commands::{Cacheable, Fields, cacheable};
use heatsink_cache::flights::{FlightId, FlightLimits, Flights, Joined};
use heatsink_cache::identity::{LoginId, Protocol as Spoken, Reader};
use heatsink_cache::local::{FillToken, Limits, LinkId, LocalCache, Ttl};
use heatsink_resp::command::Access;
use heatsink_resp::encode;
use heatsink_upstream::Protocol;
use heatsink_upstream::error::LinkError;

use crate::hot::Incoming;
use crate::hot::mitigation::{self, Mitigation, Verdict};
use crate::hot::reads::broadcast::Listening;
use crate::hot::reads::stale_replies::{StaleReplies, max_stale, may_be_told};

pub(super) mod broadcast;
mod hash_fields;
pub(super) mod pass_through;
mod stale_replies;
mod tracking;
mod untracked;

use super::{Mitigations, longest_wait};
use crate::config;
use crate::downstream::clients::Clients;
use crate::downstream::clients::{MAX_OUTSTANDING, error_line};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Flow;
use crate::downstream::request::Request;
use crate::downstream::shared_reply::{OwnedReply, Reply};
use crate::observe::Mark;
use crate::relay::Relay;
use crate::upstream;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

const CACHING: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n";
/// What is cached for a user of the server's is read again after this time at the latest, so
/// that a right that was taken away is noticed. So is what the server does not tell changes of.
pub(super) const RIGHTS_TIME: Duration = Duration::from_secs(1);
/// What is cached for clients that do not log in is read again after this time at the latest: their
/// rights change seldom, and all of them share what is read.
const COMMON_RIGHTS_TIME: Duration = Duration::from_secs(8);

/// Who waits for a read, and in which place.
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

/// A read on its way to the server.
#[derive(Debug)]
pub(crate) struct Fill {
    flight: FlightId,
    pool: usize,
    token: Option<FillToken>,
    how: Cacheable,
    /// It was sent along the tracked link, in the newer protocol.
    tracked: bool,
    /// That link, if it was ready.
    link: Option<LinkId>,
    /// The reply has to be put into the older protocol.
    converts: bool,
    mark: Mark,
    /// When it was sent.
    sent_at: Instant,
    /// The reply, while the time to live of the key is waited for.
    reply: Option<OwnedReply>,
    /// The link that it was sent along, while the reply has to say which fields to ask about.
    asks_on: Option<usize>,
    /// How long the first of the fields to end still lives, if one does.
    first_end: Option<Duration>,
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
    /// Word of all that was executed before this time has been heard.
    heard_up_to: Instant,
    /// How long the last answer took, however long the loop itself did: word of a change comes
    /// the same way in less.
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
    pub(super) late: StaleReplies,
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
            late: StaleReplies::default(),
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
        let around = relay.goes_around(key, name);
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
        if let Some(flow) = relay.without_map(key) {
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
                let mark = relay.observe(key, command, request);
                relay.clients.begin_wait(waiter, flight);
                self.send_flight(relay, pool, flight, how, mark);
                if treatment.may_pass() {
                    self.note_led(name);
                }
            }
            Joined::Next(flight) => {
                // It stands for those who come behind it. What it is answered does not matter.
                let mark = relay.observe(key, command, request);
                relay.give_up(mark);
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
                let mark = relay.observe(key, command, request);
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

    /// Sends a read: along the tracked link if there is one, so that its reply can be kept.
    fn send_flight(
        &mut self,
        relay: &mut Relay,
        pool: usize,
        flight: FlightId,
        how: Cacheable,
        mark: Mark,
    ) {
        let time = self.time(relay.now);
        let Some((reader, name, request)) = self.reads.flights.request(flight) else {
            return;
        };
        let (name, request) = (name.to_vec(), request.to_vec());
        if let Some(work) = self.work.get_mut(name.as_slice()) {
            work.flights += 1;
        }
        // Nobody may be left who asked for it, nor the way it would have taken.
        let is_there =
            relay.upstream.pools.get(pool).is_some_and(|pool| pool.serial as u32 == reader.login.0);
        let node = relay.node_of(&name);
        let caches = is_there && self.reads.cache.key_id(&name).is_some();
        let tracked = if caches { relay.links().tracked_link(pool, node) } else { None };
        let link_id = match tracked {
            Some(link) => self.link_id(relay, link),
            None if caches => self.broadcast_link(relay, pool, node, &name),
            None => None,
        };
        let token = link_id.and_then(|id| {
            let token = self.reads.cache.fill_token(time, reader, &name, &request)?;
            Some(token.sent_on(id))
        });
        let about = if relay.may_end(how) { how.fields() } else { Fields::None };
        let named = if about == Fields::Named { hash_fields::about_named(&request) } else { None };
        // What cannot be asked about is not kept.
        let can_ask = about != Fields::Untold && (about != Fields::Named || named.is_some());
        let token = token.filter(|token| token.is_storable() && can_ask);
        let stores = token.is_some();
        let fill = Fill {
            flight,
            pool,
            token,
            how,
            tracked: tracked.is_some(),
            link: tracked.and(link_id),
            converts: tracked.is_some() && reader.protocol == Spoken::Resp2,
            mark,
            // Not the time of the turn: a write may have been answered in it.
            sent_at: relay.world.now(),
            reply: None,
            asks_on: None,
            first_end: None,
        };
        let id = self.number();
        self.reads.fills.insert(id, fill);
        let fill = id;
        self.reads.leaving.push(flight);
        let link = match tracked {
            Some(link) => Ok(link),
            None if is_there => relay.links().link_for_many(pool, node),
            None => Err("ERR heatsink: given up".to_owned()),
        };
        match link {
            Ok(link) => {
                if stores && tracked.is_some() {
                    relay.upstream.push_to_link(
                        relay.now,
                        link,
                        CACHING,
                        Ticket::internal(Purpose::Caching(fill)),
                    );
                }
                relay.upstream.push_to_link(
                    relay.now,
                    link,
                    &request,
                    Ticket::internal(Purpose::Fill(fill)),
                );
                if stores && matches!(about, Fields::Paired | Fields::Listed) {
                    if let Some(fill) = self.reads.fills.get_mut(&id) {
                        fill.asks_on = Some(link);
                    }
                } else if stores {
                    relay.ask_ttls(link, fill, &name, named.as_deref());
                }
            }
            Err(why) => self.fill_failed(relay, fill, &error_line(&why)),
        }
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

    /// What the server says to `CLIENT CACHING YES`, before the read behind it. If it refuses, it
    /// will not tell of changes of what is read: that is not kept, and the link is given up as if
    /// it had refused `CLIENT TRACKING`.
    pub(crate) fn caching_answered(
        &mut self,
        relay: &mut Relay,
        slot: usize,
        id: u32,
        frame: &[u8],
    ) {
        let Some(error) = frame.strip_prefix(b"-") else { return };
        if let Some(fill) = self.reads.fills.get_mut(&id) {
            fill.token = None;
        }
        let Some(upstream) = relay.upstream.links.get(slot) else { return };
        let (node, generation) = (upstream.node, upstream.generation);
        let error = LinkError::Refused(error.trim_ascii_end().to_vec());
        if !error.is_unsupported() && !error.is_not_allowed() {
            // It runs a script, or loads its data: the read behind it is refused as well.
            return;
        }
        relay.links().refuse_tracked(slot);
        self.tracking_lost(generation);
        self.tracking_refused(node, &error);
    }

    /// A read is answered; `redirected` if not by the link that it was sent along.
    pub(in crate::hot) fn fill_arrived(
        &mut self,
        relay: &mut Relay,
        id: u32,
        frame: &[u8],
        redirected: bool,
    ) {
        let Some(fill) = self.reads.fills.get_mut(&id) else { return };
        let failed = matches!(frame.first(), None | Some(b'-' | b'!'));
        // What came another way was asked in the client's own protocol.
        let converted = if fill.converts && !redirected && !failed {
            fill.how.to_resp2(frame)
        } else {
            Some(frame.to_vec())
        };
        let refused = if failed || redirected { fill.token.take() } else { None };
        let untracked = redirected || !fill.tracked;
        let (flight, pool, how, mark) = (fill.flight, fill.pool, fill.how, fill.mark);
        let (sent_at, link) = (fill.sent_at, fill.link.filter(|_| !untracked));
        if let Some(token) = refused.filter(|_| !redirected) {
            // Nothing is kept of it; what it was to replace goes, too: the right to read the key
            // may be gone.
            let time = self.time(relay.now);
            self.reads.cache.filled(time, token, frame, Ttl::Unlimited);
        }
        if untracked {
            self.note_untracked(relay, pool, flight);
        }
        if let Some(link) = link {
            self.heard_on(link, sent_at);
        }
        let Self { reads: Reads { flights, late, .. }, keys: hot, .. } = self;
        let request = flights.request(flight);
        if let (Some((reader, name, request)), Some(reply)) = (request, &converted)
            && !failed
            && hot.get(name).is_some_and(|treatment| treatment.stale_if_late)
        {
            late.keep(sent_at, reader, request, reply);
        }
        let request = request.map(|(_, name, request)| (name.to_vec(), request.to_vec()));
        let mut waiters = Vec::new();
        let next = self.reads.flights.answered(flight, &mut waiters);
        if let Some(reply) = converted.map(OwnedReply::new) {
            for waiter in waiters {
                relay.clients.end_wait(waiter);
                relay.clients.fill_reply(waiter.client, waiter.place, reply.as_reply());
            }
            if let Some(observer) = &mut relay.observer {
                observer.answered(&mark, reply.bytes(), 0);
            }
            let Some(fill) = self.reads.fills.get_mut(&id) else { return };
            fill.mark = Mark::Nothing;
            if fill.token.is_some() {
                fill.reply = Some(reply);
                if let Some(link) = fill.asks_on.take()
                    && let Some((name, _)) = &request
                {
                    self.ask_ttls_of_told(relay, link, id, name, how, frame);
                }
            } else {
                self.reads.fills.remove(&id);
            }
        } else {
            // Of a shape that nobody knows how to convert: each reads for itself.
            self.reads.fills.remove(&id);
            if let Some((name, request)) = request {
                for waiter in waiters {
                    relay.read_alone(pool, waiter, &name, &request);
                }
            }
        }
        if let Some(next) = next {
            self.send_flight(relay, pool, next, how, Mark::Nothing);
        }
    }

    /// Asks about the fields that a reply shows. That this is a round trip later does no harm: if a
    /// field is given an end meanwhile, or another one comes, the server tells of the change.
    fn ask_ttls_of_told(
        &mut self,
        relay: &mut Relay,
        link: usize,
        id: u32,
        name: &[u8],
        how: Cacheable,
        frame: &[u8],
    ) {
        match hash_fields::about_told(name, frame, how.fields()) {
            Ok(question) => relay.ask_ttls(link, id, name, question.as_deref()),
            Err(hash_fields::Strange) => drop(self.reads.fills.remove(&id)),
        }
    }

    /// How long the key lives, right behind the reply.
    pub(in crate::hot) fn fill_ttl_arrived(&mut self, relay: &mut Relay, id: u32, frame: &[u8]) {
        let Some(fill) = self.reads.fills.get_mut(&id) else { return };
        if fill.reply.is_none() {
            // The read itself has been sent elsewhere.
            fill.token = None;
            return;
        }
        let pool = fill.pool;
        let time = self.time(relay.now);
        let has_rights =
            relay.upstream.pools.get(pool).is_some_and(|pool| pool.login.credentials.is_some());
        let Some(fill) = self.reads.fills.remove(&id) else { return };
        let first_end = fill.first_end;
        let (Some(token), Some(reply)) = (fill.token, fill.reply) else { return };
        let number = frame.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
        let number = number.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let Some(mut ttl) = number.and_then(Ttl::from_pttl) else { return };
        // A key that is not there may be made elsewhere while its slot is on the move, and
        // nobody would tell.
        let may_move = ttl == Ttl::Absent && relay.cluster.view.is_some();
        // Writers that go past Heatsink are told of by the server only.
        let is_told = fill.tracked;
        let most =
            if has_rights || may_move || !is_told { RIGHTS_TIME } else { COMMON_RIGHTS_TIME };
        // The cache takes a fraction of it.
        let most = most.div_f64(relay.live.local_cache.ttl_fraction);
        let most = first_end.map_or(most, |left| left.min(most));
        ttl = match ttl {
            Ttl::Remaining(left) => Ttl::Remaining(left.min(most)),
            Ttl::Absent | Ttl::Unlimited => Ttl::Remaining(most),
        };
        self.reads.cache.filled(time, token, reply.bytes(), ttl);
    }

    /// A read will not be answered.
    pub(in crate::hot) fn fill_failed(&mut self, relay: &mut Relay, id: u32, error: &[u8]) {
        let Some(fill) = self.reads.fills.remove(&id) else { return };
        if let Some(observer) = &mut relay.observer {
            observer.given_up(fill.mark);
        }
        let mut waiters = Vec::new();
        let old = self.reads.flights.request(fill.flight).and_then(|(reader, _, command)| {
            let max_age = max_stale(&relay.live, &relay.upstream.pools, reader);
            let (sent_at, reply) = self.reads.late.get(relay.now, reader, command, max_age)?;
            Some((sent_at, reply.to_vec()))
        });
        let next = self.reads.flights.failed(fill.flight, &mut waiters);
        for waiter in waiters {
            let old =
                old.as_ref().filter(|(sent_at, _)| may_be_told(&relay.clients, waiter, *sent_at));
            let told = old.map_or(error, |(_, reply)| reply);
            relay.clients.end_wait(waiter);
            relay.clients.fill(waiter.client, waiter.place, told);
        }
        if let Some(next) = next {
            self.send_flight(relay, fill.pool, next, fill.how, Mark::Nothing);
        }
    }

    /// The link of the cache that a read was sent along, or was to be, is lost: it was silent for
    /// [`super::SILENCE`], say, or the server does not tell this user of changes. The key is an
    /// ordinary one then: the read goes the usual way, once, and nothing is kept of it. That it may be
    /// executed twice does not matter, as it changes nothing and only one reply is passed on.
    pub(in crate::hot) fn fill_as_usual(&mut self, relay: &mut Relay, id: u32, error: &[u8]) {
        let Some(fill) = self.reads.fills.get_mut(&id) else { return };
        (fill.tracked, fill.link, fill.converts) = (false, None, false);
        (fill.token, fill.sent_at) = (None, relay.world.now());
        let (pool, flight) = (fill.pool, fill.flight);
        // The way it would take may have gone with its link.
        let is_there = |login: LoginId| {
            relay.upstream.pools.get(pool).is_some_and(|pool| pool.serial as u32 == login.0)
        };
        let request = self.reads.flights.request(flight);
        let request = request.filter(|(reader, ..)| is_there(reader.login));
        let request = request.map(|(_, name, request)| (name.to_vec(), request.to_vec()));
        let Some((name, request)) = request else { return self.fill_failed(relay, id, error) };
        let node = relay.node_of(&name);
        match relay.links().link_for_many(pool, node) {
            Ok(link) => {
                relay.upstream.push_to_link(
                    relay.now,
                    link,
                    &request,
                    Ticket::internal(Purpose::Fill(id)),
                );
            }
            Err(why) => self.fill_failed(relay, id, &error_line(&why)),
        }
    }

    /// A read was answered that did not go along a tracked link, though its login has one by now.
    ///
    /// ```text
    /// 1. C: GET k goes along T1, which is lost; it goes the usual way instead
    /// 2. D: STRLEN k goes along T2, a new link, and is executed
    /// 3. somebody writes k: the server tells of it on T2, behind the reply to STRLEN
    /// 4. GET is executed and answered: C is told the new value
    /// 5. the reply to STRLEN comes: kept, and told to C, it would be older than what C has seen
    /// ```
    ///
    /// So whatever was sent along tracked links before C is told is not kept.
    fn note_untracked(&mut self, relay: &mut Relay, pool: usize, flight: FlightId) {
        let links = &relay.upstream.links;
        let is_of_pool = |slot: usize| links.get(slot).is_some_and(|link| link.pool == pool);
        if self.reads.links.iter().any(|link| is_of_pool(link.slot))
            && let Some((_, name, _)) = self.reads.flights.request(flight)
        {
            self.reads.cache.overtaken(name);
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

impl Mitigations {
    /// When the fields of a reply end, before [`Self::fill_ttl_arrived`].
    pub(in crate::hot) fn fill_fields_arrived(&mut self, id: u32, frame: &[u8]) {
        let Some(fill) = self.reads.fills.get_mut(&id) else { return };
        let reply = fill.reply.as_ref().map(OwnedReply::bytes);
        match reply.map(|reply| hash_fields::first_end(frame, reply, fill.how.fields())) {
            Some(Ok(first_end)) => fill.first_end = first_end,
            // Nobody knows: it is not kept.
            None | Some(Err(hash_fields::Strange)) => fill.token = None,
        }
    }

    /// Whether a read went along a link of the cache, so that the usual way is left if that is lost.
    pub(in crate::hot) fn may_read_as_usual(&self, id: u32) -> bool {
        self.reads.fills.get(&id).is_some_and(|fill| fill.tracked)
    }

    /// Its time to live will not come: the reply is not kept.
    pub(in crate::hot) fn fill_ttl_failed(&mut self, id: u32) {
        // Unless its reply is still to come, or to be given up.
        if self.reads.fills.get(&id).is_some_and(|fill| fill.reply.is_some()) {
            self.reads.fills.remove(&id);
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

    /// Whether fields of hashes may end by themselves. As long as the server's commands are not known,
    /// it is asked; one that does not know the question has no such fields.
    fn may_end(&self, how: Cacheable) -> bool {
        how.fields() != Fields::None
            && (self.table_version == 0 || self.table.lookup(hash_fields::HPTTL, None).is_some())
    }

    /// Asks, behind a read, how long what it shows still lives: the fields, by a question of their own,
    /// and the key.
    fn ask_ttls(&mut self, link: usize, fill: u32, name: &[u8], about_fields: Option<&[u8]>) {
        if let Some(question) = about_fields {
            self.upstream.push_to_link(
                self.now,
                link,
                question,
                Ticket::internal(Purpose::FillFields(fill)),
            );
        }
        let mut pttl = Vec::new();
        encode::command(&mut pttl, &[b"PTTL", name]);
        self.upstream.push_to_link(self.now, link, &pttl, Ticket::internal(Purpose::FillTtl(fill)));
    }
}
