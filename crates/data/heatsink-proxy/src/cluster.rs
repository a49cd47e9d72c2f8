//! A cluster behind, that looks like one server to clients; and without one, the way to the only server.
//!
//! Owns: the worker's copy of the map, and the requests that are not simply on their way. It asks the links
//! below to open connections and to queue requests, and tells clients what is made of several replies; of
//! sessions and hot keys it knows nothing.
//! Called by: the event loop and the rooms above, with each request that is passed on; the event loop, with
//! what nodes have refused, and with what has become of links.
//! Effects that it notes: [`effects::Effect`], and those of the links.
//! Bound: what the clients and the mitigations have under way.
//! Invariant: see "Order".
//!
//! | question | module |
//! |---|---|
//! | which node has a slot, and who finds out | `topology`, `refresh` |
//! | where does a request go | `route`; along which link, and with which others: `forward` |
//! | a request for several nodes, and one reply made of theirs | `scatter_gather` |
//! | a node says that it is not the one (`MOVED`, `ASK`, `TRYAGAIN` …) | `redirects` |
//! | what was sent behind a request that is tried again | `replay` |
//! | a slot is known to move: what is not sent behind such a request | `moving_slots` |
//! | what tells a connection that it has written, before `WAIT` | `wait_command` |
//! | transactions, whose node is known only by their first key | `transactions` |
//! | `CLUSTER …` and what else only cluster clients ask | `commands` |
//! | keys whose values lie elsewhere, as far as that concerns requests on their way | `moved_values` |
//! | what those above have to do | `effects` |
//!
//! # Order
//! Commands of one client on one key are executed in its order. Within one map of the
//! cluster, a key's commands all go along one link, and along the same redirects one behind the
//! other. With a new map they may go another way, and would overtake:
//!
//! ```text
//! 1. SET k 1 -> A     (old map)
//! 2.                  new map: k is B's
//! 3. SET k 2 -> B     executed
//! 4. A: MOVED, SET k 1 -> B     executed last: wrong
//! ```
//!
//! So a client goes on by a new map only when everything it sent by the old one is answered
//! (`Client::epoch`). A request that is to be tried again later (`TRYAGAIN`) holds the client
//! back; what was sent behind it for the same slot is taken back, or if that is too late, the
//! request is not tried again.
//!
//! The order rests on this: a slot does not leave a node and come back to it while a pipeline is on its
//! way there. Moving a slot takes several steps of an operator or an election, a pipeline a fraction of
//! a round trip. If it did:
//!
//! ```text
//! 1. SET k 1, SET k 2 -> A     A executes the first: MOVED to B; the slot comes back to A
//! 2. A executes the second     3. B: MOVED to A; SET k 1 -> A, executed last
//! ```

#[cfg(test)]
mod alone;
mod commands;
pub(crate) mod effects;
pub(crate) mod forward;
pub(crate) mod moved_values;
pub(crate) mod moving_slots;
pub(crate) mod own_writes;
pub(crate) mod redirects;
pub(crate) mod refresh;
pub(crate) mod replay;
pub(crate) mod route;
pub(crate) mod scatter_gather;
pub(crate) mod topology;
pub(crate) mod transactions;
pub(crate) mod wait_command;

use std::collections::HashMap;
use std::time::Instant;

use foldhash::fast::FixedState;
use heatsink_resp::command::{Command, CommandTable};
use slab::Slab;

use crate::config::Live;
use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Request;
use crate::observe::{Mark, Observer, Writer};
use crate::runtime::shared::Shared;
use crate::runtime::world::World;
use crate::upstream;
use crate::upstream::Links;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::Ticket;
use effects::{Effect, Notes};
use moved_values::MovedValues;
use moving_slots::Moving;
use redirects::{Kept, Later, Redirection, RedirectsInFlight};
use refresh::View;
use replay::Replays;
use scatter_gather::Gather;

/// What one worker knows of the cluster, and the requests that are not simply on their way.
#[derive(Debug)]
pub(crate) struct Room {
    /// None if the upstream is no cluster.
    pub(crate) view: Option<View>,
    /// Changes when requests begin to take other ways than before.
    pub(crate) epoch: u32,
    /// Requests to several nodes, or of several steps, and the replies that have come.
    pub(crate) gathers: Slab<Gather>,
    /// Requests that are not where they were first sent.
    pub(crate) redirects: HashMap<Ticket, Redirection, FixedState>,
    /// Where those of them are that were sent on.
    pub(crate) redirects_in_flight: RedirectsInFlight,
    /// Requests that are to be tried again.
    pub(crate) later: Vec<Later>,
    /// A client does not hear of the events of some node, which could not be reached.
    pub(crate) is_listening_in_vain: bool,
    /// When that is tried again at the earliest.
    pub(crate) next_listening: Instant,
    /// What came on links and is not simply passed on, until it is looked into.
    pub(crate) kept: Vec<(Ticket, Kept)>,
    /// Slots that were seen to move.
    pub(crate) moving: Moving,
    /// Pipelined requests held back until the retried one ahead of them is answered.
    pub(crate) replays: Replays,
    /// Requests that were looked at for that in this turn.
    pub(crate) walked: usize,
    /// Keys whose values lie elsewhere, and who waits for them.
    pub(crate) moved: MovedValues,
    /// Some rule lets replicas answer reads.
    pub(crate) reads_replicas: bool,
    /// For taking turns.
    turn: usize,
}

/// The room, with what it stands on, for a call; `N` is where it notes what others have to do.
pub(crate) struct Routing<'a, N> {
    pub(crate) room: &'a mut Room,
    pub(crate) upstream: &'a mut upstream::Room,
    pub(crate) clients: &'a mut Clients,
    pub(crate) observer: &'a mut Option<Observer>,
    pub(crate) world: &'a mut World,
    pub(crate) shared: &'a Shared,
    pub(crate) live: &'a Live,
    pub(crate) table: &'a CommandTable,
    /// The time of the turn.
    pub(crate) now: Instant,
    pub(crate) next_tick: &'a mut Instant,
    pub(crate) effects: &'a mut N,
}

impl<N: Notes> Routing<'_, N> {
    /// The room of links, for a call.
    #[inline]
    fn links(&mut self) -> Links<'_, N> {
        Links {
            room: &mut *self.upstream,
            clients: &mut *self.clients,
            world: &mut *self.world,
            shared: self.shared,
            live: self.live,
            table: self.table,
            now: self.now,
            next_tick: &mut *self.next_tick,
            effects: &mut *self.effects,
        }
    }

    /// A node for what any node can do: the same for a client as long as the map is.
    fn home(&self, key: ClientKey) -> NodeId {
        self.room.home(self.clients, key)
    }

    /// The primary of a slot; any node, which will say what is wrong, if it has none.
    #[inline]
    fn primary_of(&self, slot: u16, key: ClientKey) -> NodeId {
        self.room.primary_of(self.clients, slot, key)
    }

    /// A reply has come, or an error takes its place.
    fn conclude(&mut self, ticket: Ticket, reply: &[u8]) {
        self.effects.note(Effect::Conclude(ticket, reply.to_vec()));
    }

    /// Counts the keys of a request that is sent on now.
    #[inline]
    pub(crate) fn observe(
        &mut self,
        key: ClientKey,
        command: &Command,
        request: Request<'_>,
    ) -> Mark {
        let within = self.clients.get_ref(key).is_some_and(|client| client.within);
        match self.observer {
            Some(observer) if !within => observer.sent(Writer(key.slot), command, request),
            _ => Mark::Nothing,
        }
    }

    /// A request will not be answered.
    pub(crate) fn give_up(&mut self, mark: Mark) {
        if let Mark::Hot(_) = mark {
            return self.effects.note(Effect::GivenUp(mark));
        }
        if let Some(observer) = &mut self.observer {
            observer.given_up(mark);
        }
    }
}

impl Room {
    pub(crate) fn new(is_cluster: bool, index: usize, now: Instant) -> Self {
        Self {
            view: is_cluster.then(|| View::new(now)),
            epoch: 0,
            gathers: Slab::new(),
            redirects: HashMap::default(),
            redirects_in_flight: RedirectsInFlight::default(),
            later: Vec::new(),
            is_listening_in_vain: false,
            next_listening: now,
            kept: Vec::new(),
            moving: Moving::default(),
            replays: Replays::default(),
            walked: 0,
            moved: MovedValues::default(),
            reads_replicas: false,
            // Workers do not begin with the same node.
            turn: index,
        }
    }
}
