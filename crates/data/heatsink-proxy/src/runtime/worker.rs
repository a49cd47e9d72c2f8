//! One worker: an event loop that owns its clients and its upstream links.
//!
//! A turn of the loop: wait for events; read from clients and links, which fills the other
//! side's output; then write each output once. So all requests that arrived together leave
//! in one write per link, and all replies in one write per client.
//! Bound: each socket is read a few times a turn at most, so no client starves the others.

use std::io::{self, Write};
use std::net::SocketAddr;

use crate::session;
use crate::session::Sessions;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use heatsink_upstream::error::LinkError;
use heatsink_upstream::outgoing::Outgoing;
use mio::Token;

use crate::downstream::clients::{BULKY_BYTES, Clients};
use crate::downstream::connection::{Client, ClientKey, Closing, Deferral, Replies};
use crate::downstream::directory::ClientRecord;
use crate::downstream::input::WorkerInput;
use crate::downstream::output::WorkerOutput;
use crate::hot::Mitigations;
use crate::observe::Observer;
use crate::relay::Relay;
use crate::runtime::clock::Awake;
use crate::runtime::intake::Scratch;
use crate::runtime::replies::Stall;
use crate::runtime::shared::{Message, Shared};
use crate::runtime::socket::{Accepted, Socket};
use crate::runtime::upkeep::BUSY_TICK;
use crate::runtime::world::token;
use crate::runtime::world::{Ready, Rest, World};
use crate::upstream::links::Owner;
use crate::upstream::nodes::NodeId;

/// The token of a worker's mailbox.
pub(crate) const MAIL: Token = Token(usize::MAX - 1);
/// Bytes read from a socket at once.
const READ_BYTES: usize = 64 << 10;
/// After a turn with this many requests, other processes are let run before the next one: several clients
/// send short requests, and the next turn finds more of them.
const SMALL_TURN: Range<u64> = 2..64;
/// When this many clients wait for servers that answer, further requests may gather: they would wait in
/// the servers' queues anyway. Requests of one client next to each other on a link count once.
const CROWD_WAITERS: usize = 32;
/// How long requests gather then.
const PAUSE: Duration = Duration::from_micros(60);
/// Time between two looks at increments that wait for more to combine with. Looking all the time costs a
/// tenth more of the processor; with a longer time, 50 clients are served later.
const HELD_PAUSE: Duration = Duration::from_micros(15);
/// How much longer than asked a sleep may take.
#[cfg(target_os = "linux")]
const SLACK_NANOS: u64 = 1000;
/// Requests do not gather for a server that was silent for this long, nor if a timer is due within this
/// time.
const RESPONSIVE: Duration = Duration::from_millis(2);
/// At most this many links are looked at for that; the shared ones were opened first.
const LOOKED_AT: usize = 64;
/// How often the rates of the nodes are looked at.
const SAMPLE: Duration = Duration::from_secs(1);

/// How long a client that was told why it is closed may take to read that. Not longer: one that goes on
/// sending notices only when this is over.
const LINGER: Duration = Duration::from_millis(100);
/// Replies of a pipeline over several nodes gather this long at most.
const GATHER_TIME: Duration = Duration::from_millis(2);
/// … but so many turns of the event loop at least.
const GATHER_TURNS: u32 = 2;

/// One worker: the rooms, and what its loop needs.
pub(crate) struct Worker {
    /// Passes requests and replies on.
    pub(crate) relay: Relay,
    /// What clients' connections mean.
    pub(crate) session: session::Room,
    /// What is done about hot keys.
    pub(crate) hot: Mitigations,
    mail: Receiver<Message>,
    live_version: u64,
    pub(crate) scratch: Scratch,
    next_sample: Instant,
    /// Pools that wait for a client.
    pub(crate) stalls: Vec<Stall>,
    /// Requests taken from clients since the others were last told of them.
    pub(crate) taken: u64,
    /// How many of them this process asked itself, over [`crate::Handle::connect`].
    pub(crate) taken_within: u64,
    /// Sleeps before waiting for events, since the other workers were last told of them.
    pauses: u64,
    /// Unread output of its clients that this worker has told the others of.
    pub(crate) output: WorkerOutput,
    /// Unfinished requests of its clients that this worker has told the others of.
    pub(crate) input: WorkerInput,
    /// Whether the process stood still, which matters while keys are split.
    pub(crate) awake: Awake,
    pub(crate) drain_until: Option<Instant>,
}

impl Worker {
    pub(crate) fn new(
        index: usize,
        world: World,
        mail: Receiver<Message>,
        shared: Arc<Shared>,
        observer: Option<Observer>,
    ) -> Self {
        let live_version = shared.live_version();
        let relay = Relay::new(index, world, shared, observer);
        let now = relay.now;
        let workers = relay.shared.mailboxes.len();
        Self {
            session: session::Room::default(),
            hot: Mitigations::new(now, workers, &relay.live),
            relay,
            mail,
            live_version,
            scratch: Scratch::new(READ_BYTES),
            next_sample: now,
            stalls: Vec::new(),
            taken: 0,
            taken_within: 0,
            pauses: 0,
            output: WorkerOutput::new(now),
            input: WorkerInput::new(now),
            awake: Awake::default(),
            drain_until: None,
        }
    }

    /// The room of sessions, with what it stands on.
    #[inline]
    pub(crate) fn sessions(&mut self) -> Sessions<'_> {
        Sessions { room: &mut self.session, relay: &mut self.relay }
    }

    /// Runs until told to drain.
    pub(crate) fn run(mut self) {
        let mut ready = Vec::new();
        let mut taken_before = 0;
        sleep_precisely();
        loop {
            let patience = self.patience();
            let brought = self.taken.saturating_sub(taken_before);
            let held = self.hot.is_held();
            let gathers = held && !patience.is_zero() || patience > RESPONSIVE && self.is_crowded();
            if brought < SMALL_TURN.end && gathers {
                // A look at every single event costs a wake-up here, and a small write costs
                // whoever it goes to another one.
                self.relay.world.rest(Rest::Sleep(if held { HELD_PAUSE } else { PAUSE }));
                self.pauses += 1;
            } else if SMALL_TURN.contains(&brought) {
                // Yields the processor to a process that wants it, a server on the same machine, say,
                // and costs nothing if there is none. Events that come meanwhile make the next turn
                // larger.
                self.relay.world.rest(Rest::Yield);
            }
            taken_before = self.taken;
            let patience = if held { Duration::ZERO } else { patience };
            if let Err(error) = self.relay.world.wait(&mut ready, patience) {
                tracing::error!(%error, worker = self.relay.index, "waiting for events failed");
                return;
            }
            self.take_turn(&ready);
            if self.drain_until.is_some() && self.relay.clients.slab.is_empty() {
                return;
            }
        }
    }

    /// Everything between two waits for events. A test takes turns by calling it.
    pub(crate) fn take_turn(&mut self, ready: &[Ready]) {
        self.relay.now = self.relay.world.now();
        self.notice_pause();
        self.relay.cluster.walked = 0;
        self.renew_table();
        self.renew_settings();
        self.relay.routing().renew_topology();
        self.apply_effects();
        self.hot.begin_turn(&mut self.relay);
        self.apply_effects();
        self.on_events(ready);
        self.end_gathering();
        self.hot.end_turn(&mut self.relay);
        self.apply_effects();
        self.relay.links().drop_surplus_pools();
        self.apply_effects();
        self.finish_turn();
        if let Some(observer) = &mut self.relay.observer {
            observer.tick(self.relay.now);
        }
        if self.relay.now >= self.relay.next_tick {
            self.tick();
            self.finish_turn();
        }
    }

    /// Whether so many requests are under way on shared links that further ones may gather. Those that a
    /// silent server owes replies to are not counted: other clients would wait for nothing.
    fn is_crowded(&self) -> bool {
        let shared = self.relay.upstream.links.iter().take(LOOKED_AT).map(|(_, upstream)| upstream);
        let waiting = shared
            .filter(|upstream| upstream.owner == Owner::Pool)
            .filter(|upstream| upstream.link.was_heard_within(RESPONSIVE, self.relay.now))
            .map(|upstream| upstream.link.waiter_count());
        waiting.sum::<usize>() >= CROWD_WAITERS
    }

    fn on_events(&mut self, events: &[Ready]) {
        // Invalidations are read before any client is served. They are also passed on before the write
        // that caused them is acknowledged: if both have come, a client with a cache of its own, on a
        // dedicated connection, gets its invalidation first.
        let mut heard = Vec::new();
        for (at, event) in events.iter().enumerate().filter(|(_, event)| event.token != MAIL) {
            let Token(token) = event.token;
            let (slot, generation) = ((token as u32) >> 1, (token >> 32) as u32);
            if token & 1 == 1 && self.may_tell_of_changes(slot as usize) {
                heard.push(at);
                self.on_link_event(slot as usize, generation, event);
            }
        }
        let mut heard = heard.into_iter().peekable();
        for (at, event) in events.iter().enumerate() {
            if heard.next_if_eq(&at).is_some() {
                continue;
            }
            match event.token {
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

    fn may_tell_of_changes(&self, link: usize) -> bool {
        match self.relay.upstream.links.get(link).map(|link| link.owner) {
            Some(Owner::Tracked | Owner::Listener) => true,
            // A client of a cluster has no cache that the server tells of.
            Some(Owner::Client(_)) => self.relay.cluster.view.is_none(),
            _ => false,
        }
    }

    /// How long to wait for events at most.
    fn patience(&self) -> Duration {
        if self.relay.upstream.eager_links.is_empty()
            && self.relay.clients.eager.is_empty()
            && self.relay.clients.resume.is_empty()
        {
            let observation = self.relay.observer.as_ref().and_then(Observer::due);
            let deferred = self.relay.clients.deferred.front().map(|(_, deferral)| deferral.until);
            let times = [deferred, observation, self.hot.due(&self.relay)];
            let until = times.into_iter().flatten().fold(self.relay.next_tick, Instant::min);
            until.saturating_duration_since(self.relay.now)
        } else {
            Duration::ZERO
        }
    }

    fn read_mail(&mut self) {
        while let Ok(message) = self.mail.try_recv() {
            match message {
                Message::Accept(accepted) => self.accept(accepted),
                Message::Verified(key, verdict) => self.sessions().verified(key, verdict),
                Message::Pin(pin) => self.session.pins.push(pin),
                Message::Pinned(key, id) => self.sessions().redirect_ready(key, id),
                Message::PrimaryMoved => self.primary_moved(),
                Message::Kill(key) => self.close_client(key),
                Message::Drain(until) => self.drain(until),
                Message::BoundOutput => self.output_bound_asked(),
                Message::BoundInput => self.input_bound_asked(),
            }
            self.apply_effects();
        }
    }

    /// Takes over settings that were changed.
    #[inline]
    fn renew_settings(&mut self) {
        let version = self.relay.shared.live_version();
        if version != self.live_version {
            self.live_version = version;
            self.relay.renew_settings();
            self.hot.renew_settings(&mut self.relay);
            self.apply_effects();
        }
    }

    /// Sentinels have told of another primary: nothing goes to the old one any more.
    fn primary_moved(&mut self) {
        self.relay.cluster.epoch = self.relay.cluster.epoch.wrapping_add(1);
        self.relay.links().abandon_links(NodeId::FIRST);
        self.relay.shared.forget_commands();
    }

    /// Tells the nodes how many requests they got from this worker.
    pub(crate) fn count_requests(&mut self) {
        self.hot.report(&mut self.relay);
        let of_clients = std::mem::take(&mut self.taken) - std::mem::take(&mut self.taken_within);
        self.relay.shared.requests_total.fetch_add(of_clients, Ordering::Relaxed);
        self.relay
            .shared
            .pauses_total
            .fetch_add(std::mem::take(&mut self.pauses), Ordering::Relaxed);
        self.relay.upstream.report_requests();
        if self.relay.index == 0 && self.relay.now >= self.next_sample {
            self.next_sample = self.relay.now + SAMPLE;
            self.relay.shared.nodes.sample_rates(self.relay.now);
            if self.drain_until.is_none() {
                self.relay.links().look_after_health();
                self.apply_effects();
            }
        }
    }

    fn accept(&mut self, accepted: Accepted) {
        let (addr, within) = (accepted.addr, accepted.within);
        let admitted = match accepted.prepare() {
            Ok((socket, local_addr)) if self.drain_until.is_none() => {
                self.add_client(socket, [addr, local_addr], within)
            }
            _ => None,
        };
        if admitted.is_none() {
            self.relay.shared.client_count.fetch_sub(usize::from(!within), Ordering::AcqRel);
        }
    }

    /// Takes a new client, with its address and the one that it connected to. A client of this process
    /// (`within`) needs no login, and is not counted.
    pub(crate) fn add_client(
        &mut self,
        mut socket: Socket,
        [addr, local_addr]: [SocketAddr; 2],
        within: bool,
    ) -> Option<ClientKey> {
        self.relay.next_generation = self.relay.next_generation.wrapping_add(1);
        let entry = self.relay.clients.slab.vacant_entry();
        let slot = entry.key();
        let token = token(slot, self.relay.next_generation, false);
        self.relay.world.add_client(&mut socket, token).ok()?;
        let key = ClientKey { slot: slot as u32, generation: self.relay.next_generation };
        let id = self.relay.shared.directory.next_id();
        let record = Arc::new(ClientRecord::new(
            id,
            addr,
            local_addr,
            self.relay.index,
            key,
            self.relay.now,
        ));
        let known = within || self.relay.shared.verifier.is_none();
        if let Some(credentials) = &self.relay.shared.base_login.credentials
            && known
        {
            record.facts().user = credentials.user_name().to_vec();
        }
        record.facts().db = self.relay.shared.base_login.db;
        if !within {
            self.relay.shared.directory.add(&record);
        }
        let mut client = Client::new(
            socket,
            key.generation,
            record,
            self.relay.upstream.base_pool,
            self.relay.now,
        );
        client.epoch = self.relay.cluster.epoch;
        client.is_known = known;
        client.within = within;
        entry.insert(client);
        self.relay.upstream.enter_pool(self.relay.upstream.base_pool);
        Some(key)
    }

    fn on_client_event(&mut self, key: ClientKey, event: &Ready) {
        let Some(client) = self.relay.clients.get(key) else { return };
        if event.error || event.write_closed {
            self.client_gone(key);
            return;
        }
        let unsent = !client.output.is_empty() || client.socket.wants_write();
        if event.writable && unsent && !client.dirty {
            client.dirty = true;
            self.relay.clients.dirty.push(key);
        }
        let Some(client) = self.relay.clients.get(key) else { return };
        if event.read_closed {
            client.hung_up = true;
        }
        if event.readable || event.read_closed {
            client.readable = true;
            self.read_client(key);
        }
        if event.read_closed {
            // A client that waits is not read from, so nothing else would notice that it has left.
            self.close_if_done(key);
        }
    }

    fn on_link_event(&mut self, slot: usize, generation: u32, event: &Ready) {
        let Some(upstream) = self.relay.upstream.links.get_mut(slot) else { return };
        if upstream.generation != generation {
            return;
        }
        if (event.writable || event.error) && !upstream.dirty {
            upstream.dirty = true;
            self.relay.upstream.dirty_links.push(slot);
        }
        if event.readable || event.read_closed || event.error {
            upstream.readable = true;
            upstream.hung_up |= event.read_closed;
            self.read_link(slot);
        }
    }
}

/// The end of a turn: what it has produced is written, once per link and once per client.
impl Worker {
    /// Writes what the turn has produced, and does what became possible by it.
    pub(crate) fn finish_turn(&mut self) {
        self.write_turn();
        self.bound_output();
        self.bound_input();
    }

    fn write_turn(&mut self) {
        if !self.relay.upstream.dirty_links.is_empty() {
            // After a while without requests the next tick is far.
            self.relay.next_tick = self.relay.next_tick.min(self.relay.now + BUSY_TICK);
        }
        if !self.session.pins.is_empty() {
            self.sessions().serve_pins();
            self.apply_effects();
        }
        for slot in std::mem::take(&mut self.relay.upstream.eager_links) {
            self.read_link(slot);
        }
        for key in std::mem::take(&mut self.relay.clients.eager) {
            self.read_client(key);
            self.close_if_draining(key);
        }
        // What is resumed here may have to wait again; the rest is for the next turn.
        for _ in 0..4 {
            for key in std::mem::take(&mut self.relay.clients.resume) {
                self.resume(key);
            }
            self.flush_links();
            self.flush_clients();
            for key in std::mem::take(&mut self.relay.clients.overflown) {
                self.close_slow(key, "limits.max_output_bytes");
            }
            if self.relay.clients.resume.is_empty()
                && self.relay.clients.dirty.is_empty()
                && self.relay.upstream.dirty_links.is_empty()
            {
                return;
            }
        }
    }

    /// Everything is said; the client is closed once it has read it.
    pub(crate) fn linger(&mut self, key: ClientKey) {
        let until = self.relay.now + LINGER;
        let Some(client) = self.relay.clients.get(key) else { return };
        client.closing = Closing::Lingering { until };
        self.relay.next_tick = self.relay.next_tick.min(until);
        client.socket.shut_write();
        client.readable = true;
        self.read_client(key);
    }

    /// If the process stood still for long, nothing that was planned before is sent, or sent
    /// again: shards that it was meant for may be gone; see [`crate::runtime::clock`].
    pub(crate) fn notice_pause(&mut self) {
        if !self.hot.keys.has_moved() {
            return self.awake.forget();
        }
        let Some(still) = self.awake.note(self.relay.world.clock.uptime()) else { return };
        tracing::warn!("stood still for {} s: upstream connections are made anew", still.as_secs());
        let links: Vec<usize> = self.relay.upstream.links.iter().map(|(slot, _)| slot).collect();
        for slot in links {
            let error = io::Error::other("this Heatsink stood still");
            self.relay.links().lose_link(slot, &LinkError::Io(error));
            self.apply_effects();
        }
    }

    fn flush_links(&mut self) {
        self.hot.depart(&mut self.relay);
        self.apply_effects();
        self.hot.close_flights();
        self.notice_pause();
        let mut dirty = std::mem::take(&mut self.relay.upstream.dirty_links);
        for slot in dirty.drain(..) {
            let Some(upstream) = self.relay.upstream.links.get_mut(slot) else { continue };
            upstream.dirty = false;
            let flushed = match upstream.owner {
                Owner::Pool => upstream.link.flush_gathered(self.relay.now),
                _ => upstream.link.flush(self.relay.now),
            };
            if let Err(error) = flushed {
                self.relay.links().lose_link(slot, &error);
                self.apply_effects();
                continue;
            }
            let owner = upstream.owner;
            let of_pool = owner == Owner::Pool
                && !self.relay.upstream.pools[upstream.pool].throttled.is_empty();
            let pool = upstream.pool;
            let full = upstream.is_full() || (of_pool && self.relay.upstream.is_pool_full(pool));
            if !full {
                let upstream = &self.relay.upstream.links[slot];
                match upstream.owner {
                    Owner::Pool => {
                        let pool = upstream.pool;
                        self.relay
                            .clients
                            .resume
                            .append(&mut self.relay.upstream.pools[pool].throttled);
                    }
                    Owner::Client(key) => {
                        if self.relay.clients.get(key).is_some_and(|client| client.stopped) {
                            self.relay.clients.resume.push(key);
                        }
                    }
                    Owner::Spare
                    | Owner::Once
                    | Owner::Tracked
                    | Owner::Listener
                    | Owner::Retired { .. } => {}
                }
            }
        }
        // What was queued meanwhile stays queued; the buffer is used again.
        if self.relay.upstream.dirty_links.is_empty() {
            self.relay.upstream.dirty_links = dirty;
        }
    }

    /// Replies of a pipeline over several nodes come from each at another time; they gather,
    /// so that they leave in one write. Not for long: the event loop wakes up for those that
    /// wait in vain, to the millisecond.
    pub(crate) fn end_gathering(&mut self) {
        self.relay.clients.turn = self.relay.clients.turn.wrapping_add(1);
        while let Some((key, deferral)) = self.relay.clients.deferred.front().copied() {
            // However long a turn took: what came meanwhile is looked at first.
            let turns = self.relay.clients.turn.wrapping_sub(deferral.turn);
            if self.relay.now < deferral.until || turns < GATHER_TURNS {
                return;
            }
            self.relay.clients.deferred.pop_front();
            if let Some(client) = self.relay.clients.get(key)
                && client.deferred == Some(deferral)
            {
                client.order.end_burst();
                client.deferred = None;
                client.overdue = true;
                if !client.dirty {
                    client.dirty = true;
                    self.relay.clients.dirty.push(key);
                }
            }
        }
    }

    fn flush_clients(&mut self) {
        let gathers = self.relay.cluster.view.is_some();
        let mut dirty = std::mem::take(&mut self.relay.clients.dirty);
        for key in dirty.drain(..) {
            self.relay.clients.count_input(key);
            let Clients { slab, buffers, deferred, turn, copied_bytes, .. } =
                &mut self.relay.clients;
            let Some(client) = slab.get_mut(key.slot as usize) else { continue };
            if client.generation != key.generation {
                continue;
            }
            client.dirty = false;
            if gathers && client.gathers_replies() {
                if client.deferred.is_none() {
                    let until = self.relay.now + GATHER_TIME;
                    let deferral = Deferral { until, turn: *turn };
                    client.deferred = Some(deferral);
                    deferred.push_back((key, deferral));
                }
                continue;
            }
            if client.deferred.take().is_some()
                && deferred.front().is_some_and(|(first, _)| *first == key)
            {
                // The event loop need not wake up for it.
                deferred.pop_front();
            }
            client.overdue = false;
            if client.replies != Replies::On {
                client.order.advance(&mut Outgoing::default(), buffers);
            }
            let before = client.unread();
            let Client { order, output, socket, gone, .. } = client;
            if *gone {
                order.advance(output, buffers);
                output.discard();
            } else if order.write(socket.plain(), output, buffers).is_err()
                || output.flush(socket).is_err()
                || socket.flush().is_err()
            {
                self.client_gone(key);
                continue;
            }
            buffers.reclaim(&mut client.output);
            let copied = client.output.copied_len() + client.order.copied_bytes();
            if copied != client.counted {
                *copied_bytes += copied;
                *copied_bytes -= std::mem::replace(&mut client.counted, copied);
            }
            // Nothing was left for it, or it has taken some.
            if client.unread() < before {
                client.took_at = self.relay.now;
            }
            let unread = client.output.len();
            let empty = unread == 0 && (client.gone || !client.socket.wants_write());
            let over = client.is_drained() || client.order.is_cut();
            if client.closing == Closing::AfterReplies && empty && over {
                self.linger(key);
                continue;
            }
            if let Some(dedicated) = &client.dedicated
                && unread <= BULKY_BYTES / 2
            {
                let readable =
                    |link: &usize| self.relay.upstream.links.get(*link).is_some_and(|l| l.readable);
                self.relay.upstream.eager_links.extend(dedicated.links().filter(readable));
            }
            if unread <= BULKY_BYTES / 2 {
                if client.bulky && client.stopped && self.relay.cluster.view.is_some() {
                    self.relay.clients.resume.push(key);
                }
                self.end_stall(key);
            }
            if empty {
                self.close_if_done(key);
            }
        }
        if self.relay.clients.dirty.is_empty() {
            self.relay.clients.dirty = dirty;
        }
    }
}

/// Sleeps of this thread take little longer than they are to; usually it may be 50 µs.
fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(SLACK_NANOS)) {
        tracing::debug!(%error, "timers are as precise as they were");
    }
}

#[cfg(test)]
impl Worker {
    /// Whether a turn would do something although nothing happens to its sockets.
    pub(crate) fn is_due(&self) -> bool {
        self.patience() <= self.relay.world.now().saturating_duration_since(self.relay.now)
    }

    /// What has happened to its sockets.
    pub(crate) fn wait(&mut self, ready: &mut Vec<Ready>, patience: Duration) {
        self.relay.world.wait(ready, patience).expect("a script does not fail");
    }
}
