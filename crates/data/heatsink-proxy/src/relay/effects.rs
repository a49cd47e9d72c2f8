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

use crate::cluster;
use crate::downstream::connection::ClientKey;
use crate::upstream;
use crate::upstream::effects::Note;
use crate::upstream::ticket::Ticket;

/// Something that a room above has to do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// What the room of links has noted.
    OfLinks(upstream::effects::Effect),
    /// What the room of the cluster has noted.
    OfCluster(cluster::effects::Effect),
    /// A reply has come that is not simply passed on, or an error takes its place.
    Conclude(Ticket, Vec<u8>),
    /// On this link the server tells of changes from now on.
    TrackedReady(usize),
    /// A client is to be closed.
    Close(ClientKey),
    /// A client may have come to its end.
    CloseIfDone(ClientKey),
}

impl Note<upstream::effects::Effect> for Effects {
    fn note(&mut self, effect: upstream::effects::Effect) {
        self.push(Effect::OfLinks(effect));
    }
}

impl Note<cluster::effects::Effect> for Effects {
    fn note(&mut self, effect: cluster::effects::Effect) {
        self.push(Effect::OfCluster(effect));
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
