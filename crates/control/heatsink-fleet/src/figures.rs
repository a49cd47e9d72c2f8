//! The figures of this moment, for `/metrics`.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use heatsink_admin::control::HotKey;
use heatsink_admin::metrics::{
    CacheCounts, CollapseCounts, Fleet, Histogram, KeyMetrics, Metrics, NodeLoad, SketchError,
    Splits, Traffic, UpstreamHealth,
};
use heatsink_control::entry::{Entry, Phase};
use heatsink_proxy::hot_keys::Cooled;
use heatsink_proxy::splits::{FAN_OUT_BOUNDS, FanOut};

use crate::control;
use crate::state::{Inner, State};
use crate::upstream;

/// The version that this process runs.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

fn cache_counts(cooled: &Cooled) -> CacheCounts {
    CacheCounts { hits_total: cooled.hits, misses_total: cooled.reads + cooled.joined }
}

fn collapse_counts(cooled: &Cooled) -> CollapseCounts {
    CollapseCounts {
        requests_total: cooled.reads + cooled.joined + cooled.changes,
        fetches_total: cooled.reads + cooled.batches,
    }
}

fn splits(inner: &Inner) -> Splits {
    let figures = &inner.splits;
    let is_split =
        |entry: &Entry| entry.split.as_ref().is_some_and(|split| split.phase == Phase::Split);
    let moves = figures.moves.iter();
    Splits {
        active: inner.registry.iter().filter(|(_, record)| is_split(&record.entry)).count() as u64,
        moves_total: moves.map(|((way, outcome), count)| (*way, *outcome, *count)).collect(),
        freeze_seconds: figures.freeze_seconds.clone(),
        reconciled_at_ms: (figures.looked_at_ms > 0).then_some(figures.looked_at_ms),
        drift_total: figures.drift_total,
    }
}

fn fan_out(proxy: &heatsink_proxy::Handle) -> Histogram {
    let FanOut { counts, sum } = proxy.fan_out();
    let bounds = FAN_OUT_BOUNDS.iter().map(|micros| *micros as f64 / 1e6).collect();
    Histogram::counted(bounds, counts.to_vec(), sum.as_secs_f64())
}

pub(crate) fn metrics(state: &State) -> Metrics {
    let now = state.now();
    let inner = state.lock();
    let load = state.proxy.as_ref().map(heatsink_proxy::Handle::upstream_load);
    let traffic = state.proxy.as_ref().map(|proxy| {
        let (output, input) = (proxy.output(), proxy.input());
        Traffic {
            requests_total: proxy.requests_total(),
            clients: proxy.client_count() as u64,
            upstream_commands_total: proxy.upstream_requests_total(),
            pauses_total: proxy.pauses_total(),
            unread_bytes: output.unread_bytes,
            slow_clients_closed_total: output.closed_total,
            held_input_bytes: input.held_bytes,
            large_clients_closed_total: input.closed_total,
        }
    });
    let nodes = load.map_or_else(Vec::new, |load| {
        let node = |node: heatsink_proxy::NodeLoad| NodeLoad {
            node: node.endpoint,
            commands_total: node.requests_total,
            commands_per_second: node.requests_per_second,
        };
        load.primaries.into_iter().map(node).collect()
    });
    let hot_keys = control::hot_keys(&inner);
    let mut entries: BTreeMap<(&'static str, &'static str), u64> = BTreeMap::new();
    for hot in &hot_keys {
        *entries.entry((hot.entry.mitigation.name(), hot.entry.origin.name())).or_default() += 1;
    }
    let mut members: BTreeMap<String, u64> = BTreeMap::new();
    for present in &inner.members {
        *members.entry(present.card.role.clone()).or_default() += 1;
    }
    let readiness = control::readiness(now, &inner);
    let truth = inner.report.truth;
    let counts_keys = inner.agent.is_some();
    let all_cooled = state.proxy.as_ref().map(heatsink_proxy::Handle::cooled_total);
    Metrics {
        version: VERSION.to_owned(),
        role: state.role.name().to_owned(),
        process_start_ms: state.started_at_ms,
        log_lines_dropped_total: state
            .log_lines_dropped
            .as_ref()
            .map(|dropped| dropped.load(Ordering::Relaxed)),
        traffic,
        keys: hot_keys
            .into_iter()
            .map(|hot| {
                let cooled = state.proxy.as_ref().and_then(|proxy| proxy.cooled(&hot.key));
                (hot, cooled)
            })
            .map(|(HotKey { key, entry, .. }, cooled)| KeyMetrics {
                key,
                local_cache: cooled.map(|cooled| cache_counts(&cooled)),
                coalesce: cooled.map(|cooled| collapse_counts(&cooled)),
                reads_per_second: entry.reads_per_second,
                writes_per_second: entry.writes_per_second,
                split_factor: (entry.split_factor > 1).then_some(entry.split_factor),
                shards: entry.split.filter(control::is_in_shards).map(|split| split.shards()),
            })
            .collect(),
        local_cache: all_cooled.map(|cooled| cache_counts(&cooled)),
        coalesce: all_cooled.map(|cooled| collapse_counts(&cooled)),
        splits: state.proxy.as_ref().map(|_| splits(&inner)),
        detection_latency_seconds: inner
            .aggregator
            .is_some()
            .then(|| inner.detection_seconds.clone()),
        sketch: counts_keys.then(|| SketchError {
            bound_per_second: inner.report.error_bound_per_second,
            mean_excess_requests: truth.mean_excess(),
            mean_relative: truth.mean_relative_error(),
            underestimates_total: inner.counts.underestimates,
        }),
        nodes,
        upstream: state.proxy.as_ref().map(|proxy| UpstreamHealth {
            nodes: upstream::nodes(Some(proxy)),
            errors_total: proxy.upstream_errors(),
            reconnects_total: proxy.upstream_reconnects(),
        }),
        miss_storms_total: counts_keys.then_some(inner.counts.miss_storms),
        write_contention_total: counts_keys.then_some(inner.counts.write_contentions),
        fleet: Some(Fleet {
            registry_entries: entries
                .into_iter()
                .map(|((mitigation, origin), count)| (mitigation, origin, count))
                .collect(),
            registry_version: inner.registry.version(),
            members: members.into_iter().collect(),
            degraded: readiness.degraded,
            reports_sent_total: inner.counts.reports_sent,
            reports_received_total: inner.counts.reports_received,
            reports_dropped_total: inner.counts.reports_dropped + inner.counts.messages_dropped,
            records_ignored_total: inner.counts.ignored,
        }),
        tick_seconds: Some(inner.tick_seconds.clone()),
        split_fan_out_seconds: state.proxy.as_ref().map(fan_out),
    }
}
