//! Writes of hot keys that go out as one: increments, and plain `SET`s.
//!
//! Called by: `cool` with each request that may be combined; `flush` right before anything is
//! sent; `replies` and `lanes` with what became of a batch.
//! Bound: the limits of [`heatsink_cache::combine`]; one batch of an identity is out.
//! Invariant: a client's requests for one key keep their order. Whatever else it asks of a hot
//! key waits until its changes are answered, and a change waits for those, unless it goes the
//! same way as the changes before it. A batch whose outcome is unknown is not sent again.

use heatsink_cache::combine::{Added, Answer, BatchId, Change, LaneId, integer};
use heatsink_cache::identity::LoginId;
use heatsink_cache::local::WriteToken;
use heatsink_resp::command::Command;

use super::reads::Waiter;
use crate::clients::{MAX_OUTSTANDING, error_line};
use crate::connection::ClientKey;
use crate::intake::Flow;
use crate::lanes::{Purpose, Ticket};
use crate::request::Request;
use crate::worker::Worker;

/// What errors of our own begin with: the server has not refused anything then.
const OUR_ERROR: &[u8] = b"-ERR heatsink: ";
/// The longest request that can be combined, in arguments.
const MOST_ARGS: usize = 4;

/// Changes that are to be sent at the end of the turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    changes: LaneId,
    lane: usize,
    serial: u64,
}

/// A batch on its way to the server.
#[derive(Debug)]
pub(crate) struct SentBatch {
    batch: BatchId,
    lane: usize,
    serial: u64,
    token: Option<WriteToken>,
}

impl Worker {
    /// Sees to it that a change of a hot key is carried out; `None` if it has to go alone.
    pub(super) fn serve_change(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Option<Flow> {
        let mut args: [&[u8]; MOST_ARGS] = [&[]; MOST_ARGS];
        let args = args.get_mut(..request.len())?;
        for (place, arg) in args.iter_mut().zip(request.args_from(0)) {
            *place = arg;
        }
        let change = Change::parse(args)?;
        if let Some(flow) = self.without_map(key) {
            return Some(flow);
        }
        let (client, pool) = self.clients.get_with_pool(key)?;
        let lane = client.lane;
        let serial = self.lanes[lane].serial;
        let login = LoginId(serial as u32);
        let batches = &mut self.cooling.batches;
        if client.changes.is_some() && client.changes != batches.lane_of(login, &change) {
            return Some(Flow::Wait);
        }
        if !client.hot_reads.is_empty() || client.hot_writes > 0 || client.hot_apart {
            return Some(Flow::Wait);
        }
        if client.order.outstanding() >= MAX_OUTSTANDING {
            return Some(Flow::Wait);
        }
        if !batches.takes(&change) {
            return client.changes.is_some().then_some(Flow::Wait);
        }
        let place = client.order.reserve(pool);
        let waiter = Waiter::new(key, place);
        let now = self.now.saturating_duration_since(self.cooling.origin);
        let (changes, is_sent) = match batches.add(now, login, client.card.id, &change, waiter) {
            Added::Ready(changes) => {
                self.cooling.departing.push(Departure { changes, lane, serial });
                (changes, true)
            }
            Added::Waiting { lane, is_first } => (lane, is_first),
            Added::Refused(waiter) => {
                debug_assert!(false, "there was room");
                self.clients.fill(waiter.client, waiter.place, &error_line("ERR heatsink: busy"));
                return Some(Flow::Taken);
            }
        };
        client.changes = Some(changes);
        client.hot_changes += 1;
        if is_sent {
            // One of each batch stands for it. What it is answered does not matter.
            let mark = self.observe(key, command, request);
            self.give_up(mark);
        } else if let Some(observer) = &mut self.observer {
            observer.absorbed(command, request, 0);
        }
        if let Some(name) = request.arg(1)
            && let Some(work) = self.cooling.work.get_mut(name)
        {
            work.changes += 1;
        }
        Some(Flow::Taken)
    }

    /// Everything that could be gathered is there: batches are closed and sent.
    pub(crate) fn depart(&mut self) {
        self.tell_written();
        while let Some(Departure { changes, lane, serial }) = self.cooling.departing.pop() {
            let Some(batch) = self.cooling.batches.depart(changes) else { continue };
            self.send_batch(batch, lane, serial);
        }
    }

    fn send_batch(&mut self, batch: BatchId, lane: usize, serial: u64) {
        let mut bytes = Vec::new();
        self.cooling.batches.request(batch, &mut bytes);
        let Some((_, name, _)) = self.cooling.batches.describe(batch) else { return };
        let name = name.to_vec();
        let token = self.cooling.cache.write_sent(&name);
        if let Some(work) = self.cooling.work.get_mut(name.as_slice()) {
            work.batches += 1;
        }
        let id = self.cooling.number();
        self.cooling.sent.insert(id, SentBatch { batch, lane, serial, token });
        let link = if self.lanes.get(lane).is_some_and(|lane| lane.serial == serial) {
            self.lane_link(lane, self.node_of(&name))
        } else {
            Err("ERR heatsink: given up".to_owned())
        };
        match link {
            Ok(_) if self.step_split(id, &name, &bytes, lane) => {}
            Ok(link) => {
                self.push_to_link(link, &bytes, Ticket::internal(Purpose::Combined(id)), 1);
            }
            Err(why) => self.batch_lost(id, &error_line(&why)),
        }
    }

    /// The server has answered a batch.
    pub(crate) fn batch_arrived(&mut self, id: u32, frame: &[u8]) {
        if frame.starts_with(OUR_ERROR) {
            return self.batch_lost(id, frame);
        }
        let answer = match frame.split_first() {
            Some((b':', rest)) => rest.strip_suffix(b"\r\n").and_then(integer).map(Answer::Integer),
            Some((b'+', _)) => Some(Answer::Ok),
            Some((b'-' | b'!', _)) => return self.batch_refused(id, frame),
            _ => None,
        };
        let Some(answer) = answer else {
            let text = "ERR heatsink: the server's reply to an increment was not understood";
            return self.batch_lost(id, &error_line(text));
        };
        let Some(sent) = self.end_batch(id) else { return };
        let mut replies = std::mem::take(&mut self.cooling.replies);
        let next = self.cooling.batches.answered(sent.batch, answer, &mut replies);
        let mut line = Vec::new();
        for (waiter, answer) in replies.drain(..) {
            line.clear();
            match answer {
                Answer::Ok => line.extend_from_slice(b"+OK\r\n"),
                Answer::Integer(number) => heatsink_resp::encode::integer(&mut line, number),
            }
            self.end_change(waiter);
            self.clients.fill(waiter.client, waiter.place, &line);
        }
        self.cooling.replies = replies;
        self.go_on(next, &sent);
    }

    /// Nothing of the batch was carried out: the server has said why.
    fn batch_refused(&mut self, id: u32, error: &[u8]) {
        let Some(sent) = self.end_batch(id) else { return };
        let mut waiters = Vec::new();
        let next = self.cooling.batches.refused(sent.batch, &mut waiters);
        self.tell_changes(waiters, error);
        self.go_on(next, &sent);
    }

    /// Nobody knows what became of the batch, or nothing could be sent.
    pub(crate) fn batch_lost(&mut self, id: u32, error: &[u8]) {
        let Some(sent) = self.end_batch(id) else { return };
        let mut waiters = Vec::new();
        let next = self.cooling.batches.lost(sent.batch, &mut waiters);
        self.tell_changes(waiters, error);
        self.go_on(next, &sent);
    }

    fn end_batch(&mut self, id: u32) -> Option<SentBatch> {
        let mut sent = self.cooling.sent.remove(&id)?;
        if let Some(token) = sent.token.take() {
            self.write_over(token);
        }
        Some(sent)
    }

    fn go_on(&mut self, next: Option<LaneId>, sent: &SentBatch) {
        if let Some(changes) = next {
            let SentBatch { lane, serial, .. } = *sent;
            self.cooling.departing.push(Departure { changes, lane, serial });
        }
    }

    fn tell_changes(&mut self, waiters: Vec<Waiter>, error: &[u8]) {
        for waiter in waiters {
            self.end_change(waiter);
            self.clients.fill(waiter.client, waiter.place, error);
        }
    }

    fn end_change(&mut self, waiter: Waiter) {
        if let Some(client) = self.clients.get(waiter.client) {
            client.hot_changes -= 1;
            if client.hot_changes == 0 {
                client.changes = None;
            }
        }
    }

    /// Those whose changes were not sent for too long are told so.
    pub(super) fn expire_changes(&mut self) {
        if self.cooling.batches.is_empty() {
            return;
        }
        let time = self.cooling.time(self.now);
        if self.cooling.batches.next_deadline().is_none_or(|deadline| deadline > time) {
            return;
        }
        let mut waiters = Vec::new();
        self.cooling.batches.expired(time, &mut waiters);
        let text = "ERR heatsink: a change of a hot key waited too long behind another; \
                    it was not carried out";
        self.tell_changes(waiters, &error_line(text));
    }
}
