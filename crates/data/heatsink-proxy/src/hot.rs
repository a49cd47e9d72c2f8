//! What is done about hot keys: the mitigations, and what they share.
//!
//! | question | module |
//! |---|---|
//! | the interface of a mitigation, and the order in which they are asked | `mitigation` |
//! | reads: the local cache, and one read for all who wait | `reads` |
//! | writes that go out as one | `combining` |
//! | split keys | `splitting` |
//! | copies of a value on several nodes | `copies` |
//! | what touches a hot key and is taken by no mitigation | `writes` |
//! | when all is answered that was sent while other keys were hot | `draining` |
//! | connections on which nobody sees which keys are named | `opaque_requests` |
//! | pipelines whose requests stay together | `runs` |
//! | what one client is in the middle of | `client_state` |
//! | what the other workers are told | `report` |
//!
//! Owns: the hot keys as this worker knows them, the cache and its links, and requests under way for hot
//! keys. It reaches clients and servers by the [`Relay`], and no room below knows of it: the relay notes
//! what concerns hot keys as an effect ([`crate::relay::effects`]), which the event loop brings here.
//! This room notes an effect of its own there, when a command that a server refused at first is answered
//! in the end: [`crate::relay::effects::Effect::Conclude`].
//!
//! Called by: the event loop only, with each request that names a hot key, or may touch one
//! ([`Mitigations::mitigate`]); with replies and pushed messages of servers; with effects; and at the
//! beginning and the end of each turn.
//! Bound: the cache's own limits; one read of a command out and one waiting, however many clients wait
//! for it; everything else that is under way is bounded by the clients' requests.
//! Invariant: a client never sees an older value than it has seen before, nor than it has
//! written. That rests on three things:
//!
//! - Every read of a hot key that may be answered here goes along one link of its pool, the
//!   *tracked* one, on which the server also tells of changes. What it tells of a change stands
//!   before the replies to reads that were executed after it.
//! - Whatever else touches a hot key counts as a write: its client's own reads of hot keys wait until
//!   it is answered, and are not served from the cache until word of it must have come (module
//!   `reads`). It ends nothing for others, whom the server tells of what it changes. Only where
//!   the server does not tell, what is cached of the key goes when it is sent, and nothing is cached until
//!   it is answered (module `writes`).
//! - Nothing is served that was read along a link which is lost, or has been silent for too
//!   long ([`crate::upstream::links::SILENCE`]).
//!
//! When the relay loses a link, this room learns of it only with the effect, after the call in which the
//! link was lost. So a link is looked for by its generation, and never by its place alone:
//!
//! ```text
//! 1. a link of the cache is lost: its place is free; the effect is noted
//! 2. a read that was lost with it is sent again, along a new link in that place
//! 3. taken for the old one, which word of changes came along, it would be given that one's name
//! ```

#[cfg(test)]
mod alone;
mod client_state;
mod combining;
pub(crate) mod copies;
mod draining;
#[cfg(test)]
mod interleavings;
pub(crate) mod mitigation;
mod opaque_requests;
mod reads;
mod report;
pub(crate) mod runs;
pub(crate) mod splitting;
mod writes;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use heatsink_cache::joins::Joins;
use heatsink_cache::local::{KeyCounters, KeySettings, Registered};
use heatsink_resp::command::{Command, Unnamed};
use slab::Slab;

use crate::config;
use crate::downstream::clients::Clients;
use crate::downstream::connection::{Client, ClientKey};
use crate::downstream::request::{Flow, Request};
use crate::hot_keys::{HotKeys, Treatment};
use crate::observe::Mark;
use crate::relay::Relay;
pub(crate) use client_state::ClientState;
use combining::Combining;
use copies::CopiedWrites;
use draining::Fence;
use mitigation::Inquiry;
use reads::Reads;
pub(crate) use reads::pass_through::Hotness;
use splitting::Splits;
use writes::HotWrite;

/// Time between two questions whether a tracked link is still there.
const PULSE: Duration = Duration::from_millis(200);
/// After a turn that took this long, or a pause this long between two turns, the cache is not served
/// from: invalidations may wait to be read.
const PAUSE: Duration = Duration::from_millis(500);
/// Time between two looks for requests that have waited too long.
const LOOK: Duration = Duration::from_millis(20);

/// The mitigations of one worker.
#[derive(Debug)]
pub(crate) struct Mitigations {
    pub(crate) keys: Arc<HotKeys>,
    version: u64,
    /// What all workers counted when this one last looked; see [`crate::runtime::shared::Shared`].
    upheavals: u64,
    workers: usize,
    /// What was counted of each key when the others were last told.
    told: HashMap<Vec<u8>, (KeyCounters, Work), RandomState>,
    /// What was done for each hot key beside the cache.
    work: HashMap<Vec<u8>, Work, RandomState>,
    /// The local cache, and reads that wait for one.
    reads: Reads,
    /// Writes that go out as one.
    combining: Combining,
    /// What servers have told by themselves, until it is looked into.
    pub(crate) heard: Heard,
    /// Requests that meet values which are moved, or have been.
    splitting: Splits,
    /// Writes of keys that have copies.
    copies: CopiedWrites,
    /// The last number that was given to a read or a write under way.
    numbers: u32,
    /// Other requests that touch hot keys and are not answered, by the number in their marks.
    writes: Slab<HotWrite>,
    /// What servers were asked, by the numbers in [`crate::cluster::scatter_gather::Ending::Mitigation`].
    inquiries: Slab<Inquiry>,
    /// Versions of the hot keys that are not settled yet, each with the replies that it waits for.
    fences: Vec<Fence>,
    /// The last version of the hot keys that is settled: no request sent by an earlier one is unanswered.
    settled: u64,
    /// Clients that have touched hot keys on dedicated connections.
    undrained: Vec<ClientKey>,
    /// Answered requests that touched hot keys, and whether the server refused them, until they are
    /// seen to.
    pub(crate) ended: Vec<(u32, bool)>,
    origin: Instant,
    last_turn: Instant,
    next_pulse: Instant,
    next_look: Instant,
}

/// What servers have told by themselves, until it is looked into.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Each in one piece.
    pushes: Vec<Vec<u8>>,
    /// The beginning of a message of other Heatsinks whose end is still to come.
    partial: Vec<u8>,
}

impl Heard {
    /// A server has told something by itself.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.pushes.push(bytes.to_vec());
    }

    /// A piece of what other Heatsinks tell.
    pub(crate) fn message(&mut self, piece: &[u8], ends: bool) {
        self.partial.extend_from_slice(piece);
        if ends {
            self.pushes.push(std::mem::take(&mut self.partial));
        }
    }
}

/// What was done for a key beside the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    /// Reads that waited for a reply which others waited for, too.
    joined: u64,
    /// Reads that were sent.
    flights: u64,
    /// Reads that went as usual.
    passed: u64,
    /// Whether they find others to join.
    joins: Joins,
    /// Writes that may have been combined.
    changes: u64,
    /// Writes that were sent for them.
    batches: u64,
    /// When the key became hot.
    since: Option<Instant>,
    /// Its increments by `ZINCRBY` and `INCRBYFLOAT` are not combined until then.
    apart_until: Option<Instant>,
    /// By how many increments recent scripts exceeded the number at which a script pays.
    script_gain: i32,
}

/// A request, and who has asked it.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) key: ClientKey,
    pub(crate) request: Request<'a>,
    pub(crate) command: &'a Command,
    /// It stays together with those before or behind it: it goes along the shared link, if its key is
    /// where it belongs.
    pub(crate) together: bool,
}

/// What becomes of a request because of hot keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mitigated {
    /// It was answered, sent or gathered; or it has to wait.
    Done(Flow),
    /// It goes on as usual, with this remembered of it.
    Marked(Mark),
    /// It goes on as if the key were not hot.
    Cold,
}

impl Mitigations {
    pub(crate) fn new(now: Instant, workers: usize, live: &config::Live) -> Self {
        Self {
            workers: workers.max(1),
            keys: Arc::default(),
            version: 0,
            upheavals: 0,
            told: HashMap::default(),
            work: HashMap::default(),
            reads: Reads::new(live, workers),
            heard: Heard::default(),
            combining: Combining::new(live),
            splitting: Splits::default(),
            copies: CopiedWrites::default(),
            numbers: 0,
            writes: Slab::new(),
            inquiries: Slab::new(),
            fences: Vec::new(),
            settled: 0,
            undrained: Vec::new(),
            ended: Vec::new(),
            origin: now,
            last_turn: now,
            next_pulse: now,
            next_look: now,
        }
    }

    /// Whether any key is hot.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether a key is hot.
    #[inline]
    pub(crate) fn is_hot(&self, name: &[u8]) -> bool {
        self.keys.get(name).is_some()
    }

    /// Whether values lie elsewhere than under their keys.
    #[inline]
    pub(crate) fn has_moved(&self) -> bool {
        self.keys.has_moved()
    }

    /// Whether something waits for what the next turns bring, for less than can be slept.
    pub(crate) fn is_held(&self) -> bool {
        !self.combining.held.is_empty()
    }

    /// When something is to be done even if nothing happens.
    pub(crate) fn due(&self, relay: &Relay) -> Option<Instant> {
        let listens = self.reads.listening.is_open() || !self.reads.links.is_empty();
        let pulse = listens.then_some(self.next_pulse);
        let waits =
            self.holds(relay) || !self.reads.fills.is_empty() || !self.combining.batches.is_empty();
        let look = waits.then_some(self.next_look);
        [pulse, look].into_iter().flatten().min()
    }

    /// Counts the changes of the hot keys.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// A number that no other read or write under way has.
    fn number(&mut self) -> u32 {
        loop {
            self.numbers = self.numbers.wrapping_add(1);
            if !self.reads.fills.contains_key(&self.numbers)
                && !self.combining.sent.contains_key(&self.numbers)
            {
                return self.numbers;
            }
        }
    }

    /// The map of the cluster has changed: replies cached from a node may be of keys that moved away.
    pub(crate) fn map_changed(&mut self) {
        self.reads.cache.flushed();
    }

    /// What else is remembered of a request that touches hot keys.
    pub(crate) fn inner_mark(&self, write: u32) -> Mark {
        self.writes.get(write as usize).map_or(Mark::Nothing, HotWrite::inner)
    }

    fn time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.origin)
    }

    /// A client has gone: it waits for nothing any more.
    pub(crate) fn forget_waits(&mut self, key: ClientKey) {
        self.reads.flights.leave(|waiter| waiter.is_of(key));
        self.combining.batches.leave(|waiter| waiter.is_of(key));
    }

    /// Whether a request names a hot key, or may touch one without naming it.
    pub(crate) fn touches_hot_keys(&self, request: Request<'_>, command: &Command) -> bool {
        if let Some(index) = command.single_key_index() {
            return request.arg(index).is_some_and(|name| self.is_hot(name));
        }
        let mut touches = match request.unnamed(command) {
            Unnamed::Nothing => false,
            Unnamed::Matching => self.keys.iter().any(|(name, _)| request.matches(command, name)),
            // A flush, a script that names no keys, or something of the kind.
            Unnamed::Anything => true,
        };
        let arg = |index| request.arg(index).unwrap_or_default();
        command.for_each_key(request.len(), arg, |index| {
            touches |= self.is_hot(arg(index));
        });
        touches
    }
}

/// How long what is read may be kept.
fn key_settings(live: &config::Live) -> KeySettings {
    let settings = &live.local_cache;
    KeySettings {
        max_ttl: settings.max_ttl,
        ttl_fraction: settings.ttl_fraction,
        refresh_ahead: true,
    }
}

/// How long a client waits for a read or write of another client: as long as for its own, which is
/// until a server that does not answer is given up.
fn longest_wait(live: &config::Live) -> Duration {
    live.timeouts.silence.unwrap_or(Duration::MAX)
}

impl Mitigations {
    /// Settings were changed.
    pub(crate) fn renew_settings(&mut self, relay: &mut Relay) {
        let limits = reads::cache_limits(&relay.live.local_cache, self.workers);
        self.reads.cache.set_limits(limits);
        self.reads.flights.set_limits(Reads::limits(&relay.live));
        self.combining.batches.set_limits(Combining::limits(&relay.live));
        let hot = Arc::clone(&self.keys);
        self.change_hot_keys(relay, &hot);
    }

    /// Once a turn, before anything is read: takes over a new version of the hot keys, and notices a
    /// pause since the last turn.
    pub(crate) fn begin_turn(&mut self, relay: &mut Relay) {
        if self.is_active() && relay.now.saturating_duration_since(self.last_turn) > PAUSE {
            self.reads.cache.flushed();
        }
        self.last_turn = relay.now;
        let upheavals = relay.shared.upheavals.load(Ordering::Acquire);
        if upheavals != self.upheavals {
            self.upheavals = upheavals;
            self.reads.cache.flushed();
        }
        let version = relay.shared.hot_keys_version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            let hot = relay.shared.hot_keys();
            self.change_hot_keys(relay, &hot);
        }
    }

    /// Notices whether the process stood still within this turn. Called after a client was read, before
    /// its requests are looked at.
    ///
    /// ```text
    /// worker                                    others
    /// takes a turn: word of changes is read
    /// stands still                              SET k 2, acknowledged; then GET k is sent here
    /// reads the client: GET k                   word of SET k 2 waits to be read
    /// ```
    ///
    /// Requests that were read before the pause may be served from the cache: the write was not
    /// acknowledged when they came.
    #[inline]
    pub(crate) fn notice_pause_in_turn(&mut self, relay: &Relay) {
        if self.is_active() && relay.world.now().saturating_duration_since(relay.now) > PAUSE {
            self.reads.cache.flushed();
        }
    }

    fn change_hot_keys(&mut self, relay: &mut Relay, hot: &Arc<HotKeys>) {
        self.end_shard_writes(relay, hot);
        let now = relay.now;
        let old = std::mem::replace(&mut self.keys, Arc::clone(hot));
        relay.cluster.moved.follow(now, hot, relay.cluster.reads_replicas);
        self.note_past(now, &old);
        for (key, _) in old.iter().filter(|(key, _)| hot.get(key).is_none()) {
            self.reads.cache.deregister(key);
            self.work.remove(key);
        }
        for (key, _) in hot.iter() {
            if !self.work.contains_key(key) {
                let work = Work { since: Some(now), ..Work::default() };
                self.work.insert(key.to_vec(), work);
            }
        }
        if let Some(observer) = &mut relay.observer {
            observer.follow(hot.counted());
        }
        self.keep_passing();
        if !hot.iter().any(|(_, treatment)| treatment.stale_if_late) {
            self.reads.stale.clear();
        }
        let settings = key_settings(&relay.live);
        let mut tokens = Vec::new();
        for (key, treatment) in hot.iter() {
            if !treatment.local_cache {
                self.reads.cache.deregister(key);
                continue;
            }
            if let Registered::New(token) = self.reads.cache.register(key, settings) {
                tokens.push(token);
            }
        }
        if !tokens.is_empty() {
            relay.clients.suspect_unanswered();
        }
        for token in tokens {
            self.reads.cache.write_done(token);
        }
        // A command that blocks may do so for ever. If it names a key that is moved, the mover sees it.
        let unseen = self.writes_frozen_unseen(relay);
        let prompt = |client: &Client| {
            client.dedicated.as_ref().is_some_and(|dedicated| dedicated.awaits_prompt_answer())
                || unseen(client)
        };
        self.raise_fence(relay, self.version, prompt);
        self.note_frozen(now);
        self.release_held(relay);
    }

    /// Once a turn, after everything was read: carries on with what waited for it. The replies and
    /// requests that this makes are written at the end of the turn.
    pub(crate) fn end_turn(&mut self, relay: &mut Relay) {
        let Self { reads, combining, undrained, fences, .. } = &*self;
        let idle = reads.links.is_empty() && reads.fills.is_empty() && combining.batches.is_empty();
        let idle = idle && !self.reads.listening.is_open() && !self.holds(relay);
        if !self.is_active() && idle && undrained.is_empty() && fences.is_empty() {
            return;
        }
        self.look_at_fences(relay);
        self.look_at_undrained(relay);
        if relay.now >= self.next_look {
            self.next_look = relay.now + LOOK;
            mitigation::tick(self, relay);
        }
        if relay.now >= self.next_pulse {
            self.next_pulse = relay.now + PULSE;
            if self.is_active() {
                self.find_out(relay);
                self.feel_pulse(relay);
                self.feel_listener(relay);
            } else {
                self.close_tracked(relay);
                self.stop_listening(relay);
            }
        }
    }

    /// The only key that a request names, if it is hot, and how it is treated.
    fn treated<'a>(&self, incoming: Incoming<'a>) -> Option<(&'a [u8], Treatment)> {
        let name = incoming.request.arg(incoming.command.single_key_index()?)?;
        Some((name, self.keys.get(name)?))
    }

    /// The hot keys have changed since the client sent the requests that it waits for. A new request may
    /// take another path, and must not overtake those:
    ///
    /// 1. A client sends two increments of a key one behind the other.
    /// 2. The first waits here to be combined with others; the key cools down.
    /// 3. The second, passed on as usual, would be executed first.
    ///
    /// False if it has to wait for its replies.
    #[cold]
    pub(crate) fn follow_hot_keys(&mut self, relay: &mut Relay, key: ClientKey) -> bool {
        let version = self.version;
        let Some(client) = relay.clients.get(key) else { return true };
        if client.order.outstanding() > 0 {
            return false;
        }
        client.hot.version = version;
        true
    }
}

impl Clients {
    /// Whether a client waits for reads or changes of hot keys.
    pub(in crate::hot) fn awaits_hot(&self, key: ClientKey) -> bool {
        self.get_ref(key).is_some_and(|client| client.hot.awaits())
    }
}
