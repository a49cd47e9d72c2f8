//! A cluster behind, that looks like one server to clients.
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

mod commands;
pub(crate) mod forward;
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
use slab::Slab;

use crate::upstream::ticket::Ticket;
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
}

impl Room {
    pub(crate) fn new(is_cluster: bool, now: Instant) -> Self {
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
        }
    }
}
