//! The fleet, policies and the state of the process, as JSON.
//!
//! Called by: `/proxies`, `/policy`, `/policies`, `/healthz`, `/readyz`, and the stream of events.

use std::collections::BTreeMap;

use heatsink_control::entry::Mitigation;
use serde::Serialize;
use utoipa::ToSchema;

use crate::control::{Load, Policy, PolicyRule, Proxy, Readiness, UpstreamNode};
use crate::key_name::Privacy;
use crate::timestamp::rfc3339;
use crate::vocabulary::MitigationName;

/// The fleet.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProxyList)]
pub(crate) struct ProxyListView {
    /// Its live members, in the order of their ids.
    pub(super) items: Vec<ProxyView>,
}

/// One live member of the fleet.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Proxy)]
pub(crate) struct ProxyView {
    /// Its id, unique in the fleet.
    id: String,
    /// `all`, `proxy` or `aggregator`.
    #[schema(example = "all")]
    role: String,
    /// Where clients reach it, if it takes clients.
    #[schema(required)]
    address: Option<String>,
    /// The version of Heatsink that it runs.
    version: String,
    /// When it was last heard of.
    #[schema(format = DateTime)]
    last_seen_at: String,
    /// The version of the registry that it has; null if it has not said so.
    #[schema(required)]
    registry_version: Option<u64>,
    /// Requests/s that it serves; null if it has not said so.
    #[schema(required)]
    requests_per_second: Option<f64>,
    /// Requests/s that it took from clients; null if it has not said so.
    #[schema(required)]
    served_per_second: Option<f64>,
    /// Requests/s among those that it did not have to send upstream; null likewise.
    #[schema(required)]
    saved_per_second: Option<f64>,
    /// Share of its commands that goes to its hottest node; null if it sends none, or has not
    /// said so.
    #[schema(required, minimum = 0, maximum = 1)]
    hottest_node_share: Option<f64>,
    /// It works on what it sees itself, without the others.
    degraded: bool,
    /// The servers behind it that it cannot reach.
    upstream_down: Vec<UpstreamNodeView>,
    /// It is the member that answers.
    is_self: bool,
}

impl ProxyListView {
    pub(crate) fn new(mut proxies: Vec<Proxy>) -> Self {
        proxies.sort_by(|a, b| a.id.cmp(&b.id));
        let view = |proxy: Proxy| ProxyView {
            id: proxy.id,
            role: proxy.role,
            address: proxy.address,
            version: proxy.version,
            last_seen_at: rfc3339(proxy.last_seen_ms),
            registry_version: proxy.registry_version,
            requests_per_second: proxy.requests_per_second.filter(|rate| rate.is_finite()),
            served_per_second: proxy.load.as_ref().map(|load| load.served_per_second),
            saved_per_second: proxy.load.as_ref().map(Load::saved_per_second),
            hottest_node_share: proxy.load.as_ref().and_then(Load::hottest_node_share),
            degraded: proxy.degraded,
            upstream_down: proxy.upstream_down.into_iter().map(UpstreamNodeView::from).collect(),
            is_self: proxy.is_self,
        };
        Self { items: proxies.into_iter().map(view).collect() }
    }
}

/// A server behind a process, as that sees it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UpstreamNode)]
pub(crate) struct UpstreamNodeView {
    /// host:port.
    #[schema(example = "10.0.0.1:6379")]
    node: String,
    /// It can be reached.
    up: bool,
    /// Since when it can, or cannot.
    #[schema(format = DateTime)]
    since: String,
    /// Why it cannot; null if it can.
    #[schema(required, example = "connection refused")]
    error: Option<String>,
}

impl From<UpstreamNode> for UpstreamNodeView {
    fn from(node: UpstreamNode) -> Self {
        let UpstreamNode { node, up, since_ms, error } = node;
        Self { node, up, since: rfc3339(since_ms), error }
    }
}

/// The policy that holds for a key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Policy)]
pub(crate) struct PolicyView {
    /// The key, as in the list.
    key: String,
    /// Its hash, as in the list.
    key_hash: String,
    /// `off`, `observe`, `exact`, `coherent` or `relaxed`.
    #[schema(example = "coherent")]
    mode: String,
    /// The rule that decided; null if none matched and the default holds.
    #[schema(required)]
    rule: Option<PolicyRuleView>,
    /// The mitigations that its mode allows; what moves data is automatic only where the rule
    /// says that all clients go through Heatsink.
    #[schema(value_type = Vec<MitigationName>)]
    allowed_mitigations: Vec<&'static str>,
    /// The further settings in force, by their names in the configuration file.
    settings: BTreeMap<String, String>,
}

/// The rule that decided a policy.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PolicyRule)]
pub(crate) struct PolicyRuleView {
    /// Its place in the configuration, from 1.
    #[schema(minimum = 1)]
    number: u32,
    /// Its pattern. Hidden like a key if keys are hidden and it names just one.
    #[serde(rename = "match")]
    pattern: String,
}

impl PolicyRuleView {
    fn new(rule: &PolicyRule, privacy: Privacy) -> Self {
        let is_glob = rule.pattern.iter().any(|byte| b"*?[".contains(byte));
        let shown_as = if is_glob { Privacy::Plain } else { privacy };
        Self { number: rule.number, pattern: shown_as.name(&rule.pattern).key }
    }
}

impl PolicyView {
    pub(crate) fn new(key: &[u8], policy: Policy, privacy: Privacy) -> Self {
        let name = privacy.name(key);
        Self {
            key: name.key,
            key_hash: name.key_hash,
            mode: policy.mode,
            rule: policy.rule.map(|rule| PolicyRuleView::new(&rule, privacy)),
            allowed_mitigations: policy.allowed.into_iter().map(Mitigation::name).collect(),
            settings: policy.settings.into_iter().collect(),
        }
    }
}

/// The policies in force in the process that answers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PolicyList)]
pub(crate) struct PolicyListView {
    /// The rules in their order, the default last: the first that matches a key decides alone.
    items: Vec<PolicyItemView>,
}

/// What one rule, or the default, gives.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PolicyItem)]
struct PolicyItemView {
    /// The rule; null is the default, for keys that no rule matches.
    #[schema(required)]
    rule: Option<PolicyRuleView>,
    /// `off`, `observe`, `exact`, `coherent` or `relaxed`.
    #[schema(example = "coherent")]
    mode: String,
    /// The mitigations that its mode allows, as in the policy of a key.
    #[schema(value_type = Vec<MitigationName>)]
    allowed_mitigations: Vec<&'static str>,
    /// The further settings, by their names in the configuration file.
    settings: BTreeMap<String, String>,
}

impl PolicyListView {
    pub(crate) fn new(policies: Vec<Policy>, privacy: Privacy) -> Self {
        let view = |policy: Policy| PolicyItemView {
            rule: policy.rule.map(|rule| PolicyRuleView::new(&rule, privacy)),
            mode: policy.mode,
            allowed_mitigations: policy.allowed.into_iter().map(Mitigation::name).collect(),
            settings: policy.settings.into_iter().collect(),
        };
        Self { items: policies.into_iter().map(view).collect() }
    }
}

/// The process lives.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Health)]
pub(crate) struct HealthView {
    /// Always `ok`: a process that cannot answer does not.
    #[schema(example = "ok")]
    pub(crate) status: &'static str,
}

/// The process serves requests.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Readiness)]
pub(crate) struct ReadinessView {
    /// It serves requests.
    ready: bool,
    /// It works on what it sees itself: the store or all aggregators are gone. Requests are
    /// served as before.
    degraded: bool,
    /// Why it is degraded, and which servers behind it are down; a sentence each.
    reasons: Vec<String>,
    /// The servers behind it, as far as they were tried.
    upstream: Vec<UpstreamNodeView>,
    /// The version of the registry that is in force here.
    #[schema(required)]
    registry_version: Option<u64>,
}

impl From<Readiness> for ReadinessView {
    fn from(readiness: Readiness) -> Self {
        let Readiness { ready, degraded, reasons, upstream, registry_version } = readiness;
        let upstream = upstream.into_iter().map(UpstreamNodeView::from).collect();
        Self { ready, degraded, reasons, upstream, registry_version }
    }
}
