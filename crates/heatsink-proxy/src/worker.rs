//! One worker: an event loop that owns its clients and its upstream links.
//!
//! A turn of the loop: wait for events; read from clients and links, which fills the other
//! side's output; then write each output once. So all requests that arrived together leave
//! in one write per link, and all replies in one write per client.
//! Bound: each socket is read a few times a turn at most, so no client starves the others.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use heatsink_resp::command::CommandTable;
use heatsink_resp::request::Limits;
use heatsink_resp::value::Value;
use heatsink_upstream::link::{Delivery, Received};
use heatsink_upstream::{Login, Protocol};
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};
use slab::Slab;

use crate::clients::{BULKY_BYTES, Clients};
use crate::connection::{Client, ClientKey, Closing};
use crate::directory::Card;
use crate::intake::Scratch;
use crate::lanes::{Lane, Owner, Purpose, Ticket, Upstream};
use crate::own::Pass;
use crate::shared::{Message, Shared};

/// The token of a worker's letterbox.
pub(crate) const MAIL: Token = Token(usize::MAX - 1);
/// Bytes read from a socket at once.
const READ_BYTES: usize = 64 << 10;
/// Reads from one link in a turn.
const READS_PER_TURN: usize = 4;
/// What a server accepts from a connection that has not authenticated.
const SERVER_UNAUTHENTICATED_MAX_ARGS: u64 = 10;
const SERVER_UNAUTHENTICATED_MAX_BYTES: u64 = 16 << 10;
/// Looks for more requests before those at hand are written to the server.
const MORE_LOOKS: usize = 4;
/// How often overdue things are looked for while something is waited for, and while not.
const BUSY_TICK: Duration = Duration::from_millis(50);
const IDLE_TICK: Duration = Duration::from_secs(1);
/// How long a client that was told why it is closed may take to read that.
const LINGER: Duration = Duration::from_millis(500);

/// What an event is for: a client or a link, its slot and its generation. One batch of events
/// can close whatever is in a slot, fill the slot anew, and then tell something of the old one.
fn token(slot: usize, generation: u32, is_link: bool) -> Token {
    Token((generation as usize) << 32 | slot << 1 | usize::from(is_link))
}

pub(crate) fn link_token(slot: usize, generation: u32) -> Token {
    token(slot, generation, true)
}

/// One worker.
pub(crate) struct Worker {
    poll: Poll,
    pub(crate) registry: Registry,
    mail: Receiver<Message>,
    pub(crate) shared: Arc<Shared>,
    index: usize,
    /// This worker's copy of the command table; no other thread touches its counter.
    pub(crate) table: Rc<CommandTable>,
    table_version: u64,
    pub(crate) clients: Clients,
    pub(crate) next_generation: u32,
    pub(crate) links: Slab<Upstream>,
    pub(crate) lanes: Slab<Lane>,
    /// The lane of clients that have not authenticated.
    pub(crate) base_lane: usize,
    pub(crate) scratch: Scratch,
    /// After authentication, and before.
    pub(crate) request_limits: [Limits; 2],
    pub(crate) dirty_links: Vec<usize>,
    /// Links that may have more to read.
    pub(crate) eager_links: Vec<usize>,
    /// Replies that are looked into here instead of being passed on.
    kept: Vec<(Ticket, Vec<u8>)>,
    pub(crate) now: Instant,
    next_tick: Instant,
    drain_until: Option<Instant>,
}

impl Worker {
    pub(crate) fn new(
        index: usize,
        poll: Poll,
        mail: Receiver<Message>,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let upstream = &shared.config.upstream;
        let login = Login {
            credentials: upstream.credentials.clone(),
            db: upstream.db,
            protocol: Protocol::Resp2,
        };
        let mut worker = Self {
            registry: poll.registry().try_clone()?,
            poll,
            mail,
            index,
            table: Rc::new(CommandTable::clone(&shared.table())),
            table_version: shared.table_version.load(Ordering::Acquire),
            clients: Clients::new(shared.config.limits.max_output_bytes),
            next_generation: 0,
            links: Slab::new(),
            lanes: Slab::new(),
            base_lane: 0,
            scratch: Scratch::new(READ_BYTES),
            request_limits: request_limits(&shared.config.limits),
            dirty_links: Vec::new(),
            eager_links: Vec::new(),
            kept: Vec::new(),
            now,
            next_tick: now,
            drain_until: None,
            shared,
        };
        if let Some(base_lane) = worker.lane_for(&login) {
            worker.base_lane = base_lane;
        }
        // Connected before the first client comes, so that it does not wait for it, and the
        // server's commands and its wish for a password are known.
        if worker.lane_link(worker.base_lane).is_err() {
            tracing::debug!("upstream not there yet");
        }
        Ok(worker)
    }

    /// Runs until told to drain.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        loop {
            if let Err(error) = self.poll.poll(&mut events, Some(self.patience())) {
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                tracing::error!(%error, worker = self.index, "waiting for events failed");
                return;
            }
            self.now = Instant::now();
            self.renew_table();
            self.on_events(&events);
            // Another look before writing: what has arrived meanwhile shares the write, which
            // costs far more than looking, here and at the server.
            for _ in 0..MORE_LOOKS {
                if self.dirty_links.is_empty()
                    || self.poll.poll(&mut events, Some(Duration::ZERO)).is_err()
                    || events.is_empty()
                {
                    break;
                }
                self.on_events(&events);
            }
            self.finish_turn();
            if self.now >= self.next_tick {
                self.tick();
                self.finish_turn();
            }
            if self.drain_until.is_some() && self.clients.slab.is_empty() {
                return;
            }
        }
    }

    fn on_events(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                MAIL => self.read_mail(),
                Token(token) => {
                    let slot = (token as u32) >> 1;
                    let generation = (token >> 32) as u32;
                    if token & 1 == 0 {
                        self.on_client_event(ClientKey { slot, generation }, event);
                    } else {
                        self.on_link_event(slot as usize, generation, event);
                    }
                }
            }
        }
    }

    /// How long to wait for events at most.
    fn patience(&self) -> Duration {
        if self.eager_links.is_empty()
            && self.clients.eager.is_empty()
            && self.clients.resume.is_empty()
        {
            self.next_tick.saturating_duration_since(self.now)
        } else {
            Duration::ZERO
        }
    }

    fn renew_table(&mut self) {
        let version = self.shared.table_version.load(Ordering::Acquire);
        if version != self.table_version {
            self.table_version = version;
            self.table = Rc::new(CommandTable::clone(&self.shared.table()));
        }
    }

    fn read_mail(&mut self) {
        while let Ok(message) = self.mail.try_recv() {
            match message {
                Message::Accept(socket, addr) => self.accept(socket, addr),
                Message::Kill(key) => self.close_client(key),
                Message::Drain(until) => self.drain(until),
            }
        }
    }

    fn accept(&mut self, socket: std::net::TcpStream, addr: SocketAddr) {
        self.next_generation = self.next_generation.wrapping_add(1);
        let entry = self.clients.slab.vacant_entry();
        let slot = entry.key();
        let prepared = socket
            .set_nonblocking(true)
            .and_then(|()| socket.set_nodelay(true))
            .and_then(|()| socket.local_addr())
            .and_then(|local_addr| {
                let mut socket = TcpStream::from_std(socket);
                let interest = Interest::READABLE | Interest::WRITABLE;
                let token = token(slot, self.next_generation, false);
                self.registry.register(&mut socket, token, interest)?;
                Ok((socket, local_addr))
            });
        let (socket, local_addr) = match prepared {
            Ok(prepared) if self.drain_until.is_none() => prepared,
            _ => {
                self.shared.client_count.fetch_sub(1, Ordering::AcqRel);
                return;
            }
        };
        let key = ClientKey { slot: slot as u32, generation: self.next_generation };
        let id = self.shared.directory.next_id();
        let card = Arc::new(Card::new(id, addr, local_addr, self.index, key, self.now));
        if let Some(credentials) = &self.shared.config.upstream.credentials {
            card.facts().user = credentials.user_name().to_vec();
        }
        card.facts().db = self.shared.config.upstream.db;
        self.shared.directory.add(&card);
        entry.insert(Client::new(socket, key.generation, card, self.base_lane));
        self.enter_lane(self.base_lane);
    }

    fn on_client_event(&mut self, key: ClientKey, event: &Event) {
        let Some(client) = self.clients.get(key) else { return };
        if event.is_error() || event.is_write_closed() {
            self.close_client(key);
            return;
        }
        if event.is_writable() && !client.output.is_empty() && !client.dirty {
            client.dirty = true;
            self.clients.dirty.push(key);
        }
        let Some(client) = self.clients.get(key) else { return };
        if event.is_read_closed() {
            client.hung_up = true;
            // As on a connection to the server itself, whoever leaves in the middle of a
            // blocking command leaves its queue.
            if client.own.as_ref().is_some_and(|own| own.is_blocking()) {
                self.close_client(key);
                return;
            }
        }
        if event.is_readable() || event.is_read_closed() {
            client.readable = true;
            self.read_client(key);
        }
    }

    fn on_link_event(&mut self, slot: usize, generation: u32, event: &Event) {
        let Some(upstream) = self.links.get_mut(slot) else { return };
        if upstream.generation != generation {
            return;
        }
        if (event.is_writable() || event.is_error()) && !upstream.dirty {
            upstream.dirty = true;
            self.dirty_links.push(slot);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            upstream.readable = true;
            upstream.hung_up |= event.is_read_closed();
            self.read_link(slot);
        }
    }

    /// Reads what a link has, a few times at most.
    pub(crate) fn read_link(&mut self, slot: usize) {
        for _ in 0..READS_PER_TURN {
            let Some(upstream) = self.links.get_mut(slot) else { return };
            let owner = upstream.owner;
            if let Owner::Client(key) = owner
                && let Some(client) = self.clients.get(key)
                && (client.output.len() > BULKY_BYTES || client.session.is_some())
            {
                // Its own connection: the server may wait as long as the client does. And what
                // it sends now must not begin before an answer that is made elsewhere.
                return;
            }
            let Self { links, clients, kept, scratch, now, .. } = self;
            let upstream = &mut links[slot];
            let received = upstream.link.receive(&mut scratch.read, *now, |delivery| {
                deliver(&delivery, owner, clients, kept);
            });
            match received {
                Ok(Received::More) => {
                    self.note_ready(slot);
                    self.look_at_kept();
                }
                // The end of the stream is still to be read; no event will tell of it again.
                Ok(Received::Drained) if upstream.hung_up => self.look_at_kept(),
                Ok(Received::Drained) => {
                    upstream.readable = false;
                    self.note_ready(slot);
                    self.look_at_kept();
                    self.look_at_own(owner);
                    return;
                }
                Err(error) => {
                    self.look_at_kept();
                    self.lose_link(slot, &error);
                    return;
                }
            }
        }
        if let Some(upstream) = self.links.get(slot) {
            let owner = upstream.owner;
            self.eager_links.push(slot);
            self.look_at_own(owner);
        }
    }

    fn look_at_kept(&mut self) {
        for (ticket, frame) in std::mem::take(&mut self.kept) {
            match ticket.purpose {
                Purpose::Session => self.session_answered(ticket.client, &frame),
                Purpose::Commands => self.learn_commands(&frame),
                Purpose::Forward => {}
            }
        }
    }

    /// Asks the server for its commands, if nobody has since it was last lost.
    pub(crate) fn ask_commands(&mut self, link: usize) {
        if self.shared.table_asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let ticket = Ticket { client: ClientKey::NOBODY, purpose: Purpose::Commands };
        self.push_to_link(link, b"*1\r\n$7\r\nCOMMAND\r\n", ticket, 1);
    }

    /// The server may come back with other commands.
    pub(crate) fn forget_commands(&self) {
        self.shared.table_asked.store(false, Ordering::Release);
    }

    fn learn_commands(&mut self, frame: &[u8]) {
        let mut table = CommandTable::default();
        let known = Value::decode(frame).map_or(0, |reply| table.learn(&reply));
        tracing::debug!(known, "commands learned from the server");
        if known > 0 {
            self.shared.publish_table(table);
            self.renew_table();
        } else {
            // Not allowed to this user; another one may be.
            self.forget_commands();
        }
    }

    /// Queues requests on a link; it is flushed at the end of the turn.
    #[inline]
    pub(crate) fn push_to_link(&mut self, slot: usize, bytes: &[u8], ticket: Ticket, count: u32) {
        let now = self.now;
        let upstream = &mut self.links[slot];
        upstream.link.push(bytes, ticket, count, now);
        if !upstream.dirty {
            upstream.dirty = true;
            self.dirty_links.push(slot);
        }
    }

    /// Writes what the turn has produced, and does what became possible by it.
    fn finish_turn(&mut self) {
        for slot in std::mem::take(&mut self.eager_links) {
            self.read_link(slot);
        }
        for key in std::mem::take(&mut self.clients.eager) {
            self.read_client(key);
        }
        // What is resumed here may have to wait again; the rest is for the next turn.
        for _ in 0..4 {
            for key in std::mem::take(&mut self.clients.resume) {
                self.resume(key);
            }
            self.flush_links();
            self.flush_clients();
            for key in std::mem::take(&mut self.clients.overflown) {
                if self.clients.get(key).is_some() {
                    tracing::warn!("a client was closed: limits.max_output_bytes is reached");
                    self.close_client(key);
                }
            }
            if self.clients.resume.is_empty()
                && self.clients.dirty.is_empty()
                && self.dirty_links.is_empty()
            {
                return;
            }
        }
    }

    fn flush_links(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty_links);
        for slot in dirty.drain(..) {
            let Some(upstream) = self.links.get_mut(slot) else { continue };
            upstream.dirty = false;
            if let Err(error) = upstream.link.flush() {
                self.lose_link(slot, &error);
                continue;
            }
            if upstream.link.backlog_bytes() < crate::intake::BACKLOG_BYTES {
                match upstream.owner {
                    Owner::Lane => {
                        let lane = upstream.lane;
                        self.clients.resume.append(&mut self.lanes[lane].throttled);
                    }
                    Owner::Client(key) => {
                        if self.clients.get(key).is_some_and(|client| client.stopped) {
                            self.clients.resume.push(key);
                        }
                    }
                    Owner::Spare => {}
                }
            }
        }
        // What was queued meanwhile stays queued; the buffer is used again.
        if self.dirty_links.is_empty() {
            self.dirty_links = dirty;
        }
    }

    fn flush_clients(&mut self) {
        let mut dirty = std::mem::take(&mut self.clients.dirty);
        for key in dirty.drain(..) {
            let Clients { slab, pool, .. } = &mut self.clients;
            let Some(client) = slab.get_mut(key.slot as usize) else { continue };
            if client.generation != key.generation {
                continue;
            }
            client.dirty = false;
            if client.output.flush(&mut client.socket).is_err() {
                self.close_client(key);
                continue;
            }
            pool.reclaim(&mut client.output);
            let empty = client.output.is_empty();
            if client.closing == Closing::AfterReplies && empty && client.is_settled() {
                client.closing = Closing::Lingering { until: self.now + LINGER };
                let _ = client.socket.shutdown(std::net::Shutdown::Write);
                client.readable = true;
                self.read_client(key);
                continue;
            }
            if let Some(own) = &client.own {
                let link = own.link;
                if client.output.len() <= BULKY_BYTES / 2
                    && self.links.get(link).is_some_and(|upstream| upstream.readable)
                {
                    self.eager_links.push(link);
                }
            }
            if empty {
                self.close_if_done(key);
            }
        }
        if self.clients.dirty.is_empty() {
            self.clients.dirty = dirty;
        }
    }

    /// What is looked at now and then.
    fn tick(&mut self) {
        self.look_after_lanes();
        self.look_after_clients();
        let waiting = self.links.iter().any(|(_, upstream)| {
            let own = matches!(upstream.owner, Owner::Client(_));
            own || !upstream.link.is_ready() || upstream.link.waiting() > 0
        });
        let tick = if waiting || self.drain_until.is_some() { BUSY_TICK } else { IDLE_TICK };
        self.next_tick = self.now + tick;
    }

    fn look_after_clients(&mut self) {
        let idle_ms = self.shared.config.limits.idle.map(|idle| idle.as_millis() as u64);
        let mut overdue = Vec::new();
        for (slot, client) in &self.clients.slab {
            let key = ClientKey { slot: slot as u32, generation: client.generation };
            match client.closing {
                Closing::Lingering { until } if self.now >= until => overdue.push(key),
                Closing::No
                    if client.is_settled()
                        && client.own.is_none()
                        && idle_ms.is_some_and(|ms| client.card.idle_ms(self.now) >= ms) =>
                {
                    overdue.push(key);
                }
                _ => {}
            }
        }
        if let Some(until) = self.drain_until
            && self.now >= until
        {
            for (slot, client) in &self.clients.slab {
                let own = client.own.as_ref().map_or(0, |own| own.expected.len());
                let unanswered = client.outstanding as usize + own;
                self.shared.unanswered.fetch_add(unanswered, Ordering::AcqRel);
                overdue.push(ClientKey { slot: slot as u32, generation: client.generation });
            }
        }
        for key in overdue {
            self.close_client(key);
        }
    }

    /// Answers what is in flight, then closes everything.
    fn drain(&mut self, until: Instant) {
        self.drain_until = Some(until);
        self.next_tick = self.now;
        let all: Vec<_> =
            (0..self.clients.slab.capacity()).filter_map(|slot| self.clients.key(slot)).collect();
        for key in all {
            // What the client had sent before it could know counts as in flight.
            if let Some(client) = self.clients.get(key) {
                client.readable = true;
                self.read_client(key);
            }
            self.clients.close_after_replies(key);
        }
    }

    /// Closes a client at once.
    pub(crate) fn close_client(&mut self, key: ClientKey) {
        if self.clients.get(key).is_none() {
            return;
        }
        let mut client = self.clients.slab.remove(key.slot as usize);
        let _ = self.registry.deregister(&mut client.socket);
        self.shared.directory.remove(client.card.id);
        self.shared.client_count.fetch_sub(1, Ordering::AcqRel);
        self.leave_lane(client.lane);
        if let Some(session) = client.session {
            self.forget_session(&session);
        }
        if let Some(own) = client.own {
            if own.is_releasable() {
                self.spare_link(own.link);
            } else {
                // What the client sent before it left is the server's to read.
                if let Some(upstream) = self.links.get_mut(own.link) {
                    let _ = upstream.link.flush();
                }
                self.drop_link(own.link);
            }
        }
    }
}

/// The limits on a request after authentication, and before.
fn request_limits(limits: &crate::config::Limits) -> [Limits; 2] {
    let after = Limits {
        max_args: limits.max_args,
        max_bulk_bytes: limits.max_bulk_bytes,
        max_request_bytes: limits.max_request_bytes,
        unauthenticated: false,
    };
    let before = Limits {
        // Above its own limits the server would close the connection, which others share.
        max_args: limits.unauthenticated_max_args.min(SERVER_UNAUTHENTICATED_MAX_ARGS),
        max_bulk_bytes: limits.unauthenticated_max_bytes.min(SERVER_UNAUTHENTICATED_MAX_BYTES),
        // Room for the arguments' headers.
        max_request_bytes: limits.unauthenticated_max_bytes + 1024,
        unauthenticated: true,
    };
    [after, before]
}

/// Gives what came from the server to whom it is for.
#[inline]
fn deliver(
    delivery: &Delivery<'_, Ticket>,
    owner: Owner,
    clients: &mut Clients,
    kept: &mut Vec<(Ticket, Vec<u8>)>,
) {
    match *delivery {
        Delivery::Replies { waiter, count, bytes } if waiter.purpose == Purpose::Forward => {
            clients.reply(waiter.client, bytes);
            clients.answered(waiter.client, count);
        }
        Delivery::Replies { waiter, bytes, .. } => kept.push((waiter, bytes.to_vec())),
        Delivery::Part { waiter, bytes } => clients.reply(waiter.client, bytes),
        // Nothing that makes the server push is ever sent on a shared link.
        Delivery::Push(_) => {}
        Delivery::Frame { bytes, begins, ends } => {
            let Owner::Client(key) = owner else { return };
            let Some(client) = clients.get(key) else { return };
            let Some(own) = &mut client.own else { return };
            if own.on_frame(bytes, begins, ends) == Pass::ToClient {
                clients.reply(key, bytes);
            }
        }
        Delivery::Raw(bytes) => {
            let Owner::Client(key) = owner else { return };
            clients.reply(key, bytes);
        }
    }
}
