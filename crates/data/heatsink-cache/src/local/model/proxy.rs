//! The worker of the model: clients, and the rules that the caller of the cache keeps.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use proptest::test_runner::TestCaseError;

use super::server::{Frame, KEYS, LINKS, Query, Request, Server};
use super::{Planted, Rule};
use crate::identity::{LoginId, Protocol, Reader};
use crate::local::{
    FillToken, KeySettings, Limits, LinkId, LocalCache, Lookup, Registered, Ttl, WriteToken,
};

const CLIENTS: usize = 3;
const NAMES: [&[u8]; KEYS] = [b"k0", b"k1"];
const COMMANDS: usize = 2;
/// Commands that one client has under way.
const MAX_OPS: usize = 4;
const SETTINGS: KeySettings =
    KeySettings { max_ttl: Duration::from_millis(100), ttl_fraction: 0.2, refresh_ahead: true };

type Checked = Result<(), TestCaseError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    OnTracked,
    OnOrdinary,
    Done(u64),
    Failed,
}

/// A command of a client, in the order in which its replies leave.
#[derive(Clone, Copy, Debug)]
struct Op {
    id: u64,
    key: usize,
    is_write: bool,
    state: State,
}

#[derive(Debug, Default)]
struct Client {
    ops: VecDeque<Op>,
    /// Newest version of each key that it has seen, own writes included.
    floor: [u64; KEYS],
    /// Queries that its tracked link had been sent when its last ordinary command ended: it is served
    /// when a later one is answered.
    unseen: Option<u64>,
}

/// What a tracked link was asked, and how far it has answered.
#[derive(Debug, Default)]
struct Word {
    sent: u64,
    out: VecDeque<u64>,
    heard: u64,
}

/// A registration that waits for what was sent before it.
#[derive(Debug)]
struct Settling {
    token: WriteToken,
    ops: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) cache: LocalCache,
    pub(super) server: Server,
    rule: Rule,
    planted: Planted,
    words: [Word; LINKS],
    now: Duration,
    links: [LinkId; LINKS],
    clients: [Client; CLIENTS],
    next_op: u64,
    fills: HashMap<u64, (FillToken, u64)>,
    writes: HashMap<u64, WriteToken>,
    settling: Vec<Settling>,
    pub(super) hits: u64,
}

fn login(client: usize) -> usize {
    client % LINKS
}

fn command(key: usize, command: usize) -> Vec<u8> {
    format!("READ{command} k{key}").into_bytes()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(TestCaseError::fail(what())) }
}

impl Proxy {
    pub(super) fn new(rule: Rule, planted: Planted) -> Self {
        let mut cache = LocalCache::new(Limits { entries: 3, ..Limits::default() });
        cache.planted = planted;
        let links = [0, 1].map(|login| cache.link_opened(LoginId(login)));
        let mut server = Server::default();
        server.drops_tracking_on_own_writes = planted == Planted::NoLoop;
        let mut proxy = Self {
            cache,
            server,
            rule,
            planted,
            words: Default::default(),
            now: Duration::ZERO,
            links,
            clients: Default::default(),
            next_op: 0,
            fills: HashMap::new(),
            writes: HashMap::new(),
            settling: Vec::new(),
            hits: 0,
        };
        proxy.toggle_registration(0);
        proxy
    }

    /// One step of a script.
    pub(super) fn step(&mut self, [action, first, second]: [u8; 3]) -> Checked {
        let (client, link) = (first as usize % CLIENTS, first as usize % LINKS);
        let key = usize::from(second % 4 == 3); // one key has most of the traffic
        let some = 0..1 + second / 32;
        match action {
            0..60 if self.clients[client].ops.len() < MAX_OPS => {
                self.read(client, key, second as usize / 4 % COMMANDS)?;
            }
            60..72 if self.clients[client].ops.len() < MAX_OPS => self.write(client, key),
            0..72 | 254..=255 => {}
            72..110 => some.for_each(|_| self.server.execute_query(link)),
            110..145 => some.for_each(|_| self.server.execute_request(link)),
            145..190 => some.for_each(|_| self.deliver_frame(link)),
            190..215 => some.for_each(|_| self.deliver_reply(link)),
            215..228 => self.server.foreign_write(key),
            228..234 => self.ask(link, Query::Ping),
            234..236 => self.cut_tracked(link),
            236..240 => self.give_up(link),
            240 => self.server.flush(),
            241..245 => self.now += Duration::from_millis(u64::from(second) / 4),
            245..252 => self.toggle_registration(key),
            252..254 => self.server.evict_tracking(key),
        }
        self.settle();
        self.reply_to_clients()
    }

    fn start(&mut self, client: usize, key: usize, is_write: bool, state: State) -> u64 {
        let id = self.next_op;
        self.next_op += 1;
        self.clients[client].ops.push_back(Op { id, key, is_write, state });
        id
    }

    fn has_out(&self, client: usize, key: usize, state: State) -> bool {
        self.clients[client].ops.iter().any(|op| op.key == key && op.state == state)
    }

    fn read(&mut self, client: usize, key: usize, number: usize) -> Checked {
        let reader = Reader { login: LoginId(login(client) as u32), protocol: Protocol::Resp3 };
        let request = command(key, number);
        if self.cache.key_id(NAMES[key]).is_none() {
            if !self.has_out(client, key, State::OnTracked) {
                self.send_ordinary(client, key, false);
            }
            return Ok(()); // else it waits
        }
        if self.has_out(client, key, State::OnOrdinary) {
            return Ok(()); // it waits
        }
        let behind_fill =
            self.has_out(client, key, State::OnTracked) && self.planted != Planted::HitBehindFill;
        let token = if behind_fill || !self.has_word(client) {
            self.cache.fill_token(self.now, reader, NAMES[key], &request)
        } else {
            match self.cache.lookup(self.now, reader, NAMES[key], &request) {
                Lookup::Hit { reply, refresh } => {
                    let version = u64::from_le_bytes(reply[1..].try_into().expect("8 bytes"));
                    self.hits += 1;
                    let is_old = self.server.is_known_to_be_old(key, version, login(client));
                    ensure(!is_old, || format!("k{key}: {version} is known to be old"))?;
                    self.start(client, key, false, State::Done(version));
                    if !refresh {
                        return Ok(());
                    }
                    let token = self.cache.fill_token(self.now, reader, NAMES[key], &request);
                    let token = token.expect("the key is registered");
                    let id = self.next_op; // of no client
                    self.next_op += 1;
                    self.send_fill(id, key, login(client), token);
                    return Ok(());
                }
                Lookup::Miss(token) | Lookup::Bypass(token) => Some(token),
                Lookup::NotRegistered => None,
            }
        };
        let id = self.start(client, key, false, State::OnTracked);
        self.send_fill(id, key, login(client), token.expect("the key is registered"));
        Ok(())
    }

    fn send_fill(&mut self, op: u64, key: usize, link: usize, token: FillToken) {
        let track = token.is_storable();
        self.fills.insert(op, (token.sent_on(self.links[link]), 0));
        self.ask(link, Query::Read { op, key, track });
        self.ask(link, Query::Ttl { op });
    }

    fn ask(&mut self, link: usize, query: Query) {
        self.server.tracked[link].queries.push_back(query);
        let word = &mut self.words[link];
        word.sent += 1;
        word.out.push_back(word.sent);
    }

    /// A tracked link has answered the first of what it was asked.
    fn answered(&mut self, link: usize) {
        let word = &mut self.words[link];
        let answered = word.out.pop_front();
        let any = self.planted == Planted::AnyAnswer;
        word.heard = if any { word.sent + 1 } else { answered.unwrap_or(word.heard) };
    }

    /// Whether a client may be served from the cache.
    fn has_word(&self, client: usize) -> bool {
        let heard = self.words[login(client)].heard;
        self.planted == Planted::HitBeforeWord
            || self.clients[client].unseen.is_none_or(|sent| heard > sent)
    }

    fn write(&mut self, client: usize, key: usize) {
        if !self.has_out(client, key, State::OnTracked) {
            self.send_ordinary(client, key, true);
        }
    }

    /// Sends what is not a cacheable read of a registered key.
    fn send_ordinary(&mut self, client: usize, key: usize, is_write: bool) {
        let op = self.start(client, key, is_write, State::OnOrdinary);
        if self.rule == Rule::Pending
            && let Some(token) = self.cache.write_sent(NAMES[key])
        {
            if self.planted == Planted::DoneWhenSent {
                self.cache.write_done(token);
            } else {
                self.writes.insert(op, token);
            }
        }
        let request = Request { op, key, is_write, given_up: false };
        self.server.ordinary[login(client)].requests.push_back(request);
    }

    fn finish(&mut self, id: u64, state: State) {
        for (number, client) in self.clients.iter_mut().enumerate() {
            for op in client.ops.iter_mut().filter(|op| op.id == id) {
                if self.rule == Rule::Word && op.state == State::OnOrdinary {
                    client.unseen = Some(self.words[login(number)].sent);
                }
                op.state = state;
            }
        }
        if let Some(token) = self.writes.remove(&id) {
            self.cache.write_done(token);
        }
    }

    fn deliver_frame(&mut self, link: usize) {
        let Some(frame) = self.server.tracked[link].frames.pop_front() else { return };
        self.server.tracked[link].arrived += 1;
        if matches!(frame, Frame::Value { .. } | Frame::Ttl { .. } | Frame::Pong) {
            self.answered(link);
        }
        match frame {
            Frame::Value { op, version } => {
                if let Some((_, value)) = self.fills.get_mut(&op) {
                    *value = version;
                }
                self.finish(op, State::Done(version));
            }
            Frame::Ttl { op } => {
                let Some((token, version)) = self.fills.remove(&op) else { return };
                let mut reply = vec![b'+'];
                reply.extend_from_slice(&version.to_le_bytes());
                self.cache.filled(self.now, token, &reply, Ttl::Unlimited);
            }
            Frame::Invalidate { key } => self.cache.invalidated(NAMES[key]),
            Frame::Flush => self.cache.flushed(),
            Frame::Pong => {}
        }
    }

    fn deliver_reply(&mut self, link: usize) {
        if let Some((op, version)) = self.server.ordinary[link].replies.pop_front() {
            self.finish(op, State::Done(version));
        }
    }

    fn cut_tracked(&mut self, link: usize) {
        self.cache.link_lost(self.links[link]);
        self.server.tracked[link].reconnect();
        // Nothing was read along the new one before.
        let sent = self.words[link].sent + 1;
        self.words[link] = Word { sent, out: VecDeque::new(), heard: sent };
        self.links[link] = self.cache.link_opened(LoginId(link as u32));
        let clients = self.clients.iter_mut().enumerate();
        for (_, client) in clients.filter(|(client, _)| login(*client) == link) {
            for op in client.ops.iter_mut().filter(|op| op.state == State::OnTracked) {
                op.state = State::Failed;
            }
        }
    }

    /// Nothing that is out on an ordinary link is waited for any longer; it may be executed
    /// nevertheless, later.
    fn give_up(&mut self, link: usize) {
        let ordinary = &mut self.server.ordinary[link];
        let mut ids: Vec<u64> = ordinary.replies.drain(..).map(|(op, _)| op).collect();
        for request in &mut ordinary.requests {
            request.given_up = true;
            ids.push(request.op);
        }
        for id in ids {
            self.finish(id, State::Failed);
        }
    }

    fn toggle_registration(&mut self, key: usize) {
        if self.cache.deregister(NAMES[key]).is_some() {
            return;
        }
        let Registered::New(token) = self.cache.register(NAMES[key], SETTINGS) else { return };
        let ops = self.clients.iter().flat_map(|client| &client.ops);
        let before = ops.filter(|op| op.key == key && op.state == State::OnOrdinary);
        let ops = if self.planted == Planted::NoSettling || self.rule == Rule::Word {
            Vec::new()
        } else {
            before.map(|op| op.id).collect()
        };
        self.settling.push(Settling { token, ops });
    }

    fn settle(&mut self) {
        for settling in std::mem::take(&mut self.settling) {
            let ops = self.clients.iter().flat_map(|client| &client.ops);
            let mut out = ops.filter(|op| op.state == State::OnOrdinary);
            if out.any(|op| settling.ops.contains(&op.id)) {
                self.settling.push(settling);
            } else {
                self.cache.write_done(settling.token);
            }
        }
    }

    fn reply_to_clients(&mut self) -> Checked {
        for (number, client) in self.clients.iter_mut().enumerate() {
            while let Some(op) = client.ops.front().copied() {
                let floor = &mut client.floor[op.key];
                match op.state {
                    State::OnTracked | State::OnOrdinary => break,
                    State::Failed => {}
                    State::Done(version) => {
                        let in_order = version > *floor || (version == *floor && !op.is_write);
                        ensure(in_order, || {
                            format!("client {number}, k{}: {version} after {floor}", op.key)
                        })?;
                        *floor = version;
                    }
                }
                client.ops.pop_front();
            }
        }
        Ok(())
    }
}
