//! What is said of the servers behind this process: up or down, and since when.
//!
//! Called by: whoever shows the readiness of the process, its metrics and its card.
//! A process that has reached none of its servers for [`PATIENCE`] is not ready, so that a load balancer
//! sends clients to processes that can serve them. For a shorter time, as a restart or a failover takes,
//! it stays ready: otherwise clients would be moved away and back for nothing.

use std::time::{Duration, UNIX_EPOCH};

use heatsink_admin::control::{Readiness, UpstreamNode};
use heatsink_proxy::Handle as ProxyHandle;

use crate::control;
use crate::state::{Inner, State, unix_ms};

/// How long no server may be reachable before the process says that it is not ready.
const PATIENCE: Duration = Duration::from_secs(5);

/// What [`heatsink_control::agent::Agent::readiness`] begins with when it misses the fleet.
const MISSES_FLEET: &str = "degraded: ";

/// The servers behind this process, as far as they were tried.
pub(crate) fn nodes(proxy: Option<&ProxyHandle>) -> Vec<UpstreamNode> {
    let states = proxy.map(ProxyHandle::upstreams).unwrap_or_default();
    let node = |state: heatsink_proxy::UpstreamState| UpstreamNode {
        node: state.node,
        up: state.is_up,
        since_ms: state.since.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64),
        error: state.error,
    };
    states.into_iter().map(node).collect()
}

/// Whether this process should be given traffic, with what is known of the servers behind it.
pub(crate) fn readiness(state: &State, now: Duration, inner: &Inner) -> Readiness {
    let nodes = nodes(state.proxy.as_ref());
    with_nodes(control::readiness(now, inner), nodes, state.store_is_upstream, unix_ms())
}

fn with_nodes(
    mut readiness: Readiness,
    nodes: Vec<UpstreamNode>,
    store_is_upstream: bool,
    now_ms: u64,
) -> Readiness {
    let down: Vec<&UpstreamNode> = nodes.iter().filter(|node| !node.up).collect();
    if !down.is_empty() && store_is_upstream {
        // It is the same outage.
        let before = readiness.reasons.len();
        readiness.reasons.retain(|reason| !reason.starts_with(MISSES_FLEET));
        if readiness.reasons.len() < before {
            let text = "The coordination store is the same server: until it is back, this process \
                        works without the fleet.";
            readiness.reasons.insert(0, text.to_owned());
        }
    }
    let sentences = down.iter().map(|node| {
        let since = heatsink_admin::timestamp::rfc3339(node.since_ms);
        let error = node.error.as_deref().unwrap_or("not known");
        format!("The upstream {} is down since {since}: {error}.", node.node)
    });
    readiness.reasons.splice(0..0, sentences);
    // The last of them to go.
    let last_ms = down.iter().map(|node| node.since_ms).max();
    let lasts =
        last_ms.is_some_and(|since| now_ms.saturating_sub(since) >= PATIENCE.as_millis() as u64);
    if down.len() == nodes.len() && lasts {
        readiness.ready = false;
    }
    readiness.upstream = nodes;
    readiness
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(up: bool, since_ms: u64) -> UpstreamNode {
        let error = (!up).then(|| "connection refused".to_owned());
        UpstreamNode { node: "h:1".to_owned(), up, since_ms, error }
    }

    fn base(reason: Option<&str>) -> Readiness {
        let reasons: Vec<String> = reason.into_iter().map(str::to_owned).collect();
        Readiness { ready: true, degraded: !reasons.is_empty(), reasons, ..Readiness::default() }
    }

    #[test]
    fn not_ready_when_all_are_down_for_a_while() {
        let ready = |nodes: Vec<UpstreamNode>| with_nodes(base(None), nodes, false, 100_000).ready;
        assert!(ready(Vec::new()), "not tried yet");
        assert!(ready(vec![node(true, 0)]));
        assert!(ready(vec![node(false, 95_001)]), "not for long");
        assert!(!ready(vec![node(false, 95_000)]));
        assert!(ready(vec![node(false, 0), node(true, 0)]), "one is left");
        assert!(ready(vec![node(false, 0), node(false, 99_000)]));
        assert!(!ready(vec![node(false, 0), node(false, 1)]));
    }

    #[test]
    fn the_store_is_not_blamed_for_an_outage_of_the_upstream() {
        let blamed = "degraded: the coordination store cannot be reached for 3 s";
        let same = with_nodes(base(Some(blamed)), vec![node(false, 0)], true, 1);
        assert!(same.degraded);
        assert_eq!(same.reasons.len(), 2, "{:?}", same.reasons);
        assert_eq!(
            same.reasons[0],
            "The upstream h:1 is down since 1970-01-01T00:00:00.000Z: connection refused."
        );
        assert!(same.reasons[1].starts_with("The coordination store is the same server"));
        let apart = with_nodes(base(Some(blamed)), vec![node(false, 0)], false, 1);
        assert_eq!(apart.reasons[1], blamed);
        let other = with_nodes(base(Some(blamed)), vec![node(true, 0)], true, 1);
        assert_eq!(other.reasons, [blamed]);
    }
}
