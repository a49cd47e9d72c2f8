//! Who waits for a reply on a link that is shared, and what for.

use heatsink_upstream::link::Waiter;

use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::observe::Mark;
use crate::upstream::nodes::NodeId;

/// Who waits for a reply on a shared link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    pub(crate) client: ClientKey,
    /// The way that the client gets its replies by, or the place of the only one; see
    /// [`crate::downstream::order`].
    pub(crate) seq: u32,
    pub(crate) purpose: Purpose,
}

impl Ticket {
    /// Both are parts of one request, which are no trouble to each other.
    pub(crate) fn is_sibling(self, other: Self) -> bool {
        match (self.purpose, other.purpose) {
            (Purpose::Part { join, .. }, Purpose::Part { join: of_other, .. }) => join == of_other,
            _ => false,
        }
    }

    /// Several clients may wait for it.
    pub(crate) fn is_for_many(self) -> bool {
        let is_part = matches!(self.purpose, Purpose::Part { .. });
        matches!(self.purpose, Purpose::Fill(_) | Purpose::Combined(_))
            || is_part && self.client == ClientKey::NOBODY
    }

    /// A request of our own.
    pub(crate) fn internal(purpose: Purpose) -> Self {
        Self { client: ClientKey::NOBODY, seq: 0, purpose }
    }
}

/// What a reply on a shared link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// The client gets it as it is.
    Forward,
    /// The client gets it where it had been expected from another node.
    Redirect(u32),
    /// It is joined with others.
    Part { join: u32, part: u32 },
    /// It decides about the client's [`crate::session::switch::Session`].
    Session,
    /// The server's command table.
    Commands,
    /// Who belongs to the cluster.
    Members,
    /// The cluster's map.
    Topology,
    /// Nobody wants it.
    Ignored,
    /// It is for the client's dedicated connection.
    Dedicated,
    /// The reply to a read of a hot key.
    Fill(u32),
    /// Whether the server tracks the read of a hot key that is sent right behind.
    Caching(u32),
    /// How long the fields live that a read of a hash shows, right before the next.
    FillFields(u32),
    /// How long the key lives that was read before.
    FillTtl(u32),
    /// The reply to writes of a hot key that were combined.
    Combined(u32),
    /// A link of the cache is still there.
    Pulse,
    /// Whether a server answers, and is not loading its data.
    Health(NodeId),
}

impl Clients {
    /// The reply that `ticket` waits for will come from elsewhere, and those behind it must not
    /// pass it.
    pub(crate) fn redirect(&mut self, ticket: Ticket) -> Ticket {
        if ticket.purpose != Purpose::Forward {
            return ticket;
        }
        match self.get_with_buffers(ticket.client) {
            Some((client, buffers)) => {
                let purpose = Purpose::Redirect(client.order.hole(ticket.seq, buffers));
                Ticket { purpose, ..ticket }
            }
            // It has gone; what it wrote before is executed all the same.
            None => Ticket::internal(Purpose::Ignored),
        }
    }
}

impl Waiter for Ticket {
    type Mark = Mark;

    fn wants_whole(&self) -> bool {
        self.purpose != Purpose::Forward
    }
}
