//! From a request to the link that it goes along: those of one client that came together leave
//! together, next to each other in one piece, before a cluster each to its node.
//!
//! Called by: `intake` with what goes on as it is, and before anything else is done for the client;
//! everybody who passes a request on.
//! Bound: the requests in what was read at once; [`MAX_OUTSTANDING`] requests of a client, and the bytes
//! that a link may hold back: beyond that its clients are not read from.
//! Invariant: requests of a client that took another way, by a map that no longer holds, are
//! answered before the next one is sent. Whatever does not join the batch comes behind it. In a batch, the
//! requests of one node are in the client's order.

use std::ops::Range;

use heatsink_resp::command::Command;

use crate::cluster::Routing;
use crate::cluster::effects::Effect;
use crate::cluster::effects::Notes;
use crate::downstream::clients::{Clients, MAX_OUTSTANDING};
use crate::downstream::connection::{BufferPool, ClientKey};
use crate::downstream::order::{Order, Source};
use crate::downstream::request::{Flow, Request};
use crate::observe::Mark;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

/// What is kept of the place where requests get the name of a shard.
pub(crate) const RENAMED_BYTES: usize = 64 << 10;

/// Requests of one client that are counted together, and sent on together: those next to each
/// other in one piece, before a cluster each to its node.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Range<usize>,
    /// One for each.
    pub(crate) marks: Vec<Mark>,
    /// Before a cluster: where each is, and where it goes.
    pub(crate) node_batches: NodeBatches,
    /// Those that go to shards, under their names.
    pub(crate) renamed: Vec<u8>,
}

impl<N: Notes> Routing<'_, N> {
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
        let epoch = self.room.epoch;
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

    /// A request goes on to a node with those that came before.
    #[inline]
    pub(crate) fn join_batch(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
        at: usize,
        to: (NodeId, Text),
        batch: &mut Batch,
    ) {
        let place = batch.marks.len();
        let mark = match &mut self.observer {
            Some(observer) => observer.sent_in_batch(key, command, request, at, place),
            None => Mark::Nothing,
        };
        batch.marks.push(mark);
        batch.node_batches.push(to.0, to.1);
    }

    /// Sends requests that need nothing but to be passed on.
    #[inline]
    pub(crate) fn forward_batch(&mut self, key: ClientKey, buf: &[u8], batch: &mut Batch) {
        if let Some(observer) = &mut self.observer {
            observer.count_batch(key, buf, &mut batch.marks);
        }
        if batch.node_batches.is_empty() {
            self.send_on(key, NodeId::FIRST, &buf[batch.bytes.clone()], &batch.marks);
        } else {
            self.forward_each(key, buf, batch);
            batch.renamed.clear();
            batch.renamed.shrink_to(RENAMED_BYTES);
        }
        batch.marks.clear();
        batch.bytes = 0..0;
    }

    /// Whether what a client sends now about a key goes around a shared link on which its server is
    /// silent.
    #[inline]
    pub(crate) fn goes_around(&mut self, key: ClientKey, name: &[u8]) -> bool {
        self.upstream.goes_around && {
            let node = self.room.node_of(self.clients, name);
            self.links().is_around(key, node)
        }
    }

    /// The shared link has more to send than it should: send now, or wait.
    pub(crate) fn throttle(&mut self, key: ClientKey, pool: usize, link: usize) {
        self.effects.note(Effect::LeavesEarly);
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

/// Where a request is.
#[derive(Clone, Debug)]
pub(crate) enum Text {
    /// Among the client's bytes.
    Asked(Range<usize>),
    /// Among those that got another name.
    Renamed(Range<usize>),
}

impl Text {
    /// Its bytes, those that it is a part of at hand.
    pub(crate) fn of<'a>(&self, asked: &'a [u8], renamed: &'a [u8]) -> &'a [u8] {
        let (from, range) = self.within(asked, renamed);
        &from[range]
    }

    #[inline]
    fn within<'a>(&self, asked: &'a [u8], renamed: &'a [u8]) -> (&'a [u8], Range<usize>) {
        match self {
            Self::Asked(range) => (asked, range.clone()),
            Self::Renamed(range) => (renamed, range.clone()),
        }
    }
}

/// Requests by their nodes: what a link, a waiter and the order of replies need is looked up once for all
/// that go to a node, not once for each.
#[derive(Debug, Default)]
pub(crate) struct NodeBatches {
    /// Where each request is, and the number of its lot.
    requests: Vec<(Text, u32)>,
    /// By the numbers of the nodes.
    of_nodes: Vec<NodeBatch>,
    /// The nodes that get anything; their places are the numbers of the lots.
    nodes: Vec<NodeId>,
    /// For each of these the link to it, once it was looked for.
    links: Vec<usize>,
    /// … what replies come from there, and how many will.
    sources: Vec<(Source, u32)>,
    /// … and the way that they come.
    ways: Vec<u32>,
}

/// The requests to one node.
#[derive(Debug, Default)]
struct NodeBatch {
    number: u32,
    /// Their places in the batch.
    places: Vec<u32>,
}

/// What goes along one link.
pub(crate) struct Departing<R> {
    pub(crate) link: usize,
    pub(crate) way: u32,
    /// What each is a part of, where it is there, and what is remembered of it.
    pub(crate) requests: R,
}

impl NodeBatches {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether any of them goes to this node.
    #[inline]
    pub(crate) fn go_to(&self, node: NodeId) -> bool {
        self.of_nodes.get(node.index()).is_some_and(|node_batch| !node_batch.places.is_empty())
    }

    /// One more request.
    #[inline]
    pub(crate) fn push(&mut self, node: NodeId, text: Text) {
        if node.index() >= self.of_nodes.len() {
            self.of_nodes.resize_with(node.index() + 1, NodeBatch::default);
        }
        let node_batch = &mut self.of_nodes[node.index()];
        if node_batch.places.is_empty() {
            node_batch.number = self.nodes.len() as u32;
            self.nodes.push(node);
        }
        node_batch.places.push(self.requests.len() as u32);
        self.requests.push((text, node_batch.number));
    }

    /// Looks for the link to each node, and what its replies come from. False if one is missing.
    #[inline]
    pub(crate) fn find_links(&mut self, find: impl Fn(NodeId) -> Option<(usize, Source)>) -> bool {
        for node in &self.nodes {
            let Some((link, source)) = find(*node) else { return false };
            self.links.push(link);
            self.sources.push((source, self.of_nodes[node.index()].places.len() as u32));
        }
        true
    }

    /// Each request with its node, in the client's order.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (&Text, NodeId)> {
        self.requests.iter().map(|(text, node_batch)| (text, self.nodes[*node_batch as usize]))
    }

    /// Their replies will come.
    #[inline]
    pub(crate) fn expect(&mut self, order: &mut Order, buffers: &mut BufferPool) {
        let route = self.requests.iter().map(|(_, node_batch)| *node_batch);
        order.expect_from(&self.sources, route, buffers, &mut self.ways);
    }

    /// What goes along each link.
    #[inline]
    pub(crate) fn departing<'a>(
        &'a self,
        asked: &'a [u8],
        renamed: &'a [u8],
        marks: &'a [Mark],
    ) -> impl Iterator<
        Item = Departing<impl ExactSizeIterator<Item = (&'a [u8], Range<usize>, Mark)> + 'a>,
    > {
        let links = self.links.iter().zip(&self.ways);
        self.nodes.iter().zip(links).map(move |(node, (link, way))| {
            let places = self.of_nodes[node.index()].places.iter();
            let requests = places.map(move |place| {
                let place = *place as usize;
                let (from, range) = self.requests[place].0.within(asked, renamed);
                (from, range, marks[place])
            });
            Departing { link: *link, way: *way, requests }
        })
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        for node in self.nodes.drain(..) {
            self.of_nodes[node.index()].places.clear();
        }
        self.requests.clear();
        self.links.clear();
        self.sources.clear();
        self.ways.clear();
    }
}
