//! Requests that are taken from clients, and commands that are sent upstream: of one process, or of all.
//!
//! Called by: members of the fleet, which publish their own load; the history and the views, which add
//! loads up.
//! Bound: the nodes that members name; see [`Load::nodes`].
//! Invariant: the load of the fleet is the sum of the loads of its members. Figures that follow from
//! others (requests saved, shares) are computed from the sum: a share of a sum is not a sum of shares.

use std::collections::BTreeMap;

/// Rates of a process, as it measured them itself, or sums of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests/s that were taken from clients.
    pub served_per_second: f64,
    /// Commands/s that were sent upstream. Commands of our own are among them, and a request
    /// may become several.
    pub upstream_per_second: f64,
    /// The upstream's primaries that most is sent to. A member may leave out others.
    pub nodes: Vec<NodeRate>,
    /// Commands/s to the primaries that are left out.
    pub other_nodes_per_second: f64,
}

/// What is sent to one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRate {
    /// host:port, as the process calls it.
    pub node: String,
    /// Commands/s that are sent to it.
    pub commands_per_second: f64,
}

impl Load {
    /// The sum of several loads; none if there are none. Nodes with the same name are one node.
    pub fn sum<'a>(loads: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let mut nodes: BTreeMap<&str, f64> = BTreeMap::new();
        let mut sum: Option<Self> = None;
        for load in loads {
            let sum = sum.get_or_insert_default();
            sum.served_per_second += load.served_per_second;
            sum.upstream_per_second += load.upstream_per_second;
            sum.other_nodes_per_second += load.other_nodes_per_second;
            for rate in &load.nodes {
                *nodes.entry(&rate.node).or_default() += rate.commands_per_second;
            }
        }
        let rate = |(node, commands_per_second): (&str, f64)| NodeRate {
            node: node.to_owned(),
            commands_per_second,
        };
        sum.map(|sum| Self { nodes: nodes.into_iter().map(rate).collect(), ..sum })
    }

    /// Requests/s that the upstream was spared: the difference of the rates on both sides, rather than a sum
    /// over keys, since this is what the servers feel. 0 if more commands are sent than requests taken.
    pub fn saved_per_second(&self) -> f64 {
        (self.served_per_second - self.upstream_per_second).max(0.0)
    }

    /// Commands/s to all primaries.
    pub fn nodes_per_second(&self) -> f64 {
        let named: f64 = self.nodes.iter().map(|node| node.commands_per_second).sum();
        named + self.other_nodes_per_second
    }

    /// Share of the commands to primaries that the hottest one gets, 0 to 1; nothing if none is
    /// sent.
    pub fn hottest_node_share(&self) -> Option<f64> {
        let total = self.nodes_per_second();
        let rates = self.nodes.iter().map(|node| node.commands_per_second);
        (total > 0.0).then(|| rates.fold(0.0, f64::max) / total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(served: f64, upstream: f64, nodes: &[(&str, f64)]) -> Load {
        let rate = |(node, rate): &(&str, f64)| NodeRate {
            node: (*node).to_owned(),
            commands_per_second: *rate,
        };
        Load {
            served_per_second: served,
            upstream_per_second: upstream,
            nodes: nodes.iter().map(rate).collect(),
            other_nodes_per_second: 0.0,
        }
    }

    #[test]
    fn what_was_saved_is_what_was_not_sent() {
        let saved = |loads: &[Load]| Load::sum(loads.iter()).map(|load| load.saved_per_second());
        let (frugal, lavish) = (load(100.0, 40.0, &[]), load(10.0, 30.0, &[]));
        assert_eq!(saved(std::slice::from_ref(&frugal)), Some(60.0));
        assert_eq!(saved(std::slice::from_ref(&lavish)), Some(0.0), "fanned out");
        // Requests that one proxy saves and extra commands of another are offset against each other.
        assert_eq!(saved(&[frugal, lavish]), Some(40.0));
    }

    #[test]
    fn the_hottest_node_of_all_may_be_the_hottest_of_none() {
        let one = load(0.0, 0.0, &[("a", 50.0), ("b", 40.0)]);
        let other = load(0.0, 0.0, &[("c", 50.0), ("b", 40.0)]);
        let sum = Load::sum([&one, &other].into_iter()).unwrap();
        let names: Vec<_> = sum.nodes.iter().map(|node| node.node.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(sum.hottest_node_share(), Some(80.0 / 180.0));
    }

    #[test]
    fn nodes_that_are_left_out_count_in_the_whole() {
        let load = Load { other_nodes_per_second: 60.0, ..load(0.0, 0.0, &[("a", 20.0)]) };
        assert_eq!(load.hottest_node_share(), Some(0.25));
    }

    #[test]
    fn nothing_is_not_zero() {
        assert_eq!(Load::sum([].into_iter()), None);
        assert_eq!(load(0.0, 0.0, &[("a", 0.0)]).hottest_node_share(), None);
    }
}
