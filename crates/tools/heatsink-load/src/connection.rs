//! One connection of a round: sends what is due, judges what comes back.
//!
//! Called by: the engine, on events of its socket and when something is due.
//! Bound: `pipeline` requests out at once; what is due beyond that waits as a number.
//! Invariant: replies are judged in the order of their requests. A connection that is lost
//! loses its requests: their writes are never acknowledged in the ledger.

mod reply;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use heatsink_resp::encode;
use mio::{Registry, Token};

use crate::memory::Memory;
use crate::pipe::Pipe;
use crate::recorder::Outcome;
use crate::round::{Round, counter_place};
use crate::socket::Socket;
use crate::stamp::{self, Stamp};
use crate::workload::{Action, KeyId, Operation, OperationStream};

/// Pause before a lost connection is made again.
const RECONNECT_AFTER: Duration = Duration::from_millis(50);
/// A reply that is longer than a value by more than this is none of ours.
const REPLY_SPARE_BYTES: usize = 1 << 20;
/// Keys that all connections together remember.
const REMEMBERED_KEYS: usize = 1 << 20;

/// A request that is out.
#[derive(Clone, Copy, Debug)]
struct Sent {
    operation: Operation,
    due: Duration,
    /// Of a write.
    version: u64,
    floor: u64,
    /// Of a read: what was overwritten when it was sent.
    superseded: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u32,
    token: Token,
    pipe: Option<Pipe>,
    /// Replies of the introduction that are still to come.
    greeting_left: usize,
    sent: VecDeque<Sent>,
    operations: OperationStream,
    memory: Memory,
    /// Requests made so far, at a given rate.
    made: u64,
    /// When the value that was missed is there again.
    recomputed_at: Option<Duration>,
    /// When to connect again.
    pub(crate) reconnect_at: Option<Duration>,
    /// The moment that the engine was last told to come back at.
    told_wake: Option<Duration>,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(number: u32, token: Token, round: &Round<'_>) -> Self {
        let remembered = REMEMBERED_KEYS / round.options.connections as usize;
        Self {
            number,
            token,
            pipe: None,
            greeting_left: 0,
            sent: VecDeque::new(),
            operations: round.workload.stream(number),
            memory: Memory::new(remembered.max(1), round.options.counters as usize + 1),
            made: 0,
            recomputed_at: None,
            reconnect_at: None,
            told_wake: None,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Begins to connect and writes the introduction.
    pub(crate) fn open(&mut self, round: &Round<'_>, registry: &Registry, outcome: &mut Outcome) {
        self.reconnect_at = None;
        let server = &round.target.server;
        let tls = round.options.tls.as_ref().filter(|_| server.tls);
        let tls = tls.map(|tls| (tls, server.host.as_str()));
        match Socket::open(round.address, tls, registry, self.token) {
            Ok(socket) => self.pipe = Some(Pipe::new(socket)),
            Err(error) => return self.lose(round, outcome, &error),
        }
        if let Some(credentials) = &server.credentials {
            match &credentials.user {
                Some(user) => self.greet(&[b"AUTH", user, &credentials.password]),
                None => self.greet(&[b"AUTH", &credentials.password]),
            }
        }
        if server.db != 0 {
            self.greet(&[b"SELECT", server.db.to_string().as_bytes()]);
        }
    }

    fn greet(&mut self, args: &[&[u8]]) {
        self.encode(args);
        self.greeting_left += 1;
    }

    fn encode(&mut self, args: &[&[u8]]) {
        if let Some(pipe) = &mut self.pipe {
            encode::command(pipe.outbox(), args);
        }
    }

    /// Nothing is out.
    pub(crate) fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }

    /// At a given rate: something was due before the end and is not sent yet.
    pub(crate) fn has_backlog(&self, round: &Round<'_>) -> bool {
        round.due(self.number, self.made).is_some_and(|due| due < round.end)
    }

    /// The moment at which there is something to do without an event, if the engine was not
    /// told of it yet.
    pub(crate) fn new_wake(&mut self) -> Option<Duration> {
        let wake = [self.reconnect_at, self.recomputed_at].into_iter().flatten().min();
        let told = std::mem::replace(&mut self.told_wake, wake);
        wake.filter(|_| told != wake)
    }

    /// Sends what is due, as far as there is room.
    pub(crate) fn top_up(&mut self, round: &Round<'_>, now: Duration, outcome: &mut Outcome) {
        let over = now >= round.end && !self.has_backlog(round);
        let is_connected = self.pipe.as_ref().is_some_and(Pipe::is_connected);
        if !is_connected || self.greeting_left > 0 || over {
            return;
        }
        if self.recomputed_at.is_some_and(|at| at <= now) {
            self.recomputed_at = None;
            outcome.recomputations += 1;
            self.send(round, Operation { key: KeyId::Expiring, action: Action::Write }, now);
        }
        // Whoever computes a value does nothing else meanwhile.
        while self.recomputed_at.is_none() && self.sent.len() < round.options.pipeline as usize {
            let due = match round.due(self.number, self.made) {
                Some(due) if due > now || due >= round.end => break,
                Some(due) => due,
                None => now,
            };
            self.made += 1;
            let operation = self.operations.next(round.script_time(due));
            self.send(round, operation, due);
        }
        self.write(round, outcome);
    }

    fn send(&mut self, round: &Round<'_>, operation: Operation, due: Duration) {
        let Operation { key, action } = operation;
        let Some(pipe) = &mut self.pipe else { return };
        let mut sent = Sent { operation, due, version: 0, floor: 0, superseded: 0 };
        self.name.clear();
        key.write_name(round.prefix, &mut self.name);
        let place = round.value_place(key);
        match (action, place) {
            (Action::Write, Some(at)) => {
                (sent.version, sent.floor) = round.ledger.issue(at);
                let Sent { version, floor, .. } = sent;
                let stamp = Stamp { run: round.ledger.run, version, floor };
                self.value.clear();
                stamp::write(&mut self.value, &self.name, stamp, round.options.value_bytes);
                if key == KeyId::Expiring {
                    let ttl_ms = round.options.ttl.as_millis().to_string();
                    let args = [b"SET", &*self.name, &*self.value, b"PX", ttl_ms.as_bytes()];
                    encode::command(pipe.outbox(), &args);
                } else {
                    encode::command(pipe.outbox(), &[b"SET", &*self.name, &*self.value]);
                }
            }
            (Action::Read, at) => {
                sent.superseded = at.map_or(0, |at| round.ledger.superseded(at));
                encode::command(pipe.outbox(), &[b"GET", &*self.name]);
            }
            (Action::Count | Action::Write, _) => {
                if let Some(at) = counter_place(key, round.options) {
                    round.ledger.counter(at).issue();
                }
                let command: &[u8] = if key == KeyId::Stock { b"DECR" } else { b"INCR" };
                encode::command(pipe.outbox(), &[command, &*self.name]);
            }
        }
        self.sent.push_back(sent);
    }

    /// Writes what waits, as far as the socket takes it.
    fn write(&mut self, round: &Round<'_>, outcome: &mut Outcome) {
        if let Some(Err(error)) = self.pipe.as_mut().map(Pipe::write) {
            self.lose(round, outcome, &error);
        }
    }

    /// Its socket is ready for something.
    pub(crate) fn on_event(&mut self, round: &Round<'_>, outcome: &mut Outcome) {
        match self.pipe.as_mut().map(Pipe::connect) {
            None | Some(Ok(false)) => return,
            Some(Ok(true)) => {}
            Some(Err(error)) => return self.lose(round, outcome, &error),
        }
        self.write(round, outcome);
        if let Err(error) = self.receive(round, outcome) {
            self.lose(round, outcome, &error);
        }
        // A read may have completed a handshake, or the introduction.
        self.top_up(round, round.now(), outcome);
        self.write(round, outcome);
    }

    fn receive(&mut self, round: &Round<'_>, outcome: &mut Outcome) -> io::Result<()> {
        let Some(mut pipe) = self.pipe.take() else { return Ok(()) };
        let limit = round.options.value_bytes + REPLY_SPARE_BYTES;
        let result = pipe.read(limit, |frame| self.on_reply(frame, round, round.now(), outcome));
        self.pipe = Some(pipe);
        result
    }

    /// The connection is gone, and what was out on it with an unknown outcome.
    fn lose(&mut self, round: &Round<'_>, outcome: &mut Outcome, error: &io::Error) {
        self.pipe = None;
        self.recomputed_at = None;
        let now = round.now();
        let lost = self.sent.len().max(1);
        for sent in self.sent.drain(..) {
            if round.measures(sent.due) {
                outcome.record_error(round.part(sent.due));
            }
        }
        for _ in 0..lost {
            outcome.errors.add(|| format!("connection lost: {error}"));
        }
        outcome.reconnects += 1;
        self.greeting_left = 0;
        self.reconnect_at = Some(now + RECONNECT_AFTER);
    }

    /// The round is over: what is still out, and what was due and never sent, is counted at
    /// the time that it has waited until now. Not so if somebody stopped the round.
    pub(crate) fn close(&mut self, round: &Round<'_>, outcome: &mut Outcome) {
        self.pipe = None;
        if outcome.stopped_at.is_some() {
            return;
        }
        let now = round.now();
        for sent in self.sent.drain(..) {
            outcome.errors.add(|| "no reply before the end".to_owned());
            if round.measures(sent.due) {
                outcome.record(round.part(sent.due), now.saturating_sub(sent.due));
            }
        }
        while let Some(due) = round.due(self.number, self.made)
            && due < round.end
        {
            self.made += 1;
            if round.measures(due) {
                outcome.unsent += 1;
                outcome.record(round.part(due), now.saturating_sub(due));
            }
        }
    }
}
