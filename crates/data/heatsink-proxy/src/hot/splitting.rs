//! Split keys: their commands go to the shards, or wait until the value has been moved.
//!
//! Called by: `hot` with requests on the usual way, `intake` with all others; `scatter_gather` with
//! what the shards have answered.
//! Bound: a client that waits sends nothing more, and waits [`PATIENCE`] at most.
//! Invariant: what stands in the marker's or a tombstone's place was never executed: the server
//! refuses commands of the key's type there. So a worker that is behind may be wrong about where
//! a value is, and is refused; what is left of that is listed in decision 15. So what would take
//! tombstones away waits for a while if a split has ended of which others could not be told
//! ([`crate::Handle::keep_tombstones`]):
//!
//! ```text
//! worker                              a worker of another process, which is behind
//! the split has ended                 believes in it
//! FLUSHALL at once                    SADD shard x    1, and nobody will ever read it
//! ```

mod fast_path;
mod frozen;
mod gather;
mod pending;
mod refused;
mod write_counts;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use heatsink_cache::combine::Change;
use heatsink_cache::identity::LoginId;
use heatsink_resp::command::{Access, Command, Role, Unnamed, ValueKind};
use heatsink_split::Layout;
use heatsink_split::layout::{Kind, Names};
use heatsink_split::plan::{self, Context, Merge, Part, Plan};
use heatsink_upstream::Protocol;

use super::Mitigations;
use crate::cluster::forward::RENAMED_BYTES;
use crate::cluster::moved_values::{MOVING, PATIENCE};
use crate::downstream::clients::MAX_OUTSTANDING;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::{Flow, Request, only_key, reaches_other_databases};
use crate::hot::Incoming;
use crate::hot::mitigation::{Answers, Mitigation, Verdict};
use crate::relay::Relay;
use crate::splits::Splitting;
use crate::upstream::nodes::NodeId;
pub(crate) use frozen::FrozenRead;
pub(super) use frozen::Parked;
pub(crate) use gather::Collected;
pub(crate) use refused::Fenced;
pub(super) use refused::Past;

/// Writes of a key that freezes go on as usual after this time: whoever wanted to move it has
/// given up, or finds that it was written to.
const FREEZE: Duration = Duration::from_secs(1);
/// Larger increments have the key made whole: a sum of shards must not exceed what one counter can hold.
const LARGEST_STEP: u64 = 1 << 40;
/// So many arguments are looked at without a place made for them.
const FEW_ARGS: usize = 8;
/// What a key is made whole for if the shards may not be asked.
const ANOTHER_USER: &str = "a client with a user of its own";
/// What a key is made whole for if nobody knows which keys are asked for.
const UNKNOWN: &str = "a command that is not known";

/// Requests for keys whose values are moved, or have been.
#[derive(Debug, Default)]
pub(super) struct Splits {
    /// Reads that came to a key after its value had been moved.
    parked: Vec<Parked>,
    /// Commands that were refused because a value had been moved.
    fenced: Vec<Fenced>,
    /// Splits that have ended recently.
    past: Vec<Past>,
    /// Keys that are about to be split, and since when.
    frozen: HashMap<Vec<u8>, Instant, RandomState>,
    /// Counts what may go to any shard.
    turns: usize,
    /// Requests that write which went to each shard of the hot keys, since the others were told.
    shard_writes: Vec<u64>,
    /// Where a request gets the name of a shard; empty otherwise.
    renamed: Vec<u8>,
}

/// What is asked about split keys.
#[derive(Debug)]
pub(super) enum Inquiry {
    /// The shards of one.
    Shards(Collected),
    /// Keys which are about to be split, or how far that is.
    Frozen(FrozenRead),
    /// What stands at the key of a command that was refused, with the refusal.
    Refused(Fenced, Vec<u8>),
}

impl Mitigation for Splits {
    type Inquiry = Inquiry;

    fn on_request(hot: &mut Mitigations, relay: &mut Relay, incoming: Incoming<'_>) -> Verdict {
        let Incoming { request, command, .. } = incoming;
        if request.unnamed(command) != Unnamed::Nothing {
            hot.make_whole(relay, incoming).into()
        } else if hot.keys.has_moved() {
            hot.serve_split(relay, incoming).into()
        } else {
            Verdict::Pass
        }
    }

    fn on_answers(hot: &mut Mitigations, relay: &mut Relay, answers: Answers<Inquiry>) {
        let Answers { inquiry, asker, mark, replies } = answers;
        match inquiry {
            Inquiry::Shards(collected) => {
                hot.collected(relay, asker, collected, mark, replies);
            }
            Inquiry::Frozen(read) => hot.frozen_read(relay, asker, read, mark, &replies),
            Inquiry::Refused(fenced, error) => {
                hot.fence_seen(relay, fenced, &error, &replies);
            }
        }
    }

    fn on_tick(hot: &mut Mitigations, relay: &mut Relay) {
        hot.look_at_held(relay);
    }
}

impl Mitigations {
    /// Writes of keys that are held are under way all the same: they were taken before. `counts`
    /// tells whether a login uses the database whose keys are moved: there is no end to those in
    /// other databases.
    pub(super) fn combines_held(&self, counts: impl Fn(LoginId) -> bool) -> bool {
        let held = |splitting: &Splitting| !matches!(splitting, Splitting::Split(_));
        let held = self.keys.splits().filter(|(_, how)| held(how)).map(|(key, _)| key);
        // Writes of keys that have copies are not combined, but were before.
        !self.combining.batches.is_empty()
            && held
                .chain(self.keys.copied())
                .any(|key| self.combining.batches.concerns(key, &counts))
    }

    /// Whether anybody waits for a value that is moved, or for copies of one.
    pub(super) fn holds(&self, relay: &Relay) -> bool {
        let waits = relay.cluster.moved.held.is_empty() && self.splitting.parked.is_empty();
        !(waits && self.splitting.fenced.is_empty() && self.copies.unremoved.is_empty())
    }

    /// Notes since when keys are frozen.
    pub(super) fn note_frozen(&mut self, now: Instant) {
        let hot = &self.keys;
        let freezes = |key: &[u8]| matches!(hot.split(key), Some(Splitting::Freezing { .. }));
        self.splitting.frozen.retain(|key, _| freezes(key));
        for (key, _) in hot.splits().filter(|(key, _)| freezes(key)) {
            self.splitting.frozen.entry(key.to_vec()).or_insert(now);
        }
    }

    fn turn(&mut self) -> usize {
        self.splitting.turns = self.splitting.turns.wrapping_add(1);
        self.splitting.turns
    }
}

impl Mitigations {
    /// A request for a shared link that names a split key; `None` if it goes on as if the key were not split.
    pub(super) fn serve_split(
        &mut self,
        relay: &mut Relay,
        incoming: Incoming<'_>,
    ) -> Option<Flow> {
        let Incoming { key, request, command, .. } = incoming;
        if !relay.is_in_database(key) {
            return self.make_whole(relay, incoming);
        }
        let Some(name) = only_key(command, request).and_then(|index| request.arg(index)) else {
            let read = self.read_several_frozen(relay, incoming);
            return read.or_else(|| self.make_whole(relay, incoming));
        };
        let splitting = self.keys.split(name)?.clone();
        if command.refuses_count(request.len()) {
            return Some(relay.have_refused(incoming));
        }
        let reads = command.access == Access::Read;
        match splitting {
            Splitting::Freezing { layout, .. } if reads => {
                let tells = refuses_marker(&layout, command);
                self.read_frozen(relay, incoming, name, tells)
            }
            Splitting::Freezing { .. } => {
                let since = self.splitting.frozen.get(name).copied().unwrap_or(relay.now);
                let is_late = relay.now.saturating_duration_since(since) > FREEZE;
                // What a marker would refuse may go on: the value is there, or nothing is done.
                if is_late && is_refused_by_marker(&command.name) {
                    // Reads of the key take several rounds, and may wait for it to be whole:
                    //
                    // 1. SRANDMEMBER key: refused by the marker; it waits
                    // 2. SADD key x: refused, too; it waits
                    // 3. the split is known: SADD shard x, executed
                    // 4. the key is whole: SRANDMEMBER key, executed last, tells of x
                    return relay.clients.has_asked(key).then_some(Flow::Wait);
                }
                Some(relay.routing().hold(key))
            }
            Splitting::Split(_) | Splitting::Draining(_) if !relay.is_believed() => {
                Some(relay.routing().hold(key))
            }
            Splitting::Draining(_) if !reads => Some(relay.routing().hold(key)),
            Splitting::Draining(layout) => {
                Some(self.ask_shards(relay, incoming, name, &layout, Names::Sealed))
            }
            Splitting::Split(layout) => {
                Some(self.ask_shards(relay, incoming, name, &layout, Names::Live))
            }
        }
    }

    /// A request that goes along another connection, or names several keys: its split keys have to be made
    /// whole first.
    pub(crate) fn make_whole(&mut self, relay: &mut Relay, incoming: Incoming<'_>) -> Option<Flow> {
        let Incoming { key, request, command, .. } = incoming;
        let keeps_tombstones = relay.shared.split_mailbox.keeps_tombstones();
        let is_usual = !self.keys.has_moved() && !keeps_tombstones;
        if is_usual || command.refuses_count(request.len()) {
            return None;
        }
        let client = relay.clients.get_ref(key)?;
        if client.within {
            return None;
        }
        let executes = command.role == Role::Exec;
        let reaches_out = match &client.queued_keys {
            Some(queued) if executes => queued.reaches_other_databases(),
            None if executes => relay.observer.is_none(),
            _ => reaches_other_databases(command, request),
        };
        if !reaches_out && !relay.is_in_database(key) {
            return None;
        }
        let queueing = client.is_queueing() && !executes;
        let unnamed = request.unnamed(command);
        let writes = command.access == Access::Write;
        let (mut waits, mut overtakes, mut may_flush) = (false, false, false);
        let mut look = |name: &[u8], writes: bool| match self.keys.split(name) {
            Some(Splitting::Freezing { .. }) => waits |= !queueing,
            Some(Splitting::Split(_) | Splitting::Draining(_)) => {
                waits = true;
                relay.shared.split_mailbox.want_whole(name, &command.name);
            }
            // It may be sent to the key later than what is asked now.
            None if client.hot.copies.reads > 0 && self.keys.copies(name).is_some() => {
                overtakes = true;
            }
            // A write on another connection does not remove the copies.
            None if writes && self.keys.copies(name).is_some() => {
                waits = true;
                relay.shared.split_mailbox.want_whole(name, &command.name);
            }
            None => {}
        };
        let arg = |index| request.arg(index).unwrap_or_default();
        command.for_each_key(request.len(), arg, |index| look(arg(index), writes));
        if executes {
            let is_incomplete = match &client.queued_keys {
                Some(queued) => {
                    queued.for_each(|name, _, _, _| look(name, true));
                    queued.is_incomplete()
                }
                // Nobody notes them.
                None => relay.observer.is_none(),
            };
            if is_incomplete {
                self.keys.moved().for_each(|name| look(name, true));
                may_flush = true;
            }
        }
        match unnamed {
            Unnamed::Nothing => {}
            Unnamed::Matching => {
                let matching = self.keys.moved().filter(|name| request.matches(command, name));
                matching.for_each(|name| look(name, false));
            }
            Unnamed::Anything => {
                self.keys.moved().for_each(|name| look(name, writes));
                may_flush |= writes && !queueing;
            }
        }
        if overtakes {
            return Some(Flow::Wait);
        }
        (waits || may_flush && keeps_tombstones).then(|| relay.routing().hold(key))
    }

    /// An unknown command may touch any key: all split keys have to be made whole first.
    pub(crate) fn make_all_whole(&mut self, relay: &mut Relay, key: ClientKey) -> Option<Flow> {
        let client = relay.clients.get_ref(key)?;
        let hot = &self.keys;
        let keeps_tombstones = relay.shared.split_mailbox.keeps_tombstones();
        let is_usual = !hot.has_moved() && !keeps_tombstones;
        if is_usual || client.within {
            return None;
        }
        let mut waits = keeps_tombstones && !client.is_queueing();
        for name in hot.moved() {
            if matches!(hot.split(name), Some(Splitting::Freezing { .. })) {
                // A transaction waits when it is executed.
                waits |= !client.is_queueing();
            } else {
                waits = true;
                relay.shared.split_mailbox.want_whole(name, UNKNOWN);
            }
        }
        waits.then(|| relay.routing().hold(key))
    }

    /// The hot keys have changed, or values have been moved: clients that waited for that go on.
    pub(super) fn release_held(&mut self, relay: &mut Relay) {
        relay.clients.resume.append(&mut relay.cluster.moved.held);
        for parked in std::mem::take(&mut self.splitting.parked) {
            self.read_again(relay, parked);
        }
        self.release_fenced(relay);
    }

    /// Has waiting clients look again at each tick: their time may be over, or what is known of split keys
    /// may be relied on again.
    pub(super) fn look_at_held(&mut self, relay: &mut Relay) {
        relay.clients.resume.append(&mut relay.cluster.moved.held);
        self.end_late_reads(relay);
        self.look_at_fenced(relay);
    }

    fn ask_shards(
        &mut self,
        relay: &mut Relay,
        incoming: Incoming<'_>,
        name: &[u8],
        layout: &Arc<Layout>,
        names: Names,
    ) -> Flow {
        let Incoming { key, request, command, .. } = incoming;
        let Some(client) = relay.clients.get_ref(key) else { return Flow::Taken };
        if client.hot.awaits() && !is_step(layout, request) {
            return Flow::Wait;
        }
        let login = &relay.upstream.pools[client.pool].login;
        if login.user_name() != relay.shared.base_login.user_name() {
            // The user's rights are about the key; its rights on a shard are unknown.
            relay.shared.split_mailbox.want_whole(name, ANOTHER_USER);
            return relay.routing().hold(key);
        }
        if client.order.outstanding() >= MAX_OUTSTANDING {
            return Flow::Wait;
        }
        let resp3 = login.protocol == Protocol::Resp3;
        if let Some(flow) = relay.routing().without_map(key) {
            return flow;
        }
        if let Some(flow) = relay.routing().note_written(key, request, command) {
            return flow;
        }
        if is_step(layout, request)
            && names == Names::Live
            && let Some(flow) = self.serve_change(relay, incoming)
        {
            return relay.clients.note_taken(key, flow);
        }
        if is_about_time(&command.name) && (layout.expires || is_never_empty(layout.kind)) {
            // The marker has it.
            let flow = relay.forward_marker(incoming);
            return relay.clients.note_taken(key, flow);
        }
        let mut few = [&[][..]; FEW_ARGS];
        let many: Vec<&[u8]>;
        let args = if let Some(few) = few.get_mut(..request.len()) {
            few.iter_mut().zip(request.args_from(0)).for_each(|(place, arg)| *place = arg);
            &*few
        } else {
            many = request.args_from(0).collect();
            &many
        };
        let turn = self.turn();
        let is_list = layout.kind == Kind::List;
        let stamp = if is_list { relay.shared.split_mailbox.stamps(args.len()) } else { 0 };
        let context = Context { layout, names: Names::Live, resp3, turn, stamp };
        let plan = plan::plan(&context, args);
        if matches!(&plan, Plan::Many { merge, .. } if merge.asks_again())
            && relay.clients.has_asked(key)
        {
            // Its later rounds go by the map of their time, and would come to a shard that has moved
            // before what was sent to it by an older one:
            //
            // 1. ZADD shard x -> A; ZRANK: ZSCORE -> C (old map)
            // 2. new map: the shard of x is B's
            // 3. ZRANK: ZCOUNT shard -> B, executed
            // 4. A: MOVED, ZADD shard x -> B, executed last: the rank is wrong
            return Flow::Wait;
        }
        let asked = !matches!(plan, Plan::Whole);
        if asked {
            relay.clients.note_asked(key);
        }
        match (plan, names) {
            (Plan::Whole, _) => {
                relay.shared.split_mailbox.want_whole(name, &command.name);
                relay.routing().hold(key)
            }
            (Plan::Answer(reply), _) => {
                let mark = relay.routing().observe(key, command, request);
                relay.routing().give_up(mark);
                relay.clients.reply(key, &reply);
                Flow::Taken
            }
            (Plan::One(shard), Names::Live) => {
                let mark = relay.routing().observe(key, command, request);
                let node = relay.primary_of(layout.slot(shard), key);
                if command.access == Access::Write {
                    self.note_shard_writes(name, &layout.id, [shard]);
                }
                let mut renamed = std::mem::take(&mut self.splitting.renamed);
                layout.rename(shard, request.bytes, request.args, &mut renamed);
                relay.routing().send_on(key, node, &renamed, &[mark]);
                renamed.clear();
                renamed.shrink_to(RENAMED_BYTES);
                self.splitting.renamed = renamed;
                Flow::Taken
            }
            (Plan::One(shard), Names::Sealed) => {
                let merge = Merge::first();
                let mark = relay.routing().observe(key, command, request);
                let live = vec![plan::under_name(&context, shard, args)];
                let parts = pair(live, &Context { names, ..context }, args);
                let collected = Collected::new(relay.now, name, layout, merge, resp3, true);
                self.collect(relay, key, collected.of_request(request.bytes), parts, mark);
                Flow::Taken
            }
            (Plan::Many { parts, merge }, _) => {
                let mark = relay.routing().observe(key, command, request);
                relay.clients.note_read(key, layout);
                let context = Context { names, ..context };
                let parts = match names {
                    Names::Live => parts,
                    Names::Sealed => pair(parts, &context, args),
                };
                let sealed = names == Names::Sealed;
                let collected = Collected::new(relay.now, name, layout, merge, resp3, sealed);
                let collected = collected.with_access(command.access, turn);
                self.collect(relay, key, collected.of_request(request.bytes), parts, mark);
                Flow::Taken
            }
        }
    }
}

impl Relay {
    /// Whether the client uses the database whose keys are split.
    pub(super) fn is_in_database(&self, key: ClientKey) -> bool {
        self.clients.get_ref(key).is_some_and(|client| self.is_pool_in_database(client.pool))
    }

    /// A command that the server refuses before it looks at any key.
    fn have_refused(&mut self, incoming: Incoming<'_>) -> Flow {
        let Incoming { key, .. } = incoming;
        let Some(client) = self.clients.get(key) else { return Flow::Taken };
        if client.hot.awaits() || client.order.outstanding() >= MAX_OUTSTANDING {
            return Flow::Wait;
        }
        client.held_since = None;
        self.forward_marker(incoming)
    }

    /// Whether the clients of a pool use the database whose keys are split.
    fn is_pool_in_database(&self, pool: usize) -> bool {
        self.upstream.pools.get(pool).is_some_and(|pool| pool.login.db == self.shared.base_login.db)
    }

    /// What is known of split keys may be relied on.
    fn is_believed(&self) -> bool {
        self.shared.split_mailbox.is_believed()
    }

    /// A question that the marker can answer, or that is not answered.
    fn forward_marker(&mut self, incoming: Incoming<'_>) -> Flow {
        let Incoming { key, request, command, .. } = incoming;
        if self.cluster.view.is_some() {
            return self.routing().forward_clustered(key, request, command);
        }
        let mark = self.routing().observe(key, command, request);
        self.routing().send_on(key, NodeId::FIRST, request.bytes, &[mark]);
        Flow::Taken
    }
}

/// The two questions to each shard next to each other.
fn pair(live: Vec<Part>, sealed: &Context<'_>, args: &[&[u8]]) -> Vec<Part> {
    let sealed = match plan::plan(sealed, args) {
        Plan::One(shard) => vec![plan::under_name(sealed, shard, args)],
        Plan::Many { parts, .. } => parts,
        Plan::Answer(_) | Plan::Whole => Vec::new(),
    };
    side_by_side(live, sealed)
}

fn side_by_side(live: Vec<Part>, sealed: Vec<Part>) -> Vec<Part> {
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

/// Whether a read is refused where the marker of a split stands, or answered as by the value.
/// Others would tell of the marker.
fn refuses_marker(layout: &Layout, command: &Command) -> bool {
    let name = &*command.name;
    if is_about_time(name) {
        // The marker has it, but not whether there is anything left in the shards.
        return layout.expires || is_never_empty(layout.kind);
    }
    match layout.kind {
        Kind::Counter | Kind::HyperLogLog => matches!(
            name,
            "get"
                | "strlen"
                | "getrange"
                | "substr"
                | "getbit"
                | "bitcount"
                | "bitpos"
                | "bitfield_ro"
                | "pfcount"
        ),
        Kind::Set => command.value_kind == ValueKind::Set,
        Kind::Hash => command.value_kind == ValueKind::Hash,
        Kind::SortedSet => command.value_kind == ValueKind::SortedSet,
        Kind::List => command.value_kind == ValueKind::List,
    }
}

/// Writes that a server refuses if another type than theirs is at the key, and that leave a marker
/// what it is.
fn is_refused_by_marker(name: &str) -> bool {
    matches!(
        name,
        "incr"
            | "decr"
            | "incrby"
            | "decrby"
            | "sadd"
            | "srem"
            | "hset"
            | "hdel"
            | "hincrby"
            | "zadd"
            | "zrem"
            | "zincrby"
            | "pfadd"
    )
}

fn is_about_time(name: &str) -> bool {
    matches!(name, "ttl" | "pttl" | "expiretime" | "pexpiretime")
}

fn is_never_empty(kind: Kind) -> bool {
    matches!(kind, Kind::Counter | Kind::HyperLogLog)
}
