//! Writes of hot keys that go out as one: increments, and plain `SET`s.
//!
//! Called by: `hot` with each request that may be combined; `worker` right before anything is
//! sent; `replies` and `pools` with what became of a batch.
//! Bound: the limits of [`heatsink_cache::combine`]; one batch of an identity is out.
//! Invariant: a client's requests for one key keep their order. Other requests of it that touch a hot
//! key wait until its changes are answered; a change waits for those requests, and for earlier
//! changes that went another path. A batch whose outcome is unknown is not sent again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use heatsink_cache::combine::{
    Added, Answer, BatchId, BatchLimits, Batches, Change, Hold, PoolId, Shape, integer,
};
use heatsink_cache::identity::LoginId;
use heatsink_resp::command::Access;
use heatsink_resp::encode;
use heatsink_upstream::Protocol;

use super::reads::Waiter;
use super::writes::Sent;
use super::{Mitigations, longest_wait};
use crate::cluster::moved_values::PATIENCE;
use crate::config;
use crate::downstream::clients::{MAX_OUTSTANDING, error_line};
use crate::downstream::request::Flow;
use crate::hot::Incoming;
use crate::hot::mitigation::{Mitigation, Reply, Verdict};
use crate::relay::Relay;
use crate::upstream::ticket::{Purpose, Ticket};

/// The prefix of errors that are made here: with these, no server has refused anything.
const OUR_ERROR: &[u8] = b"-ERR heatsink: ";
/// After a batch that the server refuses to carry out by a script, increments of this kind go
/// alone for so long.
const REST: Duration = Duration::from_secs(10);
/// A script for fewer increments takes the server longer than the increments by themselves.
const PAYS: i32 = 5;
/// When recent scripts fell short of that by this many increments, none are sent for [`LITTLE_REST`].
const MOST_LOSS: i32 = 40;
const LITTLE_REST: Duration = Duration::from_secs(1);
/// The longest request that can be combined, in arguments.
const MOST_ARGS: usize = 4;

/// Changes that are to be sent at the end of the turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    changes: PoolId,
    pool: usize,
    serial: u64,
}

/// Changes that wait for company before they are sent.
#[derive(Debug)]
pub(crate) struct Held {
    hold: Hold,
    departure: Departure,
}

/// A batch on its way to the server.
#[derive(Debug)]
pub(crate) struct SentBatch {
    batch: BatchId,
    pool: usize,
    serial: u64,
    /// What it does to what is cached of the key.
    touched: Sent,
    /// How long it may wait, if shards have refused it.
    until: Option<Instant>,
}

/// Writes that go out as one.
#[derive(Debug)]
pub(super) struct Combining {
    pub(super) batches: Batches<Waiter>,
    /// Batches that are on their way to the server, by the number in their tickets.
    pub(super) sent: HashMap<u32, SentBatch, RandomState>,
    /// Changes that leave when the turn ends.
    departing: Vec<Departure>,
    /// Changes that leave soon, when more have come.
    pub(super) held: Vec<Held>,
    /// Whom to answer what; empty between two uses.
    replies: Vec<(Waiter, Answer)>,
}

impl Combining {
    pub(super) fn new(live: &config::Live) -> Self {
        Self {
            batches: Batches::new(Self::limits(live)),
            sent: HashMap::default(),
            departing: Vec::new(),
            held: Vec::new(),
            replies: Vec::new(),
        }
    }

    pub(super) fn limits(live: &config::Live) -> BatchLimits {
        BatchLimits { max_wait: longest_wait(live), ..BatchLimits::default() }
    }
}

impl Mitigation for Combining {
    type Inquiry = ();

    fn on_request(hot: &mut Mitigations, relay: &mut Relay, incoming: Incoming<'_>) -> Verdict {
        let Incoming { key, command, together, .. } = incoming;
        let Some((name, treatment)) = hot.treated(incoming).filter(|_| !together) else {
            return Verdict::Pass;
        };
        let combines = command.access != Access::Read && treatment.coalesce;
        if !combines || relay.routing().goes_around(key, name) {
            return Verdict::Pass;
        }
        hot.serve_change(relay, incoming).into()
    }

    fn on_reply(hot: &mut Mitigations, relay: &mut Relay, ticket: Ticket, reply: Reply<'_>) {
        match (ticket.purpose, reply) {
            (Purpose::Combined(batch), Reply::Frame { frame, .. }) => {
                hot.batch_arrived(relay, batch, frame);
            }
            (Purpose::Combined(batch), Reply::Lost(error)) => hot.batch_lost(relay, batch, error),
            _ => {}
        }
    }

    fn on_tick(hot: &mut Mitigations, relay: &mut Relay) {
        hot.expire_changes(relay);
    }
}

impl Mitigations {
    /// Sees to it that a change of a hot key is carried out; `None` if it has to go alone.
    pub(super) fn serve_change(
        &mut self,
        relay: &mut Relay,
        incoming: Incoming<'_>,
    ) -> Option<Flow> {
        let Incoming { key, request, command, .. } = incoming;
        let mut args: [&[u8]; MOST_ARGS] = [&[]; MOST_ARGS];
        let args = args.get_mut(..request.len())?;
        for (place, arg) in args.iter_mut().zip(request.args_from(0)) {
            *place = arg;
        }
        let change = Change::parse(args)?;
        if let Some(flow) = relay.routing().without_map(key) {
            return Some(flow);
        }
        let (client, buffers) = relay.clients.get_with_buffers(key)?;
        let pool = client.pool;
        let serial = relay.upstream.pools[pool].serial;
        let login = LoginId(serial as u32);
        let batches = &mut self.combining.batches;
        if client.hot.combined_in.is_some()
            && client.hot.combined_in != batches.pool_of(login, &change)
        {
            return Some(Flow::Wait);
        }
        let reads = !client.hot.reads.is_empty() || client.has_passed_reads();
        if reads || client.hot.writes > 0 || client.hot.apart {
            return Some(Flow::Wait);
        }
        if client.order.outstanding() >= MAX_OUTSTANDING {
            return Some(Flow::Wait);
        }
        let is_apart = change.is_guarded()
            && (self.work.get(change.key()))
                .is_some_and(|work| work.apart_until.is_some_and(|until| relay.now < until));
        if is_apart || !batches.takes(&change) {
            return client.hot.combined_in.is_some().then_some(Flow::Wait);
        }
        let place = client.order.reserve(buffers);
        let waiter = Waiter::new(key, place);
        let now = relay.now.saturating_duration_since(self.origin);
        let (changes, is_sent) = match batches.add(now, login, client.record.id, &change, waiter) {
            Added::Ready(changes) => {
                // All the members that were held may have waited too long meanwhile.
                let held = &self.combining.held;
                if held.iter().all(|held| held.departure.changes != changes) {
                    self.combining.departing.push(Departure { changes, pool, serial });
                }
                (changes, true)
            }
            Added::Waiting { pool, is_first } => (pool, is_first),
            Added::Refused(waiter) => {
                debug_assert!(false, "there was room");
                relay.clients.fill(waiter.client, waiter.place, &error_line("ERR heatsink: busy"));
                return Some(Flow::Taken);
            }
        };
        client.hot.combined_in = Some(changes);
        client.hot.changes += 1;
        if is_sent {
            // One of each batch stands for it. What it is answered does not matter.
            let mark = relay.routing().observe(key, command, request);
            relay.routing().give_up(mark);
        } else if let Some(observer) = &mut relay.observer {
            observer.absorbed(command, request, 0);
        }
        if let Some(name) = request.arg(1)
            && let Some(work) = self.work.get_mut(name)
        {
            work.changes += 1;
        }
        Some(Flow::Taken)
    }

    /// Everything that could be gathered is there: batches are closed and sent.
    pub(crate) fn depart(&mut self, relay: &mut Relay) {
        self.tell_written(relay);
        let time = self.time(relay.now);
        let Combining { held, batches, departing, .. } = &mut self.combining;
        held.retain_mut(|Held { hold, departure }| {
            let over = batches.is_over(time, departure.changes, hold);
            if over {
                departing.push(*departure);
            }
            !over
        });
        while let Some(Departure { changes, pool, serial }) = self.combining.departing.pop() {
            let Some(batch) = self.combining.batches.depart(changes) else { continue };
            self.send_batch(relay, batch, pool, serial);
        }
    }

    fn send_batch(&mut self, relay: &mut Relay, batch: BatchId, pool: usize, serial: u64) {
        let mut bytes = Vec::new();
        self.combining.batches.request(batch, &mut bytes);
        let Some((_, name, members)) = self.combining.batches.describe(batch) else {
            return;
        };
        let name = name.to_vec();
        let shape = self.combining.batches.shape(batch);
        let touched = self.write_sent(relay, &name);
        if let Some(work) = self.work.get_mut(name.as_slice()) {
            work.batches += 1;
            if matches!(shape, Some(Shape::Score | Shape::Text)) {
                let gain = work.script_gain.saturating_add_unsigned(members as u32) - PAYS;
                work.script_gain = gain.clamp(-MOST_LOSS, MOST_LOSS);
                if work.script_gain == -MOST_LOSS {
                    work.script_gain = 0;
                    work.apart_until = Some(relay.now + LITTLE_REST);
                }
            }
        }
        let id = self.number();
        self.combining.sent.insert(id, SentBatch { batch, pool, serial, touched, until: None });
        let is_there = relay.upstream.pools.get(pool).is_some_and(|pool| pool.serial == serial);
        if is_there && self.step_split(relay, id, &name, &bytes, pool) {
            return;
        }
        let link = if is_there {
            let node = relay.node_of(&name);
            relay.links().link_for_many(pool, node)
        } else {
            Err("ERR heatsink: given up".to_owned())
        };
        match link {
            Ok(link) => {
                relay.upstream.push_to_link(
                    relay.now,
                    link,
                    &bytes,
                    Ticket::internal(Purpose::Combined(id)),
                );
            }
            Err(why) => self.batch_lost(relay, id, &error_line(&why)),
        }
    }

    /// The server has answered a batch.
    pub(in crate::hot) fn batch_arrived(&mut self, relay: &mut Relay, id: u32, frame: &[u8]) {
        if frame.starts_with(OUR_ERROR) {
            return self.batch_lost(relay, id, frame);
        }
        if matches!(frame.first(), Some(b'-' | b'!')) {
            return self.batch_refused(relay, id, frame);
        }
        let Some(shape) = self.shape_of(id) else { return };
        if shape == Shape::AsIs {
            return self.batch_relayed(relay, id, frame);
        }
        let Some(answer) = answer_in(frame, shape) else {
            let text = "ERR heatsink: the server's reply to an increment was not understood";
            return self.batch_lost(relay, id, &error_line(text));
        };
        let Some((sent, told)) = self.end_batch(relay, id) else { return };
        let mut replies = std::mem::take(&mut self.combining.replies);
        let next = self.combining.batches.answered(sent.batch, answer, &mut replies);
        let answered = replies.len();
        let pool = relay.upstream.pools.get(sent.pool).filter(|pool| pool.serial == sent.serial);
        let protocol = pool.map_or(Protocol::Resp2, |pool| pool.login.protocol);
        let mut reply = Vec::new();
        for (waiter, answer) in replies.drain(..) {
            reply.clear();
            write_answer(&mut reply, answer, shape, protocol);
            relay.end_change(waiter, told);
            relay.clients.fill(waiter.client, waiter.place, &reply);
        }
        self.combining.replies = replies;
        let time = self.time(relay.now);
        let hold = next.and_then(|changes| self.combining.batches.hold(time, changes, answered));
        match (next, hold) {
            (Some(changes), Some(hold)) => {
                let SentBatch { pool, serial, .. } = sent;
                let departure = Departure { changes, pool, serial };
                self.combining.held.push(Held { hold, departure });
            }
            _ => self.go_on(next, &sent),
        }
    }

    /// A change that went alone was answered; there is nothing to find out in that.
    fn batch_relayed(&mut self, relay: &mut Relay, id: u32, frame: &[u8]) {
        let Some((sent, told)) = self.end_batch(relay, id) else { return };
        let mut waiters = Vec::new();
        let next = self.combining.batches.relayed(sent.batch, &mut waiters);
        relay.tell_changes(waiters, frame, told);
        self.go_on(next, &sent);
    }

    /// Nothing of the batch was carried out: the server has said why.
    fn batch_refused(&mut self, relay: &mut Relay, id: u32, error: &[u8]) {
        if matches!(self.shape_of(id), Some(Shape::Score | Shape::Text)) {
            self.rest_scripts(relay, id);
        }
        let Some((sent, told)) = self.end_batch(relay, id) else { return };
        let mut waiters = Vec::new();
        let next = self.combining.batches.refused(sent.batch, &mut waiters);
        relay.tell_changes(waiters, error, told);
        self.go_on(next, &sent);
    }

    /// Nobody knows what became of the batch, or nothing could be sent.
    pub(in crate::hot) fn batch_lost(&mut self, relay: &mut Relay, id: u32, error: &[u8]) {
        let Some((sent, told)) = self.end_batch(relay, id) else { return };
        let mut waiters = Vec::new();
        let next = self.combining.batches.lost(sent.batch, &mut waiters);
        relay.tell_changes(waiters, error, told);
        self.go_on(next, &sent);
    }

    /// The value is none that increments are combined for, or the server lets this user run no
    /// script: for a while they go the ordinary way.
    fn rest_scripts(&mut self, relay: &mut Relay, id: u32) {
        let Self { combining: Combining { sent, batches, .. }, work, .. } = self;
        let batch = sent.get(&id).map(|sent| sent.batch);
        if let Some((_, name, _)) = batch.and_then(|batch| batches.describe(batch))
            && let Some(work) = work.get_mut(name)
        {
            work.apart_until = Some(relay.now + REST);
        }
    }

    /// A batch that is over, and whether the server tells of what it may have changed.
    fn end_batch(&mut self, relay: &mut Relay, id: u32) -> Option<(SentBatch, bool)> {
        let mut sent = self.combining.sent.remove(&id)?;
        let touched = std::mem::replace(&mut sent.touched, Sent::Uncached);
        let told = matches!(touched, Sent::Told);
        if let Sent::Pending(token) = touched {
            self.write_over(relay, token);
        }
        Some((sent, told))
    }

    /// Answers clients whose changes could not be sent for too long with an error.
    pub(super) fn expire_changes(&mut self, relay: &mut Relay) {
        if self.combining.batches.is_empty() {
            return;
        }
        let time = self.time(relay.now);
        if self.combining.batches.next_deadline().is_none_or(|deadline| deadline > time) {
            return;
        }
        let mut waiters = Vec::new();
        self.combining.batches.expired(time, &mut waiters);
        let text = "ERR heatsink: a change of a hot key waited too long behind another; \
                    it was not carried out";
        relay.tell_changes(waiters, &error_line(text), false);
    }
}

impl Mitigations {
    /// The way that a batch takes, which shards have refused, and how long it may wait in all.
    pub(in crate::hot) fn patience_with(
        &mut self,
        now: Instant,
        id: u32,
    ) -> Option<((usize, u64), Instant)> {
        let sent = self.combining.sent.get_mut(&id)?;
        let until = *sent.until.get_or_insert(now + PATIENCE);
        Some(((sent.pool, sent.serial), until))
    }

    pub(in crate::hot) fn shape_of(&self, id: u32) -> Option<Shape> {
        self.combining.batches.shape(self.combining.sent.get(&id)?.batch)
    }

    pub(in crate::hot) fn go_on(&mut self, next: Option<PoolId>, sent: &SentBatch) {
        if let Some(changes) = next {
            let SentBatch { pool, serial, .. } = *sent;
            self.combining.departing.push(Departure { changes, pool, serial });
        }
    }
}

impl Relay {
    fn tell_changes(&mut self, waiters: Vec<Waiter>, reply: &[u8], told: bool) {
        for waiter in waiters {
            self.end_change(waiter, told);
            self.clients.fill(waiter.client, waiter.place, reply);
        }
    }

    fn end_change(&mut self, waiter: Waiter, told: bool) {
        if let Some(client) = self.clients.get(waiter.client) {
            client.hot.changes -= 1;
            client.hot.written_at = Some(self.now);
            if told {
                client.hot.hear_of_changes(&self.world.clock);
            }
            if client.hot.changes == 0 {
                client.hot.combined_in = None;
            }
        }
    }
}

/// What the server says of a batch.
fn answer_in(frame: &[u8], shape: Shape) -> Option<Answer> {
    let (kind, rest) = frame.split_first()?;
    let rest = rest.strip_suffix(b"\r\n")?;
    match (kind, shape) {
        (b':', Shape::Plain) => integer(rest).map(Answer::Integer),
        (b'+', Shape::Plain) => Some(Answer::Ok),
        (b'$', Shape::Score | Shape::Text) => {
            let line_end = rest.iter().position(|byte| *byte == b'\n')?;
            integer(&rest[line_end + 1..]).map(Answer::Integer)
        }
        _ => None,
    }
}

/// What one of its members is told.
fn write_answer(out: &mut Vec<u8>, answer: Answer, shape: Shape, protocol: Protocol) {
    match (answer, shape) {
        (Answer::Ok, _) => out.extend_from_slice(b"+OK\r\n"),
        (Answer::Integer(number), Shape::Plain | Shape::AsIs) => encode::integer(out, number),
        (Answer::Integer(number), Shape::Score) if protocol == Protocol::Resp3 => {
            let start = out.len();
            encode::integer(out, number);
            out[start] = b',';
        }
        (Answer::Integer(number), Shape::Score | Shape::Text) => {
            encode::bulk(out, number.to_string().as_bytes());
        }
    }
}
