//! What members say of themselves with each heartbeat, and what is made of it.
//!
//! A fleet is upgraded one process after the other, so cards of other versions are read as far as they are
//! understood: a missing field is unknown, an unknown field is ignored, and a load of another form does
//! not spoil the rest of the card.
//!
//! What is shown of the others is as old as the last full list of members: about a second, in
//! a fleet of hundreds up to ten. Two moments matter:
//!
//! ```text
//! 1. a member dies; its last card stays in the store
//! 2. its rates are added up until the card is MEMBER_LIFE old, then it is gone
//! ```
//!
//! ```text
//! 1. the store cannot be reached: the list of members stays as it was last heard
//! 2. after MEMBER_LIFE nobody knows what the others do: they are listed, and their rates are
//!    not known; those of this process are
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use heatsink_admin::control::{Load, NodeRate, Proxy, UpstreamNode};
use heatsink_control::member::Member;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Role;
use crate::figures::VERSION;
use crate::state::{Inner, State, unix_ms};
use crate::upstream;

/// How long a member counts as there after its last heartbeat.
pub(crate) const MEMBER_LIFE: Duration = Duration::from_secs(2);

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Card {
    pub(crate) role: String,
    pub(crate) address: Option<String>,
    pub(crate) version: String,
    pub(crate) registry_version: Option<u64>,
    pub(crate) requests_per_second: Option<f64>,
    #[serde(deserialize_with = "if_understood")]
    pub(crate) load: Option<LoadCard>,
    pub(crate) degraded: bool,
    /// The servers that it cannot reach, the first few of them.
    #[serde(deserialize_with = "if_understood")]
    pub(crate) upstream_down: Vec<DownCard>,
}

/// A server that a member cannot reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DownCard {
    pub(crate) node: String,
    pub(crate) since_ms: u64,
    pub(crate) error: String,
}

/// At most this many servers are named.
const MOST_DOWN: usize = 8;

/// What a member takes from clients and sends upstream. Rates, not totals: they can be added up
/// without knowing what a member said before, and a restart is not a jump.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LoadCard {
    pub(crate) served_per_second: f64,
    pub(crate) upstream_per_second: f64,
    /// The busiest primaries.
    pub(crate) nodes: Vec<NodeCard>,
    pub(crate) other_nodes_per_second: f64,
}

/// What a member sends to one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NodeCard {
    pub(crate) node: String,
    pub(crate) per_second: f64,
}

fn if_understood<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + serde::de::DeserializeOwned,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

impl Card {
    /// What this process says of itself now.
    pub(crate) fn of(state: &State, now: Duration, inner: &Inner, load: Option<LoadCard>) -> Self {
        // What was taken from clients, as in the load: what was counted of keys is less, and lags.
        let counted = inner.report.reads_per_second + inner.report.writes_per_second;
        let requests = load.as_ref().map_or(counted, |load| load.served_per_second);
        Self {
            registry_version: inner.registry.is_synced().then(|| inner.registry.version()),
            requests_per_second: inner.agent.as_ref().map(|_| requests),
            load,
            degraded: inner.agent.as_ref().is_some_and(|agent| agent.readiness(now).is_degraded),
            upstream_down: down(state),
            ..Self::first(state.role, state.address)
        }
    }

    /// What there is to say before anything was measured.
    pub(crate) fn first(role: Role, address: Option<SocketAddr>) -> Self {
        Self {
            role: role.name().to_owned(),
            address: address.map(|address| address.to_string()),
            version: VERSION.to_owned(),
            ..Self::default()
        }
    }
}

fn down(state: &State) -> Vec<DownCard> {
    let nodes = upstream::nodes(state.proxy.as_ref()).into_iter().filter(|node| !node.up);
    let card = |node: UpstreamNode| DownCard {
        node: node.node,
        since_ms: node.since_ms,
        error: node.error.unwrap_or_default(),
    };
    nodes.take(MOST_DOWN).map(card).collect()
}

impl LoadCard {
    /// The load as the API shows it. Another process wrote it: an impossible rate counts as 0.
    fn load(&self) -> Load {
        let rate = |rate: f64| if rate.is_finite() && rate > 0.0 { rate } else { 0.0 };
        let node = |card: &NodeCard| NodeRate {
            node: card.node.clone(),
            commands_per_second: rate(card.per_second),
        };
        Load {
            served_per_second: rate(self.served_per_second),
            upstream_per_second: rate(self.upstream_per_second),
            nodes: self.nodes.iter().map(node).collect(),
            other_nodes_per_second: rate(self.other_nodes_per_second),
        }
    }
}

impl DownCard {
    fn node(&self) -> UpstreamNode {
        UpstreamNode {
            node: self.node.clone(),
            up: false,
            since_ms: self.since_ms,
            error: Some(self.error.clone()),
        }
    }
}

/// A member that is there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Present {
    pub(crate) id: String,
    pub(crate) card: Card,
}

impl Present {
    /// A member whose card is not understood is counted anyway.
    pub(crate) fn of(member: heatsink_coordination::Member) -> Self {
        let card = serde_json::from_slice(&member.body).unwrap_or_default();
        Self { id: member.id, card }
    }

    pub(crate) fn member(&self) -> Member {
        let is = |role: Role| self.card.role == role.name();
        Member {
            id: self.id.clone(),
            proxy: is(Role::All) || is(Role::Proxy),
            aggregator: is(Role::All) || is(Role::Aggregator),
        }
    }
}

/// The members as the API shows them. This process is one of them, whatever the store says, and
/// what it says of itself is as it is now.
pub(crate) fn proxies(now: Duration, own_id: &str, inner: &Inner) -> Vec<Proxy> {
    let is_recent = inner.members_at.is_some_and(|at| now.saturating_sub(at) < MEMBER_LIFE);
    let others = inner.members.iter().filter(|present| present.id != own_id).map(|present| {
        let shown = shown(&present.id, &present.card, inner.members_at_ms);
        if is_recent { shown } else { Proxy { requests_per_second: None, load: None, ..shown } }
    });
    let own = Proxy { is_self: true, ..shown(own_id, &inner.card, unix_ms()) };
    others.chain([own]).collect()
}

fn shown(id: &str, card: &Card, last_seen_ms: u64) -> Proxy {
    Proxy {
        id: id.to_owned(),
        role: card.role.clone(),
        address: card.address.clone(),
        version: card.version.clone(),
        last_seen_ms,
        registry_version: card.registry_version,
        requests_per_second: card.requests_per_second,
        load: card.load.as_ref().map(LoadCard::load),
        degraded: card.degraded,
        upstream_down: card.upstream_down.iter().map(DownCard::node).collect(),
        is_self: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(body: &str) -> Present {
        let body = body.as_bytes().to_vec();
        Present::of(heatsink_coordination::Member { id: "a".to_owned(), body })
    }

    #[test]
    fn a_card_of_a_newer_version_is_understood_as_far_as_it_goes() {
        let newer = present(r#"{"role":"proxy","version":"9","colour":"red"}"#);
        assert_eq!(newer.card.version, "9");
        assert_eq!((newer.member().proxy, newer.member().aggregator), (true, false));
        let body = b"\xff".to_vec();
        let present = Present::of(heatsink_coordination::Member { id: "b".to_owned(), body });
        assert_eq!((present.member().proxy, present.member().aggregator), (false, false));
    }

    #[test]
    fn a_card_of_the_version_before_has_no_load() {
        let old = present(
            r#"{"role":"all","address":"10.0.0.1:6380","version":"0.1.0","registry_version":7,
                "requests_per_second":1200.5,"degraded":false}"#,
        );
        assert_eq!((old.card.requests_per_second, &old.card.load), (Some(1200.5), &None));
        assert!(old.member().proxy && old.member().aggregator);
    }

    #[test]
    fn a_load_of_another_form_spoils_nothing_else() {
        for load in [r#""much""#, r#"["x"]"#, r#"{"nodes":3}"#, "null"] {
            let card = present(&format!(r#"{{"role":"proxy","load":{load}}}"#)).card;
            assert_eq!((card.role.as_str(), card.load), ("proxy", None), "{load}");
        }
        let part = present(r#"{"load":{"served_per_second":5,"colour":1,"nodes":[{"node":"n"}]}}"#);
        let load = part.card.load.expect("understood").load();
        assert_eq!((load.served_per_second, load.upstream_per_second), (5.0, 0.0));
        assert_eq!(load.nodes, [NodeRate { node: "n".to_owned(), commands_per_second: 0.0 }]);
    }

    #[test]
    fn what_is_said_is_read_back() {
        let nodes = vec![NodeCard { node: "n:1".to_owned(), per_second: 2.5 }];
        let load = LoadCard { served_per_second: 9.0, nodes, ..LoadCard::default() };
        let card = Card { role: "all".to_owned(), load: Some(load), ..Card::default() };
        let body = serde_json::to_string(&card).expect("JSON");
        assert_eq!(present(&body).card, card);
        let wrong = LoadCard { served_per_second: -1.0, ..LoadCard::default() };
        assert_eq!(wrong.load(), Load::default());
    }
}
