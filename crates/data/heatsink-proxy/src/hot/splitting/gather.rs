//! What shards answer, made one reply.
//!
//! Called by: `splitting` with what is to be asked, `scatter_gather` with the answers, `combining` with
//! increments of a split counter.
//! Invariant: what is sent again after a tombstone has refused it was executed nowhere: it reads,
//! or every part that would have changed something was refused. And its client has sent nothing
//! else to shards behind it, which would then be executed first. What a sealed shard says is the
//! value's only if the marker still stands at the key afterwards.
//!
//! This worker may be behind, and not all shards are sealed at once:
//!
//! ```text
//! worker                              mover
//! believes in the split               seals shard 1: tombstone
//! SMEMBERS shard 0   a
//! SMEMBERS shard 1   WRONGTYPE        seals shard 0; EXEC: value for marker
//! waits ... hears of the end          registry: split no more
//! SMEMBERS key       a b
//! ```
//!
//! With another of the same client behind it, it is told to try again:
//!
//! ```text
//! SMEMBERS shard 0   a
//! SADD shard 0 c     1                executed: shard 0 is not sealed yet
//! SMEMBERS shard 1   WRONGTYPE        sent again, it would tell of c
//! ```
//!
//! A push, or an increment, is carried out by one part; the others only read for its reply:
//!
//! ```text
//! RPUSH shard 0      WRONGTYPE        not done: it waits, and goes to the key
//! LLEN shard 1       2
//! ```
//!
//! ```text
//! RPUSH shard 0      3                done: it is not sent again, and the reply says so
//! LLEN shard 1       WRONGTYPE
//! ```
//!
//! A sealed shard refuses nobody who reads, for ten minutes after the end:
//!
//! ```text
//! worker                              mover, and others
//! hears that the split ends           seals the shards
//!                                     EXEC: value for marker; registry: split no more
//! stands still, or word is late       INCRBY key 5    15
//! GET of sealed shards   10           what they held at the end
//! marker?                gone         so it waits, as if refused
//! waits ... hears of the end
//! GET key                15
//! ```
//!
//! A marker is not written again once it has gone. If it is there after the shards were read, the value
//! was in them. Until that is known the client sends nothing: a read behind this one, whose marker was
//! still there, would tell of an older value than this one told of.

use std::sync::Arc;
use std::time::Instant;

use heatsink_cluster::frame::is_error;
use heatsink_resp::command::Access;
use heatsink_split::layout::{Kind, Names};
use heatsink_split::plan::{self, Context, Merge, Merged, Part, Plan};
use heatsink_split::{Layout, moving};

use super::refused::{Fenced, GIVEN_UP};
use super::{MOVING, PATIENCE, side_by_side};
use crate::cluster::redirects::WRONG_TYPE;
use crate::cluster::scatter_gather::Asker;
use crate::downstream::clients::{Clients, error_line};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::spans;
use crate::hot::mitigation::Inquiry;
use crate::hot::{Mitigations, splitting};
use crate::observe::Mark;
use crate::relay::Relay;
use crate::splits::Splitting;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

/// What is said of an increment if other shards could not be read.
const NO_SUM: &str = "ERR heatsink: the increment was carried out, but the sum is not known: \
                      a shard of the counter could not be read";

/// What is said of a command if only some of its shards have refused it.
const PARTLY: &str = "ERR heatsink: the value of this key is being moved; \
                      the command may have been carried out in part";

/// By which of its names each shard was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AskedNames {
    /// The one it has while the key is split.
    Live,
    /// That one and the one it has once it is sealed; so far no shard was.
    Both,
    /// By both, and at least one shard was sealed already.
    BothFoundSealed,
}

/// What is made of the shards' replies.
#[derive(Debug)]
pub(crate) struct Collected {
    key: Vec<u8>,
    layout: Arc<Layout>,
    merge: Merge,
    resp3: bool,
    asked_names: AskedNames,
    /// What was made of them, until it is known that the value was still there.
    made: Option<Vec<u8>>,
    /// Nothing else of the client is sent meanwhile.
    alone: bool,
    /// Whether parts may change something.
    access: Access,
    /// The part that does, if the others only read.
    taker: Option<usize>,
    /// The command as it was meant for the key; empty if it is not sent again.
    request: Vec<u8>,
    /// How many requests its client had sent to shards, with this one.
    asked: u32,
    /// The increments that it answers, and which part carries them out.
    batch: Option<(u32, usize)>,
    /// The command that it answers was refused before; and which part carries it out, if it is
    /// an increment.
    fenced: Option<(Box<Fenced>, Option<usize>)>,
    /// When the shards were asked.
    begun: Instant,
}

impl Collected {
    pub(super) fn new(
        begun: Instant,
        key: &[u8],
        layout: &Arc<Layout>,
        merge: Merge,
        resp3: bool,
        by_both_names: bool,
    ) -> Self {
        Self {
            begun,
            key: key.to_vec(),
            layout: Arc::clone(layout),
            alone: by_both_names || merge.asks_again(),
            merge,
            resp3,
            asked_names: if by_both_names { AskedNames::Both } else { AskedNames::Live },
            made: None,
            access: Access::Read,
            taker: None,
            request: Vec::new(),
            asked: 0,
            batch: None,
            fenced: None,
        }
    }

    /// For a command that may change something; `turn` is that of its plan.
    pub(super) fn with_access(self, access: Access, turn: usize) -> Self {
        // Their plans ask all shards, in their order.
        let one_takes = matches!(self.layout.kind, Kind::Counter | Kind::List);
        let taker = (one_takes && access != Access::Read).then(|| turn % self.layout.len());
        Self { access, taker, ..self }
    }

    /// With the request that is sent again if tombstones refuse it.
    pub(super) fn of_request(self, request: &[u8]) -> Self {
        Self { request: request.to_vec(), ..self }
    }

    /// Whether nothing was changed for sure, though some shards have answered.
    fn is_refused(&self, replies: &[Vec<u8>]) -> bool {
        let is_refused = |reply: &Vec<u8>| reply.starts_with(WRONG_TYPE);
        match self.taker {
            _ if self.access == Access::Read => true,
            Some(taker) => replies.get(taker).is_some_and(is_refused),
            None => replies.iter().all(is_refused),
        }
    }

    /// Whether one of the parts may change something.
    fn writes(&self, part: usize) -> bool {
        match (self.batch, self.taker) {
            (Some((_, step)), _) => part == step,
            (None, Some(taker)) => part == taker,
            (None, None) => self.access == Access::Write,
        }
    }

    /// For a command that was refused before: its client may send others meanwhile.
    pub(super) fn of_fenced(self, fenced: Fenced, step: Option<usize>) -> Self {
        Self { fenced: Some((Box::new(fenced), step)), alone: false, ..self }
    }
}

impl Mitigations {
    /// Asks shards, and has their replies merged for a client.
    pub(super) fn collect(
        &mut self,
        relay: &mut Relay,
        key: ClientKey,
        mut collected: Collected,
        parts: Vec<Part>,
        mark: Mark,
    ) {
        let Some((client, buffers)) = relay.clients.get_with_buffers(key) else { return };
        let place = client.order.reserve(buffers);
        client.retrying += u32::from(collected.alone);
        collected.asked = client.hot.asked_shards;
        let asker = Asker { client: key, place };
        self.ask_parts(relay, asker, parts, collected, mark);
        relay.clients.stop_if_many(key);
    }

    pub(super) fn ask_parts(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        parts: Vec<Part>,
        mut collected: Collected,
        mark: Mark,
    ) {
        let pool = match &collected.fenced {
            // Many may wait for it, none of whom asks.
            Some((fenced, _)) => Some(fenced.pool()).filter(|_| relay.upstream.has_way(fenced)),
            None => relay.clients.pool_of(asker),
        };
        match (pool, collected.fenced.take_if(|_| pool.is_none())) {
            (Some(pool), _) => self.ask_parts_along(relay, pool, asker, parts, collected, mark),
            (None, Some((fenced, _))) => relay.end_fenced(&fenced, &error_line(GIVEN_UP)),
            (None, None) => relay.routing().give_up(mark),
        }
    }

    fn ask_parts_along(
        &mut self,
        relay: &mut Relay,
        pool: usize,
        asker: Asker,
        parts: Vec<Part>,
        collected: Collected,
        mark: Mark,
    ) {
        let node = |part: &Part| relay.primary_of(collected.layout.slot(part.shard), asker.client);
        let nodes: Vec<NodeId> = parts.iter().map(node).collect();
        let id = &collected.layout.id;
        let written = parts.iter().enumerate().filter(|(at, _)| collected.writes(*at));
        let written = written.map(|(_, part)| part.shard);
        self.note_shard_writes(&collected.key, id, written);
        let parts = parts.into_iter().map(|part| part.bytes);
        let questions: Vec<_> = nodes.into_iter().zip(parts).collect();
        let inquiry = Inquiry::Splitting(splitting::Inquiry::Shards(collected));
        self.ask(relay, pool, asker, &questions, inquiry, mark);
    }

    /// All shards have answered.
    pub(in crate::hot) fn collected(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        mut collected: Collected,
        mark: Mark,
        mut replies: Vec<Vec<u8>>,
    ) {
        if let Some(reply) = collected.made.take() {
            return self.marker_arrived(relay, asker, collected, mark, &reply, &replies);
        }
        if collected.asked_names != AskedNames::Live {
            // A shard that was asked too late by one name has the other by then.
            let is_sealed = |(live, _): &(Vec<u8>, Vec<u8>)| live.starts_with(WRONG_TYPE);
            let mut pairs = replies.into_iter();
            let pairs = std::iter::from_fn(|| Some((pairs.next()?, pairs.next()?)));
            let pairs: Vec<_> = pairs.collect();
            if pairs.iter().any(is_sealed) {
                collected.asked_names = AskedNames::BothFoundSealed;
            }
            let told = |pair| if is_sealed(&pair) { pair.1 } else { pair.0 };
            replies = pairs.into_iter().map(told).collect();
        }
        if let Some((batch, step)) = collected.batch {
            return self.batch_collected(relay, batch, step, collected, &replies);
        }
        if let Some((fenced, step)) = collected.fenced.take_if(|(_, step)| step.is_some()) {
            let step = step.unwrap_or_default();
            return self.fenced_step_collected(relay, *fenced, step, &collected, &replies);
        }
        if replies.iter().any(|reply| reply.starts_with(WRONG_TYPE)) {
            return self.refused_by_shards(relay, asker, collected, mark, &replies);
        }
        let merge = std::mem::replace(&mut collected.merge, Merge::first());
        let (layout, resp3) = (&collected.layout, collected.resp3);
        let by_both_names = collected.asked_names != AskedNames::Live;
        let context = Context { layout, names: Names::Live, resp3, turn: 0, stamp: 0 };
        // A shard may be sealed from one round to the next: each asks by both names again.
        let again = (by_both_names && merge.asks_again()).then(|| {
            let context = Context { names: Names::Sealed, ..context };
            plan::merge(&context, merge.clone(), &replies)
        });
        match plan::merge(&context, merge, &replies) {
            Merged::Reply(reply) if collected.asked_names == AskedNames::BothFoundSealed => {
                self.ask_marker(relay, asker, Collected { made: Some(reply), ..collected }, mark);
            }
            Merged::Reply(reply) => relay.answer_collected(asker, collected, mark, &reply),
            Merged::More { parts, merge } => {
                let parts = match again {
                    Some(Merged::More { parts: sealed, .. }) => side_by_side(parts, sealed),
                    _ => parts,
                };
                let collected = Collected { merge, ..collected };
                self.ask_parts(relay, asker, parts, collected, mark);
            }
        }
    }

    /// Sealed shards were read: was the value still there?
    fn ask_marker(&mut self, relay: &mut Relay, asker: Asker, collected: Collected, mark: Mark) {
        if relay.clients.pool_of(asker).is_none() {
            return relay.routing().give_up(mark);
        }
        let Collected { key, layout, .. } = &collected;
        let question = (relay.node_of(key), moving::read_fence(layout.kind, key));
        let inquiry = Inquiry::Splitting(splitting::Inquiry::Shards(collected));
        self.ask(relay, relay.upstream.base_pool, asker, &[question], inquiry, mark);
    }

    fn marker_arrived(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        collected: Collected,
        mark: Mark,
        reply: &[u8],
        replies: &[Vec<u8>],
    ) {
        let Some(marker) = replies.first() else { return };
        if moving::is_fence(marker, &collected.layout.id) {
            relay.answer_collected(asker, collected, mark, reply);
        } else if is_error(marker) && !marker.starts_with(WRONG_TYPE) {
            relay.end_collected(asker, collected, mark, marker);
        } else {
            self.refused_by_shards(relay, asker, collected, mark, replies);
        }
    }

    /// This worker is behind: the shards are sealed, or some of them. What was not executed goes
    /// where the value is, once that is known.
    fn refused_by_shards(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        mut collected: Collected,
        mark: Mark,
        replies: &[Vec<u8>],
    ) {
        if !collected.is_refused(replies) {
            return relay.end_collected(asker, collected, mark, &error_line(PARTLY));
        }
        let before = collected.fenced.take().map(|(fenced, _)| *fenced);
        match before.or_else(|| relay.fence_collected(asker, &mut collected)) {
            Some(fenced) => {
                relay.routing().give_up(mark);
                self.refused_again(relay, fenced, &collected.layout.id);
            }
            None => relay.end_collected(asker, collected, mark, &error_line(MOVING)),
        }
    }

    /// An increment that had been refused is done, or not.
    fn fenced_step_collected(
        &mut self,
        relay: &mut Relay,
        fenced: Fenced,
        step: usize,
        collected: &Collected,
        replies: &[Vec<u8>],
    ) {
        match replies.get(step) {
            Some(dedicated) if dedicated.starts_with(WRONG_TYPE) => {
                self.refused_again(relay, fenced, &collected.layout.id);
            }
            Some(dedicated) if dedicated.starts_with(b"-") => relay.end_fenced(&fenced, dedicated),
            _ => {
                let sum = relay.sum_of(collected, replies);
                relay.end_fenced(&fenced, &sum.unwrap_or_else(|| error_line(NO_SUM)));
            }
        }
    }

    /// Sends increments that were combined to one shard, and asks the others: their sum is the
    /// reply. False if the key is not split, as it never is in another database.
    pub(in crate::hot) fn step_split(
        &mut self,
        relay: &mut Relay,
        id: u32,
        name: &[u8],
        bytes: &[u8],
        pool: usize,
    ) -> bool {
        if !relay.is_pool_in_database(pool) {
            return false;
        }
        let (Splitting::Split(layout) | Splitting::Draining(layout)) = (match self.keys.split(name)
        {
            Some(splitting) => splitting.clone(),
            None => return false,
        }) else {
            return false;
        };
        let Some(args) = spans(bytes) else { return false };
        let args: Vec<&[u8]> = args.iter().map(|span| &bytes[span.clone()]).collect();
        let turn = self.turn();
        let context = Context { layout: &layout, names: Names::Live, resp3: false, turn, stamp: 0 };
        let Plan::Many { parts, merge } = plan::plan(&context, &args) else {
            // A sum that is too large for a shard, or a `SET` that waited while the key was split.
            relay.shared.split_mailbox.want_whole(name, "a change that no shard takes");
            self.batch_lost(relay, id, &error_line(MOVING));
            return true;
        };
        let step = parts.iter().position(|part| part.shard == turn % layout.len()).unwrap_or(0);
        let asker = Asker { client: ClientKey::NOBODY, place: 0 };
        let collected = Collected::new(relay.now, name, &layout, merge, false, false);
        let collected = Collected { batch: Some((id, step)), ..collected.of_request(bytes) };
        self.ask_parts_along(relay, pool, asker, parts, collected, Mark::Nothing);
        true
    }

    /// Increments are done, or not: the part that carries them out decides.
    fn batch_collected(
        &mut self,
        relay: &mut Relay,
        batch: u32,
        step: usize,
        mut collected: Collected,
        replies: &[Vec<u8>],
    ) {
        let Some(dedicated) = replies.get(step) else { return };
        if dedicated.starts_with(WRONG_TYPE) {
            let request = std::mem::take(&mut collected.request);
            let Some((way, until)) = self.patience_with(relay.now, batch) else {
                return;
            };
            let ticket = Ticket::internal(Purpose::Combined(batch));
            let fenced = Fenced::at_shards(ticket, way, collected.key, request, relay.now, until);
            return self.refused_again(relay, fenced, &collected.layout.id);
        }
        if dedicated.starts_with(b"-") {
            return self.batch_arrived(relay, batch, dedicated);
        }
        match relay.sum_of(&collected, replies) {
            Some(sum) => self.batch_arrived(relay, batch, &sum),
            None => self.batch_lost(relay, batch, &error_line(NO_SUM)),
        }
    }
}

impl Relay {
    fn answer_collected(&mut self, asker: Asker, collected: Collected, mark: Mark, reply: &[u8]) {
        let took = self.now.saturating_duration_since(collected.begun);
        self.shared.split_mailbox.collected(took);
        self.end_collected(asker, collected, mark, reply);
    }

    fn end_collected(&mut self, asker: Asker, collected: Collected, mark: Mark, reply: &[u8]) {
        match collected.fenced {
            Some((fenced, _)) => self.end_fenced(&fenced, reply),
            None => self.end_collecting(asker, collected.alone, mark, reply),
        }
    }

    /// What shards have refused, if it may be sent again. Its client sends nothing from now on.
    fn fence_collected(&mut self, asker: Asker, collected: &mut Collected) -> Option<Fenced> {
        let client = self.clients.get(asker.client)?;
        let is_last = collected.alone || client.hot.asked_shards == collected.asked;
        if collected.request.is_empty() || !is_last {
            return None;
        }
        client.retrying += u32::from(!collected.alone);
        let pool = client.pool;
        let purpose = Purpose::Redirect(asker.place);
        let ticket = Ticket { client: asker.client, seq: 0, purpose };
        let (key, request) = (collected.key.clone(), std::mem::take(&mut collected.request));
        let way = (pool, self.upstream.pools[pool].serial);
        Some(Fenced::at_shards(ticket, way, key, request, self.now, self.now + PATIENCE))
    }

    /// The value of a counter after an increment, if all shards have answered.
    fn sum_of(&self, collected: &Collected, replies: &[Vec<u8>]) -> Option<Vec<u8>> {
        let Collected { key, layout, merge, begun, .. } = collected;
        self.shared.split_mailbox.collected(self.now.saturating_duration_since(*begun));
        let context = Context { layout, names: Names::Live, resp3: false, turn: 0, stamp: 0 };
        match plan::merge(&context, merge.clone(), replies) {
            Merged::Reply(reply) if reply.starts_with(b":") => {
                if plan::counter_is_near_overflow(replies) {
                    self.shared.split_mailbox.want_whole(key, "a counter near its limit");
                }
                Some(reply)
            }
            _ => None,
        }
    }

    pub(super) fn end_collecting(&mut self, asker: Asker, alone: bool, mark: Mark, reply: &[u8]) {
        if alone && let Some(client) = self.clients.get(asker.client) {
            client.retrying -= 1;
            if client.retrying == 0 {
                self.clients.resume.push(asker.client);
            }
        }
        self.routing().tell(asker, mark, reply);
    }
}

impl Clients {
    /// The pool of a client that is still there.
    pub(in crate::hot) fn pool_of(&self, asker: Asker) -> Option<usize> {
        self.get_ref(asker.client).map(|client| client.pool)
    }
}
