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
//! answered. Before a cluster, that holds for all nodes at once:
//!
//! ```text
//! 1. C has nothing under way, and asks N, which is silent: link 2 of N is opened, and C goes around
//! 2. C: GET -> link 1 of M, which has no link 2; M falls silent, and D goes around it
//! 3. C: SET -> link 1 of M, not its link 2, which is younger than C's decision: it would pass the GET
//! ```
//!
//! A hot key is an ordinary key for whoever goes around: it joins no read that is out on the silent link,
//! and waits for no batch of increments there. What is cached is still told.
//!
//! Called by: whoever sends a client's requests along a pool; `tick`.
//! Bound: one more link per pool and node. It may take as long to be there as an
//! answer may take, since the server may do nothing at all meanwhile, and is closed when the first
//! link answers again and nobody waits on it.

use std::time::Duration;

use crate::downstream::connection::ClientKey;
use crate::upstream::Links;
use crate::upstream::effects::{Effect, Note};
use crate::upstream::links::{Owner, Upstream};
use crate::upstream::nodes::NodeId;

/// A link that owes answers and has said nothing for so long is gone around. Who gives a script 200 ms
/// to be busy, as people and test suites do, is told so then.
const QUIET: Duration = Duration::from_millis(100);

impl<N: Note<Effect>> Links<'_, N> {
    #[cold]
    pub(super) fn link_around(
        &mut self,
        key: ClientKey,
        pool: usize,
        node: NodeId,
        link: usize,
    ) -> usize {
        self.decide_around(key, pool, &[node]);
        // As long as there is a second link, every request comes by here.
        let around = self.clients.get_ref(key).and_then(|client| client.around);
        let second = self.room.pools[pool].way(node).second;
        let is_older = |second: &usize| {
            let generation = self.room.links.get(*second).map(|upstream| upstream.generation);
            let age = around.zip(generation).map(|(at, opened)| at.wrapping_sub(opened));
            age.is_some_and(|age| age.cast_signed() >= 0)
        };
        second.filter(is_older).unwrap_or(link)
    }

    /// A client that has nothing under way is about to ask these nodes: if one of them is silent, it
    /// goes along second links from now on, until it has nothing under way again.
    pub(crate) fn decide_around(&mut self, key: ClientKey, pool: usize, nodes: &[NodeId]) {
        let Some(client) = self.clients.get(key).filter(|_| self.room.goes_around) else {
            return;
        };
        if client.order.outstanding() > 0 {
            return;
        }
        client.around = None;
        let mut goes_around = false;
        for node in nodes {
            let first =
                self.room.pools[pool].open_link(*node).and_then(|link| self.room.links.get(link));
            if !first.is_some_and(|upstream| self.is_quiet(upstream)) {
                continue;
            }
            goes_around = true;
            self.second_link(pool, *node);
        }
        let at = self.room.generation;
        if let Some(client) = self.clients.get(key).filter(|_| goes_around) {
            client.around = Some(at);
        }
    }

    fn second_link(&mut self, pool: usize, node: NodeId) -> Option<usize> {
        if self.room.pools[pool].way(node).second.is_none() {
            let second = self.open_link(pool, node, Owner::Pool).ok()?;
            self.room.pools[pool].way(node).second = Some(second);
        }
        self.room.pools[pool].way(node).second
    }

    /// Whether what a client sends now goes around the shared link; asked while there may be one that
    /// is gone around.
    #[cold]
    pub(crate) fn is_around(&mut self, key: ClientKey, node: NodeId) -> bool {
        let Some(pool) = self.clients.get_ref(key).map(|client| client.pool) else { return false };
        let Some(first) = self.room.pools[pool].open_link(node) else { return false };
        self.link_around(key, pool, node, first) != first
    }

    /// The shared link for what several clients wait for, or nobody: in no line with what any of them
    /// has under way.
    pub(crate) fn link_for_many(&mut self, pool: usize, node: NodeId) -> Result<usize, String> {
        let link = self.pool_link(pool, node)?;
        if self.room.goes_around && self.is_quiet(&self.room.links[link]) {
            return Ok(self.second_link(pool, node).unwrap_or(link));
        }
        Ok(link)
    }

    fn is_quiet(&self, upstream: &Upstream) -> bool {
        upstream.link.is_ready()
            && upstream.link.waiting() > 0
            && !upstream.link.was_heard_within(QUIET, self.now)
    }

    /// Looks whether there are links to go around, and closes second ones that nobody needs.
    pub(crate) fn look_around(&mut self) {
        self.room.goes_around = false;
        let mut unused = Vec::new();
        for (_, pool) in &self.room.pools {
            for way in &pool.ways {
                let first = way.link.and_then(|link| self.room.links.get(link));
                let quiet = first.is_some_and(|upstream| self.is_quiet(upstream));
                let second = way.second.and_then(|link| Some((link, self.room.links.get(link)?)));
                match second {
                    Some((slot, second)) if !quiet && second.link.waiting() == 0 => {
                        unused.push(slot);
                    }
                    Some(_) => self.room.goes_around = true,
                    None => self.room.goes_around |= quiet,
                }
            }
        }
        for slot in unused {
            self.drop_link(slot);
        }
    }
}
