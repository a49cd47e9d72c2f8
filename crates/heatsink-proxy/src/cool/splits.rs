//! Split keys: their commands go to the shards, or wait until the value has been moved.
//!
//! Called by: `cool` with requests on the usual way, `intake` with all others; `fan_out` with
//! what the shards have answered.
//! Bound: a client that waits sends nothing more, and waits [`PATIENCE`] at most.
//! Invariant: what stands in the marker's or a tombstone's place was never executed: the server
//! refuses commands of the key's type there. So a worker that is behind may be wrong about where
//! a value is, but never loses a write or reads an old value; see decision 15.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_cache::combine::Change;
use heatsink_cluster::join::Join;
use heatsink_resp::command::{Access, Command, Role};
use heatsink_split::Layout;
use heatsink_split::layout::{Kind, Names};
use heatsink_split::plan::{self, Context, Merge, Merged, Part, Plan};
use heatsink_upstream::Protocol;

use super::Cooling;
use crate::clients::{MAX_OUTSTANDING, error_line};
use crate::cluster::fan_out::{Asker, Ending};
use crate::connection::ClientKey;
use crate::intake::Flow;
use crate::nodes::NodeId;
use crate::observe::Mark;
use crate::request::{Request, only_key, spans};
use crate::splits::Splitting;
use crate::worker::Worker;

/// How long a client waits for a value that is moved.
const PATIENCE: Duration = Duration::from_secs(5);
/// Writes of a key that freezes go on as usual after this time: whoever wanted to move it has
/// given up, or finds that it was written to.
const FREEZE: Duration = Duration::from_secs(1);
/// Larger increments are left to the plain key: a sum of shards must not go where one counter
/// could not.
const LARGEST_STEP: u64 = 1 << 40;
/// A counter beyond this is made whole.
const LARGEST_SUM: u64 = 1 << 62;
/// What a server says to a command for another type: the value has been moved.
const WRONG_TYPE: &[u8] = b"-WRONGTYPE ";
/// What a client is told whose command nobody has executed.
const MOVING: &str = "TRYAGAIN heatsink: the value of this key is being moved; nothing was done";

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
    /// The increments that it answers, and which part carries them out.
    batch: Option<(u32, usize)>,
    /// When the shards were asked.
    begun: Instant,
}

impl Collected {
    fn new(
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
            batch: None,
        }
    }
}

/// A read of a key that is about to be split, sent to the key itself.
#[derive(Debug)]
pub(crate) struct FrozenRead {
    key: Vec<u8>,
    request: Vec<u8>,
}

/// A read that came too late for the key itself.
#[derive(Debug)]
pub(super) struct Parked {
    asker: Asker,
    mark: Mark,
    read: FrozenRead,
    since: Instant,
}

impl Cooling {
    /// Writes of keys that are held are under way all the same: they were taken before.
    pub(super) fn combines_held(&self) -> bool {
        let held = |splitting: &Splitting| !matches!(splitting, Splitting::Split(_));
        !self.batches.is_empty()
            && self.hot.splits().any(|(key, how)| held(how) && self.batches.concerns(key))
    }

    /// Whether the value of a key lies elsewhere, too.
    pub(crate) fn has_moved(&self, name: &[u8]) -> bool {
        self.hot.split(name).is_some() || self.hot.copies(name).is_some()
    }

    /// Whether anybody waits for a value that is moved, or for copies of one.
    pub(super) fn holds(&self) -> bool {
        !(self.held_clients.is_empty() && self.parked.is_empty() && self.unremoved.is_empty())
    }

    /// Notes since when keys are frozen.
    pub(super) fn note_frozen(&mut self, now: Instant) {
        let hot = &self.hot;
        let freezes = |key: &[u8]| hot.split(key) == Some(&Splitting::Freezing);
        self.frozen.retain(|key, _| freezes(key));
        for (key, _) in hot.splits().filter(|(key, _)| freezes(key)) {
            self.frozen.entry(key.to_vec()).or_insert(now);
        }
    }

    fn turn(&mut self) -> usize {
        self.turns = self.turns.wrapping_add(1);
        self.turns
    }

    /// Grows from call to call by more than a call uses, and with the time of day.
    fn stamp(&mut self) -> u64 {
        let micros = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |time| time.as_micros() as u64);
        self.last_stamp = micros.max(self.last_stamp + (1 << 20));
        self.last_stamp
    }
}

impl Worker {
    /// A request on the usual way that names a split key; `None` if it goes on as usual.
    pub(super) fn serve_split(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Option<Flow> {
        if !self.is_in_database(key) {
            return None;
        }
        let Some(name) = only_key(command, request).and_then(|index| request.arg(index)) else {
            return self.make_whole(key, request, command);
        };
        let splitting = self.cooling.hot.split(name)?.clone();
        let reads = command.access == Access::Read;
        match splitting {
            Splitting::Freezing if reads => self.read_frozen(key, request, command, name),
            Splitting::Freezing => {
                let since = self.cooling.frozen.get(name).copied().unwrap_or(self.now);
                if self.now.saturating_duration_since(since) > FREEZE {
                    return None;
                }
                Some(self.hold(key))
            }
            Splitting::Split(_) | Splitting::Draining(_) if !self.is_believed() => {
                Some(self.hold(key))
            }
            Splitting::Draining(_) if !reads => Some(self.hold(key)),
            Splitting::Draining(layout) => {
                Some(self.ask_shards(key, request, command, name, &layout, Names::Sealed))
            }
            Splitting::Split(layout) => {
                Some(self.ask_shards(key, request, command, name, &layout, Names::Live))
            }
        }
    }

    /// A request that does not go the usual way, or names several keys: those of them that are
    /// split have to be made whole first.
    pub(crate) fn make_whole(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Option<Flow> {
        if !self.cooling.hot.has_moved() || !self.is_in_database(key) {
            return None;
        }
        let client = self.clients.get_ref(key)?;
        if client.within {
            return None;
        }
        let queueing = client.is_queueing();
        let writes = command.access == Access::Write;
        let (mut waits, mut overtakes) = (false, false);
        let mut look = |name: &[u8]| match self.cooling.hot.split(name) {
            Some(Splitting::Freezing) => waits |= writes && !queueing,
            Some(Splitting::Split(_) | Splitting::Draining(_)) => {
                waits = true;
                self.shared.desk.want_whole(name, &command.name);
            }
            // It may be sent to the key later than what is asked now.
            None if client.copy_reads > 0 && self.cooling.hot.copies(name).is_some() => {
                overtakes = true;
            }
            // Whoever writes in an unusual way removes no copies.
            None if writes && self.cooling.hot.copies(name).is_some() => {
                waits = true;
                self.shared.desk.want_whole(name, &command.name);
            }
            None => {}
        };
        let arg = |index| request.arg(index).unwrap_or_default();
        command.for_each_key(request.len(), arg, |index| look(arg(index)));
        if command.role == Role::Exec
            && let Some(queued) = &client.queued_keys
        {
            queued.for_each(|name, _, _, _| look(name));
        }
        if overtakes {
            return Some(Flow::Wait);
        }
        waits.then(|| self.hold(key))
    }

    /// Whether the client uses the database whose keys are split.
    pub(super) fn is_in_database(&self, key: ClientKey) -> bool {
        let lane = self.clients.get_ref(key).map(|client| &self.lanes[client.lane].login);
        lane.is_some_and(|login| login.db == self.shared.base_login.db)
    }

    /// What is known of split keys may be relied on.
    fn is_believed(&self) -> bool {
        self.now <= self.shared.desk.believed_until()
    }

    /// The client goes on when the value has been moved. If that takes too long, it is told so.
    fn hold(&mut self, key: ClientKey) -> Flow {
        let now = self.now;
        let Some(client) = self.clients.get(key) else { return Flow::Taken };
        let asked = client.order.asked();
        let held = client.held_since.filter(|(_, before)| *before == asked);
        let (since, _) = *client.held_since.insert(held.unwrap_or((now, asked)));
        if now.saturating_duration_since(since) > PATIENCE {
            client.held_since = None;
            self.clients.error(key, MOVING);
            return Flow::Taken;
        }
        self.cooling.held_clients.push(key);
        Flow::Wait
    }

    /// Other keys are hot, or their values have been moved: whoever waited for that goes on.
    pub(super) fn release_held(&mut self) {
        self.clients.resume.append(&mut self.cooling.held_clients);
        for parked in std::mem::take(&mut self.cooling.parked) {
            self.read_again(parked);
        }
    }

    /// Whoever waits looks again now and then: what is known may be believed again, and time
    /// passes.
    pub(super) fn look_at_held(&mut self) {
        self.clients.resume.append(&mut self.cooling.held_clients);
        let late = |parked: &Parked| self.now.saturating_duration_since(parked.since) > PATIENCE;
        if self.cooling.parked.iter().any(late) {
            for parked in std::mem::take(&mut self.cooling.parked) {
                self.end_read(parked.asker, parked.mark, &error_line(MOVING));
            }
        }
    }

    fn ask_shards(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
        name: &[u8],
        layout: &Arc<Layout>,
        names: Names,
    ) -> Flow {
        let Some(client) = self.clients.get_ref(key) else { return Flow::Taken };
        if client.awaits_hot() && !is_step(layout, request) {
            return Flow::Wait;
        }
        let login = &self.lanes[client.lane].login;
        if login.credentials != self.shared.base_login.credentials {
            // Its rights are those on the key; nobody knows what they would be on a shard.
            self.shared.desk.want_whole(name, "a client with a user of its own");
            return self.hold(key);
        }
        if client.order.outstanding() >= MAX_OUTSTANDING {
            return Flow::Wait;
        }
        let resp3 = login.protocol == Protocol::Resp3;
        if let Some(flow) = self.without_map(key) {
            return flow;
        }
        if is_step(layout, request)
            && names == Names::Live
            && let Some(flow) = self.serve_change(key, request, command)
        {
            return flow;
        }
        if is_about_time(&command.name) && (layout.expires || is_never_empty(layout.kind)) {
            // The marker has it.
            return self.forward_marker(key, request, command);
        }
        let args: Vec<&[u8]> = request.args_from(0).collect();
        let turn = self.cooling.turn();
        let stamp = if layout.kind == Kind::List { self.cooling.stamp() } else { 0 };
        let context = Context { layout, names: Names::Live, resp3, turn, stamp };
        let plan = plan::plan(&context, &args);
        let asked = !matches!(plan, Plan::Whole);
        if asked && let Some(client) = self.clients.get(key) {
            client.held_since = None;
        }
        match (plan, names) {
            (Plan::Whole, _) => {
                self.shared.desk.want_whole(name, &command.name);
                self.hold(key)
            }
            (Plan::Answer(reply), _) => {
                let mark = self.observe(key, command, request);
                self.give_up(mark);
                self.clients.reply(key, &reply);
                Flow::Taken
            }
            (Plan::One(part), Names::Live) => {
                let mark = self.observe(key, command, request);
                let node = self.primary_of(layout.slot(part.shard), key);
                self.send_on(key, node, &part.bytes, &[mark]);
                Flow::Taken
            }
            (Plan::One(part), Names::Sealed) => {
                let merge = Merge::first();
                let mark = self.observe(key, command, request);
                let context = Context { names, ..context };
                let sealed = plan::plan(&context, &args);
                let parts = pair(vec![part], sealed);
                let sealed = names == Names::Sealed;
                let collected = Collected::new(self.now, name, layout, merge, resp3, sealed);
                self.collect(key, collected, parts, mark);
                Flow::Taken
            }
            // The value would be looked for at both names in each round.
            (Plan::Many { merge, .. }, Names::Sealed) if merge.asks_again() => self.hold(key),
            (Plan::Many { parts, merge }, _) => {
                let mark = self.observe(key, command, request);
                let context = Context { names, ..context };
                let parts = match names {
                    Names::Live => parts,
                    Names::Sealed => pair(parts, plan::plan(&context, &args)),
                };
                let sealed = names == Names::Sealed;
                let collected = Collected::new(self.now, name, layout, merge, resp3, sealed);
                self.collect(key, collected, parts, mark);
                Flow::Taken
            }
        }
    }

    /// Asks shards, and has their replies merged for a client.
    fn collect(&mut self, key: ClientKey, collected: Collected, parts: Vec<Part>, mark: Mark) {
        let Some((client, pool)) = self.clients.get_with_pool(key) else { return };
        let place = client.order.reserve(pool);
        client.retrying += u32::from(collected.alone);
        let asker = Asker { client: key, place };
        self.ask_parts(asker, parts, collected, mark);
        self.stop_if_many(key);
    }

    /// The lane of a client that is still there.
    fn lane_of(&self, asker: Asker) -> Option<usize> {
        self.clients.get_ref(asker.client).map(|client| client.lane)
    }

    fn ask_parts(&mut self, asker: Asker, parts: Vec<Part>, collected: Collected, mark: Mark) {
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
        collected: Collected,
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
            return self.batch_collected(batch, step, collected, &replies);
        }
        if replies.iter().any(|reply| reply.starts_with(WRONG_TYPE)) {
            // This worker is behind: the shards are sealed.
            return self.end_collecting(asker, collected.alone, mark, &error_line(MOVING));
        }
        let Collected { key, layout, merge, resp3, sealed, alone, begun, .. } = collected;
        let names = if sealed { Names::Sealed } else { Names::Live };
        let context = Context { layout: &layout, names, resp3, turn: 0, stamp: 0 };
        match plan::merge(&context, merge, &replies) {
            Merged::Reply(reply) => {
                self.shared.desk.collected(self.now.saturating_duration_since(begun));
                self.end_collecting(asker, alone, mark, &reply);
            }
            Merged::More { parts, merge } => {
                let collected = Collected {
                    key,
                    layout,
                    merge,
                    resp3,
                    sealed: false,
                    alone,
                    batch: None,
                    begun,
                };
                self.ask_parts(asker, parts, collected, mark);
            }
        }
    }

    fn end_collecting(&mut self, asker: Asker, alone: bool, mark: Mark, reply: &[u8]) {
        if alone && let Some(client) = self.clients.get(asker.client) {
            client.retrying -= 1;
            if client.retrying == 0 {
                self.clients.resume.push(asker.client);
            }
        }
        self.end_read(asker, mark, reply);
    }

    pub(super) fn end_read(&mut self, asker: Asker, mark: Mark, reply: &[u8]) {
        if let Some(observer) = &mut self.observer {
            observer.answered(mark, reply, 0);
        }
        self.clients.fill(asker.client, asker.place, reply);
    }

    /// Sends increments that were combined to one shard, and asks the others: their sum is the
    /// reply. False if the key is not split.
    pub(super) fn step_split(&mut self, id: u32, name: &[u8], bytes: &[u8], lane: usize) -> bool {
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
        let Plan::Many { parts, merge } = plan::plan(&context, &args) else { return false };
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
        collected: Collected,
        replies: &[Vec<u8>],
    ) {
        let Some(own) = replies.get(step) else { return };
        if own.starts_with(WRONG_TYPE) {
            return self.batch_lost(batch, &error_line(MOVING));
        }
        if own.starts_with(b"-") {
            return self.batch_arrived(batch, own);
        }
        let Collected { key, layout, merge, begun, .. } = collected;
        self.shared.desk.collected(self.now.saturating_duration_since(begun));
        let context =
            Context { layout: &layout, names: Names::Live, resp3: false, turn: 0, stamp: 0 };
        let sum = match plan::merge(&context, merge, replies) {
            Merged::Reply(reply) if reply.starts_with(b":") => reply,
            _ => {
                let text = "ERR heatsink: the increment was carried out, but the sum is not known: \
                            a shard of the counter could not be read";
                return self.batch_lost(batch, &error_line(text));
            }
        };
        let digits = sum.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
        let value = digits.and_then(heatsink_cache::combine::integer);
        if value.is_some_and(|value| value.unsigned_abs() > LARGEST_SUM) {
            self.shared.desk.want_whole(&key, "a counter near its limit");
        }
        self.batch_arrived(batch, &sum);
    }

    /// A question that the marker can answer.
    fn forward_marker(&mut self, key: ClientKey, request: Request<'_>, command: &Command) -> Flow {
        if self.cluster.is_some() {
            return self.forward_clustered(key, request, command);
        }
        let mark = self.observe(key, command, request);
        self.send_on(key, NodeId::FIRST, request.bytes, &[mark]);
        Flow::Taken
    }

    /// A read of a key that is about to be split goes to the key. If the value was moved before it
    /// came there, it is read from the shards as soon as it is known where they are.
    fn read_frozen(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
        name: &[u8],
    ) -> Option<Flow> {
        let client = self.clients.get_ref(key)?;
        if client.awaits_hot() || client.order.outstanding() >= MAX_OUTSTANDING {
            return Some(Flow::Wait);
        }
        if let Some(flow) = self.without_map(key) {
            return Some(flow);
        }
        let mark = self.observe(key, command, request);
        let (client, pool) = self.clients.get_with_pool(key)?;
        client.held_since = None;
        let place = client.order.reserve(pool);
        let asker = Asker { client: key, place };
        let read = FrozenRead { key: name.to_vec(), request: request.bytes.to_vec() };
        self.ask_key(asker, read, mark);
        Some(Flow::Taken)
    }

    fn ask_key(&mut self, asker: Asker, read: FrozenRead, mark: Mark) {
        let Some(lane) = self.lane_of(asker) else { return self.give_up(mark) };
        let question = [(self.node_of(&read.key), read.request.clone())];
        self.ask_several(lane, asker, &question, Ending::Frozen(Box::new(read)), mark);
    }

    /// The key itself has answered.
    pub(crate) fn frozen_read(&mut self, asker: Asker, read: FrozenRead, mark: Mark, reply: &[u8]) {
        if !reply.starts_with(WRONG_TYPE) {
            return self.end_read(asker, mark, reply);
        }
        let parked = Parked { asker, mark, read, since: self.now };
        match self.cooling.hot.split(&parked.read.key) {
            Some(Splitting::Freezing) => self.cooling.parked.push(parked),
            _ => self.read_again(parked),
        }
    }

    /// The value has been moved, or was not: the read goes where it is now.
    fn read_again(&mut self, parked: Parked) {
        let layout = match self.cooling.hot.split(&parked.read.key) {
            Some(Splitting::Split(layout)) => Arc::clone(layout),
            Some(Splitting::Freezing) => return self.cooling.parked.push(parked),
            _ => return self.end_with_key(parked.asker, parked.read, parked.mark),
        };
        let Parked { asker, mark, read, .. } = parked;
        let FrozenRead { key, request } = &read;
        let Some(lane) = self.lane_of(asker) else { return self.give_up(mark) };
        let resp3 = self.lanes[lane].login.protocol == Protocol::Resp3;
        let Some(args) = spans(request) else { return };
        let args: Vec<&[u8]> = args.iter().map(|span| &request[span.clone()]).collect();
        let context = Context { layout: &layout, names: Names::Live, resp3, turn: 0, stamp: 0 };
        let (parts, merge) = match plan::plan(&context, &args) {
            Plan::Many { parts, merge } => (parts, merge),
            Plan::One(part) => (vec![part], Merge::first()),
            Plan::Answer(reply) => return self.end_read(asker, mark, &reply),
            // A command for another type: the marker refuses it as the value would.
            Plan::Whole => return self.end_with_key(asker, read, mark),
        };
        let collected = Collected::new(self.now, key, &layout, merge, resp3, false);
        // What its client has sent meanwhile is no write: those are held.
        self.ask_parts(asker, parts, Collected { alone: false, ..collected }, mark);
    }

    /// Whatever the key itself says is the answer.
    fn end_with_key(&mut self, asker: Asker, read: FrozenRead, mark: Mark) {
        let Some(lane) = self.lane_of(asker) else { return self.give_up(mark) };
        let question = [(self.node_of(&read.key), read.request)];
        self.ask_several(lane, asker, &question, Ending::Join(Join::First), mark);
    }
}

/// The two questions to each shard next to each other.
fn pair(live: Vec<Part>, sealed: Plan) -> Vec<Part> {
    let sealed = match sealed {
        Plan::One(part) => vec![part],
        Plan::Many { parts, .. } => parts,
        Plan::Answer(_) | Plan::Whole => Vec::new(),
    };
    debug_assert_eq!(live.len(), sealed.len());
    live.into_iter().zip(sealed).flat_map(|(live, sealed)| [live, sealed]).collect()
}

/// An increment that can be combined with others.
fn is_step(layout: &Layout, request: Request<'_>) -> bool {
    if layout.kind != Kind::Counter || request.len() > 3 {
        return false;
    }
    let args: Vec<&[u8]> = request.args_from(0).collect();
    let change = Change::parse(&args).filter(|change| !change.is_guarded());
    match change {
        Some(Change::Add { field: None, delta, .. }) => delta.unsigned_abs() <= LARGEST_STEP,
        _ => false,
    }
}

fn is_about_time(name: &str) -> bool {
    matches!(name, "ttl" | "pttl" | "expiretime" | "pexpiretime")
}

fn is_never_empty(kind: Kind) -> bool {
    matches!(kind, Kind::Counter | Kind::HyperLogLog)
}
