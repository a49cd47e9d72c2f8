//! Sharded channels of other nodes, which a client listens to beside its own connection.
//!
//! To its clients a cluster is one server, where one connection listens to any channels. A server
//! tells of sharded channels only where their slots are, so there is a connection for each node:
//!
//! ```text
//! 1. SSUBSCRIBE a -> A, the client's dedicated connection from now on: it counts 1
//! 2. SSUBSCRIBE b -> A: MOVED to B
//! 3. SSUBSCRIBE b -> B, on a connection beside: it counts 1; the client is told 2
//! 4. messages of both go to the client, each whole
//! ```
//!
//! Called by: `dedicated` and `dedicated_link`.
//! Bound: a connection for each primary. One without channels is given back.
//! Invariant: while one of the connections is in the middle of a frame, the others are not read.

use heatsink_cluster::redirect::{self, Redirect};
use heatsink_resp::command::SubscriptionKind;
use heatsink_upstream::link::Framing;

use crate::cluster::redirects::is_servers_own;
use crate::cluster::redirects::{MAX_HOPS, given_up};
use crate::downstream::clients::error_line;
use crate::downstream::connection::ClientKey;
use crate::session::Sessions;
use crate::session::dedicated::{Confirmations, Dedicated, Expected};
use crate::upstream::links::Owner;
use crate::upstream::nodes::NodeId;

/// A connection beside a client's own.
#[derive(Debug)]
pub(super) struct Side {
    link: usize,
    node: NodeId,
    /// Sharded channels that are listened to there.
    shards: usize,
    /// What the server tells of its keys is listened to there; see [`crate::session::dedicated::keyspace_events`].
    events: bool,
    /// Names that were said for that and are not confirmed yet.
    unconfirmed: usize,
}

/// Whom a frame of a connection beside is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aside {
    Client,
    Nobody,
    /// It answers the client's request, or tells of sharded channels.
    Dedicated,
}

impl Dedicated {
    /// Its connections.
    pub(crate) fn links(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.link).chain(self.sides.iter().map(|side| side.link))
    }

    /// Whether a connection is not read now: another is in the middle of a frame, or others have not
    /// confirmed yet what this one confirms to the client. A primary that joins is not waited for, as
    /// it may stand still, and the client waits for nothing.
    pub(crate) fn is_barred(&self, link: usize) -> bool {
        let unconfirmed = || self.sides.iter().any(|side| side.unconfirmed > 0);
        self.within_frame && self.within_link != link
            || link == self.link && self.expects_confirmation() && unconfirmed()
    }

    /// Takes a frame of a connection beside.
    pub(super) fn on_side_frame(
        &mut self,
        link: usize,
        frame: &[u8],
        word: Option<&[u8]>,
    ) -> Aside {
        let (listens, asked) = (self.is_subscriber(), self.is_asked(link));
        let Some(side) = self.sides.iter_mut().find(|side| side.link == link) else {
            return Aside::Dedicated;
        };
        match word {
            Some(b"subscribe" | b"psubscribe") => {
                side.unconfirmed = side.unconfirmed.saturating_sub(1);
                Aside::Nobody
            }
            Some(b"unsubscribe" | b"punsubscribe") => Aside::Nobody,
            Some(b"message" | b"pmessage" | b"smessage") if listens => Aside::Client,
            Some(b"ssubscribe" | b"sunsubscribe") => Aside::Dedicated,
            _ if asked => Aside::Dedicated,
            _ => {
                if frame.first() == Some(&b'-') {
                    side.unconfirmed = 0;
                }
                Aside::Nobody
            }
        }
    }

    /// The connections beside on which events are listened to.
    pub(super) fn event_links(&self) -> impl Iterator<Item = usize> {
        self.sides.iter().filter(|side| side.events).map(|side| side.link)
    }

    pub(super) fn hears_events_of(&self, node: NodeId) -> bool {
        self.node == node || self.sides.iter().any(|side| side.events && side.node == node)
    }

    /// So many names were said on a connection beside, to listen to events.
    pub(super) fn note_events(&mut self, link: usize, names: usize) {
        if let Some(side) = self.sides.iter_mut().find(|side| side.link == link) {
            side.events = true;
            side.unconfirmed += names;
        }
    }

    /// Takes out the connections to nodes that are not among `nodes`, if they serve no other purpose.
    pub(super) fn take_sides_beyond(&mut self, nodes: &[NodeId]) -> Vec<usize> {
        let beyond = |side: &mut Side| side.shards == 0 && !nodes.contains(&side.node);
        self.sides.extract_if(.., beyond).map(|side| side.link).collect()
    }

    /// Whether the request under way was sent on this connection.
    pub(crate) fn is_asked(&self, link: usize) -> bool {
        self.asked.is_none_or(|asked| asked == link)
    }

    /// A connection says how many sharded channels are listened to there. If there are several, the
    /// client is told how many there are in all.
    pub(super) fn count_shards(&mut self, link: usize, count: usize, frame: &[u8]) {
        match self.sides.iter_mut().find(|side| side.link == link) {
            Some(side) => side.shards = count,
            None => self.shards_here = count,
        }
        let beside: usize = self.sides.iter().map(|side| side.shards).sum();
        self.shards = self.shards_here + beside;
        if !self.sides.is_empty() {
            self.rewritten = with_count(frame, self.shards);
        }
    }

    /// Where the last request is to be sent: on its own connection; `SUNSUBSCRIBE` of all channels on
    /// each that has some.
    pub(crate) fn ask(&mut self) -> (usize, Vec<usize>) {
        self.asked = Some(self.link);
        if self.sides.is_empty() {
            return (self.link, Vec::new());
        }
        let Some(Expected::Subscription { subscription, left: left @ Confirmations::All }) =
            self.expected.back_mut()
        else {
            return (self.link, Vec::new());
        };
        let beside = self.sides.iter().filter(|side| side.shards > 0).map(|side| side.link);
        let here = (self.shards_here > 0).then_some(self.link);
        let mut links = here.into_iter().chain(beside);
        match links.next() {
            Some(first) if subscription.kind == SubscriptionKind::Shard => {
                *left = Confirmations::Exactly(self.shards);
                self.asked = None;
                (first, links.collect())
            }
            _ => (self.link, Vec::new()),
        }
    }

    /// Takes out the connections beside on which nothing is listened to.
    fn take_unused_sides(&mut self) -> Vec<Side> {
        self.forget_everywhere();
        let hears = !self.everywhere.is_empty();
        self.sides.extract_if(.., |side| side.shards == 0 && !(side.events && hears)).collect()
    }
}

impl Sessions<'_> {
    /// A node has not executed `SSUBSCRIBE` or `SUNSUBSCRIBE` of a client that listens already: it
    /// is sent where it belongs, beside the client's dedicated connection.
    pub(in crate::session) fn subscribe_beside(&mut self, key: ClientKey, error: &[u8]) {
        let Some(client) = self.relay.clients.get_ref(key) else { return };
        let Some(dedicated) = &client.dedicated else { return };
        let (pool, hops, current) = (client.pool, dedicated.hops, dedicated.current.clone());
        let from = dedicated.sides.iter().find(|side| dedicated.asked == Some(side.link));
        let from = from.map_or(dedicated.node, |side| side.node);
        let Some(redirect) = redirect::parse(error)
            .filter(|redirect| is_servers_own(&self.relay.table, *redirect, error, &current))
        else {
            return self.answer_own(key, error);
        };
        self.relay.routing().want_topology();
        let to = match redirect {
            Redirect::Moved { host, port, .. } if hops <= MAX_HOPS => {
                self.relay.routing().named_node(from, host, port)
            }
            _ => None,
        };
        let Some(to) = to else {
            return self.answer_own(key, given_up(redirect, error, false));
        };
        match self.side_link(key, pool, to) {
            Ok(link) => {
                if let Some(dedicated) =
                    self.relay.clients.get(key).and_then(|client| client.dedicated.as_mut())
                {
                    dedicated.asked = Some(link);
                }
                self.relay.upstream.links[link].requests += 1;
                self.relay.upstream.links[link].link.expect_answer(self.relay.now);
                self.push_dedicated(key, link, &current);
            }
            Err(why) => self.answer_own(key, &error_line(&why)),
        }
    }

    /// The connection of a client to a node, which may be its own.
    pub(super) fn side_link(
        &mut self,
        key: ClientKey,
        pool: usize,
        node: NodeId,
    ) -> Result<usize, String> {
        let dedicated =
            self.relay.clients.get_ref(key).and_then(|client| client.dedicated.as_ref());
        if let Some(dedicated) = dedicated {
            if dedicated.node == node {
                return Ok(dedicated.link);
            }
            if let Some(side) = dedicated.sides.iter().find(|side| side.node == node) {
                return Ok(side.link);
            }
        }
        let link = self.relay.links().take_link(pool, node, Owner::Client(key))?;
        self.relay.upstream.links[link].link.set_framing(Framing::Frames);
        if let Some(dedicated) =
            self.relay.clients.get(key).and_then(|client| client.dedicated.as_mut())
        {
            dedicated.sides.push(Side { link, node, shards: 0, events: false, unconfirmed: 0 });
        }
        Ok(link)
    }

    /// Gives back connections beside on which nothing is listened to, and reads those again that
    /// had to wait.
    pub(in crate::session) fn look_beside(&mut self, key: ClientKey) {
        let Some(dedicated) =
            self.relay.clients.get(key).and_then(|client| client.dedicated.as_mut())
        else {
            return;
        };
        if dedicated.sides.is_empty() || dedicated.within_frame {
            return;
        }
        let unused =
            if dedicated.is_drained() { dedicated.take_unused_sides() } else { Vec::new() };
        let others: Vec<_> = dedicated.links().collect();
        for link in others {
            if self.relay.upstream.links.get(link).is_some_and(|upstream| upstream.readable) {
                self.relay.upstream.eager_links.push(link);
            }
        }
        for side in unused {
            if side.events {
                // It may still tell of events, or confirm that it does no more.
                self.relay.links().drop_link(side.link);
            } else {
                self.spare_link(side.link);
            }
        }
    }

    /// A connection beside was lost on which nothing was listened to yet: the request that it was
    /// opened for has failed, or is said again later. False if it was another.
    pub(in crate::session) fn unused_side_lost(
        &mut self,
        key: ClientKey,
        link: usize,
        text: &str,
    ) -> bool {
        let Some(dedicated) =
            self.relay.clients.get(key).and_then(|client| client.dedicated.as_mut())
        else {
            return false;
        };
        let unused = |side: &Side| {
            side.link == link && side.shards == 0 && (!side.events || side.unconfirmed > 0)
        };
        let Some(at) = dedicated.sides.iter().position(unused) else { return false };
        self.relay.cluster.is_listening_in_vain |= dedicated.sides.swap_remove(at).events;
        if dedicated.asked == Some(link) {
            dedicated.asked = Some(dedicated.link);
            self.answer_own(key, &error_line(text));
        }
        self.read_dedicated_again(key);
        true
    }

    /// Closes what is left of a client's connections.
    pub(crate) fn drop_dedicated_links(&mut self, key: ClientKey, dedicated: &Dedicated) {
        for link in dedicated.links() {
            if self
                .relay
                .upstream
                .links
                .get(link)
                .is_some_and(|link| link.owner == Owner::Client(key))
            {
                self.relay.links().drop_link(link);
            }
        }
    }
}

/// A confirmation with another number at its end.
fn with_count(frame: &[u8], count: usize) -> Option<Vec<u8>> {
    let at = frame.iter().rposition(|byte| *byte == b':')?;
    let mut rewritten = frame[..=at].to_vec();
    rewritten.extend_from_slice(count.to_string().as_bytes());
    rewritten.extend_from_slice(b"\r\n");
    Some(rewritten)
}
