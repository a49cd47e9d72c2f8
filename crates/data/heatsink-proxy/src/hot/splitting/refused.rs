//! Commands that a marker or a tombstone has refused. Their clients need not know.
//!
//! Called by: `redirects` with each `WRONGTYPE` of a cluster's node, `gather` with what shards have
//! refused, `scatter_gather` with what stands at the key, `splitting` when something else is known of split
//! keys, and now and then.
//! Bound: a command waits [`PATIENCE`] at most, and its client sends nothing meanwhile; then it is
//! told that nothing was done. [`MAX_KEYS`] of one command are looked at.
//! Invariant: what is sent again was refused by a server for the type of a key that it names, so
//! it was not executed: servers look at the types of all keys before they change any. A script
//! may have changed others before, and is not sent again. A refusal that the client deserves
//! reaches it: nothing at a key looks like a marker, twice if one was split lately.
//!
//! A worker may be behind: its process was paused, cut off from the store, or is slower than the
//! mover. It then asks where the value is no more:
//!
//! ```text
//! worker                              mover
//! knows of no split                   EXEC: marker for value
//! SADD key      WRONGTYPE
//! what is at the key? a marker        registry: split
//! waits ... hears of the split
//! SADD shard    1
//! ```
//!
//! ```text
//! worker                              mover
//! believes in the split               seals the shard: tombstone
//! SADD shard    WRONGTYPE             EXEC: value for marker
//! waits ... hears of the end          registry: split no more
//! SADD key      1
//! ```
//!
//! The answer to the question may come too late:
//!
//! ```text
//! SADD key      WRONGTYPE
//!                                     EXEC: value for marker
//! what is at the key? a set
//! SADD key      1                     sent again once, if the key is or was split
//! ```
//!
//! A read for many waits for all of them. They hold back what they send of the key in the same way
//! as for a read that the server takes its time for, and each waits for as long as for such a one:
//!
//! ```text
//! worker                              mover
//! knows of no split, caches the key   EXEC: marker for value
//! SMEMBERS key, for A and B           word of the change: nothing is cached
//!               WRONGTYPE
//! what is at the key? a marker        registry: split
//! C asks, too, for the next read
//! waits ... hears of the split
//! SMEMBERS of each shard: for A and B; then the next, for C, by the same way
//! ```
//!
//! A command of several keys needs all of them whole:
//!
//! ```text
//! worker                              mover
//! knows of no split                   EXEC: marker for the value of k
//! SINTER j k    WRONGTYPE
//! what is at j, k? a set, a marker    registry: split
//! waits ... hears of the split; wants k whole
//! waits ... hears of its end          EXEC: value for marker; registry: split no more
//! SINTER j k    x
//! ```
//!
//! # Order
//! What was refused is planned anew by the newest map, whatever else of its client is under way by
//! an older one (see [`crate::cluster`]). It passes nothing that must come before it, and is not
//! passed:
//!
//! - What was sent before it to the same key, or to the same shard, went by the same map and the same
//!   hot keys (`Client::epoch`, `Client::heat`), hence along the same link and the same redirects, and
//!   was answered before it was refused. A command of several shards counts as refused when all of
//!   them have answered, each behind what was sent there before.
//! - What was sent before or behind it to another shard of the key is about other members: a member has
//!   one shard as long as the split lasts. In whichever order the two are executed, each is
//!   answered the same. What depends on all members asks all shards, and is among the first.
//! - What was sent behind it to the same place before it was refused has it told to try again
//!   (`may_wait`, `ClientState::asked_shards`). From then on nothing is sent (`Client::retrying`).
//! - What asks the marker is about the time to live, which no command at shards changes.
//!
//! So what is under way by an older map when it is planned anew is about other keys or members.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_cluster::frame::is_error;
use heatsink_resp::command::{Access, Command};
use heatsink_resp::encode;
use heatsink_split::layout::{Kind, Names};
use heatsink_split::plan::{self, Context, Plan};
use heatsink_split::{Layout, moving};
use heatsink_upstream::Protocol;

use super::gather::Collected;
use super::{ANOTHER_USER, MOVING, PATIENCE, is_step};
use crate::cluster::effects::WrongType;
use crate::cluster::redirects::{Refusal, WRONG_TYPE};
use crate::cluster::route::may_be_made_up;
use crate::cluster::route::name_of;
use crate::cluster::scatter_gather::Asker;
use crate::downstream::clients::error_line;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::is_read;
use crate::downstream::request::{Request, only_key, spans};
use crate::hot::mitigation::Inquiry;
use crate::hot::{Mitigations, splitting};
use crate::hot_keys::HotKeys;
use crate::observe::Mark;
use crate::relay::Relay;
use crate::relay::effects::Effect;
use crate::reserved::names;
use crate::splits::Splitting;
use crate::upstream;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

/// Splits are remembered for so long after their end.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Time between two attempts at a key whose marker nobody has told of.
const AGAIN: Duration = Duration::from_millis(100);
/// Of a command with more keys a refusal is passed on as it is.
const MAX_KEYS: usize = 16;
/// What is said if nobody is left who asked.
pub(super) const GIVEN_UP: &str = "ERR heatsink: given up";

/// A split that is over.
#[derive(Debug)]
pub(in crate::hot) struct Past {
    key: Vec<u8>,
    layout: Arc<Layout>,
    until: Instant,
}

/// A command that was refused.
#[derive(Debug)]
pub(crate) struct Fenced {
    /// Who waits for its reply.
    ticket: Ticket,
    pool: usize,
    serial: u64,
    /// As it was meant for its keys, of which there is at least one.
    request: Vec<u8>,
    keys: Vec<Vec<u8>>,
    /// How long it may wait; not at all, if others of its client were sent behind it.
    until: Option<Instant>,
    /// The split whose tombstone has refused it.
    refused_by: Option<String>,
    /// What it was refused for before.
    refusal: Refusal,
    /// When it began to wait, or was last sent.
    at: Instant,
}

impl Fenced {
    /// A command that shards have refused.
    pub(super) fn at_shards(
        ticket: Ticket,
        (pool, serial): (usize, u64),
        key: Vec<u8>,
        request: Vec<u8>,
        at: Instant,
        until: Instant,
    ) -> Self {
        let (keys, until, refused_by) = (vec![key], Some(until), None);
        let refusal = Refusal::Explained;
        Self { ticket, pool, serial, request, keys, until, refused_by, refusal, at }
    }

    /// The pool that it is sent along.
    pub(super) fn pool(&self) -> usize {
        self.pool
    }

    /// One of its keys; all are of one slot.
    fn key(&self) -> &[u8] {
        &self.keys[0]
    }
}

/// What was seen at a key just now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Marker,
}

impl Mitigations {
    /// Remembers splits that have ended: their tombstones may refuse what is under way.
    pub(in crate::hot) fn note_past(&mut self, now: Instant, old: &HotKeys) {
        self.splitting.past.retain(|past| past.until > now);
        for (key, splitting) in old.splits() {
            let layout = splitting.layout();
            let is_there = self.keys.split(key).is_some_and(|now| now.layout().id == layout.id);
            if !is_there {
                let (key, layout) = (key.to_vec(), Arc::clone(layout));
                self.splitting.past.push(Past { key, layout, until: now + REMEMBERED });
            }
        }
    }

    /// The key of a shard, and the split that it belongs to.
    fn key_of_shard(&self, name: &[u8]) -> Option<(Vec<u8>, String)> {
        if !names::is_reserved(name) {
            return None;
        }
        let past = self.splitting.past.iter().map(|past| (&past.key[..], &past.layout));
        let splits = self.keys.splits().map(|(key, splitting)| (key, splitting.layout()));
        let has = |layout: &Layout| (0..layout.len()).any(|i| layout.name(i, Names::Live) == name);
        let found = splits.chain(past).find(|(_, layout)| has(layout));
        found.map(|(key, layout)| (key.to_vec(), layout.id.clone()))
    }

    /// Whether a key is split, or was lately.
    fn was_split(&self, key: &[u8]) -> bool {
        self.keys.split(key).is_some() || self.splitting.past.iter().any(|past| past.key == key)
    }
}

impl Mitigations {
    /// A node of a cluster has refused a command for the type of a value.
    pub(crate) fn meet_fence(&mut self, relay: &mut Relay, refused: WrongType) {
        let WrongType { pool, ticket, request, error, overtaken } = refused;
        let Some(mut fenced) = self.fenced(relay, pool, ticket, &request) else {
            return relay.effects.push(Effect::Conclude(ticket, error));
        };
        let until = relay.now + PATIENCE;
        (fenced.until, fenced.refusal) =
            relay.routing().may_wait(pool, ticket, &request, overtaken, until);
        if fenced.refused_by.is_some() {
            fenced.refusal = Refusal::Explained;
            return self.plan_anew(relay, fenced, Seen::Nothing);
        }
        // Along the way that the command took, so that nobody else has to be reached.
        let node = relay.node_of(fenced.key());
        let ask = |key: &Vec<u8>| {
            let (mut string, mut list) = (Vec::new(), Vec::new());
            encode::command(&mut string, &[b"GETRANGE", &key[..], b"0", b"63"]);
            encode::command(&mut list, &[b"LINDEX", &key[..], b"0"]);
            [(node, string), (node, list)]
        };
        let questions: Vec<_> = fenced.keys.iter().flat_map(ask).collect();
        // Not one of the client's requests, which would count as sent behind others.
        let asker = Asker { client: ClientKey::NOBODY, place: 0 };
        let inquiry = Inquiry::Splitting(splitting::Inquiry::Refused(fenced, error));
        self.ask(relay, pool, asker, &questions, inquiry, Mark::Nothing);
    }

    /// What was refused, if it may be sent again.
    fn fenced(&self, relay: &Relay, pool: usize, ticket: Ticket, request: &[u8]) -> Option<Fenced> {
        match ticket.purpose {
            Purpose::Redirect(_) if relay.clients.get_ref(ticket.client)?.within => return None,
            Purpose::Redirect(_) | Purpose::Combined(_) | Purpose::Fill(_) => {}
            _ => return None,
        }
        let at = relay.upstream.pools.get(pool)?;
        if at.login.db != relay.shared.base_login.db || may_be_made_up(&relay.table, request) {
            return None;
        }
        let args = spans(request)?;
        let parsed = Request { bytes: request, args: &args };
        let command = relay.table.lookup(parsed.name(), parsed.arg(1))?;
        let only = only_key(command, parsed);
        let of_shard = only.and_then(|index| self.key_of_shard(parsed.arg(index)?));
        let (keys, original, refused_by) = match (only, of_shard) {
            (Some(index), Some((key, id))) => {
                let mut args: Vec<_> = parsed.args_from(0).collect();
                args[index] = &key;
                let mut original = Vec::new();
                encode::command(&mut original, &args);
                (vec![key], original, Some(id))
            }
            _ => (keys_of(command, parsed)?, request.to_vec(), None),
        };
        let serial = at.serial;
        Some(Fenced {
            ticket,
            pool,
            serial,
            request: original,
            keys,
            until: None,
            refused_by,
            refusal: Refusal::None,
            at: relay.now,
        })
    }

    /// What stands at the key is known.
    pub(in crate::hot) fn fence_seen(
        &mut self,
        relay: &mut Relay,
        fenced: Fenced,
        error: &[u8],
        replies: &[Vec<u8>],
    ) {
        if replies.iter().any(|reply| moving::tells_of_fence(reply)) {
            return self.plan_anew(
                relay,
                Fenced { refusal: Refusal::Explained, ..fenced },
                Seen::Marker,
            );
        }
        let says_nothing = |reply: &Vec<u8>| is_error(reply) && !reply.starts_with(WRONG_TYPE);
        let is_sure = match fenced.refusal {
            Refusal::None => !fenced.keys.iter().any(|key| self.was_split(key)),
            Refusal::Explained => false,
            Refusal::Unexplained => true,
        };
        if is_sure || fenced.until.is_none() || replies.iter().any(says_nothing) {
            return relay.end_fenced(&fenced, error);
        }
        self.plan_anew(relay, Fenced { refusal: Refusal::Unexplained, ..fenced }, Seen::Nothing);
    }

    /// Something else is known of split keys: what was refused is tried again.
    pub(super) fn release_fenced(&mut self, relay: &mut Relay) {
        for fenced in std::mem::take(&mut self.splitting.fenced) {
            self.plan_anew(relay, fenced, Seen::Nothing);
        }
    }

    /// Time passes, and what is known may be believed again. A marker may have gone without this
    /// worker ever hearing of its split, so the key is asked again now and then.
    pub(super) fn look_at_fenced(&mut self, relay: &mut Relay) {
        for fenced in std::mem::take(&mut self.splitting.fenced) {
            let is_old = relay.now.saturating_duration_since(fenced.at) > AGAIN;
            self.plan_anew(relay, fenced, if is_old { Seen::Nothing } else { Seen::Marker });
        }
    }

    /// Sends a command where its value is by now, or has it wait until that is known.
    fn plan_anew(&mut self, relay: &mut Relay, fenced: Fenced, seen: Seen) {
        let is_gone = fenced.ticket.client != ClientKey::NOBODY
            && relay.clients.get_ref(fenced.ticket.client).is_none();
        if is_gone || fenced.until.is_none_or(|until| relay.now > until) {
            return relay.end_fenced(&fenced, &error_line(MOVING));
        }
        if !relay.upstream.has_way(&fenced) {
            return relay.end_fenced(&fenced, &error_line(GIVEN_UP));
        }
        let split = |key: &Vec<u8>| self.keys.split(key);
        if fenced.keys.iter().all(|key| split(key).is_none()) {
            if seen == Seen::Marker {
                // Most likely word of it is on its way. If nobody knows of it, somebody has to look.
                for key in &fenced.keys {
                    relay.shared.split_mailbox.note_marker(key);
                }
                return self.splitting.fenced.push(fenced);
            }
            let node = relay.node_of(fenced.key());
            return relay.send_fenced(&fenced, node, &fenced.request);
        }
        match &fenced.keys[..] {
            [key] => match split(key).cloned() {
                Some(Splitting::Split(layout))
                    if relay.is_believed() && fenced.refused_by.as_ref() != Some(&layout.id) =>
                {
                    self.plan_at_shards(relay, fenced, &layout);
                }
                _ => self.splitting.fenced.push(fenced),
            },
            keys => {
                let command = name_of(&relay.table, &fenced.request);
                let is_split = |key: &&Vec<u8>| matches!(split(key), Some(Splitting::Split(_)));
                for key in keys.iter().filter(is_split) {
                    relay.shared.split_mailbox.want_whole(key, &command);
                }
                self.splitting.fenced.push(fenced);
            }
        }
    }

    /// Sends it to shards, by the newest map: nothing of its client is under way that it could pass;
    /// see the module.
    fn plan_at_shards(&mut self, relay: &mut Relay, fenced: Fenced, layout: &Arc<Layout>) {
        let login = &relay.upstream.pools[fenced.pool].login;
        let resp3 = login.protocol == Protocol::Resp3;
        if login.user_name() != relay.shared.base_login.user_name() {
            relay.shared.split_mailbox.want_whole(fenced.key(), ANOTHER_USER);
            return self.splitting.fenced.push(fenced);
        }
        if let Purpose::Combined(id) = fenced.ticket.purpose {
            if !self.step_split(relay, id, fenced.key(), &fenced.request, fenced.pool) {
                self.batch_lost(relay, id, &error_line(MOVING));
            }
            return;
        }
        let Some(spans) = spans(&fenced.request) else {
            return relay.end_fenced(&fenced, &error_line(MOVING));
        };
        let request = Request { bytes: &fenced.request, args: &spans };
        let args: Vec<&[u8]> = request.args_from(0).collect();
        let turn = self.turn();
        let is_list = layout.kind == Kind::List;
        let stamp = if is_list { relay.shared.split_mailbox.stamps(args.len()) } else { 0 };
        let context = Context { layout, names: Names::Live, resp3, turn, stamp };
        match plan::plan(&context, &args) {
            Plan::One(shard) => {
                let node = relay.primary_of(layout.slot(shard), fenced.ticket.client);
                let part = plan::under_name(&context, shard, &args);
                if !is_read(&relay.table, &fenced.request) {
                    self.note_shard_writes(fenced.key(), &layout.id, [shard]);
                }
                relay.send_fenced(&fenced, node, &part.bytes);
            }
            Plan::Many { parts, merge } => {
                let shard = turn % layout.len();
                let step = is_step(layout, request)
                    .then(|| parts.iter().position(|part| part.shard == shard).unwrap_or(0));
                let asker = Asker { client: fenced.ticket.client, place: 0 };
                let collected =
                    Collected::new(relay.now, fenced.key(), layout, merge, resp3, false);
                let is_read = is_read(&relay.table, &fenced.request);
                let access = if is_read { Access::Read } else { Access::Write };
                let collected = collected.with_access(access, turn).of_fenced(fenced, step);
                self.ask_parts(relay, asker, parts, collected, Mark::Nothing);
            }
            Plan::Answer(reply) => relay.end_fenced(&fenced, &reply),
            Plan::Whole => {
                let command = name_of(&relay.table, &fenced.request);
                relay.shared.split_mailbox.want_whole(fenced.key(), &command);
                self.splitting.fenced.push(fenced);
            }
        }
    }

    /// A tombstone has refused it this time.
    pub(super) fn refused_again(&mut self, relay: &mut Relay, fenced: Fenced, id: &str) {
        let refused_by = Some(id.to_owned());
        self.plan_anew(relay, Fenced { refused_by, ..fenced }, Seen::Nothing);
    }
}

impl Relay {
    fn send_fenced(&mut self, fenced: &Fenced, node: NodeId, bytes: &[u8]) {
        self.cluster.go_on_waiting(fenced.ticket, fenced.until, fenced.refusal);
        self.routing().resend(fenced.pool, node, fenced.ticket, bytes, false);
    }

    /// The client gets this.
    pub(super) fn end_fenced(&mut self, fenced: &Fenced, reply: &[u8]) {
        self.cluster.go_on_waiting(fenced.ticket, fenced.until, fenced.refusal);
        self.effects.conclude(fenced.ticket, reply);
    }
}

impl upstream::Room {
    /// Whether the pool that it came along is still there.
    pub(in crate::hot) fn has_way(&self, fenced: &Fenced) -> bool {
        self.pools.get(fenced.pool).is_some_and(|pool| pool.serial == fenced.serial)
    }
}

/// The keys of a command, if there are any, and not too many.
fn keys_of(command: &Command, request: Request<'_>) -> Option<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let arg = |index| request.arg(index).unwrap_or_default();
    command.for_each_key(request.len(), arg, |index| keys.push(arg(index).to_vec()));
    (1..=MAX_KEYS).contains(&keys.len()).then_some(keys)
}
