//! Metrics as Prometheus text (exposition format 0.0.4).
//!
//! Called by: `GET /metrics`.
//! Bound: the named keys, see [`Metrics`]; each family is written once.
//! Invariant: no two samples have the same name and labels, or Prometheus would refuse the
//! whole scrape: a key's label may be ambiguous, so its hash stands beside it.
//!
//! Written by hand: the usual crates keep live counters in a registry of their own, but here
//! the figures come as one consistent copy from elsewhere, keys come and go, and what is not
//! measured must be left out. What remains to be done is to write lines and escape labels
//! (`lines`).
//!
//! Keys beyond the bound are summed as `key="other"` with an empty hash, as rates and ratios
//! only: the sum's totals would jump whenever a key enters or leaves the named ones.

use super::lines::Lines;
use super::{CacheCounts, CollapseCounts, KeyMetrics, Metrics};
use crate::control::UpstreamNode;
use crate::key_name::{Privacy, key_hash};

/// Writes `metrics` with at most `key_limit` keys by name.
pub fn encode(metrics: &Metrics, privacy: Privacy, key_limit: usize) -> String {
    let mut text = Lines::default();
    process(&mut text, metrics);
    traffic(&mut text, metrics);
    keys(&mut text, &metrics.keys, privacy, key_limit);
    mitigations(&mut text, metrics);
    detection(&mut text, metrics);
    nodes(&mut text, metrics);
    upstream(&mut text, metrics);
    fleet(&mut text, metrics);
    text.into_string()
}

fn process(text: &mut Lines, metrics: &Metrics) {
    let labels = [("version", metrics.version.as_str()), ("role", metrics.role.as_str())];
    text.gauge("heatsink_build_info", "Always 1; the labels say what runs.");
    text.sample("heatsink_build_info", &labels, 1.0);
    text.one_gauge(
        "heatsink_process_start_time_seconds",
        "When the process started, in seconds of Unix time.",
        Some(metrics.process_start_ms as f64 / 1000.0),
    );
    text.one_counter(
        "heatsink_log_lines_dropped_total",
        "Log lines that could not be written, or not in time.",
        metrics.log_lines_dropped_total,
    );
}

fn traffic(text: &mut Lines, metrics: &Metrics) {
    let traffic = metrics.traffic;
    text.one_counter(
        "heatsink_requests_total",
        "Requests taken from clients.",
        traffic.map(|traffic| traffic.requests_total),
    );
    text.one_gauge(
        "heatsink_clients",
        "Clients connected now.",
        traffic.map(|traffic| traffic.clients as f64),
    );
    text.one_counter(
        "heatsink_upstream_commands_total",
        "Commands sent upstream, those of Heatsink's own among them.",
        traffic.map(|traffic| traffic.upstream_commands_total),
    );
    text.one_counter(
        "heatsink_pauses_total",
        "How often a worker paused to let requests and replies gather, because many clients waited.",
        traffic.map(|traffic| traffic.pauses_total),
    );
    text.one_gauge(
        "heatsink_client_output_bytes",
        "Bytes of replies that clients have not read yet.",
        traffic.map(|traffic| traffic.unread_bytes as f64),
    );
    text.one_counter(
        "heatsink_slow_clients_closed_total",
        "Clients that were closed because they did not read their replies.",
        traffic.map(|traffic| traffic.slow_clients_closed_total),
    );
    text.one_gauge(
        "heatsink_client_input_bytes",
        "Bytes held of requests that are not complete, or have to wait.",
        traffic.map(|traffic| traffic.held_input_bytes as f64),
    );
    text.one_counter(
        "heatsink_large_clients_closed_total",
        "Clients that were closed because unfinished requests took too much memory.",
        traffic.map(|traffic| traffic.large_clients_closed_total),
    );
}

fn keys(text: &mut Lines, keys: &[KeyMetrics], privacy: Privacy, limit: usize) {
    let rate = |key: &KeyMetrics| key.reads_per_second + key.writes_per_second;
    let mut sorted: Vec<&KeyMetrics> = keys.iter().collect();
    sorted.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then_with(|| a.key.cmp(&b.key)));
    let (named, rest) = sorted.split_at(limit.min(sorted.len()));
    let other = (!rest.is_empty()).then(|| sum(rest));
    let mut shown: Vec<([String; 2], &KeyMetrics)> =
        named.iter().map(|key| ([privacy.label(&key.key), key_hash(&key.key)], *key)).collect();
    let named_len = shown.len();
    shown.extend(other.as_ref().map(|other| (["other".to_owned(), String::new()], other)));

    let mut family =
        |name, kind, help, count: usize, value: &dyn Fn(&KeyMetrics) -> Option<f64>| {
            text.rows(
                name,
                kind,
                help,
                shown[..count].iter().filter_map(|([key, hash], metrics)| {
                    Some((vec![("key", key.clone()), ("key_hash", hash.clone())], value(metrics)?))
                }),
            );
        };
    let all = named_len + usize::from(other.is_some());
    family(
        "heatsink_hot_key_reads_per_second",
        "gauge",
        "Reads/s of a hot key over the fleet.",
        all,
        &|key| Some(key.reads_per_second),
    );
    family(
        "heatsink_hot_key_writes_per_second",
        "gauge",
        "Writes/s of a hot key over the fleet.",
        all,
        &|key| Some(key.writes_per_second),
    );
    family(
        "heatsink_hot_key_local_cache_hits_total",
        "counter",
        "Reads of a hot key answered from the local cache here.",
        named_len,
        &|key| key.local_cache.map(|cache| cache.hits_total as f64),
    );
    family(
        "heatsink_hot_key_local_cache_misses_total",
        "counter",
        "Reads of a hot key that the local cache here passed on.",
        named_len,
        &|key| key.local_cache.map(|cache| cache.misses_total as f64),
    );
    family(
        "heatsink_hot_key_local_cache_hit_ratio",
        "gauge",
        "Share of the reads of a hot key answered from the local cache here, 0 to 1.",
        all,
        &|key| key.local_cache.and_then(hit_ratio),
    );
    family(
        "heatsink_hot_key_collapse_ratio",
        "gauge",
        "Requests for a hot key here that shared one upstream request, on average.",
        all,
        &|key| key.coalesce.and_then(collapse_ratio),
    );
    family(
        "heatsink_hot_key_split_factor",
        "gauge",
        "Physical keys that a hot key is to be spread over.",
        named_len,
        &|key| key.split_factor.map(f64::from),
    );
    family(
        "heatsink_hot_key_shards",
        "gauge",
        "Physical keys that the value of a hot key is in.",
        named_len,
        &|key| key.shards.map(f64::from),
    );
}

fn sum(keys: &[&KeyMetrics]) -> KeyMetrics {
    let mut sum = KeyMetrics::default();
    for key in keys {
        sum.reads_per_second += key.reads_per_second;
        sum.writes_per_second += key.writes_per_second;
        if let Some(cache) = key.local_cache {
            let total = sum.local_cache.get_or_insert_default();
            total.hits_total += cache.hits_total;
            total.misses_total += cache.misses_total;
        }
        if let Some(collapse) = key.coalesce {
            let total = sum.coalesce.get_or_insert_default();
            total.requests_total += collapse.requests_total;
            total.fetches_total += collapse.fetches_total;
        }
    }
    sum
}

fn hit_ratio(cache: CacheCounts) -> Option<f64> {
    ratio(cache.hits_total, cache.hits_total + cache.misses_total)
}

fn collapse_ratio(collapse: CollapseCounts) -> Option<f64> {
    ratio(collapse.requests_total, collapse.fetches_total)
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn mitigations(text: &mut Lines, metrics: &Metrics) {
    let cache = metrics.local_cache;
    text.one_counter(
        "heatsink_local_cache_hits_total",
        "Reads answered from the local cache.",
        cache.map(|cache| cache.hits_total),
    );
    text.one_counter(
        "heatsink_local_cache_misses_total",
        "Reads of hot keys that the local cache passed on.",
        cache.map(|cache| cache.misses_total),
    );
    let collapse = metrics.coalesce;
    text.one_counter(
        "heatsink_coalesced_requests_total",
        "Requests answered by shared upstream requests.",
        collapse.map(|collapse| collapse.requests_total),
    );
    text.one_counter(
        "heatsink_coalesced_fetches_total",
        "Upstream requests that were shared.",
        collapse.map(|collapse| collapse.fetches_total),
    );
    text.one_gauge(
        "heatsink_collapse_ratio",
        "Requests that shared one upstream request, on average since the start.",
        collapse.and_then(collapse_ratio),
    );
    text.histogram(
        "heatsink_split_fan_out_seconds",
        "From a whole-key read on a split key to its joined reply.",
        metrics.split_fan_out_seconds.as_ref(),
    );
    let splits = metrics.splits.as_ref();
    text.one_gauge(
        "heatsink_splits_active",
        "Keys that are split now, whole fleet.",
        splits.map(|splits| splits.active as f64),
    );
    text.rows(
        "heatsink_split_moves_total",
        "counter",
        "Moves of values by this process, by way and outcome.",
        splits.into_iter().flat_map(|splits| &splits.moves_total).map(|(way, outcome, count)| {
            let labels = vec![("way", (*way).to_owned()), ("outcome", (*outcome).to_owned())];
            (labels, *count as f64)
        }),
    );
    text.histogram(
        "heatsink_split_freeze_seconds",
        "How long writes of a key were held for a move by this process.",
        splits.map(|splits| &splits.freeze_seconds),
    );
    text.one_gauge(
        "heatsink_split_reconciled_timestamp_seconds",
        "When the markers of split keys were last looked at.",
        splits.and_then(|splits| splits.reconciled_at_ms).map(|at| at as f64 / 1000.0),
    );
    text.one_counter(
        "heatsink_split_drift_total",
        "How often the registry and the upstream did not agree on a split.",
        splits.map(|splits| splits.drift_total),
    );
    text.one_counter(
        "heatsink_miss_storms_total",
        "How often one key had many misses at once.",
        metrics.miss_storms_total,
    );
    text.one_counter(
        "heatsink_write_contention_total",
        "How often one key had many writes in flight at once.",
        metrics.write_contention_total,
    );
}

fn detection(text: &mut Lines, metrics: &Metrics) {
    text.histogram(
        "heatsink_detection_latency_seconds",
        "From the tick that found a key over the threshold to the registry's acknowledgement.",
        metrics.detection_latency_seconds.as_ref(),
    );
    text.histogram(
        "heatsink_tick_seconds",
        "How long a tick of detection takes.",
        metrics.tick_seconds.as_ref(),
    );
    let sketch = metrics.sketch;
    text.one_gauge(
        "heatsink_sketch_error_bound_requests_per_second",
        "By how much the sketch's estimates are too high at most, nearly always.",
        sketch.map(|sketch| sketch.bound_per_second),
    );
    text.one_gauge(
        "heatsink_sketch_mean_excess_requests",
        "By how much sampled estimates are too high on average, in requests a window.",
        sketch.and_then(|sketch| sketch.mean_excess_requests),
    );
    text.one_gauge(
        "heatsink_sketch_mean_relative_error",
        "By how much sampled estimates are too high on average, relative to the true count.",
        sketch.and_then(|sketch| sketch.mean_relative),
    );
    text.one_counter(
        "heatsink_sketch_underestimates_total",
        "Sampled estimates that were too low: a bug.",
        sketch.map(|sketch| sketch.underestimates_total),
    );
}

fn nodes(text: &mut Lines, metrics: &Metrics) {
    let nodes = &metrics.nodes;
    let label = |node: &str| vec![("node", node.to_owned())];
    text.rows(
        "heatsink_node_commands_total",
        "counter",
        "Commands sent to a node of the upstream.",
        nodes.iter().map(|node| (label(&node.node), node.commands_total as f64)),
    );
    text.rows(
        "heatsink_node_commands_per_second",
        "gauge",
        "Commands/s sent to a node of the upstream.",
        nodes.iter().map(|node| (label(&node.node), node.commands_per_second)),
    );
    let total: f64 = nodes.iter().map(|node| node.commands_per_second).sum();
    let hottest = nodes.iter().map(|node| node.commands_per_second).fold(0.0, f64::max);
    text.one_gauge(
        "heatsink_hottest_node_share",
        "Share of the commands that go to the hottest node, 0 to 1.",
        (total > 0.0).then(|| hottest / total),
    );
}

fn upstream(text: &mut Lines, metrics: &Metrics) {
    let Some(upstream) = &metrics.upstream else { return };
    let label = |node: &UpstreamNode| vec![("node", node.node.clone())];
    text.rows(
        "heatsink_upstream_up",
        "gauge",
        "1 if a node of the upstream can be reached from here, else 0.",
        upstream.nodes.iter().map(|node| (label(node), f64::from(u8::from(node.up)))),
    );
    text.rows(
        "heatsink_upstream_changed_timestamp_seconds",
        "gauge",
        "Since when a node of the upstream can be reached, or cannot, in seconds of Unix time.",
        upstream.nodes.iter().map(|node| (label(node), node.since_ms as f64 / 1000.0)),
    );
    text.rows(
        "heatsink_upstream_errors_total",
        "counter",
        "Connections to the upstream that could not be opened, or were lost, by kind of error.",
        upstream
            .errors_total
            .iter()
            .map(|(kind, count)| (vec![("kind", (*kind).to_owned())], *count as f64)),
    );
    text.one_counter(
        "heatsink_upstream_reconnects_total",
        "Connections to the upstream that were opened again.",
        Some(upstream.reconnects_total),
    );
}

fn fleet(text: &mut Lines, metrics: &Metrics) {
    let Some(fleet) = &metrics.fleet else { return };
    text.rows(
        "heatsink_registry_entries",
        "gauge",
        "Hot keys in the registry.",
        fleet.registry_entries.iter().map(|(mitigation, origin, count)| {
            let labels =
                vec![("mitigation", (*mitigation).to_owned()), ("origin", (*origin).to_owned())];
            (labels, *count as f64)
        }),
    );
    text.one_gauge(
        "heatsink_registry_version",
        "Version of the registry in force here.",
        Some(fleet.registry_version as f64),
    );
    text.rows(
        "heatsink_members",
        "gauge",
        "Live members of the fleet.",
        fleet.members.iter().map(|(role, count)| (vec![("role", role.clone())], *count as f64)),
    );
    text.one_gauge(
        "heatsink_degraded",
        "1 if the process works on what it sees itself.",
        Some(f64::from(u8::from(fleet.degraded))),
    );
    text.one_counter(
        "heatsink_reports_sent_total",
        "Reports published.",
        Some(fleet.reports_sent_total),
    );
    text.one_counter(
        "heatsink_reports_received_total",
        "Reports heard.",
        Some(fleet.reports_received_total),
    );
    text.one_counter(
        "heatsink_reports_dropped_total",
        "Reports that were not sent or not understood.",
        Some(fleet.reports_dropped_total),
    );
    text.one_counter(
        "heatsink_records_ignored_total",
        "Records and messages that were not understood, or not signed by a member.",
        Some(fleet.records_ignored_total),
    );
}
