//! The requests of one client's batch, sorted by the nodes they go to.
//!
//! Called by: `intake`, with each request that goes straight on; `route`, which sends them.
//! What a link, a waiter and the order of replies need is looked up once for all requests to a
//! node, not once for each.
//! Bound: the requests of a batch.
//! Invariant: the requests of one node are in the client's order, and `requests` holds all of them in
//! that order.

use std::ops::Range;

use crate::downstream::connection::BufferPool;
use crate::downstream::order::{Order, Source};
use crate::observe::Mark;
use crate::upstream::nodes::NodeId;

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

/// Requests by their nodes.
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
