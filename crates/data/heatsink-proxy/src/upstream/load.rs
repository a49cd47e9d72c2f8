//! How busy the servers behind are: plain numbers for whoever wants to show or use them.

use std::sync::atomic::Ordering;

use heatsink_upstream::address::Endpoint;

use crate::runtime::shared::Shared;
use crate::upstream::nodes::NodeId;

/// How busy the servers behind are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamLoad {
    /// The primaries, in the order of their slots; one if the upstream is no cluster.
    pub primaries: Vec<NodeLoad>,
    /// The part of all requests to primaries that the busiest one gets, from 0 to 1.
    pub hottest_share: f64,
}

/// How busy one server is.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLoad {
    /// Where it is.
    pub endpoint: String,
    /// Requests it got from this process in the last second.
    pub requests_per_second: f64,
    /// Requests it got from this process since it is known.
    pub requests_total: u64,
}

pub(crate) fn of(shared: &Shared) -> UpstreamLoad {
    let nodes = shared.nodes.all();
    let load = |id: NodeId| {
        let endpoint = nodes.get(id.index()).map(|node| node.dialer.endpoint());
        let endpoint = endpoint.as_ref().map(Endpoint::to_string).unwrap_or_default();
        let node = nodes.get(id.index());
        let requests_total = node.map_or(0, |node| node.requests.load(Ordering::Relaxed));
        NodeLoad { endpoint, requests_per_second: shared.nodes.rate(id), requests_total }
    };
    let primaries: Vec<_> = shared.primaries().into_iter().map(load).collect();
    let total: f64 = primaries.iter().map(|node| node.requests_per_second).sum();
    let most = primaries.iter().map(|node| node.requests_per_second).fold(0.0, f64::max);
    let hottest_share = if total > 0.0 { most / total } else { 0.0 };
    UpstreamLoad { primaries, hottest_share }
}
