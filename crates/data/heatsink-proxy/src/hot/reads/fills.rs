//! Reads that were sent for all who wait: along which link, and what becomes of their replies.
//!
//! Called by: `reads`, with each read that somebody has to send, and with what servers answer.
//! Bound: one [`Fill`] for each read that is on its way.
//! Invariant: nothing is kept unless word of its changes will come, and it is known how long it lives.

use std::time::{Duration, Instant};

use heatsink_cache::commands::{Cacheable, Fields};
use heatsink_cache::flights::FlightId;
use heatsink_cache::identity::{LoginId, Protocol as Spoken};
use heatsink_cache::local::{FillToken, LinkId, Ttl};
use heatsink_resp::encode;
use heatsink_upstream::error::LinkError;

use crate::downstream::clients::error_line;
use crate::downstream::shared_reply::OwnedReply;
use crate::hot::Mitigations;
use crate::hot::reads::stale_replies::{max_stale, may_be_told};
use crate::hot::reads::{RIGHTS_TIME, Reads, hash_fields};
use crate::observe::Mark;
use crate::relay::Relay;
use crate::upstream::ticket::{Purpose, Ticket};

const CACHING: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n";
/// What is cached for clients that do not log in is read again after this time at the latest: their
/// rights change seldom, and all of them share what is read.
const COMMON_RIGHTS_TIME: Duration = Duration::from_secs(8);

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

impl Mitigations {
    /// Sends a read: along the tracked link if there is one, so that its reply can be kept.
    pub(super) fn send_flight(
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
        let Self { reads: Reads { flights, stale, .. }, keys: hot, .. } = self;
        let request = flights.request(flight);
        if let (Some((reader, name, request)), Some(reply)) = (request, &converted)
            && !failed
            && hot.get(name).is_some_and(|treatment| treatment.stale_if_late)
        {
            stale.keep(sent_at, reader, request, reply);
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
            let (sent_at, reply) = self.reads.stale.get(relay.now, reader, command, max_age)?;
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
