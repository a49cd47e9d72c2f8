//! What the links want from whoever owns them: they know of no cluster, no session and no hot keys, and
//! what those have to do about a link that is lost, say, is noted here.
//!
//! Called by: the methods of [`Links`](crate::upstream::Links), to note something.
//! Bound: what hangs on the links that one call gives up. The owner's buffer is used again, and a request
//! that is queued on a link which is there notes nothing.

use std::rc::Rc;

use heatsink_upstream::error::LinkError;

use crate::downstream::connection::ClientKey;
use crate::observe::Mark;
use crate::upstream::links::Failure;
use crate::upstream::nodes::NodeId;
use crate::upstream::suspect_replies::Replayed;
use crate::upstream::ticket::Ticket;

/// Something that is to be done about links, by somebody who knows what it means.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A request of which this is remembered will not be answered.
    GivenUp(Mark),
    /// What a ticket waits for will not come.
    Unanswered(Ticket, Rc<Failure>),
    /// Nor will the reply to a request that was replayed.
    ReplayedLost(Replayed, Ticket, Rc<Failure>),
    /// What a link has not answered may be asked elsewhere.
    SendElsewhere(Box<Unsent>),
    /// A server could not be reached, or was lost.
    NodeFailed(NodeId),
    /// A server was lost, and may be another when it is back.
    NodeLost(NodeId),
    /// A link of that generation, on which the server told of changes, is used no more.
    TrackedLost(u32),
    /// A server does not tell of changes.
    TrackingRefused(NodeId, LinkError),
    /// The link on which other Heatsinks tell of changes is lost; its generation.
    ListenerLost(u32),
    /// A client's dedicated connection, or one beside it, is lost.
    DedicatedLost(ClientKey, usize, Rc<Failure>),
    /// A pool with this serial number is gone.
    PoolGone(u64),
    /// The server refuses the password of a pool, with this serial number.
    PasswordRefused(usize, u64),
}

/// Requests that a link has not answered, when it was given up.
#[derive(Debug)]
pub(crate) struct Unsent {
    /// The pool that they were to go along, and what tells it from a later one in its place.
    pub(crate) way: (usize, Option<u64>),
    pub(crate) requests: Vec<(Ticket, Vec<u8>)>,
    /// Only what reads may be asked again; else none of them was sent.
    pub(crate) only_reads: bool,
}

/// Where effects are noted: the owner's buffer, in one order with those of other rooms.
pub(crate) trait Note<E> {
    fn note(&mut self, effect: E);
}

#[cfg(test)]
impl Note<Effect> for Vec<Effect> {
    fn note(&mut self, effect: Effect) {
        self.push(effect);
    }
}
