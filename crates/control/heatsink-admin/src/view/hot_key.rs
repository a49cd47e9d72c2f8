//! Hot keys, their stats and what became of them, as JSON.
//!
//! Called by: the routes under `/hotkeys`, and the stream of events; [`HotKeyView`] also by
//! [`crate::client`] and whoever uses it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::control::{Demotion, Guard, HotKey, Shard, ShardContent, ShardNode, Stats};
use crate::key_name::Privacy;
use crate::timestamp::rfc3339;
use crate::vocabulary::{GuardName, MitigationName, OriginName, PhaseName, StatusName};

/// A hot key, as the API writes it and its clients read it. Words are text rather than the types
/// that they are made from: a client may be older than what it asks, and not know all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = HotKey, description = "A hot key.")]
pub struct HotKeyView {
    /// The key: itself if it is UTF-8, else percent-encoded with `key_base64` beside it.
    /// `hash:` and `key_hash` if keys are hidden or the key is longer than 4096 bytes. Any of
    /// these forms, percent-encoded, addresses the key, except that a key which is not UTF-8 is
    /// percent-encoded already.
    #[schema(example = "user:9999")]
    pub key: String,
    /// The key in base64, present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_base64: Option<String>,
    /// The first eight bytes of the SHA-256 of the key, in hexadecimal.
    #[schema(pattern = "^[0-9a-f]{16}$", example = "9f86d081884c7d65")]
    pub key_hash: String,
    /// Requests/s over the fleet, now.
    #[schema(example = 48211.0)]
    pub frequency: f64,
    /// Reads/s among them.
    #[schema(example = 48190.0)]
    pub reads_per_second: f64,
    /// Writes/s among them.
    #[schema(example = 21.0)]
    pub writes_per_second: f64,
    /// What is done about it.
    #[schema(value_type = MitigationName)]
    pub mitigation_type: String,
    /// Physical keys that it is, or is to be, spread over; 1 if it is not to be split.
    #[schema(minimum = 1)]
    pub split_factor: u32,
    /// Seconds that the entry lives unless it is renewed; null if it never expires.
    #[schema(required)]
    pub ttl_seconds: Option<u64>,
    /// Where it stands.
    #[schema(value_type = StatusName)]
    pub status: String,
    /// Who brought it in.
    #[schema(value_type = OriginName)]
    pub origin: String,
    /// When it was found.
    #[schema(format = DateTime, example = "2026-01-01T00:00:00.120Z")]
    pub detected_at: String,
    /// Why, in words and numbers.
    #[schema(example = "48 211 req/s over 2 proxies, threshold 5 000; 99.9 % reads")]
    pub reason: String,
    /// Present and true if nothing is done: the entry only says what would have been.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub dry_run: Option<bool>,
    /// What keeps a cached copy from growing old, if there is one: `tracking`, the server
    /// pushes invalidations; `announcements`, proxies tell each other of writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = GuardName, nullable = false, required = false)]
    pub guard: Option<String>,
    /// Where the value is, present only if it is moved or has been.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub split: Option<SplitView>,
}

/// A value that is kept in several physical keys, or is moved there or back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Split)]
pub struct SplitView {
    /// Where it stands: `freezing`, writes are held while it is moved there; `split`, it is
    /// there; `draining`, writes are held while it is moved back.
    #[schema(value_type = PhaseName)]
    pub phase: String,
    /// What the key holds: `counter`, `set`, `hash`, `sorted_set`, `list` or `hyperloglog`.
    #[schema(example = "counter")]
    pub kind: String,
    /// Physical keys.
    #[schema(minimum = 1)]
    pub shards: u32,
}

impl HotKeyView {
    pub(crate) fn new(hot: HotKey, privacy: Privacy) -> Self {
        let HotKey { key, entry, guard } = hot;
        let name = privacy.name(&key);
        Self {
            key: name.key,
            key_base64: name.key_base64,
            key_hash: name.key_hash,
            frequency: finite(entry.frequency),
            reads_per_second: finite(entry.reads_per_second),
            writes_per_second: finite(entry.writes_per_second),
            mitigation_type: entry.mitigation.to_string(),
            split_factor: entry.split_factor.max(1),
            ttl_seconds: entry.ttl_seconds,
            status: entry.status.to_string(),
            origin: entry.origin.to_string(),
            detected_at: rfc3339(entry.detected_at_ms),
            reason: privacy.text(entry.reason, &key),
            dry_run: entry.dry_run.then_some(true),
            guard: guard.map(|guard| guard.name().to_owned()),
            split: entry.split.map(|split| SplitView {
                phase: split.phase.name().to_owned(),
                shards: split.shards(),
                kind: split.kind,
            }),
        }
    }

    /// Nothing is done: it only says what would have been.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    /// Where its split stands; nothing if its value is at its own name.
    pub fn split_phase(&self) -> Option<&str> {
        self.split.as_ref().map(|split| split.phase.as_str())
    }
}

/// JSON has no infinities: serde would write null, which no reader of a rate expects.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// A page of the list of hot keys.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HotKeyPage)]
pub(crate) struct HotKeyPageView {
    /// The hot keys, in the order asked for.
    pub(crate) items: Vec<HotKeyView>,
    /// The `cursor` of the next page; null on the last one.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
    /// Hot keys that match the filters, on all pages.
    pub(crate) total: usize,
}

/// What came of a removal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Demotion)]
pub(crate) struct DemotionView {
    /// The key, as in the list.
    key: String,
    /// Its hash, as in the list.
    key_hash: String,
    /// Seconds for which it is not promoted again automatically.
    blocked_seconds: u64,
}

impl DemotionView {
    pub(crate) fn new(key: &[u8], demotion: Demotion, privacy: Privacy) -> Self {
        let name = privacy.name(key);
        let blocked_seconds = demotion.blocked_seconds;
        Self { key: name.key, key_hash: name.key_hash, blocked_seconds }
    }
}

/// What the mitigation of one hot key achieves. Null is not measured, or does not apply.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Stats)]
pub(crate) struct StatsView {
    /// The key, as in the list.
    key: String,
    /// The key in base64, present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    key_base64: Option<String>,
    /// Its hash, as in the list.
    key_hash: String,
    /// Requests/s over the fleet.
    requests_per_second: f64,
    /// Reads/s among them.
    reads_per_second: f64,
    /// Writes/s among them.
    writes_per_second: f64,
    /// Share of the requests that never reached the upstream.
    #[schema(required, minimum = 0, maximum = 1)]
    hit_ratio: Option<f64>,
    /// Share of the reads that were answered from the local cache.
    #[schema(required, minimum = 0, maximum = 1)]
    local_cache_hit_ratio: Option<f64>,
    /// Requests that shared one upstream request, on average; 1 if none did.
    #[schema(required, minimum = 0)]
    collapse_ratio: Option<f64>,
    /// What the proxy that answers has done for the key since it is hot.
    #[schema(required)]
    own: Option<OwnStatsView>,
    /// The shards of a split key.
    #[schema(required)]
    shards: Option<Vec<ShardView>>,
    /// The nodes that they lie on, and the share of its writes that each gets.
    #[schema(required)]
    nodes: Option<Vec<ShardNodeView>>,
}

/// What one proxy has done for a key since it is hot.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OwnStats)]
pub(crate) struct OwnStatsView {
    /// Requests of clients that took no request to the upstream.
    upstream_saved_total: u64,
    /// Reads answered from the local cache.
    cache_hits_total: u64,
    /// Bytes of those answers.
    bytes_served_total: u64,
    /// Changes of the key that the cache heard of.
    invalidations_total: u64,
    /// Writes that were carried out as part of another.
    combined_writes_total: u64,
    /// By what the cache hears of changes, if by anything.
    #[schema(value_type = Option<GuardName>, required)]
    guard: Option<&'static str>,
    /// What word of a change takes at most, as the last look at the links to the upstream
    /// showed: staleness is below it.
    #[schema(required, minimum = 0)]
    invalidation_delay_ms: Option<f64>,
}

/// One shard of a split key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Shard)]
pub(crate) struct ShardView {
    /// Its number, from 0.
    index: u32,
    /// The name of the physical key.
    #[schema(example = "heatsink:{1f}:19a8f3c21d0-5e884898:0")]
    name: String,
    /// The node that holds it, as host:port; empty if that is not known here.
    node: String,
    /// Members, fields or elements in it, as of the last look; only of a set, a hash, a sorted
    /// set or a list that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    count: Option<u64>,
    /// Its number, as of the last look; only of a counter that was looked at, which is their sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = 775)]
    value: Option<i64>,
    /// Its bytes, as of the last look; only of a `HyperLogLog` that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    bytes: Option<u64>,
    /// Requests that write which the process that answers has sent to it since the key is split;
    /// increments that were combined are one.
    #[schema(required)]
    writes_total: Option<u64>,
}

impl ShardView {
    fn new(shard: Shard) -> Self {
        let (mut count, mut value, mut bytes) = (None, None, None);
        match shard.content {
            Some(ShardContent::Count(members)) => count = Some(members),
            Some(ShardContent::Value(part)) => value = Some(part),
            Some(ShardContent::Bytes(len)) => bytes = Some(len),
            None => {}
        }
        let Shard { index, name, node, writes_total, .. } = shard;
        Self { index, name, node, count, value, bytes, writes_total }
    }
}

/// A node that holds shards of a split key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ShardNode)]
pub(crate) struct ShardNodeView {
    /// As host:port; empty if that is not known here.
    #[schema(example = "10.0.0.1:6379")]
    node: String,
    /// Shards that it holds.
    #[schema(minimum = 1)]
    shards: u32,
    /// Requests that write which the process that answers has sent to them.
    #[schema(required)]
    writes_total: Option<u64>,
    /// What part that is of such requests to all shards; null before the first.
    #[schema(required, minimum = 0, maximum = 1)]
    write_share: Option<f64>,
}

impl ShardNodeView {
    fn new(node: ShardNode) -> Self {
        let ShardNode { node, shards, writes_total, write_share } = node;
        Self { node, shards, writes_total, write_share }
    }
}

impl StatsView {
    pub(crate) fn new(key: &[u8], stats: Stats, privacy: Privacy) -> Self {
        let name = privacy.name(key);
        Self {
            key: name.key,
            key_base64: name.key_base64,
            key_hash: name.key_hash,
            requests_per_second: finite(stats.requests_per_second),
            reads_per_second: finite(stats.reads_per_second),
            writes_per_second: finite(stats.writes_per_second),
            hit_ratio: stats.hit_ratio.filter(|ratio| ratio.is_finite()),
            local_cache_hit_ratio: stats.local_cache_hit_ratio.filter(|ratio| ratio.is_finite()),
            collapse_ratio: stats.collapse_ratio.filter(|ratio| ratio.is_finite()),
            own: stats.own.map(|own| OwnStatsView {
                upstream_saved_total: own.upstream_saved_total,
                cache_hits_total: own.cache_hits_total,
                bytes_served_total: own.bytes_served_total,
                invalidations_total: own.invalidations_total,
                combined_writes_total: own.combined_writes_total,
                guard: own.guard.map(Guard::name),
                invalidation_delay_ms: own.invalidation_delay_ms,
            }),
            shards: stats.shards.map(|shards| shards.into_iter().map(ShardView::new).collect()),
            nodes: stats.nodes.map(|nodes| nodes.into_iter().map(ShardNodeView::new).collect()),
        }
    }
}
