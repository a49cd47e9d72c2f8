//! What the cluster wants from whoever owns it: it knows of no session and no hot keys.
//!
//! Called by: the methods of [`Routing`](crate::cluster::Routing), to note something.
//! Bound: what one call leads to. The owner's buffer is used again, and a request that is passed on along
//! a link which is there notes nothing.

use crate::cluster::redirects::Standing;
use crate::downstream::connection::ClientKey;
use crate::observe::Mark;
use crate::upstream;
use crate::upstream::effects::Note;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::Ticket;

/// Something that is to be done about a request, by somebody who knows what it means.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A reply has come that is not simply passed on, or an error takes its place.
    Conclude(Ticket, Vec<u8>),
    /// A request that touches hot keys will not be answered.
    GivenUp(Mark),
    /// A node of a cluster has refused a command for the type of a value.
    WrongType(Box<WrongType>),
    /// A node has not executed a request that was replayed, and what it was replayed behind is over.
    GoElsewhere(Box<Redirected>),
    /// A request was sent on along this link.
    Resent(usize, ClientKey),
    /// A link is flushed before the turn ends.
    LeavesEarly,
    /// The cluster's map has changed.
    MapChanged,
    /// The request under way on a client's dedicated connection is to be said again, wherever it belongs.
    SayAgain(ClientKey),
    /// A client gets an answer made here, if the server would answer what it is asked for that.
    Ask(Box<Question>),
    /// Primaries may have changed to which clients listen, or one of them could not be reached before.
    ListenAnew,
}

/// An answer that the server has a say in.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) client: ClientKey,
    pub(crate) pool: usize,
    /// What the server is asked.
    pub(crate) probe: Vec<u8>,
    /// What the client is told if it agrees.
    pub(crate) answer: Vec<u8>,
}

/// A command that was refused for the type of a value.
#[derive(Debug)]
pub(crate) struct WrongType {
    pub(crate) pool: usize,
    pub(crate) ticket: Ticket,
    pub(crate) request: Vec<u8>,
    pub(crate) error: Vec<u8>,
    /// Others of its client were sent behind it for the same slot.
    pub(crate) overtaken: bool,
}

/// A request that a node sends elsewhere.
#[derive(Debug)]
pub(crate) struct Redirected {
    /// The pool that it came along, and what tells it from a later one in its place.
    pub(crate) way: (usize, Option<u64>),
    pub(crate) from: NodeId,
    pub(crate) ticket: Ticket,
    pub(crate) request: Vec<u8>,
    pub(crate) error: Vec<u8>,
    pub(crate) standing: Standing,
}

/// Where effects are noted, those of the links among them.
pub(crate) trait Notes: Note<upstream::effects::Effect> + Note<Effect> {}

impl<N: Note<upstream::effects::Effect> + Note<Effect>> Notes for N {}
