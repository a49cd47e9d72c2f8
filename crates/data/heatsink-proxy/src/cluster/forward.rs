//! From a request to the link that it goes along.
//!
//! Called by: `intake` with what goes on as it is, and everybody who passes a request on.
//! Bound: [`MAX_OUTSTANDING`] requests of a client, and the bytes that a link may hold back: beyond
//! that its clients are not read from.
//! Invariant: requests of a client that took another way, by a map that no longer holds, are
//! answered before the next one is sent.

use crate::downstream::clients::{Clients, MAX_OUTSTANDING};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Flow;
use crate::observe::Mark;
use crate::relay::Relay;
use crate::relay::effects::Effect;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

impl Relay {
    /// Passes a request on along the client's pool, to any node.
    pub(crate) fn forward(&mut self, key: ClientKey, bytes: &[u8]) -> Flow {
        self.forward_to(key, self.home(key), bytes)
    }

    /// Passes a request on to a node, along the client's pool.
    #[inline]
    pub(crate) fn forward_to(&mut self, key: ClientKey, node: NodeId, bytes: &[u8]) -> Flow {
        if let Some(flow) = self.behind_old_map(key) {
            return flow;
        }
        self.send_on(key, node, bytes, &[Mark::Nothing]);
        Flow::Taken
    }

    /// The client has sent requests by a map that no longer holds, and they are not answered:
    /// what it sends now would take another way, and might overtake them.
    #[inline]
    pub(crate) fn behind_old_map(&mut self, key: ClientKey) -> Option<Flow> {
        let epoch = self.cluster.epoch;
        let client = self.clients.get(key)?;
        if client.epoch != epoch {
            if client.order.outstanding() > 0 {
                return Some(Flow::Wait);
            }
            client.epoch = epoch;
        }
        None
    }

    /// Sends requests on to a node, each with what is remembered of it.
    #[inline]
    pub(crate) fn send_on(&mut self, key: ClientKey, node: NodeId, bytes: &[u8], marks: &[Mark]) {
        let count = marks.len() as u32;
        let Some(client) = self.clients.get(key) else { return };
        let pool = client.pool;
        match self.links().link_for(key, pool, node) {
            Ok(link) => {
                let source = self.upstream.links[link].source(link);
                let Some((client, buffers)) = self.clients.get_with_buffers(key) else { return };
                let seq = client.order.expect(source, count, buffers);
                if client.order.outstanding() >= MAX_OUTSTANDING {
                    client.stopped = true;
                }
                let ticket = Ticket { client: key, seq, purpose: Purpose::Forward };
                self.upstream.push_marked(self.now, link, bytes, ticket, marks);
                if self.upstream.links[link].is_full() {
                    self.throttle(key, pool, link);
                }
            }
            Err(why) => {
                for mark in marks {
                    self.clients.error(key, &why);
                    self.give_up(*mark);
                }
            }
        }
    }

    /// Whether what a client sends now about a key goes around a shared link on which its server is
    /// silent.
    #[inline]
    pub(crate) fn goes_around(&mut self, key: ClientKey, name: &[u8]) -> bool {
        self.upstream.goes_around && {
            let node = self.node_of(name);
            self.links().is_around(key, node)
        }
    }

    /// The shared link has more to send than it should: send now, or wait.
    pub(crate) fn throttle(&mut self, key: ClientKey, pool: usize, link: usize) {
        self.effects.push(Effect::LeavesEarly);
        if let Err(error) = self.upstream.links[link].link.flush(self.now) {
            self.links().lose_link(link, &error);
            return;
        }
        if self.upstream.links[link].is_full() {
            self.clients.stop(key);
            self.upstream.pools[pool].throttled.push(key);
        }
    }
}

impl Clients {
    /// A client with too many unanswered requests sends no more of them.
    pub(crate) fn stop_if_many(&mut self, key: ClientKey) {
        if let Some(client) = self.get(key)
            && client.order.outstanding() >= MAX_OUTSTANDING
        {
            client.stopped = true;
        }
    }
}
