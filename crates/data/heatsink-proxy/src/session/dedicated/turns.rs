//! Connections go to clients in the order in which these asked for one.
//!
//! A server serves the clients that wait for a key in the order in which their commands came. Here a
//! command may have to wait for a new connection, and one that came later must not overtake it:
//!
//! ```text
//! 1. A: BLPOP queue 0; there is no connection, and one is opened
//! 2. C's transaction is over: its connection is free
//! 3. B: BLPOP queue 0, on that connection; the server notes B
//! 4. A's connection is there; the server notes A, behind B
//! ```
//!
//! So at 2 the connection goes to A, and the one that is being opened is free when it is there. The
//! same if two are being opened and the later one is there first.
//!
//! Clients of two workers do not wait in one line: if A's worker has to open a connection, and B's has
//! a free one, B is first. So where clients block, each worker has a connection open beforehand:
//!
//! ```text
//! 1. A: BLPOP queue 0, on the spare connection of worker 1, which opens the next one
//! 2. B: BLPOP queue 0, on that of worker 2
//! ```
//!
//! What is left: clients of one worker that begin to block within the time in which a connection is
//! opened, more of them than it has spare ones, and the first ones of all.
//!
//! Called by: `dedicated_link` and `pools`.
//! Bound: an entry for each client that waits for its connection; one spare connection that was
//! opened beforehand for each pool and node to which blocking commands are sent, and none near the
//! limit of open files.
//! Invariant: while a client waits for a connection to a node, no other that leads there along the
//! same pool is free and ready.

use std::sync::atomic::Ordering;
use std::time::Duration;

use heatsink_resp::encode;
use heatsink_upstream::link::Framing;

use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::relay::Relay;
use crate::session::Sessions;
use crate::session::dedicated::{Dedicated, Expected};
use crate::upstream;
use crate::upstream::links::Owner;
use crate::upstream::nodes::NodeId;
use crate::upstream::pools::Pool;

impl Dedicated {
    /// It has another connection from now on; nothing was sent on the one before.
    fn change_link(&mut self, link: usize) {
        let before = std::mem::replace(&mut self.link, link);
        if self.asked == Some(before) {
            self.asked = Some(link);
        }
        self.within_link = link;
    }
}

/// A connection that is kept beforehand and could not be had is tried again after this.
const SPARE_RETRY: Duration = Duration::from_secs(1);

impl Sessions<'_> {
    /// A client has sent a blocking command: others will, and are not to wait for a connection.
    pub(in crate::session) fn note_blocking(&mut self, key: ClientKey) {
        let Some(client) = self.relay.clients.get_ref(key) else { return };
        let Some(node) = client.dedicated.as_ref().map(|dedicated| dedicated.node) else { return };
        let pool = client.pool;
        self.relay.links().node(node).blocks.store(true, Ordering::Relaxed);
        self.keep_spare(pool, node);
    }

    /// Opens a connection for the next client that needs one, if there is none and clients block there.
    pub(in crate::session) fn keep_spare(&mut self, pool: usize, node: NodeId) {
        let there = |slot: &usize| {
            self.relay.upstream.links.get(*slot).is_some_and(|link| link.node == node)
        };
        if self.relay.upstream.pools[pool].spare.iter().any(there)
            || !self.relay.links().node(node).blocks.load(Ordering::Relaxed)
            // Nobody waits for it: a server that has no room is not asked at each tick.
            || self.relay.upstream.has_failed_within(self.relay.now, pool, node, SPARE_RETRY)
        {
            return;
        }
        if let Ok(slot) = self.relay.links().open_link(pool, node, Owner::Spare) {
            self.relay.upstream.pools[pool].spare.push(slot);
        }
    }

    /// Opens a spare connection for each pool where clients may block, because those of other workers do.
    pub(crate) fn look_after_spares(&mut self) {
        let used = |(slot, pool): (usize, &Pool)| (pool.clients > 0).then_some(slot);
        let pools: Vec<usize> = self.relay.upstream.pools.iter().filter_map(used).collect();
        for pool in pools {
            let nodes: Vec<NodeId> = self.relay.upstream.connected_nodes(pool).collect();
            for node in nodes {
                self.keep_spare(pool, node);
            }
        }
    }

    /// A client needs a connection no more, and it carries no state: whoever waits for one gets it.
    pub(crate) fn spare_link(&mut self, slot: usize) {
        self.relay.links().spare_link(slot);
        self.give_in_turn(slot);
    }

    /// A connection is ready, and free or somebody's own: whoever has waited longest gets it.
    pub(crate) fn give_in_turn(&mut self, slot: usize) {
        let Some(upstream) = self.relay.upstream.links.get_mut(slot) else { return };
        if !upstream.link.is_ready() {
            return;
        }
        upstream.link.hold_back(false);
        let (pool, node, owner) = (upstream.pool, upstream.node, upstream.owner);
        if self.relay.upstream.pools[pool].waiting.is_empty() || upstream.link.is_shut() {
            return;
        }
        let holder = match owner {
            Owner::Spare => None,
            // Not a connection beside its own.
            Owner::Client(key) if self.relay.clients.dedicated_link_of(key) == Some(slot) => {
                Some(key)
            }
            _ => return,
        };
        let Some(first) = self.first_in_line(pool, node, holder) else { return };
        let Some(theirs) =
            self.relay.clients.dedicated_link_of(first).filter(|_| holder != Some(first))
        else {
            return;
        };
        // What is queued on either is not sent yet.
        let queued = self.relay.upstream.take_queued(theirs);
        let holders = holder.map(|holder| (holder, self.relay.upstream.take_queued(slot)));
        self.move_to_link(first, slot, &queued);
        if let Some((holder, queued)) = holders {
            self.move_to_link(holder, theirs, &queued);
        } else {
            self.relay.upstream.pools[pool].spare.retain(|spare| *spare != slot);
            self.relay.upstream.links[theirs].name = Vec::new();
            self.spare_link(theirs);
        }
    }

    /// Takes whoever has waited longest for a connection of a pool to a node out of the line;
    /// `holder` has one that was not ready until now. Those who do not wait any more are forgotten.
    fn first_in_line(
        &mut self,
        at: usize,
        node: NodeId,
        holder: Option<ClientKey>,
    ) -> Option<ClientKey> {
        let Relay { clients, upstream: upstream::Room { pools, links, .. }, .. } = &mut *self.relay;
        let waits = |key: ClientKey| {
            let dedicated = clients.get_ref(key).and_then(|client| client.dedicated.as_ref());
            let dedicated = dedicated.filter(|dedicated| dedicated.node == node && !dedicated.shut);
            let link = dedicated.and_then(|dedicated| links.get(dedicated.link));
            // It may have logged in as somebody else meanwhile.
            let link = link.filter(|link| link.pool == at);
            link.is_some_and(|link| holder == Some(key) || !link.link.is_ready())
        };
        let line = &mut pools[at].waiting;
        line.retain(|(wanted, key)| *wanted != node || waits(*key));
        let place = line.iter().position(|(wanted, _)| *wanted == node)?;
        line.remove(place).map(|(_, key)| key)
    }

    /// A client's dedicated connection is another one from now on, on which is said what it had queued.
    fn move_to_link(&mut self, key: ClientKey, link: usize, queued: &[u8]) {
        let now = self.relay.now;
        let Relay { clients, upstream: upstream::Room { links, .. }, .. } = &mut *self.relay;
        let (Some(client), Some(upstream)) = (clients.get(key), links.get_mut(link)) else {
            return;
        };
        let Some(dedicated) = &mut client.dedicated else { return };
        dedicated.change_link(link);
        upstream.link.set_framing(Framing::Frames);
        if upstream.owner == Owner::Spare && !upstream.name.is_empty() {
            // Of the client that had it before. If this one has a name, it is queued.
            let mut nameless = Vec::new();
            encode::command(&mut nameless, &["CLIENT", "SETNAME", ""]);
            upstream.link.push_unmatched(&nameless);
            dedicated.expected.push_front(Expected::Unasked);
        }
        upstream.name = client.record.facts().name.clone();
        upstream.owner = Owner::Client(key);
        upstream.link.push_unmatched(queued);
        if upstream.link.is_ready() {
            upstream.link.expect_answer(now);
        }
        client.record.set_upstream_id(upstream.link.connection_id());
        self.relay.upstream.touch_link(link);
    }
}

impl upstream::Room {
    /// A client has got a connection. If that is not ready, the client waits in line.
    pub(in crate::session) fn wait_in_line(&mut self, key: ClientKey, link: usize) {
        let Some(upstream) = self.links.get_mut(link) else { return };
        if !upstream.link.is_ready() {
            upstream.link.hold_back(true);
            self.pools[upstream.pool].waiting.push_back((upstream.node, key));
        }
    }

    pub(in crate::session) fn take_queued(&mut self, link: usize) -> Vec<u8> {
        let Some(upstream) = self.links.get_mut(link) else { return Vec::new() };
        upstream.link.hold_back(true);
        let queued = upstream.link.take_unmatched();
        upstream.link.hold_back(!upstream.link.is_ready());
        queued
    }
}

impl Clients {
    pub(in crate::session) fn dedicated_link_of(&self, key: ClientKey) -> Option<usize> {
        Some(self.get_ref(key)?.dedicated.as_ref()?.link)
    }
}
