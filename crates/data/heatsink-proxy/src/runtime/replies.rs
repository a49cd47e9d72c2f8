//! Replies and messages from servers: each goes to the client that it is for, or is evaluated here.
//!
//! Called by: the worker when a link is readable.
//! Bound: a link is read [`READS_PER_TURN`] times a turn; on a client's own link only while
//! the client takes what was read before.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use heatsink_resp::command::CommandTable;
use heatsink_resp::value::Value;
use heatsink_upstream::link::{Delivery, Received};

use crate::cluster::redirects::{Kept, Standing};
use crate::cluster::replay::{Outcome, Refusing};
use crate::cluster::scatter_gather::{Gathered, GatheredFor};
use crate::downstream::clients::{BULKY_BYTES, Clients};
use crate::downstream::connection::ClientKey;
use crate::hot::mitigation::Reply;
use crate::observe::{Mark, Observer};
use crate::relay::Relay;
use crate::runtime::worker::Worker;
use crate::session::dedicated::{Expected, Pass};
use crate::upstream;
use crate::upstream::links::Owner;
use crate::upstream::nodes::NodeId;
use crate::upstream::suspect_replies::{Suspect, SuspectReplies};
use crate::upstream::ticket::{Purpose, Ticket};

/// Reads from one link in a turn.
const READS_PER_TURN: usize = 4;
/// How long a pool stops reading for a client that does not read, once in that client's life. Later
/// replies are held for the client instead.
const MAX_STALL: Duration = Duration::from_millis(100);

/// A pool that is not read from until a client has read its replies.
#[derive(Debug)]
pub(crate) struct Stall {
    link: usize,
    client: ClientKey,
    until: Instant,
}

impl Worker {
    /// Reads what a link has, a few times at most.
    pub(crate) fn read_link(&mut self, slot: usize) {
        for _ in 0..READS_PER_TURN {
            let Some(upstream) = self.relay.upstream.links.get_mut(slot) else { return };
            let (owner, generation) = (upstream.owner, upstream.generation);
            let partly_told = upstream.link.partly_told().map(|ticket| ticket.client);
            match owner {
                Owner::Client(key) => {
                    if let Some(client) = self.relay.clients.get(key)
                        && upstream.link.is_ready()
                        && (client.output.len() > BULKY_BYTES
                            || client.session.is_some()
                            || client
                                .dedicated
                                .as_ref()
                                .is_some_and(|dedicated| dedicated.is_barred(slot)))
                    {
                        // A dedicated connection is read only as fast as its client reads. And a frame
                        // must not begin before a reply that is given elsewhere.
                        return;
                    }
                }
                Owner::Pool => {
                    if let Some(key) = partly_told
                        && let Some(client) = self.relay.clients.get(key)
                        && client.output.len() > BULKY_BYTES
                        && !client.lags
                    {
                        self.stall(slot, key);
                        return;
                    }
                }
                Owner::Spare
                | Owner::Once
                | Owner::Tracked
                | Owner::Listener
                | Owner::Retired { .. } => {}
            }
            let follows = self.relay.cluster.view.is_some();
            let Self { relay, hot, scratch, .. } = self;
            let Relay { clients, now, table, observer, cluster, .. } = relay;
            let upstream::Room { links, pools, dirty_links, .. } = &mut relay.upstream;
            let upstream = &mut links[slot];
            let mut suspects = std::mem::take(&mut upstream.suspects);
            let replays = !upstream.replica && matches!(owner, Owner::Pool | Owner::Retired { .. });
            let refusing = Refusing {
                replays: replays.then_some(&mut cluster.replays),
                gathers: &cluster.gathers,
                redirects: &cluster.redirects,
                table,
                now: *now,
                walked: &mut cluster.walked,
            };
            let mut sorting = Sorting { slot, owner, follows, suspects: &mut suspects, refusing };
            let mut ended = std::mem::take(&mut hot.ended);
            let mut heard = std::mem::take(&mut hot.heard);
            let writes = &*hot;
            let received = upstream.link.receive(
                &mut scratch.read,
                *now,
                |delivery| {
                    match (&delivery, owner) {
                        (Delivery::Push(bytes), Owner::Tracked) => heard.push(bytes),
                        (Delivery::Frame { bytes, ends, .. }, Owner::Listener) => {
                            heard.message(bytes, *ends);
                        }
                        _ => {}
                    }
                    sorting.deliver(&delivery, clients, &mut cluster.kept);
                },
                |mark, reply, before| {
                    let inner;
                    let mark = match *mark {
                        Mark::Hot(write) => {
                            let refused = before == 0 && reply.first() == Some(&b'-');
                            ended.push((write, refused));
                            inner = writes.inner_mark(write);
                            &inner
                        }
                        _ => mark,
                    };
                    if let Some(observer) = observer {
                        observer.answered(mark, reply, before);
                    }
                },
            );
            hot.ended = ended;
            hot.heard = heard;
            upstream.suspects = suspects;
            if let Owner::Client(key) = owner {
                count_answers(observer.as_mut(), clients, key);
            }
            match received {
                Ok(Received::More) => {
                    self.look_whether_ready(slot);
                    self.look_at_kept(slot);
                }
                // The end of the stream is still to be read; no event will tell of it again.
                Ok(Received::Drained) if upstream.hung_up => self.look_at_kept(slot),
                Ok(Received::Drained) => {
                    upstream.readable = false;
                    // Requests may have gathered for these replies, or clients may wait for
                    // what they were kept for.
                    let throttled = !pools[upstream.pool].throttled.is_empty();
                    if (throttled || upstream.link.backlog_bytes() > 0) && !upstream.dirty {
                        upstream.dirty = true;
                        dirty_links.push(slot);
                    }
                    self.look_whether_ready(slot);
                    self.look_at_kept(slot);
                    self.sessions().look_at_dedicated(owner);
                    self.apply_effects();
                    if self.relay.links().look_at_passing(slot) {
                        self.sessions().give_in_turn(slot);
                    }
                    self.apply_effects();
                    return;
                }
                Err(error) => {
                    self.look_at_kept(slot);
                    let link = self.relay.upstream.links.get(slot);
                    if link.is_some_and(|link| link.generation == generation) {
                        self.relay.links().lose_link(slot, &error);
                        self.apply_effects();
                    }
                    return;
                }
            }
        }
        if let Some(upstream) = self.relay.upstream.links.get(slot) {
            let owner = upstream.owner;
            self.relay.upstream.eager_links.push(slot);
            self.sessions().look_at_dedicated(owner);
            self.apply_effects();
        }
    }

    /// The first time that a link is ready, sees to what waits for that.
    fn look_whether_ready(&mut self, slot: usize) {
        if self.relay.links().note_ready(slot) {
            self.sessions().give_in_turn(slot);
            self.relay.begin_on(slot);
            self.apply_effects();
        }
    }

    /// Stops reading from a pool while a client reads a large reply. All clients of the pool wait with it, so
    /// this does not take long: a client that is too slow has its replies held from then on.
    fn stall(&mut self, link: usize, client: ClientKey) {
        if !self.stalls.iter().any(|stall| stall.link == link) {
            self.stalls.push(Stall { link, client, until: self.relay.now + MAX_STALL });
            self.relay.next_tick = self.relay.next_tick.min(self.relay.now + MAX_STALL);
        }
    }

    /// Reads again from the pool that waited for a client, which has read enough or has gone.
    #[inline]
    pub(crate) fn end_stall(&mut self, client: ClientKey) {
        if self.stalls.is_empty() {
            return;
        }
        let Self { stalls, relay, .. } = self;
        let eager_links = &mut relay.upstream.eager_links;
        stalls.retain(|stall| {
            let over = stall.client == client;
            if over {
                eager_links.push(stall.link);
            }
            !over
        });
    }

    /// Reads again from pools that have waited for a client for too long.
    pub(crate) fn end_long_stalls(&mut self) {
        let now = self.relay.now;
        while let Some(stall) = self.stalls.iter().find(|stall| now >= stall.until) {
            let key = stall.client;
            if let Some(client) = self.relay.clients.get(key) {
                client.lags = true;
            }
            self.end_stall(key);
        }
    }

    fn look_at_kept(&mut self, slot: usize) {
        self.hot.look_at_pushes(&mut self.relay);
        self.hot.look_at_ended(&mut self.relay);
        self.apply_effects();
        if self.relay.cluster.kept.is_empty() {
            return;
        }
        let (pool, from) = match self.relay.upstream.links.get(slot) {
            Some(upstream) => (upstream.pool, upstream.node),
            None => (self.relay.upstream.base_pool, NodeId::FIRST),
        };
        for (ticket, kept) in std::mem::take(&mut self.relay.cluster.kept) {
            match kept {
                Kept::Reply(_) if ticket.purpose == Purpose::Pulse => {
                    self.hot.pulse_felt(&mut self.relay, slot);
                }
                Kept::Reply(frame) => match ticket.purpose {
                    Purpose::Caching(fill) => {
                        self.hot.caching_answered(&mut self.relay, slot, fill, &frame);
                    }
                    _ => self.conclude(ticket, &frame),
                },
                Kept::Elsewhere { error, .. } if ticket.purpose == Purpose::Dedicated => {
                    self.sessions().dedicated_redirected(ticket.client, &error);
                }
                Kept::Elsewhere { request, error, standing } => {
                    self.relay
                        .routing()
                        .go_elsewhere(pool, from, ticket, request, &error, standing);
                }
                Kept::Replayed(which, reply) => {
                    self.relay.routing().replay_answered(which, ticket, Outcome::Reply(reply));
                }
                Kept::ReplayRedirected(which, error) => {
                    self.relay.routing().replay_answered(
                        which,
                        ticket,
                        Outcome::Elsewhere { error, from },
                    );
                }
            }
            self.apply_effects();
        }
    }

    /// A reply that is not simply passed on has come, or will not come and is an error.
    pub(crate) fn conclude(&mut self, ticket: Ticket, frame: &[u8]) {
        let redirected = self.relay.cluster.redirects.contains_key(&ticket);
        if !self.relay.cluster.redirects.is_empty() {
            self.relay.routing().end_redirect(ticket);
        }
        match ticket.purpose {
            Purpose::Forward => {
                self.relay.clients.deliver(ticket.client, ticket.seq, &[frame.len()], frame);
            }
            Purpose::Redirect(hole) => self.relay.clients.fill(ticket.client, hole, frame),
            Purpose::Part { join, part } => {
                if let Some(gathered) = self.relay.routing().part_arrived(join, part, frame) {
                    self.gathered(gathered);
                }
            }
            Purpose::Session => self.sessions().session_answered(ticket, frame),
            Purpose::Commands => self.learn_commands(frame),
            Purpose::Members => self.relay.routing().learn_members(frame),
            Purpose::Topology => self.relay.routing().learn_topology(frame),
            Purpose::Fill(_)
            | Purpose::FillFields(_)
            | Purpose::FillTtl(_)
            | Purpose::Combined(_) => {
                self.hot.on_reply(&mut self.relay, ticket, Reply::Frame { frame, redirected });
            }
            Purpose::Health(node) => self.relay.links().learn_health(node, frame),
            Purpose::Ignored | Purpose::Dedicated | Purpose::Pulse | Purpose::Caching(_) => {}
        }
        self.apply_effects();
        if !self.relay.cluster.replays.is_empty() {
            self.relay.routing().release_replayed(ticket);
            self.apply_effects();
        }
    }

    /// Nodes have answered what a room above the relay has asked.
    fn gathered(&mut self, gathered: Gathered) {
        let Gathered { asker, mark, replies, of } = gathered;
        match of {
            GatheredFor::Mitigation(id) => {
                self.hot.on_answers(&mut self.relay, id, asker, mark, replies);
            }
            GatheredFor::Names(telling) => {
                if let Some(reply) = self.names_told(asker, telling, &replies) {
                    self.relay.routing().tell(asker, mark, &reply);
                }
            }
        }
    }

    pub(crate) fn learn_commands(&mut self, frame: &[u8]) {
        let mut table = CommandTable::default();
        let known = Value::decode(frame).map_or(0, |reply| table.learn(&reply));
        tracing::debug!(known, "commands learned from the server");
        if known > 0 {
            self.relay.shared.publish_table(table);
            self.renew_table();
        } else {
            // Not allowed to this user; another one may be.
            self.relay.shared.forget_commands();
        }
    }

    pub(crate) fn renew_table(&mut self) {
        let version = self.relay.shared.table_version.load(Ordering::Acquire);
        if version != self.relay.table_version {
            self.relay.table_version = version;
            self.relay.table = Rc::new(CommandTable::clone(&self.relay.shared.table()));
        }
    }
}

/// Counts what came on a client's dedicated connection.
fn count_answers(observer: Option<&mut Observer>, clients: &mut Clients, key: ClientKey) {
    let dedicated = clients.get(key).and_then(|client| client.dedicated.as_mut());
    if let (Some(observer), Some(dedicated)) = (observer, dedicated) {
        dedicated.answers.drain(..).for_each(|answer| observer.answered_apart(&answer));
        dedicated.executed.drain(..).for_each(|keys| observer.executed(&keys));
    }
}

/// The frames of one link, on their way to the clients that they are for.
struct Sorting<'a> {
    /// The link's.
    slot: usize,
    owner: Owner,
    follows: bool,
    suspects: &'a mut SuspectReplies,
    refusing: Refusing<'a>,
}

impl Sorting<'_> {
    /// Gives each frame from the server to the client that it is for.
    #[inline]
    fn deliver(
        &mut self,
        delivery: &Delivery<'_, Ticket>,
        clients: &mut Clients,
        kept: &mut Vec<(Ticket, Kept)>,
    ) {
        let Self { slot, owner, follows, ref mut suspects, ref mut refusing } = *self;
        match *delivery {
            Delivery::Replies { waiter, ends, bytes } if !suspects.is_empty() => {
                for frame in frames(ends, bytes) {
                    let Suspect { in_vain, replayed } = suspects.pop();
                    // An error is believed: nothing was executed.
                    let believed = !in_vain || frame.first() == Some(&b'-');
                    let told = if believed { frame } else { REPLACED };
                    if let Some(replayed) = replayed {
                        let mut whole = std::mem::take(&mut suspects.part);
                        whole.extend_from_slice(told);
                        kept.push((clients.redirect(waiter), Kept::Replayed(replayed, whole)));
                    } else if waiter.purpose == Purpose::Forward {
                        // It may be the rest of one that was told in part.
                        clients.deliver(waiter.client, waiter.seq, &[told.len()], told);
                    } else {
                        kept.push((waiter, Kept::Reply(told.to_vec())));
                    }
                }
            }
            Delivery::Replies { waiter, ends, bytes } if waiter.purpose == Purpose::Forward => {
                clients.deliver(waiter.client, waiter.seq, ends, bytes);
            }
            Delivery::Replies { waiter, ends, bytes } => {
                // Waiters need their replies whole, and one by one.
                for frame in frames(ends, bytes) {
                    kept.push((waiter, Kept::Reply(frame.to_vec())));
                }
            }
            Delivery::Part { waiter, bytes } if suspects.next().replayed.is_some() => {
                suspects.keep_part(waiter.client, bytes, clients);
            }
            Delivery::Part { waiter, bytes } => {
                clients.deliver_part(waiter.client, waiter.seq, bytes);
            }
            // A request of a client that has gone is not sent on again. Nor is the command before a tracked
            // read: the read is not tracked then.
            Delivery::Elsewhere { waiter, .. }
                if matches!(waiter.purpose, Purpose::Ignored | Purpose::Caching(_)) =>
            {
                suspects.pop();
            }
            Delivery::Elsewhere { waiter, request, error, ref behind } => {
                let ticket = clients.redirect(waiter);
                let told = error.to_vec();
                let kept_here = if let Some(replayed) = suspects.pop().replayed {
                    Kept::ReplayRedirected(replayed, told)
                } else {
                    let standing =
                        refusing.standing(ticket, request, error, behind, suspects, clients);
                    Kept::Elsewhere { request: request.to_vec(), error: told, standing }
                };
                kept.push((ticket, kept_here));
            }
            // Nothing that makes the server push is ever sent on a shared link.
            Delivery::Push(_) => {}
            Delivery::Frame { bytes, begins, ends } => {
                let Owner::Client(key) = owner else { return };
                let Some(client) = clients.get(key) else { return };
                let Some(dedicated) = &mut client.dedicated else { return };
                let answers =
                    begins && ends && dedicated.awaits_answer() && dedicated.is_asked(slot);
                if follows && answers && is_redirect(bytes) {
                    let ticket = Ticket { client: key, seq: 0, purpose: Purpose::Dedicated };
                    let (request, error) = (Vec::new(), bytes.to_vec());
                    kept.push((
                        ticket,
                        Kept::Elsewhere { request, error, standing: Standing::Last },
                    ));
                    return;
                }
                if follows && begins && ends {
                    match dedicated.expected.front() {
                        Some(Expected::Unasked)
                            if dedicated.refused.is_none() && is_redirect(bytes) =>
                        {
                            dedicated.refused = Some(bytes.to_vec());
                        }
                        Some(Expected::Exec) if bytes.starts_with(b"-EXECABORT") => {
                            if let Some(error) = dedicated.refused.take() {
                                let ticket =
                                    Ticket { client: key, seq: 0, purpose: Purpose::Dedicated };
                                let request = Vec::new();
                                let told =
                                    Kept::Elsewhere { request, error, standing: Standing::Last };
                                kept.push((ticket, told));
                                return;
                            }
                        }
                        _ => {}
                    }
                }
                let pass = dedicated.on_frame(slot, bytes, begins, ends);
                let rewritten = dedicated.rewritten.take();
                let bytes = rewritten.as_deref().unwrap_or(bytes);
                match pass {
                    Pass::ToClient => clients.reply(key, bytes),
                    Pass::Message => clients.message(key, bytes),
                    Pass::Drop => {}
                }
            }
        }
    }
}

/// What is said of a node that another one has taken the place of.
const REPLACED: &[u8] = b"-ERR heatsink: upstream unavailable: it is no longer the primary; \
    it is unknown whether the command was executed\r\n";

/// Each of several replies.
fn frames<'a>(ends: &'a [usize], bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, end)| &bytes[start..*end])
}

fn is_redirect(frame: &[u8]) -> bool {
    frame[0] == b'-' && heatsink_cluster::redirect::parse(frame).is_some()
}
