//! Requests that are taken back, because one before them was refused and is to be tried again.
//!
//! A request is tried again only if nothing of its client for the same slot is executed before it.
//! What was sent behind it already is replayed: its replies are kept from the client until all of
//! them are there.
//!
//! ```text
//! 1. MGET {t}a {t}b, MGET {t}a {t}c -> A, which has a and c; b has moved to B
//! 2. A: TRYAGAIN. The second is replayed
//! 3. A: the values of a and c, which are forgotten: reads may be executed twice
//! 4. the first is tried again, until it is answered or given up
//! 5. then the second is sent again, and what it reads is no older than what the first did
//! ```
//!
//! If they include a write that was executed, it is too late: the first gets the error, the others
//! what they were told. Writes that were all refused are sent again like reads.
//!
//! ```text
//! 1. MGET {t}a {t}b, SET {t}a 1 -> A
//! 2. A: TRYAGAIN, +OK
//! 3. the first would now read what was written behind it: its client is told TRYAGAIN
//! ```
//!
//! Called by: `replies`, when a request is refused, and `redirects`.
//! Bound: [`MAX_REPLAYED_BYTES`] of requests for each that leads others, and for their replies
//! `limits.max_output_bytes`. The client sends nothing more meanwhile (`Client::retrying`). A read
//! is repeated once for each request before it that had to be tried again.
//! Invariant: the leader is neither sent again nor answered before all that it leads have come
//! back; and they are not sent again before it is answered.

mod standing;

use std::collections::HashMap;
use std::time::Instant;

use foldhash::fast::FixedState;
use heatsink_cluster::redirect;
use slab::Slab;

use crate::cluster::Routing;
use crate::cluster::effects::Notes;
use crate::cluster::effects::{Effect, Redirected};
use crate::cluster::redirects::is_servers_own;
use crate::cluster::redirects::{Later, RETRY_PAUSE, Standing, may_meet};
pub(crate) use crate::cluster::replay::standing::Refusing;
use crate::cluster::route::slot_of;
use crate::cluster::scatter_gather::Gather;
use crate::downstream::clients::error_line;
use crate::downstream::order::Order;
use crate::downstream::request::is_read;
use crate::upstream::links::Upstream;
use crate::upstream::nodes::NodeId;
use crate::upstream::suspect_replies::Replayed;
use crate::upstream::ticket::{Purpose, Ticket};

/// Requests are replayed up to so many bytes; behind more, none is tried again.
pub(crate) const MAX_REPLAYED_BYTES: usize = 1 << 20;

/// Requests that are looked at in one turn of the worker, to find those behind others; with more,
/// one counts as overtaken.
const MAX_WALKED: usize = 64 << 10;

/// All that was replayed.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    /// Some have not come back.
    open: Slab<Replay>,
    /// All have come back, and the leader is being tried again.
    parked: HashMap<Ticket, Replay, FixedState>,
}

impl Replays {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.parked.is_empty()
    }

    /// Its number, until all have come back.
    fn begin(&mut self, replay: Replay) -> u32 {
        self.open.insert(replay) as u32
    }
}

/// A request that leads others, which were replayed.
#[derive(Debug)]
pub(crate) struct Replay {
    leader: Ticket,
    pool: usize,
    /// None if it is not to be tried again.
    plan: Option<Plan>,
    error: Vec<u8>,
    members: Vec<Member>,
    /// Members that have not come back.
    missing: usize,
    held_bytes: usize,
}

/// How the leader goes on.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) serial: u64,
    pub(crate) from: NodeId,
    pub(crate) request: Vec<u8>,
    pub(crate) until: Instant,
}

/// A request that was replayed.
#[derive(Debug)]
struct Member {
    request: Vec<u8>,
    came: Option<(Ticket, Outcome)>,
}

/// What was said to a request that was replayed.
#[derive(Debug)]
pub(crate) enum Outcome {
    Reply(Vec<u8>),
    /// An error that sends it elsewhere.
    Elsewhere {
        error: Vec<u8>,
        from: NodeId,
    },
}

impl Outcome {
    fn len(&self) -> usize {
        match self {
            Self::Reply(bytes) | Self::Elsewhere { error: bytes, .. } => bytes.len(),
        }
    }
}

impl Replay {
    pub(crate) fn new(leader: Ticket) -> Self {
        Self {
            leader,
            pool: usize::MAX,
            plan: None,
            error: Vec::new(),
            members: Vec::new(),
            missing: 0,
            held_bytes: 0,
        }
    }

    /// A request is to come back; its number.
    pub(crate) fn add(&mut self, request: &[u8]) -> u32 {
        self.members.push(Member { request: request.to_vec(), came: None });
        self.missing += 1;
        self.members.len() as u32 - 1
    }

    /// All have come back, from several links: in the order in which they were sent.
    fn sort(&mut self) {
        let by = place(self.leader).unwrap_or_default();
        let distance = |ticket: &Ticket| place(*ticket).map(|place| distance(by, place));
        self.members
            .sort_by_key(|member| member.came.as_ref().and_then(|(ticket, _)| distance(ticket)));
    }

    fn bytes(&self) -> usize {
        self.members.iter().map(|member| member.request.len()).sum()
    }
}

/// The place of a reply among all that its client waits for, unless it comes with others one way.
fn place(ticket: Ticket) -> Option<u32> {
    match ticket.purpose {
        Purpose::Redirect(place) => Some(place),
        Purpose::Part { .. } => Some(ticket.seq),
        _ => None,
    }
}

/// Whether the client of two requests, whose replies come by themselves, sent `one` first.
pub(super) fn is_before(one: Ticket, other: Ticket) -> bool {
    place(one).zip(place(other)).is_some_and(|(one, other)| distance(other, one) < 0)
}

/// The places of what a link owes one client, in the order of the link.
#[derive(Default)]
struct Places {
    /// Of those that come one way, the last first.
    of_way: Option<Vec<u32>>,
}

impl Places {
    /// Called with each ticket of the client.
    fn next(&mut self, order: &Order, ticket: Ticket) -> Option<u32> {
        if ticket.purpose != Purpose::Forward {
            return place(ticket);
        }
        let places = || {
            let mut places: Vec<_> = order.places_of(ticket.seq).collect();
            places.reverse();
            places
        };
        self.of_way.get_or_insert_with(places).pop()
    }
}

/// How far behind `leader` a place is; they begin again at zero some time.
fn distance(leader: u32, place: u32) -> i32 {
    place.wrapping_sub(leader) as i32
}

impl<N: Notes> Routing<'_, N> {
    /// Recalls what a client has sent behind `leader` on any link, beside what `standing` says
    /// was replayed already; and whether all of it could be.
    pub(super) fn replay_behind(
        &mut self,
        pool: usize,
        leader: Ticket,
        request: &[u8],
        standing: Standing,
    ) -> (Option<u32>, bool) {
        let begun = match standing {
            Standing::Leads(replay) => Some(replay),
            _ => None,
        };
        let outstanding =
            self.clients.get_ref(leader.client).map_or(0, |client| client.order.outstanding());
        if outstanding <= 1 {
            return (begun, true);
        }
        let Some(others) = self.others_behind(pool, leader, request, begun) else {
            return (begun, false);
        };
        if others.is_empty() {
            return (begun, true);
        }
        let of_begun = begun.map_or(0, |replay| self.room.replays.open[replay as usize].bytes());
        let of_others: usize = others.iter().map(|(_, _, request)| request.len()).sum();
        if of_begun + of_others > MAX_REPLAYED_BYTES {
            // Nothing more is marked: as the leader is not tried again, its client goes on, and
            // what is kept on one link could be overtaken on another.
            return (begun, false);
        }
        let replay = begun.unwrap_or_else(|| self.room.replays.begin(Replay::new(leader)));
        let group = &mut self.room.replays.open[replay as usize];
        for (link, at, request) in others {
            let member = group.add(&request);
            self.upstream.links[link].suspects.at(at).replayed = Some(Replayed { replay, member });
        }
        (Some(replay), true)
    }

    /// What a client has sent for the slot of `request` and was not replayed: link, place on it,
    /// and what was sent. None if any of it cannot be replayed.
    fn others_behind(
        &mut self,
        pool: usize,
        leader: Ticket,
        request: &[u8],
        begun: Option<u32>,
    ) -> Option<Vec<(usize, usize, Vec<u8>)>> {
        let slot = slot_of(self.table, request);
        let order = &self.clients.get_ref(leader.client)?.order;
        let by = place(leader);
        let mut others = Vec::new();
        for (link, upstream) in
            self.upstream.links.iter().filter(|(_, upstream)| upstream.pool == pool)
        {
            self.room.walked += upstream.link.waiting();
            if self.room.walked > MAX_WALKED {
                return None;
            }
            let mut places = Places::default();
            for (at, (ticket, bytes)) in upstream.link.unanswered().enumerate() {
                if ticket.client != leader.client || ticket.is_sibling(leader) {
                    continue;
                }
                let place = places.next(order, ticket);
                let replayed = upstream.suspects.get(at).replayed;
                if replayed.is_some_and(|replayed| Some(replayed.replay) == begun) {
                    continue;
                }
                let of_request = slot_of(self.table, bytes);
                if !may_meet(slot, of_request) {
                    continue;
                }
                if distance(by?, place?) < 0 {
                    // It is waited for.
                    continue;
                }
                let half_told = at == 0 && upstream.link.partly_told().is_some();
                let fits = slot.is_some()
                    && slot == of_request
                    && replayed.is_none()
                    && upstream.link.is_ready()
                    && !upstream.replica
                    && !half_told
                    && may_be_replayed(ticket, &self.room.gathers);
                if !fits {
                    return None;
                }
                others.push((link, at, bytes.to_vec()));
            }
        }
        Some(others)
    }

    /// Whether something that was sent before a request for the same slot is still under way:
    ///
    /// ```text
    /// 1. MGET {t}a {t}b, MGET {t}b {t}c -> A, which has only c
    /// 2. A: ASK for the first, which goes to B; TRYAGAIN to the second
    /// 3. c moves, and the second is sent again: it must not be executed before the first
    /// ```
    pub(super) fn has_before(&mut self, pool: usize, ticket: Ticket, request: &[u8]) -> bool {
        let Some(client) = self.clients.get_ref(ticket.client) else { return false };
        let Some(by) = place(ticket).filter(|place| !client.order.is_next(*place)) else {
            return false;
        };
        let of_pool = |(_, upstream): &(usize, &Upstream)| upstream.pool == pool;
        let waiting =
            self.upstream.links.iter().filter(of_pool).map(|(_, link)| link.link.waiting());
        self.room.walked += self.room.redirects.len() + waiting.sum::<usize>();
        if self.room.walked > MAX_WALKED {
            // There is too much to look at; it is looked for next time, or not any more when all
            // that is before it is answered.
            return true;
        }
        let slot = slot_of(self.table, request);
        let is_other = |other: Ticket| other.client == ticket.client && !other.is_sibling(ticket);
        let is_before = |place: Option<u32>| place.is_some_and(|place| distance(by, place) < 0);
        // It may not be on any link: it may be about to be tried again itself.
        let is_redirected = self.room.redirects.iter().any(|(other, redirect)| {
            is_other(*other) && may_meet(slot, redirect.slot()) && is_before(place(*other))
        });
        is_redirected
            || self.upstream.links.iter().filter(of_pool).any(|(_, upstream)| {
                let mut places = Places::default();
                upstream.link.unanswered().any(|(other, bytes)| {
                    is_other(other)
                        && is_before(places.next(&client.order, other))
                        && may_meet(slot, slot_of(self.table, bytes))
                })
            })
    }

    /// The leader was refused. It is tried again by `plan`, if there is one, when all that it leads
    /// have come back.
    pub(super) fn lead(&mut self, replay: u32, pool: usize, error: &[u8], plan: Option<Plan>) {
        let group = &mut self.room.replays.open[replay as usize];
        group.pool = pool;
        group.error = error.to_vec();
        group.plan = plan;
        if group.missing == 0 {
            self.settle_replay(replay);
        }
    }

    /// A request that was replayed has been answered; or will not be, and that is said of it.
    pub(crate) fn replay_answered(&mut self, replayed: Replayed, ticket: Ticket, came: Outcome) {
        let Some(group) = self.room.replays.open.get_mut(replayed.replay as usize) else {
            debug_assert!(false, "a recall ended before all had come back");
            return;
        };
        group.held_bytes += came.len();
        if group.held_bytes as u64 > self.clients.max_output_bytes {
            self.clients.overflown.push(group.leader.client);
        }
        group.members[replayed.member as usize].came = Some((ticket, came));
        group.missing -= 1;
        if group.missing == 0 {
            self.settle_replay(replayed.replay);
        }
    }

    /// All have come back.
    fn settle_replay(&mut self, replay: u32) {
        let mut group = self.room.replays.open.remove(replay as usize);
        let leads = |member: &Member| {
            let came = member.came.as_ref();
            let places = came.and_then(|(ticket, _)| place(*ticket)).zip(place(group.leader));
            places.is_some_and(|(place, leader)| distance(leader, place) > 0)
        };
        let in_order = group.members.iter().all(leads);
        let executed = group.members.iter().any(|member| self.may_be_executed(member));
        let is_there = self.clients.get_ref(group.leader.client).is_some();
        match group.plan.take_if(|plan| self.now < plan.until) {
            Some(mut plan) if in_order && !executed && is_there => {
                let (at, pool, ticket) = (self.now + RETRY_PAUSE, group.pool, group.leader);
                let (serial, from, request) =
                    (plan.serial, plan.from, std::mem::take(&mut plan.request));
                self.room.later.push(Later::Shared { at, pool, serial, from, ticket, request });
                *self.next_tick = (*self.next_tick).min(at);
                for member in &mut group.members {
                    if let Some((_, came)) = &mut member.came {
                        *came = Outcome::Reply(Vec::new());
                    }
                }
                group.plan = Some(plan);
                if let Some(before) = self.room.replays.parked.remove(&ticket) {
                    group.members.extend(before.members);
                }
                group.sort();
                self.room.replays.parked.insert(ticket, group);
            }
            _ => self.dissolve(group),
        }
    }

    /// Whether a request may have been executed, and is not one that may be executed twice: a read.
    /// A message to a channel of the slot writes nothing, and is told twice all the same. What a
    /// node sends elsewhere was not executed.
    fn may_be_executed(&self, member: &Member) -> bool {
        let refused = match &member.came {
            Some((_, Outcome::Elsewhere { error, .. })) => {
                redirect::parse(error).is_some_and(|redirect| {
                    is_servers_own(self.table, redirect, error, &member.request)
                })
            }
            _ => false,
        };
        !refused && !is_read(self.table, &member.request)
    }

    /// It is too late to try the leader again: all are told what was said.
    fn dissolve(&mut self, mut group: Replay) {
        group.sort();
        self.conclude(group.leader, &group.error);
        for Member { request, came } in group.members {
            match came {
                Some((ticket, Outcome::Reply(reply))) => self.conclude(ticket, &reply),
                Some((ticket, Outcome::Elsewhere { error, from })) => {
                    let serial = self.upstream.pools.get(group.pool).map(|pool| pool.serial);
                    let (way, standing) = ((group.pool, serial), Standing::Overtaken);
                    let redirected = Redirected { way, from, ticket, request, error, standing };
                    self.effects.note(Effect::GoElsewhere(Box::new(redirected)));
                }
                None => {}
            }
        }
    }

    /// A leader is answered, or given up: those behind it are sent again.
    pub(crate) fn release_replayed(&mut self, leader: Ticket) {
        let Some(group) = self.room.replays.parked.remove(&leader) else { return };
        let Some(Plan { serial, from, until, .. }) = group.plan else { return };
        let pool = group.pool;
        for Member { request, came } in group.members {
            let Some((ticket, _)) = came else { continue };
            if self.clients.get_ref(ticket.client).is_none() {
                // Whoever asked has gone.
                self.end_redirect(ticket);
            } else if self.upstream.pools.get(pool).is_none_or(|pool| pool.serial != serial) {
                self.conclude(ticket, &error_line("ERR heatsink: given up"));
            } else {
                if self.now >= until {
                    // The leader was given up: they do not wait any longer either.
                    self.hold_back(ticket, &request, until);
                }
                let slot = slot_of(self.table, &request);
                let to = slot.map_or(from, |slot| self.primary_of(slot, ticket.client));
                self.resend(pool, to, ticket, &request, false);
            }
        }
    }
}

/// Whether a reply can be kept from whoever waits for it, and be asked for again.
pub(crate) fn may_be_replayed(ticket: Ticket, joins: &Slab<Gather>) -> bool {
    match ticket.purpose {
        Purpose::Forward | Purpose::Redirect(_) => true,
        Purpose::Part { join, .. } => joins.get(join as usize).is_some_and(Gather::is_plain),
        _ => false,
    }
}
