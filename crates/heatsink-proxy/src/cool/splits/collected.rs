//! What shards answer, made one reply.
//!
//! Called by: `splits` with what is to be asked, `fan_out` with the answers, `combine` with
//! increments of a split counter.

use std::sync::Arc;
use std::time::Instant;

use heatsink_cluster::frame::is_error;
use heatsink_resp::command::Access;
use heatsink_split::Layout;
use heatsink_split::layout::Names;
use heatsink_split::plan::{self, Context, Merge, Merged, Part, Plan};

use super::fenced::Fenced;
use super::{MOVING, WRONG_TYPE, side_by_side};
use crate::clients::error_line;
use crate::cluster::fan_out::{Asker, Ending};
use crate::connection::ClientKey;
use crate::nodes::NodeId;
use crate::observe::Mark;
use crate::request::spans;
use crate::splits::Splitting;
use crate::worker::Worker;

/// What is said of an increment if other shards could not be read.
const NO_SUM: &str = "ERR heatsink: the increment was carried out, but the sum is not known: \
                      a shard of the counter could not be read";

/// What is said of a command if only some of its shards have refused it.
const PARTLY: &str = "ERR heatsink: the value of this key is being moved; \
                      the command may have been carried out in part";

/// What is made of the shards' replies.
#[derive(Debug)]
pub(crate) struct Collected {
    key: Vec<u8>,
    layout: Arc<Layout>,
    merge: Merge,
    resp3: bool,
    /// Each shard was asked by both its names.
    sealed: bool,
    /// Nothing else of the client is sent meanwhile.
    alone: bool,
    /// Whether parts may change something.
    access: Access,
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
        sealed: bool,
    ) -> Self {
        Self {
            begun,
            key: key.to_vec(),
            layout: Arc::clone(layout),
            alone: merge.asks_again(),
            merge,
            resp3,
            sealed,
            access: Access::Read,
            batch: None,
            fenced: None,
        }
    }

    /// The same for a command that may change something.
    pub(super) fn with_access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// The same for a command that was refused before.
    pub(super) fn of_fenced(self, fenced: Fenced, step: Option<usize>) -> Self {
        Self { fenced: Some((Box::new(fenced), step)), ..self }
    }

    /// The same for a client that is known to send nothing else meanwhile, or may go on.
    pub(super) fn with_alone(self, alone: bool) -> Self {
        Self { alone, ..self }
    }
}

impl Worker {
    /// Asks shards, and has their replies merged for a client.
    pub(super) fn collect(
        &mut self,
        key: ClientKey,
        collected: Collected,
        parts: Vec<Part>,
        mark: Mark,
    ) {
        let Some((client, pool)) = self.clients.get_with_pool(key) else { return };
        let place = client.order.reserve(pool);
        client.retrying += u32::from(collected.alone);
        let asker = Asker { client: key, place };
        self.ask_parts(asker, parts, collected, mark);
        self.stop_if_many(key);
    }

    /// The lane of a client that is still there.
    pub(super) fn lane_of(&self, asker: Asker) -> Option<usize> {
        self.clients.get_ref(asker.client).map(|client| client.lane)
    }

    pub(super) fn ask_parts(
        &mut self,
        asker: Asker,
        parts: Vec<Part>,
        collected: Collected,
        mark: Mark,
    ) {
        let Some(lane) = self.lane_of(asker) else { return self.give_up(mark) };
        self.ask_parts_along(lane, asker, parts, collected, mark);
    }

    fn ask_parts_along(
        &mut self,
        lane: usize,
        asker: Asker,
        parts: Vec<Part>,
        collected: Collected,
        mark: Mark,
    ) {
        let node = |part: &Part| self.primary_of(collected.layout.slot(part.shard), asker.client);
        let nodes: Vec<NodeId> = parts.iter().map(node).collect();
        let parts = parts.into_iter().map(|part| part.bytes);
        let questions: Vec<_> = nodes.into_iter().zip(parts).collect();
        self.ask_several(lane, asker, &questions, Ending::Collected(Box::new(collected)), mark);
    }

    /// All shards have answered.
    pub(crate) fn collected(
        &mut self,
        asker: Asker,
        mut collected: Collected,
        mark: Mark,
        mut replies: Vec<Vec<u8>>,
    ) {
        if collected.sealed {
            // A shard that was asked too late by one name has the other by then.
            let mut pairs = replies.into_iter();
            replies = std::iter::from_fn(|| Some((pairs.next()?, pairs.next()?)))
                .map(|(live, sealed)| if live.starts_with(WRONG_TYPE) { sealed } else { live })
                .collect();
        }
        if let Some((batch, step)) = collected.batch {
            return self.batch_collected(batch, step, &collected, &replies);
        }
        if let Some((fenced, step)) = collected.fenced.take_if(|(_, step)| step.is_some()) {
            let step = step.unwrap_or_default();
            return self.fenced_step_collected(*fenced, step, &collected, &replies);
        }
        if replies.iter().any(|reply| reply.starts_with(WRONG_TYPE)) {
            // This worker is behind: the shards are sealed, or some of them.
            let is_done =
                collected.access != Access::Read && replies.iter().any(|reply| !is_error(reply));
            let text = if is_done { PARTLY } else { MOVING };
            return self.end_collected(asker, collected, mark, &error_line(text));
        }
        let Collected { key, layout, merge, resp3, sealed, alone, access, begun, fenced, .. } =
            collected;
        let context = Context { layout: &layout, names: Names::Live, resp3, turn: 0, stamp: 0 };
        // A shard may be sealed from one round to the next: each asks by both names again.
        let again = (sealed && merge.asks_again()).then(|| {
            let context = Context { names: Names::Sealed, ..context };
            plan::merge(&context, merge.clone(), &replies)
        });
        match plan::merge(&context, merge, &replies) {
            Merged::Reply(reply) => {
                self.shared.desk.collected(self.now.saturating_duration_since(begun));
                match fenced {
                    Some((fenced, _)) => self.end_fenced(&fenced, &reply),
                    None => self.end_collecting(asker, alone, mark, &reply),
                }
            }
            Merged::More { parts, merge } => {
                let parts = match again {
                    Some(Merged::More { parts: sealed, .. }) => side_by_side(parts, sealed),
                    _ => parts,
                };
                let batch = None;
                let collected = Collected {
                    key,
                    layout,
                    merge,
                    resp3,
                    sealed,
                    alone,
                    access,
                    batch,
                    fenced,
                    begun,
                };
                self.ask_parts(asker, parts, collected, mark);
            }
        }
    }

    fn end_collected(&mut self, asker: Asker, collected: Collected, mark: Mark, reply: &[u8]) {
        match collected.fenced {
            Some((fenced, _)) => self.end_fenced(&fenced, reply),
            None => self.end_collecting(asker, collected.alone, mark, reply),
        }
    }

    /// An increment that had been refused is done, or not.
    fn fenced_step_collected(
        &mut self,
        fenced: Fenced,
        step: usize,
        collected: &Collected,
        replies: &[Vec<u8>],
    ) {
        match replies.get(step) {
            Some(own) if own.starts_with(WRONG_TYPE) => {
                self.refused_again(fenced, &collected.layout.id);
            }
            Some(own) if own.starts_with(b"-") => self.end_fenced(&fenced, own),
            _ => {
                let sum = self.sum_of(collected, replies);
                self.end_fenced(&fenced, &sum.unwrap_or_else(|| error_line(NO_SUM)));
            }
        }
    }

    /// The value of a counter after an increment, if all shards have answered.
    fn sum_of(&self, collected: &Collected, replies: &[Vec<u8>]) -> Option<Vec<u8>> {
        let Collected { key, layout, merge, begun, .. } = collected;
        self.shared.desk.collected(self.now.saturating_duration_since(*begun));
        let context = Context { layout, names: Names::Live, resp3: false, turn: 0, stamp: 0 };
        match plan::merge(&context, merge.clone(), replies) {
            Merged::Reply(reply) if reply.starts_with(b":") => {
                if plan::counter_is_near_overflow(replies) {
                    self.shared.desk.want_whole(key, "a counter near its limit");
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
        self.end_read(asker, mark, reply);
    }

    pub(in crate::cool) fn end_read(&mut self, asker: Asker, mark: Mark, reply: &[u8]) {
        if let Some(observer) = &mut self.observer {
            observer.answered(&mark, reply, 0);
        }
        self.clients.fill(asker.client, asker.place, reply);
    }

    /// Sends increments that were combined to one shard, and asks the others: their sum is the
    /// reply. False if the key is not split.
    pub(in crate::cool) fn step_split(
        &mut self,
        id: u32,
        name: &[u8],
        bytes: &[u8],
        lane: usize,
    ) -> bool {
        let (Splitting::Split(layout) | Splitting::Draining(layout)) =
            (match self.cooling.hot.split(name) {
                Some(splitting) => splitting.clone(),
                None => return false,
            })
        else {
            return false;
        };
        let Some(args) = spans(bytes) else { return false };
        let args: Vec<&[u8]> = args.iter().map(|span| &bytes[span.clone()]).collect();
        let turn = self.cooling.turn();
        let context = Context { layout: &layout, names: Names::Live, resp3: false, turn, stamp: 0 };
        let Plan::Many { parts, merge } = plan::plan(&context, &args) else {
            // A sum that is too large for a shard, or a `SET` that waited while the key was split.
            self.shared.desk.want_whole(name, "a change that no shard takes");
            self.batch_lost(id, &error_line(MOVING));
            return true;
        };
        let step = parts.iter().position(|part| part.shard == turn % layout.len()).unwrap_or(0);
        let asker = Asker { client: ClientKey::NOBODY, place: 0 };
        let collected = Collected::new(self.now, name, &layout, merge, false, false);
        let collected = Collected { batch: Some((id, step)), ..collected };
        self.ask_parts_along(lane, asker, parts, collected, Mark::Nothing);
        true
    }

    /// Increments are done, or not: the part that carries them out decides.
    fn batch_collected(
        &mut self,
        batch: u32,
        step: usize,
        collected: &Collected,
        replies: &[Vec<u8>],
    ) {
        let Some(own) = replies.get(step) else { return };
        if own.starts_with(WRONG_TYPE) {
            return self.batch_lost(batch, &error_line(MOVING));
        }
        if own.starts_with(b"-") {
            return self.batch_arrived(batch, own);
        }
        match self.sum_of(collected, replies) {
            Some(sum) => self.batch_arrived(batch, &sum),
            None => self.batch_lost(batch, &error_line(NO_SUM)),
        }
    }
}
