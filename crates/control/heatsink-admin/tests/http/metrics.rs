//! The text of the metrics.

use std::collections::BTreeSet;

use heatsink_admin::control::UpstreamNode;
use heatsink_admin::metrics::{
    CacheCounts, CollapseCounts, Fleet, Histogram, KeyMetrics, Metrics, NodeLoad, SketchError,
    Splits, Traffic, UpstreamHealth, text,
};
use heatsink_admin::{Privacy, Settings};

use crate::exposition::Exposition;
use crate::rig::Rig;

fn histogram(values: &[f64]) -> Histogram {
    let mut histogram = Histogram::default();
    for value in values {
        histogram.observe(*value);
    }
    histogram
}

/// Metrics with every field filled.
pub(crate) fn filled(keys: &[Vec<u8>]) -> Metrics {
    let key = |(at, key): (usize, &Vec<u8>)| KeyMetrics {
        key: key.clone(),
        reads_per_second: 1000.0 - at as f64,
        writes_per_second: 1.5,
        local_cache: Some(CacheCounts { hits_total: 3, misses_total: 1 }),
        coalesce: Some(CollapseCounts { requests_total: 50, fetches_total: 4 }),
        split_factor: Some(8),
        // It has not been split anew yet.
        shards: Some(4),
    };
    Metrics {
        version: "0.1.0".into(),
        role: "all".into(),
        process_start_ms: 1_767_225_600_120,
        log_lines_dropped_total: Some(8),
        traffic: Some(Traffic {
            requests_total: 10,
            clients: 2,
            upstream_commands_total: 9,
            pauses_total: 3,
            unread_bytes: 8,
            slow_clients_closed_total: 9,
            held_input_bytes: 11,
            large_clients_closed_total: 12,
        }),
        keys: keys.iter().enumerate().map(key).collect(),
        local_cache: Some(CacheCounts { hits_total: 30, misses_total: 10 }),
        coalesce: Some(CollapseCounts { requests_total: 500, fetches_total: 40 }),
        split_fan_out_seconds: Some(histogram(&[0.001, 0.02])),
        splits: Some(Splits {
            active: 2,
            moves_total: vec![("split", "done", 3), ("unsplit", "done", 1)],
            freeze_seconds: histogram(&[0.005]),
            reconciled_at_ms: Some(1_700_000_000_500),
            drift_total: 1,
        }),
        detection_latency_seconds: Some(histogram(&[0.12, 0.0001, 99.0])),
        sketch: Some(SketchError {
            bound_per_second: 1.3,
            mean_excess_requests: Some(0.1),
            mean_relative: Some(0.01),
            underestimates_total: 0,
        }),
        nodes: vec![
            NodeLoad { node: "n1:1".into(), commands_total: 90, commands_per_second: 30.0 },
            NodeLoad { node: "n2:1".into(), commands_total: 10, commands_per_second: 10.0 },
        ],
        upstream: Some(UpstreamHealth {
            nodes: vec![
                UpstreamNode {
                    node: "n1:1".into(),
                    up: false,
                    since_ms: 1500,
                    error: Some("connection refused".into()),
                },
                UpstreamNode { node: "n2:1".into(), up: true, ..UpstreamNode::default() },
            ],
            errors_total: vec![("refused", 4), ("lost", 0)],
            reconnects_total: 2,
        }),
        miss_storms_total: Some(1),
        write_contention_total: Some(2),
        fleet: Some(Fleet {
            registry_entries: vec![("local_cache", "auto", 2), ("split", "manual", 1)],
            registry_version: 7,
            members: vec![("proxy".into(), 3), ("aggregator".into(), 1)],
            degraded: true,
            reports_sent_total: 4,
            reports_received_total: 5,
            reports_dropped_total: 6,
            records_ignored_total: 7,
        }),
        tick_seconds: Some(histogram(&[0.0002])),
    }
}

#[test]
fn everything_is_there_and_well_formed() {
    let rig = Rig::start(Settings::default());
    let reply = rig.get("/metrics");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4"));
    let text = Exposition::parse(&reply.text());
    for (name, value) in [
        ("heatsink_requests_total", 10.0),
        ("heatsink_log_lines_dropped_total", 8.0),
        ("heatsink_pauses_total", 3.0),
        ("heatsink_client_output_bytes", 8.0),
        ("heatsink_slow_clients_closed_total", 9.0),
        ("heatsink_client_input_bytes", 11.0),
        ("heatsink_large_clients_closed_total", 12.0),
        ("heatsink_process_start_time_seconds", 1_767_225_600.12),
        ("heatsink_collapse_ratio", 12.5),
        ("heatsink_hottest_node_share", 0.75),
        ("heatsink_degraded", 1.0),
        ("heatsink_detection_latency_seconds_count", 3.0),
        ("heatsink_splits_active", 2.0),
        ("heatsink_split_freeze_seconds_count", 1.0),
        ("heatsink_split_reconciled_timestamp_seconds", 1_700_000_000.5),
        ("heatsink_split_drift_total", 1.0),
    ] {
        assert_eq!(text.value(name, &[]), Some(value), "{name}");
    }
    let user = [("key", "user:9999")];
    assert_eq!(text.value("heatsink_hot_key_local_cache_hit_ratio", &user), Some(0.75));
    assert_eq!(text.value("heatsink_hot_key_collapse_ratio", &user), Some(12.5));
    assert_eq!(text.value("heatsink_hot_key_split_factor", &user), Some(8.0));
    assert_eq!(text.value("heatsink_hot_key_shards", &user), Some(4.0));
    assert_eq!(text.value("heatsink_members", &[("role", "proxy")]), Some(3.0));
    let of_node = |name, node| text.value(name, &[("node", node)]);
    assert_eq!(of_node("heatsink_upstream_up", "n1:1"), Some(0.0));
    assert_eq!(of_node("heatsink_upstream_up", "n2:1"), Some(1.0));
    assert_eq!(of_node("heatsink_upstream_changed_timestamp_seconds", "n1:1"), Some(1.5));
    let errors = |kind| text.value("heatsink_upstream_errors_total", &[("kind", kind)]);
    assert_eq!((errors("refused"), errors("lost")), (Some(4.0), Some(0.0)));
    assert_eq!(text.value("heatsink_upstream_reconnects_total", &[]), Some(2.0));
    let done = [("way", "split"), ("outcome", "done")];
    assert_eq!(text.value("heatsink_split_moves_total", &done), Some(3.0));
    // A value on a bound belongs to its bucket; one beyond all is in the last only.
    let bucket = |le| text.value("heatsink_detection_latency_seconds_bucket", &[("le", le)]);
    assert_eq!(bucket("0.0001"), Some(1.0));
    assert_eq!(bucket("0.15"), Some(2.0));
    assert_eq!(bucket("10"), Some(2.0));
    assert_eq!(bucket("+Inf"), Some(3.0));
}

#[test]
fn what_nobody_measures_is_left_out() {
    let text = text::encode(&Metrics::default(), Privacy::Plain, 50);
    let names = Exposition::parse(&text).names();
    assert_eq!(
        names,
        BTreeSet::from([
            "heatsink_build_info".into(),
            "heatsink_process_start_time_seconds".into()
        ])
    );
    // A ratio of nothing is not zero.
    let metrics = Metrics { coalesce: Some(CollapseCounts::default()), ..Metrics::default() };
    let names = Exposition::parse(&text::encode(&metrics, Privacy::Plain, 50)).names();
    assert!(names.contains("heatsink_coalesced_fetches_total"));
    assert!(!names.contains("heatsink_collapse_ratio"));
}

#[test]
fn named_keys_are_bounded_and_the_rest_are_summed() {
    let keys: Vec<Vec<u8>> = (0..1000).map(|n| format!("k{n:04}").into_bytes()).collect();
    let parsed = Exposition::parse(&text::encode(&filled(&keys), Privacy::Plain, 50));
    let named = parsed.labels("heatsink_hot_key_reads_per_second", "key");
    assert_eq!(named.len(), 51);
    assert!(named.contains("k0000") && named.contains("k0049") && named.contains("other"));
    let rest: f64 = (50..1000).map(|n| 1000.0 - f64::from(n)).sum();
    let other = [("key", "other"), ("key_hash", "")];
    assert_eq!(parsed.value("heatsink_hot_key_reads_per_second", &other), Some(rest));
    assert_eq!(parsed.value("heatsink_hot_key_local_cache_hit_ratio", &other), Some(0.75));
    assert_eq!(parsed.value("heatsink_hot_key_local_cache_hits_total", &other), None);
}

#[test]
fn labels_of_any_key_are_escaped_and_distinct() {
    let keys: Vec<Vec<u8>> = [
        &b"a\"b\\c\nd"[..],
        b"\xff",
        b"%FF",
        b"other",
        b"",
        b"hash:9f86d081884c7d65",
        b"test",
        b"}{,=#",
        "ключ 🔥".as_bytes(),
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    for privacy in [Privacy::Plain, Privacy::Hash] {
        // The parser refuses samples that are not distinct.
        let parsed = Exposition::parse(&text::encode(&filled(&keys), privacy, 8));
        let shown = parsed.labels("heatsink_hot_key_reads_per_second", "key");
        assert_eq!(shown.contains("a\"b\\c\nd"), privacy == Privacy::Plain);
    }
    let long = vec![vec![b'k'; 300], vec![b'l'; 256]];
    let parsed = Exposition::parse(&text::encode(&filled(&long), Privacy::Plain, 8));
    let shown = parsed.labels("heatsink_hot_key_reads_per_second", "key");
    assert!(shown.iter().any(|key| key.starts_with("hash:")) && shown.contains(&"l".repeat(256)));
}
