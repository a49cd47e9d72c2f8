//! A node does not execute a request because it is another's to execute, or because the time
//! is not right: the request goes there, or is tried again.
//!
//! Bound: [`MAX_HOPS`] nodes and `timeouts.cluster_retry_ms`; then the client gets the node's
//! error, or what [`given_up`] makes of it.
//! Invariant: of two requests of one client for one slot, the later is not executed first; see
//! [`crate::cluster`].

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use heatsink_cluster::redirect::{self, Redirect};
use heatsink_cluster::topology::NodeAddress;
use heatsink_resp::command::CommandTable;
use heatsink_upstream::address::Endpoint;

use crate::cluster::effects::{Effect, WrongType};
use crate::cluster::replay::{Plan, is_before};
use crate::cluster::route::{may_be_made_up, slot_of};
use crate::cluster::{Notes, Room, Routing};
use crate::downstream::clients::error_line;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::is_read;
use crate::upstream::effects::Unsent;
use crate::upstream::nodes::NodeId;
use crate::upstream::suspect_replies::Replayed;
use crate::upstream::ticket::{Purpose, Ticket};

/// What a server says to a command for another type: the value has been moved.
pub(crate) const WRONG_TYPE: &[u8] = b"-WRONGTYPE ";
/// Nodes that a request is sent to, one after the other.
pub(crate) const MAX_HOPS: u32 = 16;
/// Time between two attempts.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// The texts of servers for what is tried again.
const OWN_WORDS: [&[u8]; 7] = [
    b"-TRYAGAIN Multiple keys request during rehashing of slot",
    b"-CLUSTERDOWN The cluster is down",
    b"-CLUSTERDOWN Hash slot not served",
    b"-LOADING Redis is loading the dataset in memory",
    b"-LOADING Valkey is loading the dataset in memory",
    b"-MASTERDOWN Link with MASTER is down",
    b"-MASTERDOWN Link with PRIMARY is down",
];

/// What a server says of several keys of a slot that are not all in one place.
const HALF_MOVED: &[u8] = b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
/// What a server says of a slot that nobody is known to have.
const UNSERVED: &[u8] = b"-CLUSTERDOWN Hash slot not served\r\n";

/// What a client is told of a request that is followed no further. Where another node is named,
/// that is none of its business: to it, there is one server.
pub(crate) fn given_up<'a>(
    redirect: Redirect<'_>,
    error: &'a [u8],
    in_transaction: bool,
) -> &'a [u8] {
    match redirect {
        // It was asked there, where others of its keys are missing.
        Redirect::Ask { .. } if in_transaction => HALF_MOVED,
        Redirect::Moved { .. } | Redirect::Ask { .. } => UNSERVED,
        Redirect::TryAgain | Redirect::ClusterDown | Redirect::Loading | Redirect::MasterDown => {
            error
        }
    }
}

/// A request that is not where it was first sent.
#[derive(Debug, Default)]
pub(crate) struct Redirection {
    hops: u32,
    /// Its slot, and the node that it was sent on to.
    pub(super) sent_to: Option<(u16, NodeId)>,
    /// When it is no longer tried again, once it has been.
    until: Option<Instant>,
    refusal: Refusal,
    /// The slot that it is about, if only one is known.
    slot: Option<u16>,
}

impl Redirection {
    /// It may be tried again.
    pub(super) fn may_go_on(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// The slot that it is about, if only one is known.
    pub(super) fn slot(&self) -> Option<u16> {
        self.slot
    }
}

/// How many requests are on their way to which node, by their slots. After a failover that may be
/// all slots of a node.
///
/// One behind the other along the same redirect, they keep their order. If a slot moves on while they
/// are under way, they would part:
///
/// ```text
/// 1. SET k 1, SET k 2 -> A, in which k's slot was
/// 2. A: MOVED to B; SET k 1 -> B, which takes its time
/// 3. the slot moves on to C; A: MOVED to C for the second
/// 4. SET k 2 -> C, executed; B: MOVED to C; SET k 1 -> C, executed last: wrong
/// ```
///
/// At 3 the second waits, and all that its client has sent behind it for the slot, until the first is
/// answered.
#[derive(Debug, Default)]
pub(crate) struct RedirectsInFlight(HashMap<u16, Vec<(NodeId, u32)>, FixedState>);

impl RedirectsInFlight {
    fn add(&mut self, slot: u16, node: NodeId) {
        let nodes = self.0.entry(slot).or_default();
        match nodes.iter_mut().find(|(to, _)| *to == node) {
            Some((_, count)) => *count += 1,
            None => nodes.push((node, 1)),
        }
    }

    pub(super) fn remove(&mut self, sent_to: Option<(u16, NodeId)>) {
        let Some((slot, node)) = sent_to else { return };
        let Entry::Occupied(mut entry) = self.0.entry(slot) else { return };
        let nodes = entry.get_mut();
        if let Some(at) = nodes.iter().position(|(to, _)| *to == node) {
            nodes[at].1 -= 1;
            if nodes[at].1 == 0 {
                nodes.swap_remove(at);
            }
        }
        if nodes.is_empty() {
            entry.remove();
        }
    }

    /// Some of a slot are on their way to another node.
    fn has_other(&self, slot: u16, node: NodeId) -> bool {
        self.0.get(&slot).is_some_and(|nodes| nodes.iter().any(|(to, _)| *to != node))
    }
}

/// What is known of why a request was refused for the type of a value, when it is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It was not refused.
    #[default]
    None,
    /// The value had been moved.
    Explained,
    /// Nothing was seen there that would explain it.
    Unexplained,
}

/// What a request that a node did not execute means to others of its client for the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// None was sent behind it on the same link.
    Last,
    /// It is sent on at once, and keeps its place before those that may be behind it.
    SentOn,
    /// Others were sent behind it, and what they were told cannot be taken back.
    Overtaken,
    /// Those that were sent behind it on the same link are taken back; see
    /// [`crate::cluster::replay`].
    Leads(u32),
}

/// What came on a link and is not simply passed on.
#[derive(Debug)]
pub(crate) enum Kept {
    /// A reply.
    Reply(Vec<u8>),
    /// A request, and the error by which a node of a cluster sends it elsewhere.
    Elsewhere { request: Vec<u8>, error: Vec<u8>, standing: Standing },
    /// The reply to a request that was replayed.
    Replayed(Replayed, Vec<u8>),
    /// Or such an error.
    ReplayRedirected(Replayed, Vec<u8>),
}

/// A request that is to be tried again.
#[derive(Debug)]
pub(crate) enum Later {
    /// On a shared link.
    Shared {
        at: Instant,
        pool: usize,
        serial: u64,
        /// The node that it goes to again if no key says otherwise.
        from: NodeId,
        ticket: Ticket,
        request: Vec<u8>,
    },
    /// On the client's dedicated connection, if that is still the same one.
    Dedicated { at: Instant, client: ClientKey, link: usize, generation: u32 },
}

/// With more than this many requests under way, one of a client counts as overtaken.
pub(crate) const MAX_LOOKED_AT: u32 = 256;

/// Whether two requests may be about the same keys. One that names none may be about all.
pub(crate) fn may_meet(one: Option<u16>, other: Option<u16>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// Whether a node says this of its own accord. What a script or a module says instead is an answer
/// like any other: following it would execute the script again.
pub(crate) fn is_servers_own(
    table: &CommandTable,
    redirect: Redirect<'_>,
    error: &[u8],
    request: &[u8],
) -> bool {
    let slot = slot_of(table, request);
    match redirect {
        Redirect::Moved { slot: named, .. } | Redirect::Ask { slot: named, .. } => {
            slot == Some(named)
        }
        _ => {
            !may_be_made_up(table, request)
                || (slot.is_some() && OWN_WORDS.iter().any(|words| error.starts_with(words)))
        }
    }
}

impl Later {
    pub(crate) fn at(&self) -> Instant {
        match self {
            Self::Shared { at, .. } | Self::Dedicated { at, .. } => *at,
        }
    }
}

impl<N: Notes> Routing<'_, N> {
    /// A node has not executed a request; `ticket` waits for its reply.
    pub(crate) fn go_elsewhere(
        &mut self,
        pool: usize,
        from: NodeId,
        ticket: Ticket,
        request: Vec<u8>,
        error: &[u8],
        standing: Standing,
    ) {
        if matches!(ticket.purpose, Purpose::FillTtl(_) | Purpose::FillFields(_)) {
            // Without it the read before it, if that was not sent elsewhere as well, is not kept.
            self.conclude(ticket, error);
            return;
        }
        if self.room.is_of_wait(ticket) {
            return self.conclude(ticket, b"-TRYAGAIN heatsink: a slot is being moved\r\n");
        }
        if error.starts_with(WRONG_TYPE) {
            let (error, overtaken) = (error.to_vec(), standing != Standing::Last);
            let refused = WrongType { pool, ticket, request, error, overtaken };
            return self.effects.note(Effect::WrongType(Box::new(refused)));
        }
        let hops = self.note_hop(ticket, &request);
        let dedicated =
            |redirect: &Redirect<'_>| is_servers_own(self.table, *redirect, error, &request);
        let redirect = redirect::parse(error).filter(dedicated);
        let Some(redirect) = redirect.filter(|_| hops <= MAX_HOPS) else {
            let told = redirect.map_or(error, |redirect| given_up(redirect, error, false));
            return match standing {
                Standing::Leads(replay) => self.lead(replay, pool, told, None),
                _ => self.conclude(ticket, told),
            };
        };
        let leads = matches!(standing, Standing::Leads(_));
        match redirect {
            Redirect::Moved { host, port, slot } | Redirect::Ask { host, port, slot } => {
                let asking = matches!(redirect, Redirect::Ask { .. });
                if asking {
                    self.room.moving.note(slot, self.now);
                } else {
                    self.want_topology();
                }
                if let Some(to) = self.named_node(from, host, port) {
                    if self.room.parts_ways(ticket, slot, to) {
                        return self.send_later(pool, to, ticket, request);
                    }
                    self.room.note_sent(ticket, slot, to);
                    self.resend(pool, to, ticket, &request, asking);
                } else {
                    // It may have joined a moment ago.
                    let told = given_up(redirect, error, false);
                    self.try_again(pool, from, ticket, request, told, standing);
                }
            }
            Redirect::Loading | Redirect::MasterDown if self.room.is_replica(from) && !leads => {
                if let Some(view) = &mut self.room.view {
                    view.avoid(from, self.now + Duration::from_secs(1));
                }
                match slot_of(self.table, &request) {
                    Some(slot) => {
                        let to = self.primary_of(slot, ticket.client);
                        self.resend(pool, to, ticket, &request, false);
                    }
                    None => self.conclude(ticket, error),
                }
            }
            Redirect::TryAgain
            | Redirect::ClusterDown
            | Redirect::Loading
            | Redirect::MasterDown => {
                self.want_topology();
                if redirect == Redirect::TryAgain
                    && let Some(slot) = slot_of(self.table, &request)
                {
                    self.room.moving.note(slot, self.now);
                }
                self.try_again(pool, from, ticket, request, error, standing);
            }
        }
    }

    /// Tries a request again after a pause, if that is allowed; else its client is told `error`.
    fn try_again(
        &mut self,
        pool: usize,
        from: NodeId,
        ticket: Ticket,
        request: Vec<u8>,
        error: &[u8],
        standing: Standing,
    ) {
        let serial = self.upstream.pools.get(pool).map(|pool| pool.serial);
        let is_over =
            self.room.redirects.get(&ticket).is_some_and(|redirect| !redirect.may_go_on(self.now));
        if is_over && let Some(slot) = slot_of(self.table, &request) {
            self.room.moving.note_stuck(slot, self.now);
        }
        let until = self.may_try_again(ticket, standing);
        let (replay, may) = match standing {
            Standing::Last | Standing::Leads(_) if until.is_some() => {
                self.replay_behind(pool, ticket, &request, standing)
            }
            Standing::Leads(replay) => (Some(replay), false),
            _ => (None, true),
        };
        let plan = until.zip(serial).filter(|_| may);
        if let Some((until, _)) = plan {
            self.hold_back(ticket, &request, until);
        }
        match (replay, plan) {
            (Some(replay), plan) => {
                let plan = plan.map(|(until, serial)| Plan { serial, from, request, until });
                self.lead(replay, pool, error, plan);
            }
            (None, Some((_, serial))) => {
                let at = self.now + RETRY_PAUSE;
                self.room.later.push(Later::Shared { at, pool, serial, from, ticket, request });
                *self.next_tick = (*self.next_tick).min(at);
            }
            (None, None) => self.conclude(ticket, error),
        }
    }

    /// Sends a request on when all that its client sent before it for the slot is answered.
    fn send_later(&mut self, pool: usize, to: NodeId, ticket: Ticket, request: Vec<u8>) {
        let Some(serial) = self.upstream.pools.get(pool).map(|pool| pool.serial) else {
            return self.conclude(ticket, &error_line("ERR heatsink: given up"));
        };
        self.hold_back(ticket, &request, self.now + self.live.timeouts.cluster_retry);
        if let Some(slot) = slot_of(self.table, &request) {
            self.room.note_sent(ticket, slot, NodeId::NONE);
        }
        let at = self.now + RETRY_PAUSE;
        self.room.later.push(Later::Shared { at, pool, serial, from: to, ticket, request });
        *self.next_tick = (*self.next_tick).min(at);
    }

    /// The node that another one has named, if it belongs to the cluster.
    pub(crate) fn named_node(&mut self, from: NodeId, host: &str, port: u16) -> Option<NodeId> {
        let host = match (host, self.links().endpoint(from)) {
            ("", Endpoint::Tcp { host, .. }) => host,
            _ => host.to_owned(),
        };
        let cluster = self.shared.cluster.as_ref()?;
        cluster.member(&NodeAddress { host, port }, &self.shared.nodes)
    }

    fn note_hop(&mut self, ticket: Ticket, request: &[u8]) -> u32 {
        if ticket.client == ClientKey::NOBODY && !ticket.is_for_many() {
            // Nobody waits for it; one more node is tried, and that is it.
            return 1;
        }
        let slot = slot_of(self.table, request);
        let redirect = self.room.redirects.entry(ticket).or_default();
        redirect.slot = slot;
        redirect.hops += 1;
        redirect.hops
    }

    /// The reply has come at last.
    pub(crate) fn end_redirect(&mut self, ticket: Ticket) {
        let redirect = self.room.redirects.remove(&ticket);
        self.room
            .redirects_in_flight
            .remove(redirect.as_ref().and_then(|redirect| redirect.sent_to));
        if let Some(redirect) = redirect
            && redirect.until.is_some()
            && let Some(client) = self.clients.get(ticket.client)
        {
            client.retrying -= 1;
            if client.retrying == 0 {
                self.clients.resume.push(ticket.client);
            }
        }
    }

    /// Whether a request that was refused may wait before it is sent again, and until when: only
    /// if none of the same client was sent behind it for the same slot. From then on the client
    /// sends nothing. Until [`Self::go_on_waiting`] it is not on its way anywhere. And what
    /// it was refused for before.
    pub(crate) fn may_wait(
        &mut self,
        pool: usize,
        ticket: Ticket,
        request: &[u8],
        overtaken: bool,
        until: Instant,
    ) -> (Option<Instant>, Refusal) {
        let before = self.room.redirects.remove(&ticket).unwrap_or_default();
        self.room.redirects_in_flight.remove(before.sent_to);
        if before.until.is_some() {
            return (before.until, before.refusal);
        }
        if overtaken || self.has_behind(pool, ticket, request) {
            return (None, before.refusal);
        }
        if let Some(client) = self.clients.get(ticket.client) {
            client.retrying += 1;
        }
        (Some(until), before.refusal)
    }

    pub(crate) fn resend(
        &mut self,
        pool: usize,
        to: NodeId,
        ticket: Ticket,
        request: &[u8],
        asking: bool,
    ) {
        if self.upstream.pools.get(pool).is_none() || to == NodeId::NONE {
            self.conclude(ticket, &error_line("ERR heatsink: the node cannot be reached"));
            return;
        }
        match self.links().pool_link(pool, to) {
            Ok(link) => {
                if asking {
                    let ignored = Ticket::internal(Purpose::Ignored);
                    self.upstream.push_to_link(self.now, link, b"*1\r\n$6\r\nASKING\r\n", ignored);
                }
                self.upstream.push_to_link(self.now, link, request, ticket);
                self.effects.note(Effect::Resent(link, ticket.client));
            }
            Err(why) => self.conclude(ticket, &error_line(&why)),
        }
    }

    /// Until when a request may be tried again, if at all: not for ever, and not if it was
    /// overtaken.
    fn may_try_again(&self, ticket: Ticket, standing: Standing) -> Option<Instant> {
        let redirect = self.room.redirects.get(&ticket)?;
        match (standing, redirect.until) {
            (Standing::Overtaken, _) | (Standing::SentOn, None) => return None,
            _ => {}
        }
        if self.clients.get_ref(ticket.client).is_none() && !ticket.is_for_many() {
            return None;
        }
        let until = redirect.until.unwrap_or(self.now + self.live.timeouts.cluster_retry);
        (self.now < until).then_some(until)
    }

    /// From now on the client of a request sends nothing until it is answered. It is tried again
    /// until a certain time, if that was not said before.
    pub(super) fn hold_back(&mut self, ticket: Ticket, request: &[u8], until: Instant) {
        let slot = slot_of(self.table, request);
        let redirect = self.room.redirects.entry(ticket).or_default();
        redirect.slot = slot;
        // Trying again is not going further.
        redirect.hops = 0;
        if redirect.until.is_none() {
            redirect.until = Some(until);
            if let Some(client) = self.clients.get(ticket.client) {
                client.retrying += 1;
            }
        }
    }

    /// Whether a client waits for another request that may be for the slot of this one,
    /// anywhere.
    fn has_behind(&self, pool: usize, ticket: Ticket, request: &[u8]) -> bool {
        let outstanding =
            self.clients.get_ref(ticket.client).map_or(0, |client| client.order.outstanding());
        match outstanding {
            0 | 1 => return false,
            many if many > MAX_LOOKED_AT => return true,
            _ => {}
        }
        let slot = slot_of(self.table, request);
        let tried_again = |(other, redirect): (&Ticket, &Redirection)| {
            other.client == ticket.client
                && !other.is_sibling(ticket)
                && redirect.until.is_some()
                && redirect.slot.is_some_and(|other| may_meet(slot, Some(other)))
        };
        if self.room.redirects.iter().any(tried_again) {
            return true;
        }
        let of_pool = self.upstream.links.iter().filter(|(_, upstream)| upstream.pool == pool);
        let mut requests = of_pool.flat_map(|(_, upstream)| upstream.link.unanswered());
        requests.any(|(behind, request)| {
            behind.client == ticket.client
                && !behind.is_sibling(ticket)
                && may_meet(slot, slot_of(self.table, request))
        })
    }

    /// A link was given up: what it was asked is asked of the primaries.
    pub(crate) fn send_elsewhere(&mut self, unsent: Unsent) {
        let Unsent { way: (pool, serial), requests, only_reads } = unsent;
        for (ticket, request) in requests {
            let may = !only_reads || is_read(self.table, &request);
            let slot = slot_of(self.table, &request).filter(|_| may);
            match (ticket.purpose, slot) {
                (Purpose::Topology, _) => self.forget_topology_question(),
                (Purpose::Commands, _) => self.shared.forget_commands(),
                (Purpose::Forward | Purpose::Redirect(_) | Purpose::Fill(_), Some(slot)) => {
                    let ticket = self.clients.redirect(ticket);
                    if self.upstream.pools.get(pool).map(|pool| pool.serial) != serial {
                        // Another user's may have taken its place.
                        self.conclude(ticket, &error_line("ERR heatsink: given up"));
                        continue;
                    }
                    if matches!(ticket.purpose, Purpose::Fill(_)) {
                        self.note_hop(ticket, &request);
                    }
                    let to = self.primary_of(slot, ticket.client);
                    self.resend(pool, to, ticket, &request, false);
                }
                _ => {
                    let text = "ERR heatsink: upstream node lost; \
                                it is unknown whether the command was executed";
                    let ticket = self.clients.redirect(ticket);
                    self.conclude(ticket, &error_line(text));
                }
            }
        }
    }

    /// Takes out what is to be tried again now.
    pub(crate) fn take_due(&mut self) -> Vec<Later> {
        let now = self.now;
        let is_due = |later: &mut Later| later.at() <= now;
        self.room.later.extract_if(.., is_due).collect()
    }

    /// Tries something again.
    pub(crate) fn try_later(&mut self, later: Later) {
        let now = self.now;
        match later {
            Later::Shared { pool, serial, from, ticket, request, .. } => {
                if self.has_before(pool, ticket, &request) {
                    let at = now + RETRY_PAUSE;
                    let later = Later::Shared { at, pool, serial, from, ticket, request };
                    self.room.later.push(later);
                    *self.next_tick = (*self.next_tick).min(at);
                    return;
                }
                if self.upstream.pools.get(pool).is_none_or(|pool| pool.serial != serial) {
                    // Whoever asked has gone, and the way it would have taken with it.
                    let error = error_line("ERR heatsink: given up");
                    return self.conclude(ticket, &error);
                }
                let slot = slot_of(self.table, &request);
                let to = slot.map_or(from, |slot| self.primary_of(slot, ticket.client));
                if let Some(slot) = slot {
                    self.room.note_sent(ticket, slot, to);
                }
                self.resend(pool, to, ticket, &request, false);
            }
            Later::Dedicated { client, link, generation, .. } => {
                let dedicated =
                    self.clients.get_ref(client).and_then(|client| client.dedicated.as_ref());
                let same = dedicated.is_some_and(|dedicated| dedicated.link == link)
                    && self.upstream.links.get(link).is_some_and(|l| l.generation == generation);
                if same {
                    self.effects.note(Effect::SayAgain(client));
                }
            }
        }
    }
}

impl Room {
    /// A request is sent on to a node.
    pub(crate) fn note_sent(&mut self, ticket: Ticket, slot: u16, to: NodeId) {
        if let Some(redirect) = self.redirects.get_mut(&ticket) {
            let before = redirect.sent_to.replace((slot, to));
            self.redirects_in_flight.add(slot, to);
            self.redirects_in_flight.remove(before);
        }
    }

    /// Whether a request of the same client for the same slot that was sent before this one is on
    /// its way to another node than the one this is to go to, or waits for that.
    pub(crate) fn parts_ways(&self, ticket: Ticket, slot: u16, to: NodeId) -> bool {
        self.redirects_in_flight.has_other(slot, to)
            && self.redirects.iter().any(|(other, redirect)| {
                other.client == ticket.client
                    && redirect.sent_to.is_some_and(|(of, node)| of == slot && node != to)
                    && is_before(*other, ticket)
            })
    }

    /// A request that has waited is on its way again, or answered.
    pub(crate) fn go_on_waiting(
        &mut self,
        ticket: Ticket,
        until: Option<Instant>,
        refusal: Refusal,
    ) {
        // It may be sent to a shard of its key, which is of another slot.
        let (hops, sent_to, slot) = (0, None, None);
        self.redirects.insert(ticket, Redirection { hops, sent_to, until, refusal, slot });
    }
}
