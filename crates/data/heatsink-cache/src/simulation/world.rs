//! Connections, the proxy's part, and the checks.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::test_runner::TestCaseError;

use super::Planted;
use super::server::{Executed, Reply, Request, Server};
use crate::combine::{Added, Answer, BatchId, BatchLimits, Batches, Change, PoolId};
use crate::flights::{FlightId, FlightLimits, Flights, Joined};
use crate::identity::{LoginId, Protocol, Reader};

const CONNECTIONS: usize = 8;
/// Operations that one connection has under way.
const MAX_OPS: usize = 4;
const MAX_WAIT: Duration = Duration::from_millis(60);
const READER: Reader = Reader { login: LoginId(0), protocol: Protocol::Resp2 };

type Checked = Result<(), TestCaseError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Add(i64),
    /// By one.
    AddToField,
    Set(i64),
}

impl Kind {
    /// Those of one family may follow each other without waiting.
    fn family(self) -> u8 {
        match self {
            Self::Read => 0,
            Self::Add(_) => 1,
            Self::AddToField => 2,
            Self::Set(_) => 3,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Op {
    connection: usize,
    kind: Kind,
    called: u64,
    /// When it came back, with what it was told.
    done: Option<u64>,
    value: Option<i64>,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) answered: u64,
    pub(super) refused: u64,
    pub(super) lost: u64,
    pub(super) expired: u64,
    pub(super) left: u64,
    pub(super) joined: u64,
    pub(super) combined: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.lost += other.lost;
        self.expired += other.expired;
        self.left += other.left;
        self.joined += other.joined;
        self.combined += other.combined;
    }
}

/// An increment that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntegerReply {
    pub(super) value: i64,
    pub(super) called: u64,
    pub(super) answered: u64,
}

#[derive(Debug)]
pub(super) struct World {
    flights: Flights<usize>,
    batches: Batches<usize>,
    server: Server,
    planted: Planted,
    ops: Vec<Op>,
    under_way: [Vec<usize>; CONNECTIONS],
    /// For each connection its operations on the string, in the order of their calls, with
    /// their instants: of the execution, and the place in the batch.
    instants: [BTreeMap<usize, (u64, usize)>; CONNECTIONS],
    /// Increments of the field that were acknowledged, and those of which nobody knows.
    acknowledged: i64,
    unknown: i64,
    clock: u64,
    now: Duration,
    seen: Seen,
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(TestCaseError::fail(what())) }
}

impl World {
    pub(super) fn new(planted: Planted, start: u8) -> Self {
        let mut flights =
            Flights::new(FlightLimits { max_wait: MAX_WAIT, ..FlightLimits::default() });
        flights.planted_join_out = planted == Planted::JoinOut;
        let limits = BatchLimits { max_wait: MAX_WAIT, batch_members: 6, ..BatchLimits::default() };
        let values = match start % 4 {
            1 => [i64::MAX - 3, 0],
            2 => [i64::MIN + 3, 0],
            _ => [0, 0],
        };
        let server = Server { values, ..Server::default() };
        Self {
            flights,
            batches: Batches::new(limits),
            server,
            planted,
            ops: Vec::new(),
            under_way: Default::default(),
            instants: Default::default(),
            acknowledged: 0,
            unknown: 0,
            clock: 0,
            now: Duration::ZERO,
            seen: Seen::default(),
        }
    }

    /// One step of a script.
    pub(super) fn step(&mut self, [action, first, second]: [u8; 3]) -> Checked {
        let connection = first as usize % CONNECTIONS;
        let delta = [1, 1, 1, -1, -1, 5, -7, 0, i64::MAX, i64::MIN][second as usize % 10];
        match action {
            0..50 => self.call(connection, Kind::Read),
            50..100 => self.call(connection, Kind::Add(delta)),
            100..122 => self.call(connection, Kind::AddToField),
            122..132 => self.call(connection, Kind::Set(i64::from(second) - 100)),
            132..180 => self.execute(),
            180..230 => return self.deliver(),
            230..234 => return self.cut(second),
            234..238 => self.server.fault = Some(Reply::Error),
            238..240 => self.server.fault = Some(Reply::Moved),
            240..246 => {
                self.now += Duration::from_millis(u64::from(second) / 8);
                return self.expire();
            }
            246..250 => self.leave(connection),
            _ => self.detach(),
        }
        Ok(())
    }

    pub(super) fn increment_by_one(&mut self, connection: usize) {
        self.call(connection, Kind::Add(1));
    }

    pub(super) fn execute(&mut self) {
        self.clock += 1;
        self.server.execute(self.clock);
    }

    fn call(&mut self, connection: usize, kind: Kind) {
        let own = &self.under_way[connection];
        let waits = own.iter().any(|&op| self.ops[op].kind.family() != kind.family());
        if own.len() >= MAX_OPS || (waits && self.planted != Planted::NoOrder) {
            return;
        }
        self.clock += 1;
        let op = self.ops.len();
        self.ops.push(Op { connection, kind, called: self.clock, done: None, value: None });
        self.under_way[connection].push(op);
        let (by, set);
        let words: &[&str] = match kind {
            Kind::Read => {
                match self.flights.join(self.now, READER, b"k", b"GET k", op) {
                    Joined::Send(flight) => self.send_flight(flight),
                    Joined::Waiting(_) | Joined::Next(_) => {}
                    Joined::Refused(_) => panic!("there is room"),
                }
                return;
            }
            Kind::Add(1) => &["INCR", "k"],
            Kind::Add(-1) => &["DECR", "k"],
            Kind::Add(delta) => {
                by = delta.to_string();
                &["INCRBY", "k", &by]
            }
            Kind::AddToField => &["HINCRBY", "h", "f", "1"],
            Kind::Set(value) => {
                set = value.to_string();
                &["SET", "k", &set]
            }
        };
        let change = Change::parse(words).expect("it can be combined");
        match self.batches.add(self.now, READER.login, connection as u64, &change, op) {
            Added::Ready(pool) => self.send_next(Some(pool)),
            Added::Waiting { .. } => {}
            Added::Refused(_) => panic!("there is room"),
        }
    }

    fn send_flight(&mut self, flight: FlightId) {
        self.flights.sent(flight);
        self.server.requests.push_back(Request::Flight(flight));
    }

    fn send_batch(&mut self, batch: BatchId) {
        let mut request = Vec::new();
        assert!(self.batches.request(batch, &mut request), "a batch that is out");
        self.server.requests.push_back(Request::Batch(batch, request));
    }

    fn come_back(&mut self, op: usize) -> Checked {
        self.clock += 1;
        let clock = self.clock;
        let done = &mut self.ops[op].done;
        ensure(done.is_none(), || format!("{op} comes back twice"))?;
        *done = Some(clock);
        self.under_way[self.ops[op].connection].retain(|other| *other != op);
        Ok(())
    }

    fn come_back_all(&mut self, ops: &[usize]) -> Checked {
        ops.iter().try_for_each(|op| self.come_back(*op))
    }

    /// Checks that an operation's instant lies within its time, and that those of its
    /// connection are in the order of its calls.
    fn check_instant(&mut self, op: usize, at: u64, place: usize) -> Checked {
        let Op { called, connection, kind, .. } = self.ops[op];
        ensure(called < at, || format!("{op} was called at {called}, executed at {at}"))?;
        if kind == Kind::AddToField {
            return Ok(()); // another key
        }
        let (instants, instant) = (&mut self.instants[connection], (at, place));
        let before = instants.range(..op).next_back();
        let after = instants.range(op..).next();
        let in_order = before.is_none_or(|(_, other)| *other < instant)
            && after.is_none_or(|(_, other)| *other > instant);
        ensure(in_order, || {
            format!("{op} at {instant:?} is not between {before:?} and {after:?}")
        })?;
        instants.insert(op, instant);
        Ok(())
    }

    /// Handles the next reply.
    pub(super) fn deliver(&mut self) -> Checked {
        let Some((request, reply)) = self.server.replies.pop_front() else { return Ok(()) };
        match (request, reply) {
            (Request::Flight(flight), Reply::Executed(executed)) => {
                let mut waiters = Vec::new();
                let next = self.flights.answered(flight, &mut waiters);
                for (place, op) in waiters.into_iter().enumerate() {
                    self.check_instant(op, executed.at, place)?;
                    self.come_back(op)?;
                    self.seen.answered += 1;
                }
                if let Some(next) = next {
                    self.send_flight(next);
                }
                Ok(())
            }
            (Request::Batch(batch, _), Reply::Executed(executed)) => {
                self.batch_answered(batch, executed)
            }
            (Request::Batch(batch, _), Reply::Error) => {
                let mut waiters = Vec::new();
                let next = self.batches.refused(batch, &mut waiters);
                self.seen.refused += waiters.len() as u64;
                self.come_back_all(&waiters)?;
                self.send_next(next);
                Ok(())
            }
            (request, _) => {
                self.server.requests.push_back(request);
                Ok(())
            }
        }
    }

    fn send_next(&mut self, next: Option<PoolId>) {
        if let Some(batch) = next.and_then(|pool| self.batches.depart(pool)) {
            self.send_batch(batch);
        }
    }

    fn batch_answered(&mut self, batch: BatchId, executed: Executed) -> Checked {
        // What the members make of it, one after the other. Those who left are not told.
        let members = self.batches.describe(batch).map_or(0, |(_, _, members)| members);
        let is_set = self.batches.describe(batch).is_some() && self.is_set(batch);
        let answer = if is_set { Answer::Ok } else { Answer::Integer(executed.after) };
        let mut replies = Vec::new();
        let next = self.batches.answered(batch, answer, &mut replies);
        let all_told = replies.len() == members;
        let mut value = executed.before;
        for (place, &(op, answer)) in replies.iter().enumerate() {
            self.check_instant(op, executed.at, place)?;
            let kind = self.ops[op].kind;
            match (kind, answer) {
                (Kind::Set(new), Answer::Ok) => value = new,
                (Kind::Add(_) | Kind::AddToField, Answer::Integer(told)) => {
                    let delta = if let Kind::Add(delta) = kind { delta } else { 1 };
                    self.acknowledged += i64::from(kind == Kind::AddToField);
                    let fits = told.checked_sub(delta);
                    ensure(fits.is_some(), || format!("{told} cannot be after adding {delta}"))?;
                    if all_told {
                        value = value.checked_add(delta).expect("one by one it fits, too");
                        ensure(told == value, || format!("{told} instead of {value}"))?;
                    }
                    self.ops[op].value = Some(told);
                }
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            }
            self.come_back(op)?;
            self.seen.answered += 1;
        }
        if all_told && members > 0 {
            ensure(value == executed.after, || {
                format!("{value} instead of {} at the end", executed.after)
            })?;
        }
        self.send_next(next);
        Ok(())
    }

    fn is_set(&self, batch: BatchId) -> bool {
        let mut request = Vec::new();
        self.batches.request(batch, &mut request) && request.starts_with(b"*3\r\n$3\r\nSET")
    }

    /// The connection to the server is cut: some of what was sent is executed, nothing of it
    /// is answered.
    fn cut(&mut self, second: u8) -> Checked {
        let replies: Vec<_> = self.server.replies.drain(..).map(|(request, _)| request).collect();
        let sent: Vec<_> = self.server.requests.iter().cloned().collect();
        for _ in 0..second % 4 {
            self.execute();
        }
        self.server.replies.clear();
        self.server.requests.clear();
        for request in replies.into_iter().chain(sent) {
            let mut waiters = Vec::new();
            match request {
                Request::Flight(flight) => {
                    let next = self.flights.failed(flight, &mut waiters);
                    if let Some(next) = next {
                        self.send_flight(next);
                    }
                }
                Request::Batch(batch, bytes) if self.planted == Planted::RetryLost => {
                    self.server.requests.push_back(Request::Batch(batch, bytes));
                }
                Request::Batch(batch, _) => {
                    let next = self.batches.lost(batch, &mut waiters);
                    let kinds = waiters.iter().map(|op| self.ops[*op].kind);
                    self.unknown += kinds.filter(|kind| *kind == Kind::AddToField).count() as i64;
                    self.send_next(next);
                }
            }
            self.seen.lost += waiters.len() as u64;
            self.come_back_all(&waiters)?;
        }
        Ok(())
    }

    fn expire(&mut self) -> Checked {
        let mut waiters = Vec::new();
        self.flights.expired(self.now, &mut waiters);
        self.batches.expired(self.now, &mut waiters);
        self.seen.expired += waiters.len() as u64;
        self.come_back_all(&waiters)
    }

    /// A connection closes, and another takes its place.
    fn leave(&mut self, connection: usize) {
        let ops = &self.ops;
        let mut gone = self.flights.leave(|op| ops[*op].connection == connection);
        gone += self.batches.leave(|op| ops[*op].connection == connection);
        assert_eq!(gone, self.under_way[connection].len(), "all that is under way leaves");
        self.seen.left += gone as u64;
        self.clock += 1;
        for op in self.under_way[connection].drain(..) {
            self.ops[op].done = Some(self.clock);
            self.unknown += i64::from(self.ops[op].kind == Kind::AddToField);
        }
    }

    fn detach(&mut self) {
        let mut to_send = Vec::new();
        self.flights.detach(b"k", &mut to_send);
        for flight in to_send {
            self.send_flight(flight);
        }
    }

    /// Lets everything come to its end and checks that nothing is left.
    pub(super) fn drain(&mut self) -> Checked {
        self.server.fault = None;
        while !self.server.requests.is_empty() || !self.server.replies.is_empty() {
            self.execute();
            self.deliver()?;
        }
        ensure(self.flights.is_empty() && self.batches.is_empty(), || {
            format!("left over: {:?} {:?}", self.flights, self.batches)
        })?;
        let (least, field) = (self.acknowledged, self.server.values[1]);
        ensure((least..=least + self.unknown).contains(&field), || {
            format!("the field is {field}; {least} acknowledged, {} unknown", self.unknown)
        })?;
        let lost = self.ops.iter().position(|op| op.done.is_none());
        ensure(lost.is_none(), || format!("{lost:?} never came back"))
    }

    pub(super) fn seen(&self) -> Seen {
        Seen {
            joined: self.flights.joined(),
            combined: self.batches.combined(),
            ..self.seen.clone()
        }
    }

    pub(super) fn integer_replies(&self) -> Vec<IntegerReply> {
        let reply = |op: &Op| {
            let (value, answered) = (op.value?, op.done?);
            Some(IntegerReply { value, called: op.called, answered })
        };
        self.ops.iter().filter_map(reply).collect()
    }
}
