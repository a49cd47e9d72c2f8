//! Copies of a value on several nodes: reads are spread over them, a write removes them.
//!
//! Called by: `hot` with requests on the usual way, `scatter_gather` with what nodes have answered.
//! Bound: three small requests before a write and two behind it for each copy; one more for a
//! read whose copy is gone.
//! Invariant: no copy holds an older value than the key, from before a write is executed on. A
//! copy is filled under a lock, and only if the lock is still there and nobody writes:
//!
//! ```text
//! writer:  I write; remove copy, lock | write key | remove copy, lock; I wrote | acknowledge
//! filler:  lock | read key | put copy, if the lock is there and nobody writes
//! ```
//!
//! A filler that read the key before the write finds that the writer has removed its lock, or that the
//! writer is still writing, and puts no copy. A filler that sets its lock after the writer's last step
//! reads the new value. If the writer dies, its note that it writes expires, and so does every copy,
//! after [`Copies::life`].
//!
//! If the node of a copy is down, the write cannot remove the copy, and waits until it has expired:
//! before the key is written, and again after. Meanwhile it has the fleet end the record of copies: once
//! that has ended, no proxy reads the copy, and the key may be written without asking that node.
//!
//! ```text
//! first write           record     another proxy       another write
//! cannot remove; waits  split      reads, fills
//! wants no copies       draining   reads the key       cannot remove; waits
//! copy has expired                 says so
//! acknowledged          none                           later ones ask the key alone
//! ```
//!
//! A write that has begun goes on to its end, even if the record is gone by then. Later versions of the
//! hot keys are not settled before it has ended, or it would write a value that was moved; see `draining`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use heatsink_cache::commands::cacheable;
use heatsink_resp::command::{Access, Unnamed};
use heatsink_resp::encode;
use heatsink_split::layout;

use super::Mitigations;
use crate::cluster::scatter_gather::Asker;
use crate::downstream::clients::{Clients, MAX_OUTSTANDING};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::{Flow, only_key};
use crate::hot::Incoming;
use crate::hot::mitigation::{self, Answers, Mitigation, Verdict};
use crate::hot_keys::Copies;
use crate::observe::Mark;
use crate::relay::Relay;
use crate::upstream::nodes::NodeId;

/// After how many milliseconds a writer's note that it writes expires, if the writer dies.
const WORD_MS: &[u8] = b"10000";

/// Why there are to be no copies, if one cannot be removed.
const OUT_OF_REACH: &str = "a write that does not reach all of them";

/// A read that was sent to a copy.
#[derive(Debug)]
pub(crate) struct CopyRead {
    key: Vec<u8>,
    request: Vec<u8>,
    copies: Arc<Copies>,
}

/// A write of a key that has copies.
#[derive(Debug)]
pub(crate) struct CopiedWrite {
    key: Vec<u8>,
    request: Vec<u8>,
    copies: Arc<Copies>,
    /// Its client's, and what tells it from a later one.
    pool: (usize, u64),
    /// The version of the hot keys that it began under.
    version: u64,
    /// Tells its note from those of other writers.
    token: [u8; 16],
    stage: Stage,
    /// When the stage began.
    since: Instant,
    /// What the server has said to the write.
    reply: Vec<u8>,
}

/// How far a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Announce,
    Write,
    Conclude,
}

/// A write whose copies could not be reached, until it is tried again.
#[derive(Debug)]
pub(super) struct Unremoved {
    asker: Asker,
    write: CopiedWrite,
    mark: Mark,
}

/// Writes of keys that have copies.
#[derive(Debug, Default)]
pub(super) struct CopiedWrites {
    /// How many began under each version of the hot keys, and are not answered.
    under_way: BTreeMap<u64, usize>,
    /// Those of them whose copies could not be reached, until they are tried again.
    pub(super) unremoved: Vec<Unremoved>,
}

/// What is asked about keys that have copies.
#[derive(Debug)]
pub(super) enum Inquiry {
    /// A copy.
    Copy(CopyRead),
    /// A key whose copy is gone.
    Key,
    /// A key that has copies, to write it; or its copies, to remove them.
    Write(CopiedWrite),
}

impl Mitigation for CopiedWrites {
    type Inquiry = Inquiry;

    fn on_request(hot: &mut Mitigations, relay: &mut Relay, incoming: Incoming<'_>) -> Verdict {
        let Incoming { request, command, .. } = incoming;
        if !hot.keys.has_moved() || request.unnamed(command) != Unnamed::Nothing {
            return Verdict::Pass;
        }
        match hot.serve_copied(relay, incoming) {
            Some(Served::Done(flow)) => flow.into(),
            Some(Served::Pass) => Verdict::Cold,
            None => Verdict::Pass,
        }
    }

    fn on_answers(hot: &mut Mitigations, relay: &mut Relay, answers: Answers<Inquiry>) {
        let Answers { inquiry, asker, mark, replies } = answers;
        match inquiry {
            Inquiry::Copy(read) => hot.copy_read(relay, asker, read, mark, &replies[0]),
            Inquiry::Key => relay.key_read(asker, mark, &replies[0]),
            Inquiry::Write(write) => hot.copied_write(relay, asker, write, mark, &replies),
        }
    }

    fn on_tick(hot: &mut Mitigations, relay: &mut Relay) {
        hot.look_at_unremoved(relay);
    }
}

impl Mitigations {
    /// Whether a write of a key that has copies, or had, is under way since before a version of the
    /// hot keys.
    pub(super) fn has_copied_writes_before(&self, version: u64) -> bool {
        self.copies.under_way.first_key_value().is_some_and(|(begun, _)| *begun < version)
    }

    fn copied_write_over(&mut self, version: u64) {
        if let Some(count) = self.copies.under_way.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                self.copies.under_way.remove(&version);
            }
        }
    }
}

impl Mitigations {
    /// A request on the usual way that names one key, which may have copies; `None` if it goes on
    /// as any other, with `Some` what becomes of it.
    pub(super) fn serve_copied(
        &mut self,
        relay: &mut Relay,
        incoming: Incoming<'_>,
    ) -> Option<Served> {
        let Incoming { key, request, command, .. } = incoming;
        let index = only_key(command, request)?;
        let name = request.arg(index)?;
        let copies = self.keys.copies(name)?;
        if !relay.is_in_database(key) {
            return None;
        }
        if command.access == Access::Read {
            let args: Vec<&[u8]> = request.args_from(0).collect();
            let may = copies.read && cacheable(&args).is_some() && relay.may_read_copies(key);
            let place = relay.clients.get_ref(key)?.record.id as usize % (copies.names.len() + 1);
            if !may || place == 0 {
                return Some(relay.clients.reads_key(key));
            }
            return Some(Served::Done(self.read_copy(relay, incoming, index, place - 1)));
        }
        if relay.clients.has_asked(key) {
            // It goes to the key in its second round, by the map of that time, and would come there
            // before what was sent by an older one:
            //
            // 1. GET key -> A; SET key: copies are removed (old map)
            // 2. new map: the key is B's
            // 3. SET key -> B, executed
            // 4. A: MOVED, GET key -> B, executed last: it tells of the write behind it
            return Some(Served::Done(Flow::Wait));
        }
        if let Some(flow) = relay.routing().without_map(key) {
            return Some(Served::Done(flow));
        }
        if let Some(flow) = relay.routing().note_written(key, request, command) {
            return Some(Served::Done(flow));
        }
        let copies = Arc::clone(self.keys.copies(name)?);
        let mark = relay.routing().observe(key, command, request);
        let (client, buffers) = relay.clients.get_with_buffers(key)?;
        let asker = Asker { client: key, place: client.order.reserve(buffers) };
        // Nothing else of the client is sent before it is acknowledged.
        client.retrying += 1;
        let pool = (client.pool, relay.upstream.pools[client.pool].serial);
        let version = self.version;
        *self.copies.under_way.entry(version).or_default() += 1;
        let token = format!("{:016x}", fastrand::u64(..)).into_bytes();
        let write = CopiedWrite {
            key: name.to_vec(),
            request: request.bytes.to_vec(),
            copies,
            pool,
            version,
            token: token.try_into().unwrap_or_default(),
            stage: Stage::Announce,
            since: relay.now,
            reply: Vec::new(),
        };
        self.write_copied(relay, asker, write, mark);
        Some(Served::Done(Flow::Taken))
    }

    fn read_copy(
        &mut self,
        relay: &mut Relay,
        incoming: Incoming<'_>,
        index: usize,
        copy: usize,
    ) -> Flow {
        let Incoming { key, request, command, .. } = incoming;
        let name = request.arg(index).unwrap_or_default();
        let Some(client) = relay.clients.get_ref(key) else { return Flow::Taken };
        if client.hot.awaits() || client.order.outstanding() >= MAX_OUTSTANDING {
            return Flow::Wait;
        }
        // What was asked of the key may be executed later than this.
        if client.hot.copies.is_gone || client.order.outstanding() > client.hot.copies.reads {
            return Flow::Wait;
        }
        if let Some(flow) = relay.routing().without_map(key) {
            return flow;
        }
        let Some(copies) = self.keys.copies(name).cloned() else { return Flow::Wait };
        let mark = relay.routing().observe(key, command, request);
        let mut args: Vec<&[u8]> = request.args_from(0).collect();
        args[index] = &copies.names[copy];
        let mut bytes = Vec::with_capacity(request.bytes.len() + args[index].len());
        encode::command(&mut bytes, &args);
        let question = [(relay.node_of(&copies.names[copy]), bytes)];
        let read = CopyRead { key: name.to_vec(), request: request.bytes.to_vec(), copies };
        let Some((client, buffers)) = relay.clients.get_with_buffers(key) else {
            return Flow::Taken;
        };
        let asker = Asker { client: key, place: client.order.reserve(buffers) };
        client.hot.copies.reads += 1;
        client.hot.copies.off_until = None;
        let pool = client.pool;
        self.ask(
            relay,
            pool,
            asker,
            &question,
            mitigation::Inquiry::Copies(Inquiry::Copy(read)),
            mark,
        );
        relay.clients.stop_if_many(key);
        Flow::Taken
    }

    /// A copy has answered.
    pub(in crate::hot) fn copy_read(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        read: CopyRead,
        mark: Mark,
        reply: &[u8],
    ) {
        let gone =
            relay.clients.get_ref(asker.client).is_some_and(|client| client.hot.copies.is_gone);
        if !gone && !is_nothing(reply) {
            relay.clients.end_copy_read(asker);
            return relay.routing().tell(asker, mark, reply);
        }
        // What was asked behind it may have been answered by a copy that was filled since, and be
        // older than what the key says now:
        //
        // 1. GET, GET to a copy, which a write has just removed: the first finds nothing.
        // 2. The copy is filled; the second finds that.
        // 3. Somebody writes; the first is sent to the key, and finds the newer value.
        //
        // So all of them are asked of the key, in their order.
        // It takes a while until there is a copy again.
        let until = relay.now + read.copies.life / 8;
        let Some(client) = relay.clients.get(asker.client) else {
            return relay.routing().give_up(mark);
        };
        client.hot.copies.off_until = Some(until);
        client.hot.copies.is_gone = true;
        let pool = client.pool;
        let question = [(relay.node_of(&read.key), read.request)];
        self.ask(relay, pool, asker, &question, mitigation::Inquiry::Copies(Inquiry::Key), mark);
    }

    /// Sends what the stage of a write asks for.
    fn write_copied(&mut self, relay: &mut Relay, asker: Asker, write: CopiedWrite, mark: Mark) {
        let questions = match write.stage {
            Stage::Announce | Stage::Conclude => relay.about_copies(&write),
            Stage::Write => vec![(relay.node_of(&write.key), write.request.clone())],
        };
        let pool = match write.stage {
            // The client's rights are about the key.
            Stage::Announce | Stage::Conclude => relay.upstream.base_pool,
            Stage::Write => {
                let (pool, serial) = write.pool;
                if relay.upstream.pools.get(pool).is_none_or(|pool| pool.serial != serial) {
                    // Nobody is there any more who could be told.
                    return self.copied_write(relay, asker, write, mark, &[]);
                }
                pool
            }
        };
        self.ask(
            relay,
            pool,
            asker,
            &questions,
            mitigation::Inquiry::Copies(Inquiry::Write(write)),
            mark,
        );
    }

    /// The key, or its copies, have answered.
    pub(in crate::hot) fn copied_write(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        mut write: CopiedWrite,
        mark: Mark,
        replies: &[Vec<u8>],
    ) {
        if write.stage == Stage::Write {
            write.reply = replies.first().cloned().unwrap_or_default();
        } else {
            let done = replies.iter().all(|reply| reply.starts_with(b":"));
            // Whatever cannot be reached has expired by then.
            let waited = relay.now.saturating_duration_since(write.since);
            let expired = waited > 2 * write.copies.life;
            let copied = self.keys.copies(&write.key).is_some();
            // A link that is lost and found is not worth it.
            if !done && copied && waited > write.copies.life / 4 {
                relay.shared.split_mailbox.want_whole(&write.key, OUT_OF_REACH);
            }
            if !done && !expired {
                self.copies.unremoved.push(Unremoved { asker, write, mark });
                return;
            }
        }
        write.since = relay.now;
        write.stage = match write.stage {
            Stage::Announce => Stage::Write,
            Stage::Write => Stage::Conclude,
            Stage::Conclude => return self.end_copied_write(relay, asker, &write, mark),
        };
        self.write_copied(relay, asker, write, mark);
    }

    /// Tries again to reach the copies of keys that are written.
    pub(super) fn look_at_unremoved(&mut self, relay: &mut Relay) {
        for Unremoved { asker, write, mark } in std::mem::take(&mut self.copies.unremoved) {
            self.write_copied(relay, asker, write, mark);
        }
    }

    fn end_copied_write(
        &mut self,
        relay: &mut Relay,
        asker: Asker,
        write: &CopiedWrite,
        mark: Mark,
    ) {
        self.copied_write_over(write.version);
        if let Some(client) = relay.clients.get(asker.client) {
            client.retrying -= 1;
            if client.retrying == 0 {
                relay.clients.resume.push(asker.client);
            }
        }
        relay.routing().tell(asker, mark, &write.reply);
    }
}

impl Relay {
    fn about_copies(&self, write: &CopiedWrite) -> Vec<(NodeId, Vec<u8>)> {
        let mut questions = Vec::new();
        for copy in &write.copies.names {
            let node = self.node_of(copy);
            let (lock, writers) = (layout::lock_name(copy), layout::writers_name(copy));
            let mut ask = |args: &[&[u8]]| {
                let mut bytes = Vec::new();
                encode::command(&mut bytes, args);
                questions.push((node, bytes));
            };
            if write.stage == Stage::Announce {
                ask(&[b"SADD", &writers, &write.token]);
                ask(&[b"PEXPIRE", &writers, WORD_MS]);
            }
            ask(&[b"DEL", copy, &lock]);
            if write.stage == Stage::Conclude {
                ask(&[b"SREM", &writers, &write.token]);
            }
        }
        questions
    }

    /// Whether a client may be given what a copy says: its rights are those on the key. One that
    /// has found its copy gone lately asks the key.
    fn may_read_copies(&self, key: ClientKey) -> bool {
        let Some(client) = self.clients.get_ref(key) else { return false };
        let login = &self.upstream.pools[client.pool].login;
        login.user_name() == self.shared.base_login.user_name()
            && client.hot.copies.off_until.is_none_or(|until| self.now >= until)
    }

    /// The key itself has answered, where a copy could not.
    pub(in crate::hot) fn key_read(&mut self, asker: Asker, mark: Mark, reply: &[u8]) {
        self.clients.end_copy_read(asker);
        self.routing().tell(asker, mark, reply);
    }
}

impl Clients {
    /// A read that goes to the key itself must not overtake one that was sent to a copy, and may
    /// be sent to the key later.
    pub(in crate::hot) fn reads_key(&self, key: ClientKey) -> Served {
        let waits = self.get_ref(key).is_some_and(|client| client.hot.copies.reads > 0);
        if waits { Served::Done(Flow::Wait) } else { Served::Pass }
    }

    pub(in crate::hot) fn end_copy_read(&mut self, asker: Asker) {
        if let Some(client) = self.get(asker.client) {
            client.hot.copies.reads -= 1;
            if client.hot.copies.reads == 0 {
                client.hot.copies.is_gone = false;
                if client.stopped {
                    self.resume.push(asker.client);
                }
            }
        }
    }
}

/// What becomes of a request for a key that may have copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// It is dealt with, or has to wait.
    Done(Flow),
    /// The key itself is asked, like any other.
    Pass,
}

/// What a server says of a key that is not there, whatever the command; or that something is
/// wrong with the copy.
fn is_nothing(reply: &[u8]) -> bool {
    let none = |reply: &[u8]| {
        let nothing = [&b"$-1\r\n"[..], b"*-1\r\n", b":-1\r\n", b"_\r\n", b":0\r\n", b"$0\r\n\r\n"];
        nothing.iter().any(|nothing| reply.starts_with(nothing))
    };
    let empty = [&b"*0\r\n"[..], b"~0\r\n", b"%0\r\n", b"+none\r\n"];
    // Of several, the first tells.
    let first = reply.strip_prefix(b"*").and_then(|rest| {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        rest.get(end + 1..)
    });
    reply.is_empty()
        || reply.starts_with(b"-")
        || reply.starts_with(b"!")
        || empty.contains(&reply)
        || none(reply)
        || first.is_some_and(none)
}
