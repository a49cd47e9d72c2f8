//! From the data plane's totals to rates over about the last second.
//!
//! Called by: the loop, before each heartbeat.
//! Bound: [`LOOKS`] looks are kept.
//! Invariant: totals that do not grow are not a rate: the window begins anew.

use std::collections::VecDeque;
use std::time::Duration;

use heatsink_proxy::Handle as ProxyHandle;

use crate::members::{LoadCard, NodeCard};

/// The time that a rate is taken over, once that much has passed.
const WINDOW: Duration = Duration::from_secs(1);

/// Looks that are kept; more than heartbeats fit into the window.
const LOOKS: usize = 16;

/// Nodes that a member names, the busiest ones: a card is sent to the store with every heartbeat
/// and read by every member.
const NODES: usize = 32;

/// Totals at one moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Duration,
    requests: u64,
    upstream: u64,
}

/// The looks of the last second, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    looks: VecDeque<Look>,
}

impl Pace {
    /// Looks at the data plane; nothing the first time.
    pub(crate) fn look(&mut self, now: Duration, proxy: &ProxyHandle) -> Option<LoadCard> {
        let (requests, upstream) = (proxy.requests_total(), proxy.upstream_requests_total());
        let (served, sent) = self.rates(Look { at: now, requests, upstream })?;
        let nodes = proxy.upstream_load().primaries;
        let nodes = nodes.into_iter().map(|node| (node.endpoint, node.requests_per_second));
        Some(load_card(served, sent, nodes.collect()))
    }

    /// Requests/s and commands/s upstream, from the oldest look of the window to this one.
    fn rates(&mut self, now: Look) -> Option<(f64, f64)> {
        if let Some(last) = self.looks.back()
            && (now.requests < last.requests || now.upstream < last.upstream)
        {
            self.looks.clear();
        }
        self.looks.push_back(now);
        // The oldest one that is kept is the youngest that is a whole window old.
        let is_past = |look: &Look| now.at.saturating_sub(look.at) >= WINDOW;
        while self.looks.len() > LOOKS || self.looks.get(1).is_some_and(is_past) {
            self.looks.pop_front();
        }
        let oldest = self.looks.front()?;
        let seconds = now.at.saturating_sub(oldest.at).as_secs_f64();
        let rate = |from: u64, to: u64| (to - from) as f64 / seconds;
        (seconds > 0.0)
            .then(|| (rate(oldest.requests, now.requests), rate(oldest.upstream, now.upstream)))
    }
}

/// A card with the busiest nodes, and the others as their sum.
fn load_card(served: f64, sent: f64, mut nodes: Vec<(String, f64)>) -> LoadCard {
    nodes.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let others = nodes.split_off(nodes.len().min(NODES));
    let node = |(node, rate)| NodeCard { node, per_second: short(rate) };
    LoadCard {
        served_per_second: short(served),
        upstream_per_second: short(sent),
        nodes: nodes.into_iter().map(node).collect(),
        other_nodes_per_second: short(others.iter().map(|(_, rate)| rate).sum()),
    }
}

/// A tenth is exact enough, and short to write.
fn short(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_ms: u64, requests: u64, upstream: u64) -> Look {
        Look { at: Duration::from_millis(at_ms), requests, upstream }
    }

    #[test]
    fn rates_are_those_of_the_last_second() {
        let mut pace = Pace::default();
        assert_eq!(pace.rates(look(0, 500, 50)), None, "one look is no rate");
        assert_eq!(pace.rates(look(250, 600, 75)), Some((400.0, 100.0)));
        for at in [500, 750, 1000, 1250, 1500] {
            pace.rates(look(at, 600, 75));
        }
        assert_eq!(pace.rates(look(1750, 650, 75)), Some((50.0, 0.0)), "what was before is past");
        // A late heartbeat makes the window longer, and not the rate higher.
        assert_eq!(pace.rates(look(5750, 4650, 475)), Some((1000.0, 100.0)));
        assert_eq!(pace.rates(look(5750, 4650, 475)).map(|_| ()), Some(()));
        assert!(pace.looks.len() <= LOOKS);
    }

    #[test]
    fn many_looks_at_once_are_bounded() {
        let mut pace = Pace::default();
        for at in 0..100 {
            pace.rates(look(at, at, 0));
        }
        assert_eq!(pace.looks.len(), LOOKS);
    }

    #[test]
    fn totals_that_fall_begin_anew() {
        let mut pace = Pace::default();
        pace.rates(look(0, 100, 100));
        assert_eq!(pace.rates(look(250, 200, 10)), None);
        assert_eq!(pace.rates(look(500, 300, 10)), Some((400.0, 0.0)));
    }

    #[test]
    fn the_busiest_nodes_have_names() {
        let nodes = (0..40).map(|n| (format!("n{n}"), f64::from(n) + 0.04)).collect();
        let card = load_card(1.26, 0.0, nodes);
        assert_eq!(card.nodes.len(), NODES);
        assert_eq!(card.nodes[0], NodeCard { node: "n39".to_owned(), per_second: 39.0 });
        let others = (card.served_per_second, card.other_nodes_per_second);
        assert_eq!(others, (1.3, 28.3), "0 to 7");
    }
}
