//! Commands that a marker or a tombstone has refused. Their clients need not know.
//!
//! Called by: `detours` with each `WRONGTYPE` of a cluster's node, `fan_out` with what stands at
//! the key, `splits` when something else is known of split keys, and now and then.
//! Bound: a command waits [`PATIENCE`] at most, and its client sends nothing meanwhile; then it is
//! told that nothing was done.
//! Invariant: what is sent again was refused by a server for the type of the only key that it
//! names, so it was not executed. A refusal that the client deserves reaches it: nothing at the
//! key looks like a marker, twice if the key was split lately.
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

use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_cluster::frame::is_error;
use heatsink_resp::command::Access;
use heatsink_resp::encode;
use heatsink_split::Layout;
use heatsink_split::layout::{Kind, Names};
use heatsink_split::moving;
use heatsink_split::plan::{self, Context, Plan};
use heatsink_upstream::Protocol;

use super::collected::Collected;
use super::{ANOTHER_USER, MOVING, PATIENCE, WRONG_TYPE, is_step};
use crate::clients::error_line;
use crate::cluster::detours::Refusal;
use crate::cluster::fan_out::{Asker, Ending};
use crate::connection::ClientKey;
use crate::cool::Cooling;
use crate::hot_keys::HotKeys;
use crate::lanes::{Purpose, Ticket};
use crate::nodes::NodeId;
use crate::observe::Mark;
use crate::request::{Request, only_key, spans};
use crate::splits::Splitting;
use crate::worker::Worker;

/// Splits are remembered for so long after their end.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Time between two attempts at a key whose marker nobody has told of.
const AGAIN: Duration = Duration::from_millis(100);
/// What shards' names begin with.
const OURS: &[u8] = b"heatsink:{";

/// A split that is over.
#[derive(Debug)]
pub(in crate::cool) struct Past {
    key: Vec<u8>,
    layout: Arc<Layout>,
    until: Instant,
}

/// A command that was refused.
#[derive(Debug)]
pub(crate) struct Fenced {
    /// Who waits for its reply.
    ticket: Ticket,
    lane: usize,
    serial: u64,
    /// As it was meant for the key.
    request: Vec<u8>,
    key: Vec<u8>,
    /// How long it may wait; not at all, if others of its client were sent behind it.
    until: Option<Instant>,
    /// The split whose tombstone has refused it.
    refused_by: Option<String>,
    /// What it was refused for before.
    refusal: Refusal,
    /// When it began to wait, or was last sent.
    at: Instant,
}

/// What was seen at a key just now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Marker,
}

impl Cooling {
    /// Remembers splits that have ended: their tombstones may refuse what is under way.
    pub(in crate::cool) fn note_past(&mut self, now: Instant, old: &HotKeys) {
        self.past.retain(|past| past.until > now);
        for (key, splitting) in old.splits() {
            let layout = splitting.layout();
            let is_there = self.hot.split(key).is_some_and(|now| now.layout().id == layout.id);
            if !is_there {
                let (key, layout) = (key.to_vec(), Arc::clone(layout));
                self.past.push(Past { key, layout, until: now + REMEMBERED });
            }
        }
    }

    /// The key of a shard, and the split that it belongs to.
    fn key_of_shard(&self, name: &[u8]) -> Option<(Vec<u8>, String)> {
        if !name.starts_with(OURS) {
            return None;
        }
        let past = self.past.iter().map(|past| (&past.key[..], &past.layout));
        let splits = self.hot.splits().map(|(key, splitting)| (key, splitting.layout()));
        let has = |layout: &Layout| (0..layout.len()).any(|i| layout.name(i, Names::Live) == name);
        let found = splits.chain(past).find(|(_, layout)| has(layout));
        found.map(|(key, layout)| (key.to_vec(), layout.id.clone()))
    }

    /// Whether a key is split, or was lately.
    fn was_split(&self, key: &[u8]) -> bool {
        self.hot.split(key).is_some() || self.past.iter().any(|past| past.key == key)
    }
}

impl Worker {
    /// A node of a cluster has refused a command for the type of a value.
    pub(crate) fn meet_fence(
        &mut self,
        lane: usize,
        ticket: Ticket,
        request: &[u8],
        error: &[u8],
        overtaken: bool,
    ) {
        let Some(mut fenced) = self.fenced(lane, ticket, request) else {
            return self.conclude(ticket, error);
        };
        (fenced.until, fenced.refusal) =
            self.may_wait(lane, ticket, request, overtaken, self.now + PATIENCE);
        if fenced.refused_by.is_some() {
            fenced.refusal = Refusal::Explained;
            return self.plan_anew(fenced, Seen::Nothing);
        }
        // Along the way that the command took, so that nobody else has to be reached.
        let node = self.node_of(&fenced.key);
        let (mut string, mut list) = (Vec::new(), Vec::new());
        encode::command(&mut string, &[b"GETRANGE", &fenced.key[..], b"0", b"63"]);
        encode::command(&mut list, &[b"LINDEX", &fenced.key[..], b"0"]);
        // Not one of the client's requests, which would count as sent behind others.
        let asker = Asker { client: ClientKey::NOBODY, place: 0 };
        let ending = Ending::Fenced(Box::new((fenced, error.to_vec())));
        self.ask_several(lane, asker, &[(node, string), (node, list)], ending, Mark::Nothing);
    }

    /// What was refused, if it may be sent again.
    fn fenced(&self, lane: usize, ticket: Ticket, request: &[u8]) -> Option<Fenced> {
        match ticket.purpose {
            Purpose::Detour(_) if self.clients.get_ref(ticket.client)?.within => return None,
            Purpose::Detour(_) | Purpose::Combined(_) => {}
            _ => return None,
        }
        let at = self.lanes.get(lane)?;
        if at.login.db != self.shared.base_login.db || self.may_be_made_up(request) {
            return None;
        }
        let args = spans(request)?;
        let parsed = Request { bytes: request, args: &args };
        let command = self.table.lookup(parsed.name(), parsed.arg(1))?;
        let index = only_key(command, parsed)?;
        let name = parsed.arg(index)?;
        let (key, original, refused_by) = match self.cooling.key_of_shard(name) {
            Some((key, id)) => {
                let mut args: Vec<_> = parsed.args_from(0).collect();
                args[index] = &key;
                let mut original = Vec::new();
                encode::command(&mut original, &args);
                (key, original, Some(id))
            }
            None => (name.to_vec(), request.to_vec(), None),
        };
        let serial = at.serial;
        Some(Fenced {
            ticket,
            lane,
            serial,
            request: original,
            key,
            until: None,
            refused_by,
            refusal: Refusal::None,
            at: self.now,
        })
    }

    /// What stands at the key is known.
    pub(crate) fn fence_seen(&mut self, fenced: Fenced, error: &[u8], replies: &[Vec<u8>]) {
        if replies.iter().any(|reply| moving::tells_of_fence(reply)) {
            return self.plan_anew(Fenced { refusal: Refusal::Explained, ..fenced }, Seen::Marker);
        }
        let says_nothing = |reply: &Vec<u8>| is_error(reply) && !reply.starts_with(WRONG_TYPE);
        let is_sure = match fenced.refusal {
            Refusal::None => !self.cooling.was_split(&fenced.key),
            Refusal::Explained => false,
            Refusal::Unexplained => true,
        };
        if is_sure || fenced.until.is_none() || replies.iter().any(says_nothing) {
            return self.end_fenced(&fenced, error);
        }
        self.plan_anew(Fenced { refusal: Refusal::Unexplained, ..fenced }, Seen::Nothing);
    }

    /// Something else is known of split keys: what was refused is tried again.
    pub(super) fn release_fenced(&mut self) {
        for fenced in std::mem::take(&mut self.cooling.fenced) {
            self.plan_anew(fenced, Seen::Nothing);
        }
    }

    /// Time passes, and what is known may be believed again. A marker may have gone without this
    /// worker ever hearing of its split, so the key is asked again now and then.
    pub(super) fn look_at_fenced(&mut self) {
        for fenced in std::mem::take(&mut self.cooling.fenced) {
            let is_old = self.now.saturating_duration_since(fenced.at) > AGAIN;
            self.plan_anew(fenced, if is_old { Seen::Nothing } else { Seen::Marker });
        }
    }

    /// Sends a command where its value is by now, or has it wait until that is known.
    fn plan_anew(&mut self, fenced: Fenced, seen: Seen) {
        let is_gone = fenced.ticket.client != ClientKey::NOBODY
            && self.clients.get_ref(fenced.ticket.client).is_none();
        if is_gone || fenced.until.is_none_or(|until| self.now > until) {
            return self.end_fenced(&fenced, &error_line(MOVING));
        }
        if self.lanes.get(fenced.lane).is_none_or(|lane| lane.serial != fenced.serial) {
            return self.end_fenced(&fenced, &error_line("ERR heatsink: given up"));
        }
        match self.cooling.hot.split(&fenced.key).cloned() {
            None if seen == Seen::Nothing => {
                let node = self.node_of(&fenced.key);
                self.send_fenced(&fenced, node, &fenced.request);
            }
            Some(Splitting::Split(layout))
                if self.is_believed() && fenced.refused_by.as_ref() != Some(&layout.id) =>
            {
                self.plan_at_shards(fenced, &layout);
            }
            _ => self.cooling.fenced.push(fenced),
        }
    }

    fn plan_at_shards(&mut self, fenced: Fenced, layout: &Arc<Layout>) {
        let login = &self.lanes[fenced.lane].login;
        let resp3 = login.protocol == Protocol::Resp3;
        if login.user_name() != self.shared.base_login.user_name() {
            self.shared.desk.want_whole(&fenced.key, ANOTHER_USER);
            return self.cooling.fenced.push(fenced);
        }
        if let Purpose::Combined(id) = fenced.ticket.purpose {
            if !self.step_split(id, &fenced.key, &fenced.request, fenced.lane) {
                self.batch_lost(id, &error_line(MOVING));
            }
            return;
        }
        let Some(spans) = spans(&fenced.request) else {
            return self.end_fenced(&fenced, &error_line(MOVING));
        };
        let request = Request { bytes: &fenced.request, args: &spans };
        let args: Vec<&[u8]> = request.args_from(0).collect();
        let turn = self.cooling.turn();
        let is_list = layout.kind == Kind::List;
        let stamp = if is_list { self.shared.desk.stamps(args.len()) } else { 0 };
        let context = Context { layout, names: Names::Live, resp3, turn, stamp };
        match plan::plan(&context, &args) {
            Plan::One(shard) => {
                let node = self.primary_of(layout.slot(shard), fenced.ticket.client);
                let part = plan::under_name(&context, shard, &args);
                self.send_fenced(&fenced, node, &part.bytes);
            }
            Plan::Many { parts, merge } => {
                let shard = turn % layout.len();
                let step = is_step(layout, request)
                    .then(|| parts.iter().position(|part| part.shard == shard).unwrap_or(0));
                let asker = Asker { client: fenced.ticket.client, place: 0 };
                let collected = Collected::new(self.now, &fenced.key, layout, merge, resp3, false);
                let is_read = self.is_read(&fenced.request);
                let access = if is_read { Access::Read } else { Access::Write };
                let collected = collected.with_alone(false).with_access(access);
                let collected = collected.of_fenced(fenced, step);
                self.ask_parts(asker, parts, collected, Mark::Nothing);
            }
            Plan::Answer(reply) => self.end_fenced(&fenced, &reply),
            Plan::Whole => {
                let command = self.name_of_request(&fenced.request);
                self.shared.desk.want_whole(&fenced.key, &command);
                self.cooling.fenced.push(fenced);
            }
        }
    }

    /// A tombstone has refused it this time.
    pub(super) fn refused_again(&mut self, fenced: Fenced, id: &str) {
        let refused_by = Some(id.to_owned());
        self.plan_anew(Fenced { refused_by, ..fenced }, Seen::Nothing);
    }

    fn send_fenced(&mut self, fenced: &Fenced, node: NodeId, bytes: &[u8]) {
        self.go_on_waiting(fenced.ticket, fenced.until, fenced.refusal);
        self.resend(fenced.lane, node, fenced.ticket, bytes, false);
    }

    /// The client gets this.
    pub(super) fn end_fenced(&mut self, fenced: &Fenced, reply: &[u8]) {
        self.go_on_waiting(fenced.ticket, fenced.until, fenced.refusal);
        self.conclude(fenced.ticket, reply);
    }
}
