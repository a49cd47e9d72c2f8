//! What rooms below want from rooms above, in the order in which they want it.
//!
//! A room never calls one above it. What that has to hear of, that a reply will not come, say, is noted
//! here, and carried out by the event loop when the call has returned: then the room below is done with
//! what it was about, and may be asked to send something.
//!
//! Called by: the rooms of the relay and the mitigations, to note something; the event loop, to carry
//! it out, after each step.
//! Bound: what one step leads to. The buffer is used again; a request that is simply passed on, or
//! served from the cache, notes nothing.
//! Invariant: effects are carried out in the order in which they were noted, and those that one of
//! them leads to before the next, as if each had been a call.

use crate::cluster::redirects::Standing;
use crate::downstream::connection::ClientKey;
use crate::observe::Mark;
use crate::upstream;
use crate::upstream::effects::Note;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::Ticket;

/// Something that a room above has to do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// What the room of links has noted.
    OfLinks(upstream::effects::Effect),
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
    /// On this link the server tells of changes from now on.
    TrackedReady(usize),
    /// The cluster's map has changed.
    MapChanged,
    /// The request under way on a client's dedicated connection is to be said again, wherever it belongs.
    SayAgain(ClientKey),
    /// A client gets an answer made here, if the server would answer what it is asked for that.
    Ask(Box<Question>),
    /// Primaries may have changed to which clients listen, or one of them could not be reached before.
    ListenAnew,
    /// A client is to be closed.
    Close(ClientKey),
    /// A client may have come to its end.
    CloseIfDone(ClientKey),
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

impl Note for Effects {
    fn note(&mut self, effect: upstream::effects::Effect) {
        self.push(Effect::OfLinks(effect));
    }
}

/// What is to be done, the first first.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    noted: Vec<Effect>,
}

impl Effects {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    /// Notes something that is to be done.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.noted.push(effect);
    }

    /// Notes that a reply has come, or that an error takes its place.
    pub(crate) fn conclude(&mut self, ticket: Ticket, reply: &[u8]) {
        self.push(Effect::Conclude(ticket, reply.to_vec()));
    }

    /// What was noted, the first first.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Effect> {
        self.noted.iter()
    }

    /// Takes out what was noted.
    pub(crate) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.noted)
    }

    /// Gives an emptied buffer back, to be used again.
    pub(crate) fn give_back(&mut self, buffer: Vec<Effect>) {
        debug_assert!(buffer.is_empty());
        if self.noted.capacity() == 0 {
            self.noted = buffer;
        }
    }
}
