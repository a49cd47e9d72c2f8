//! Samples and what was decided, as JSON.
//!
//! Called by: `/history`, `/hotkeys/{key}/history`, and the stream of events.

use serde::Serialize;
use utoipa::ToSchema;

use super::fleet::{ProxyListView, ProxyView};
use crate::control::{Load, NodeRate};
use crate::history::{Decision, FleetSample, History, KeySample, Sample};
use crate::key_name::Privacy;
use crate::timestamp::rfc3339;
use crate::vocabulary::{MitigationName, StatusName};

/// The last minutes of the fleet.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = History)]
pub(crate) struct HistoryView {
    /// Milliseconds from one sample to the next.
    interval_ms: u64,
    /// The samples, oldest first.
    samples: Vec<FleetSampleView>,
    /// The upstream's nodes in the last sample, with what all proxies send to them.
    nodes: Vec<NodeView>,
    /// The hottest keys of that time.
    keys: Vec<KeySeriesView>,
}

impl HistoryView {
    pub(crate) fn new(history: &History, count: usize, interval_ms: u64, privacy: Privacy) -> Self {
        let series = |(key, samples): (&[u8], _)| KeySeriesView::new(key, samples, privacy);
        Self {
            interval_ms,
            samples: history.fleet(count).map(FleetSampleView::new).collect(),
            nodes: NodeView::all(history.load()),
            keys: history.keys(count).map(series).collect(),
        }
    }
}

/// One moment of the fleet.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FleetSample)]
struct FleetSampleView {
    /// When it was taken.
    #[schema(format = DateTime)]
    at: String,
    /// Requests/s of all proxies; null if none has said so.
    #[schema(required)]
    requests_per_second: Option<f64>,
    /// Requests/s that the proxies took from clients, of which it is known what they send
    /// upstream; null if it is of none.
    #[schema(required)]
    served_per_second: Option<f64>,
    /// Requests/s among those that they did not have to send upstream; null likewise.
    #[schema(required)]
    saved_per_second: Option<f64>,
    /// Share of the commands of all those proxies which goes to the hottest node of the
    /// upstream; null if they send none.
    #[schema(required, minimum = 0, maximum = 1)]
    hottest_node_share: Option<f64>,
}

impl FleetSampleView {
    fn new((at_ms, sample): &(u64, FleetSample)) -> Self {
        Self {
            at: rfc3339(*at_ms),
            requests_per_second: sample.requests_per_second,
            served_per_second: sample.served_per_second,
            saved_per_second: sample.saved_per_second,
            hottest_node_share: sample.hottest_node_share,
        }
    }
}

/// One node of the upstream.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Node)]
struct NodeView {
    /// The node, as host:port.
    node: String,
    /// Commands/s that all proxies together send to it.
    commands_per_second: f64,
    /// Its share of the commands to all nodes.
    #[schema(minimum = 0, maximum = 1)]
    share: f64,
}

impl NodeView {
    fn all(load: Option<&Load>) -> Vec<Self> {
        let Some(load) = load else { return Vec::new() };
        let total = load.nodes_per_second();
        let view = |node: &NodeRate| Self {
            node: node.node.clone(),
            commands_per_second: node.commands_per_second,
            share: if total > 0.0 { node.commands_per_second / total } else { 0.0 },
        };
        load.nodes.iter().map(view).collect()
    }
}

/// The rates of one key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeySeries)]
struct KeySeriesView {
    /// The hash of the key, as in the list.
    key_hash: String,
    /// Requests/s in each sample that it was among the hottest of, oldest first.
    requests_per_second: Vec<f64>,
    /// Share of the requests of the newest sample that a cache answered; null if none
    /// does.
    #[schema(required, minimum = 0, maximum = 1)]
    hit_ratio: Option<f64>,
}

impl KeySeriesView {
    fn new<'a>(
        key: &[u8],
        samples: impl Iterator<Item = &'a (u64, KeySample)>,
        privacy: Privacy,
    ) -> Self {
        let mut hit_ratio = None;
        let requests_per_second = samples
            .map(|(_, one)| {
                hit_ratio = one.hit_ratio;
                one.requests_per_second()
            })
            .collect();
        Self { key_hash: privacy.name(key).key_hash, requests_per_second, hit_ratio }
    }
}

/// The last minutes of one key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyHistory)]
pub(crate) struct KeyHistoryView {
    /// The key, as in the list.
    key: String,
    /// The key in base64, present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    key_base64: Option<String>,
    /// Its hash, as in the list.
    key_hash: String,
    /// Milliseconds from one sample to the next, while it is among the hottest keys.
    interval_ms: u64,
    /// The samples, oldest first.
    samples: Vec<KeySampleView>,
    /// What was decided about it since this process started, as far as it is kept, oldest
    /// first.
    decisions: Vec<DecisionView>,
}

impl KeyHistoryView {
    pub(crate) fn new(history: &History, key: &[u8], interval_ms: u64, privacy: Privacy) -> Self {
        let name = privacy.name(key);
        Self {
            key: name.key,
            key_base64: name.key_base64,
            key_hash: name.key_hash,
            interval_ms,
            samples: history.key(key).map(KeySampleView::new).collect(),
            decisions: history.decisions(key).map(|one| DecisionView::new(one, privacy)).collect(),
        }
    }

    /// Nothing is known of the key.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.decisions.is_empty()
    }
}

/// One moment of a key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeySample)]
struct KeySampleView {
    /// When it was taken.
    #[schema(format = DateTime)]
    at: String,
    /// Requests/s over the fleet.
    requests_per_second: f64,
    /// Share of them that a cache answered; null if none does.
    #[schema(required, minimum = 0, maximum = 1)]
    hit_ratio: Option<f64>,
}

impl KeySampleView {
    fn new((at_ms, sample): &(u64, KeySample)) -> Self {
        let requests_per_second = sample.requests_per_second();
        Self { at: rfc3339(*at_ms), requests_per_second, hit_ratio: sample.hit_ratio }
    }
}

/// What was decided about a key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Decision)]
struct DecisionView {
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// The status that it was given; absent if it left the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = StatusName, nullable = false, required = false)]
    status: Option<&'static str>,
    /// The mitigation that it was given; absent if it left the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = MitigationName, nullable = false, required = false)]
    mitigation_type: Option<&'static str>,
    /// Why, in words and numbers.
    reason: String,
}

impl DecisionView {
    fn new(decision: &Decision, privacy: Privacy) -> Self {
        Self {
            at: rfc3339(decision.at_ms),
            status: decision.entry.map(|(status, _)| status),
            mitigation_type: decision.entry.map(|(_, mitigation)| mitigation),
            reason: privacy.text(decision.reason.clone(), &decision.key),
        }
    }
}

/// The fleet at this moment: the figures that change all the time.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Sample)]
pub(crate) struct SampleView {
    /// The fleet in few figures.
    fleet: FleetSampleView,
    /// The upstream's nodes, with what all proxies send to them.
    nodes: Vec<NodeView>,
    /// The figures of the hottest keys, hottest first.
    keys: Vec<KeyRatesView>,
    /// The live members of the fleet, in the order of their ids.
    proxies: Vec<ProxyView>,
}

/// The figures of one key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyRates)]
struct KeyRatesView {
    /// The hash of the key, as in the list.
    key_hash: String,
    /// Requests/s over the fleet.
    frequency: f64,
    /// Reads/s among them.
    reads_per_second: f64,
    /// Writes/s among them.
    writes_per_second: f64,
    /// Share of them that a cache answered; null if none does.
    #[schema(required, minimum = 0, maximum = 1)]
    hit_ratio: Option<f64>,
}

impl SampleView {
    pub(crate) fn new(sample: Sample, privacy: Privacy) -> Self {
        let rates = |(key, rates): &(Vec<u8>, KeySample)| KeyRatesView {
            key_hash: privacy.name(key).key_hash,
            frequency: rates.requests_per_second(),
            reads_per_second: rates.reads_per_second,
            writes_per_second: rates.writes_per_second,
            hit_ratio: rates.hit_ratio,
        };
        Self {
            fleet: FleetSampleView::new(&(sample.at_ms, sample.fleet)),
            nodes: NodeView::all(sample.load.as_ref()),
            keys: sample.keys.iter().map(rates).collect(),
            proxies: ProxyListView::new(sample.members).items,
        }
    }
}
