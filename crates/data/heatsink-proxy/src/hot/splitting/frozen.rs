//! Reads of keys that are about to be split. They do not wait for what is under way.
//!
//! Called by: `splitting` with each of them, `scatter_gather` with what the servers have answered.
//! Bound: a read takes four questions one after the other as a rule at most, and is given up
//! after [`PATIENCE`].
//! Invariant: a reply is passed on only if no marker can have stood in the value's place when the
//! read was executed, or if it is of the shards and the marker stood there before they were asked;
//! and afterwards, if one of them was sealed (see `gather`).
//!
//! A split is committed by a transaction that removes its permit and writes its marker; nobody
//! writes that permit again, and the marker goes when the split ends. So a read is followed by
//! questions, each of which is sent when the one before is answered, so that no redirection can
//! change their order:
//!
//! ```text
//! 1  the read itself   a reply that a marker cannot have given: it is the reply
//! 2  EXISTS permit     1: not committed yet, hence not when 1 was executed: 1 is the reply
//!                      0: committed before now, or never
//! 3  is the marker of this split at the key?
//!                      yes: committed, and the shards are the value: they are asked, by both
//!                           their names, because an end of the split may have begun
//!                      no, and there is no permit: this split is over for good; from 1 on
//! ```
//!
//! That a marker is not there would not be enough. A worker may be slow:
//!
//! ```text
//! worker                                mover
//!                                       EXEC: marker for value
//! 1  TYPE: string, the marker's
//!    ... paused ...                     split; un-split; EXEC: value for marker
//! 3  no marker; but `string` is wrong   (the permit is gone since the first EXEC)
//! ```
//!
//! Commands of the value's own type are refused where a marker stands. They go from 1 to 3 at
//! once, and to 2 if there is no marker.
//!
//! A read of several keys is the reply if that is so for each of them. What cannot be asked of
//! shards has to wait for the key to be whole in step 3, and so have clients with a user of their
//! own: nobody knows what their rights on a shard would be.
//!
//! Another split of the same key can be committed only after this worker has heard of it. So what
//! is known when a reply comes tells whether there is another one to ask about.

use std::sync::Arc;
use std::time::Instant;

use heatsink_cluster::frame::is_error;
use heatsink_cluster::join::{self, Join};
use heatsink_resp::command::Access;
use heatsink_resp::encode;
use heatsink_split::layout::Names;
use heatsink_split::plan::{self, Context, Merge, Plan};
use heatsink_split::{Layout, moving};
use heatsink_upstream::Protocol;

use super::gather::Collected;
use super::{ANOTHER_USER, MOVING, PATIENCE, pair};
use crate::cluster::redirects::WRONG_TYPE;
use crate::cluster::route::name_of;
use crate::cluster::scatter_gather::Asker;
use crate::downstream::clients::{MAX_OUTSTANDING, error_line};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::{Flow, spans};
use crate::hot::mitigation::Inquiry;
use crate::hot::{Incoming, Mitigations, splitting};
use crate::observe::Mark;
use crate::relay::Relay;
use crate::splits::Splitting;
use crate::upstream::nodes::NodeId;

/// What a server says to a user without a right: that does not depend on the value.
const NO_PERMISSION: &[u8] = b"-NOPERM ";

/// A read of keys that are about to be split, or were when it came.
#[derive(Debug)]
pub(crate) struct FrozenRead {
    request: Vec<u8>,
    /// All its keys.
    keys: Vec<Vec<u8>>,
    /// Splits of theirs whose marker a reply may be of.
    open: Vec<Open>,
    /// The ids of those that are over.
    over: Vec<String>,
    /// It would be refused where a marker stands.
    tells: bool,
    /// Nothing else of the client is sent meanwhile.
    alone: bool,
    since: Instant,
    step: Step,
}

/// A split that may be under way.
#[derive(Debug)]
struct Open {
    key: Vec<u8>,
    layout: Arc<Layout>,
    /// None if it is known that it has been committed, or never will be.
    permit: Option<Arc<[u8]>>,
}

/// What was asked last.
#[derive(Debug)]
enum Step {
    /// The read itself.
    Value(Join),
    /// Whether the permits are there; with what the read was answered.
    Permits(Vec<u8>),
    /// What stands in the place of the values; with what the read was answered, if that may be
    /// of use.
    Fences(Option<Vec<u8>>),
}

/// A read that waits for a key to be made whole.
#[derive(Debug)]
pub(in crate::hot) struct Parked {
    asker: Asker,
    mark: Mark,
    read: FrozenRead,
}

impl Mitigations {
    /// A read of a key that is about to be split.
    pub(super) fn read_frozen(
        &mut self,
        relay: &mut Relay,
        incoming: Incoming<'_>,
        name: &[u8],
        tells: bool,
    ) -> Option<Flow> {
        self.begin_frozen(relay, incoming, vec![name.to_vec()], tells)
    }

    /// A read of several keys; none if it is no read, or none of them is about to be split, or
    /// one has to be made whole for it anyway.
    pub(super) fn read_several_frozen(
        &mut self,
        relay: &mut Relay,
        incoming: Incoming<'_>,
    ) -> Option<Flow> {
        let Incoming { key, request, command, .. } = incoming;
        if command.access != Access::Read {
            return None;
        }
        let overtakes = relay.clients.get_ref(key)?.hot.copies.reads > 0;
        let hot = &self.keys;
        let (mut keys, mut freezes, mut waits) = (Vec::new(), false, false);
        let arg = |index| request.arg(index).unwrap_or_default();
        command.for_each_key(request.len(), arg, |index| {
            let name = arg(index);
            match hot.split(name) {
                Some(Splitting::Freezing { .. }) => freezes = true,
                Some(Splitting::Split(_) | Splitting::Draining(_)) => waits = true,
                None => waits |= overtakes && hot.copies(name).is_some(),
            }
            keys.push(name.to_vec());
        });
        if !freezes || waits {
            return None;
        }
        self.begin_frozen(relay, incoming, keys, false)
    }

    fn begin_frozen(
        &mut self,
        relay: &mut Relay,
        incoming: Incoming<'_>,
        keys: Vec<Vec<u8>>,
        tells: bool,
    ) -> Option<Flow> {
        let Incoming { key, request, command, .. } = incoming;
        let client = relay.clients.get_ref(key)?;
        if client.hot.awaits() || client.order.outstanding() >= MAX_OUTSTANDING {
            return Some(Flow::Wait);
        }
        if let Some(flow) = relay.routing().without_map(key) {
            return Some(flow);
        }
        let mark = relay.routing().observe(key, command, request);
        let (client, buffers) = relay.clients.get_with_buffers(key)?;
        client.held_since = None;
        let place = client.order.reserve(buffers);
        // What comes behind it must not be executed before it, should it be sent again. Writes of
        // its own key are held; if there are others, or it takes longer, nothing is sent.
        let alone = !tells;
        client.retrying += u32::from(alone);
        let mut read = FrozenRead {
            request: request.bytes.to_vec(),
            keys,
            open: Vec::new(),
            over: Vec::new(),
            tells,
            alone,
            since: relay.now,
            step: Step::Fences(None),
        };
        read.open = self.open_splits(&read);
        self.ask_value(relay, Asker { client: key, place }, read, mark);
        relay.clients.stop_if_many(key);
        Some(Flow::Taken)
    }

    fn ask_value(&mut self, relay: &mut Relay, asker: Asker, mut read: FrozenRead, mark: Mark) {
        let Some(pool) = relay.clients.pool_of(asker) else { return relay.routing().give_up(mark) };
        let (questions, how) = relay.routing().places_of(&read.request, asker.client);
        read.step = Step::Value(how);
        self.ask_frozen(relay, pool, asker, &questions, read, mark);
    }

    fn ask_permits(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        mut read: FrozenRead,
        mark: Mark,
        reply: Vec<u8>,
    ) {
        let ask = |open: &Open| {
            let mut bytes = Vec::new();
            encode::command(&mut bytes, &[&b"EXISTS"[..], open.permit.as_deref()?]);
            Some((relay.node_of(&open.key), bytes))
        };
        let questions: Vec<_> = read.open.iter().filter_map(ask).collect();
        read.step = Step::Permits(reply);
        self.ask_frozen(relay, relay.upstream.base_pool, asker, &questions, read, mark);
    }

    fn ask_fences(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        mut read: FrozenRead,
        mark: Mark,
        reply: Option<Vec<u8>>,
    ) {
        let ask = |open: &Open| {
            (relay.node_of(&open.key), moving::read_fence(open.layout.kind, &open.key))
        };
        let questions: Vec<_> = read.open.iter().map(ask).collect();
        read.step = Step::Fences(reply);
        self.ask_frozen(relay, relay.upstream.base_pool, asker, &questions, read, mark);
    }

    fn ask_frozen(
        &mut self,
        relay: &mut Relay,
        pool: usize,
        asker: Asker,
        questions: &[(NodeId, Vec<u8>)],
        read: FrozenRead,
        mark: Mark,
    ) {
        if relay.now.saturating_duration_since(read.since) > PATIENCE {
            return relay.end_frozen(asker, &read, mark, &error_line(MOVING));
        }
        self.ask(
            relay,
            pool,
            asker,
            questions,
            Inquiry::Splitting(splitting::Inquiry::Frozen(read)),
            mark,
        );
    }

    /// What was asked last is answered.
    pub(in crate::hot) fn frozen_read(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        mut read: FrozenRead,
        mark: Mark,
        replies: &[Vec<u8>],
    ) {
        if relay.clients.pool_of(asker).is_none() {
            return relay.routing().give_up(mark);
        }
        match std::mem::replace(&mut read.step, Step::Fences(None)) {
            Step::Value(how) => {
                self.value_arrived(relay, asker, read, mark, join::join(&how, replies));
            }
            Step::Permits(reply) => self.permits_arrived(relay, asker, read, mark, &reply, replies),
            Step::Fences(reply) => self.fences_arrived(relay, asker, read, mark, reply, replies),
        }
    }

    fn value_arrived(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        read: FrozenRead,
        mark: Mark,
        reply: Vec<u8>,
    ) {
        let is_marker = reply.starts_with(WRONG_TYPE) || moving::tells_of_fence(&reply);
        let is_allowed = !reply.starts_with(NO_PERMISSION);
        if read.tells && !is_marker || !is_allowed {
            return relay.end_frozen(asker, &read, mark, &reply);
        }
        if read.open.is_empty() {
            return self.end_unless_outdated(relay, asker, read, mark, &reply);
        }
        if read.tells {
            self.ask_fences(relay, asker, read, mark, Some(reply));
        } else {
            self.ask_permits(relay, asker, read, mark, reply);
        }
    }

    fn permits_arrived(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        mut read: FrozenRead,
        mark: Mark,
        reply: &[u8],
        replies: &[Vec<u8>],
    ) {
        if let Some(error) = replies.iter().find(|reply| is_error(reply)) {
            return relay.end_frozen(asker, &read, mark, error);
        }
        let mut is_there = replies.iter().map(|reply| reply == b":1\r\n");
        let mut are_all_there = true;
        for open in read.open.iter_mut().filter(|open| open.permit.is_some()) {
            if is_there.next() != Some(true) {
                open.permit = None;
                are_all_there = false;
            }
        }
        if are_all_there {
            self.end_unless_outdated(relay, asker, read, mark, reply);
        } else {
            self.ask_fences(relay, asker, read, mark, None);
        }
    }

    fn fences_arrived(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        mut read: FrozenRead,
        mark: Mark,
        reply: Option<Vec<u8>>,
        replies: &[Vec<u8>],
    ) {
        let says_nothing = |reply: &&Vec<u8>| is_error(reply) && !reply.starts_with(WRONG_TYPE);
        if let Some(error) = replies.iter().find(says_nothing) {
            return relay.end_frozen(asker, &read, mark, error);
        }
        let is_marked = |(open, reply): (&Open, &Vec<u8>)| moving::is_fence(reply, &open.layout.id);
        if read.open.iter().zip(replies).any(is_marked) {
            match &read.open[..] {
                [one] if read.keys.len() == 1 && relay.is_own_user(asker.client) => {
                    let layout = Arc::clone(&one.layout);
                    self.read_shards(relay, asker, read, mark, &layout);
                }
                _ => self.park(relay, asker, read, mark),
            }
            return;
        }
        let is_over = |open: &Open| open.permit.is_none();
        match reply {
            Some(reply) if !read.open.iter().any(is_over) => {
                self.ask_permits(relay, asker, read, mark, reply);
            }
            _ => {
                let over = read.open.extract_if(.., |open| is_over(open));
                read.over.extend(over.map(|open| open.layout.id.clone()));
                read.tells = false;
                self.ask_value(relay, asker, read, mark);
            }
        }
    }

    /// The value is in the shards: its marker stood at the key after the read had come.
    fn read_shards(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        read: FrozenRead,
        mark: Mark,
        layout: &Arc<Layout>,
    ) {
        let Some(pool) = relay.clients.pool_of(asker) else { return relay.routing().give_up(mark) };
        let resp3 = relay.upstream.pools[pool].login.protocol == Protocol::Resp3;
        let Some(args) = spans(&read.request) else { return relay.routing().give_up(mark) };
        let args: Vec<&[u8]> = args.iter().map(|span| &read.request[span.clone()]).collect();
        let context = Context { layout, names: Names::Live, resp3, turn: 0, stamp: 0 };
        let (live, merge) = match plan::plan(&context, &args) {
            Plan::Many { parts, merge } => (parts, merge),
            Plan::One(shard) => (vec![plan::under_name(&context, shard, &args)], Merge::first()),
            Plan::Answer(reply) => return relay.end_frozen(asker, &read, mark, &reply),
            Plan::Whole => return self.park(relay, asker, read, mark),
        };
        let parts = pair(live, &Context { names: Names::Sealed, ..context }, &args);
        let collected = Collected::new(relay.now, &read.keys[0], layout, merge, resp3, true);
        // The value may be whole before its shards have answered: then it is read there.
        if let Some(client) = relay.clients.get(asker.client) {
            client.retrying += u32::from(!read.alone);
        }
        self.ask_parts(relay, asker, parts, collected.of_request(&read.request), mark);
    }

    /// The read waits until what is known of its keys changes.
    fn park(&mut self, relay: &mut Relay, asker: Asker, read: FrozenRead, mark: Mark) {
        if relay.clients.pool_of(asker).is_none() {
            // Nobody wants a key whole for a client that has gone.
            return relay.routing().give_up(mark);
        }
        let mut is_moved = false;
        for key in &read.keys {
            match self.keys.split(key) {
                Some(Splitting::Split(_)) => {
                    let command = if relay.is_own_user(asker.client) {
                        name_of(&relay.table, &read.request)
                    } else {
                        ANOTHER_USER.to_owned()
                    };
                    relay.shared.split_mailbox.want_whole(key, &command);
                    is_moved = true;
                }
                Some(Splitting::Freezing { .. } | Splitting::Draining(_)) => is_moved = true,
                None => {}
            }
        }
        if is_moved && !self.is_outdated(&read) {
            self.splitting.parked.push(Parked { asker, mark, read });
        } else {
            self.read_again(relay, Parked { asker, mark, read });
        }
    }

    /// Reads that have waited too long are told so.
    pub(super) fn end_late_reads(&mut self, relay: &mut Relay) {
        let now = relay.now;
        let late =
            |parked: &mut Parked| now.saturating_duration_since(parked.read.since) > PATIENCE;
        let late: Vec<_> = self.splitting.parked.extract_if(.., late).collect();
        for Parked { asker, mark, read } in late {
            relay.end_frozen(asker, &read, mark, &error_line(MOVING));
        }
    }

    /// Something else is known of the keys of a read: it begins anew.
    pub(super) fn read_again(&mut self, relay: &mut Relay, parked: Parked) {
        let Parked { asker, mark, mut read } = parked;
        read.tells = false;
        read.open = self.open_splits(&read);
        if read.open.iter().all(|open| open.permit.is_some()) {
            self.ask_value(relay, asker, read, mark);
        } else {
            self.ask_fences(relay, asker, read, mark, None);
        }
    }

    fn end_unless_outdated(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        read: FrozenRead,
        mark: Mark,
        reply: &[u8],
    ) {
        if self.is_outdated(&read) {
            self.read_again(relay, Parked { asker, mark, read });
        } else {
            relay.end_frozen(asker, &read, mark, reply);
        }
    }
}

impl Mitigations {
    /// A split has come to be known since the read was sent.
    pub(in crate::hot) fn is_outdated(&self, read: &FrozenRead) -> bool {
        let known = |id: &str| read.open.iter().any(|open| open.layout.id == id);
        self.open_splits(read).iter().any(|open| !known(&open.layout.id))
    }

    /// The splits of a read's keys that may be under way, as far as is known now.
    fn open_splits(&self, read: &FrozenRead) -> Vec<Open> {
        let open = |key: &Vec<u8>| {
            let (layout, permit) = match self.keys.split(key)? {
                Splitting::Freezing { layout, permit } => (layout, Some(Arc::clone(permit))),
                Splitting::Split(layout) | Splitting::Draining(layout) => (layout, None),
            };
            let open = Open { key: key.clone(), layout: Arc::clone(layout), permit };
            (!read.over.contains(&layout.id)).then_some(open)
        };
        read.keys.iter().filter_map(open).collect()
    }
}

impl Relay {
    fn end_frozen(&mut self, asker: Asker, read: &FrozenRead, mark: Mark, reply: &[u8]) {
        self.end_collecting(asker, read.alone, mark, reply);
    }

    /// Whether the client logged in as the user who may ask for shards. Permits and markers are
    /// asked for by Heatsink itself.
    fn is_own_user(&self, key: ClientKey) -> bool {
        let pool = self.clients.get_ref(key).map(|client| &self.upstream.pools[client.pool].login);
        pool.is_some_and(|login| login.user_name() == self.shared.base_login.user_name())
    }
}
