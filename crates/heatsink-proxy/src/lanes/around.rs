//! A way around a shared link on which the server says nothing.
//!
//! A server that runs a script, or holds up writes (`CLIENT PAUSE`), says nothing more on the
//! connection that this came from, but it answers others: with `-BUSY`, say. Whoever has nothing
//! under way takes a second shared link then:
//!
//! ```text
//! 1. A: EVAL -> link 1; the script does not end
//! 2. B: GET -> link 1, before anybody can know; it waits, as anything that B sends now
//! 3. QUIET later C: GET -> link 2: -BUSY
//! 4. the script is killed; link 1 answers, and C goes back there when it has nothing under way
//! ```
//!
//! A client's requests stay in one line: it changes between the links only when all it has asked is
//! answered.
//!
//! Called by: whoever sends a client's requests along a lane; `tick`.
//! Bound: one more link per lane, and none before a cluster. It may take as long to be there as an
//! answer may take, since the server may do nothing at all meanwhile, and is closed when the first
//! link answers again and nobody waits on it.

use std::time::Duration;

use crate::connection::ClientKey;
use crate::lanes::{Owner, Upstream};
use crate::nodes::NodeId;
use crate::worker::Worker;

/// A link that owes answers and has said nothing for so long is gone around.
const QUIET: Duration = Duration::from_millis(200);

impl Worker {
    /// The shared link for what a client sends now.
    #[inline]
    pub(crate) fn link_for(
        &mut self,
        key: ClientKey,
        lane: usize,
        node: NodeId,
    ) -> Result<usize, String> {
        let link = self.lane_link(lane, node)?;
        if self.goes_around { Ok(self.link_around(key, lane, node, link)) } else { Ok(link) }
    }

    #[cold]
    fn link_around(&mut self, key: ClientKey, lane: usize, node: NodeId, link: usize) -> usize {
        let quiet = self.is_quiet(&self.links[link]);
        let second = self.lanes[lane].way(node).second;
        let generation = second.and_then(|second| Some(self.links.get(second)?.generation));
        let Some(client) = self.clients.get(key) else { return link };
        if client.order.outstanding() > 0 {
            // As long as there is a second link, every request comes by here.
            return second.filter(|_| client.around == generation).unwrap_or(link);
        }
        client.around = None;
        if !quiet {
            return link;
        }
        let second = match second {
            Some(second) => second,
            None => match self.open_link(lane, node, Owner::Lane) {
                Ok(second) => second,
                Err(_) => return link,
            },
        };
        self.lanes[lane].way(node).second = Some(second);
        let generation = self.links[second].generation;
        if let Some(client) = self.clients.get(key) {
            client.around = Some(generation);
        }
        second
    }

    fn is_quiet(&self, upstream: &Upstream) -> bool {
        upstream.link.is_ready()
            && upstream.link.waiting() > 0
            && !upstream.link.was_heard_within(QUIET, self.now)
    }

    /// Looks whether there are links to go around, and closes second ones that nobody needs.
    pub(super) fn look_around(&mut self) {
        self.goes_around = false;
        if self.cluster.is_some() {
            return;
        }
        let mut unused = Vec::new();
        for (_, lane) in &self.lanes {
            for way in &lane.ways {
                let first = way.link.and_then(|link| self.links.get(link));
                let quiet = first.is_some_and(|upstream| self.is_quiet(upstream));
                let second = way.second.and_then(|link| Some((link, self.links.get(link)?)));
                match second {
                    Some((slot, second)) if !quiet && second.link.waiting() == 0 => {
                        unused.push(slot);
                    }
                    Some(_) => self.goes_around = true,
                    None => self.goes_around |= quiet,
                }
            }
        }
        for slot in unused {
            self.drop_link(slot);
        }
    }
}
