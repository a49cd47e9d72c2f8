//! What becomes of a field of `INFO` when several nodes have one.

use std::borrow::Cow;

/// How the values of a field become one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule<'a> {
    /// The first node's.
    First,
    /// The sum, with as many decimals as the most exact one.
    Sum,
    /// The sum, or 0, which means no limit, if one of them is 0.
    Limit,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The first that is not `ok`.
    Worst,
    /// The same whatever the nodes say.
    Fixed(&'static str),
    /// A summed field in the words of [`human`].
    Human(&'a str),
    /// One summed field by another.
    Ratio(&'static str, &'static str),
    /// One summed field as a share of another without a third.
    Percent(&'static str, &'static str, Option<&'static str>),
    /// `key=number` pairs, each after its own rule.
    Pairs,
    /// `key=number` pairs, each the largest.
    LargestPairs,
}

impl<'a> Rule<'a> {
    pub(super) fn of(name: &'a str) -> Self {
        match name {
            // Cluster clients, to whom it is a cluster of one node, look for it.
            "cluster_enabled" => Self::Fixed("1"),
            "redis_mode" | "server_mode" => Self::Fixed("standalone"),
            "maxmemory" => Self::Limit,
            "mem_allocator" | "total_system_memory" | "expired_stale_perc" => Self::First,
            "loading"
            | "async_loading"
            | "latest_fork_usec"
            | "active_defrag_running"
            | "client_recent_max_input_buffer"
            | "client_recent_max_output_buffer" => Self::Max,
            "rdb_last_save_time" => Self::Min,
            "used_memory_peak_perc" => Self::Percent("used_memory", "used_memory_peak", None),
            "used_memory_dataset_perc" => {
                Self::Percent("used_memory_dataset", "used_memory", Some("used_memory_startup"))
            }
            "mem_fragmentation_ratio" => Self::Ratio("used_memory_rss", "used_memory"),
            "allocator_frag_ratio" => Self::Ratio("allocator_active", "allocator_allocated"),
            "allocator_rss_ratio" => Self::Ratio("allocator_resident", "allocator_active"),
            "rss_overhead_ratio" => Self::Ratio("used_memory_rss", "allocator_resident"),
            _ => Self::of_family(name),
        }
    }

    fn of_family(name: &'a str) -> Self {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if let Some(bytes) = name.strip_suffix("_human") {
            return match Self::of(bytes) {
                Self::Sum | Self::Limit => Self::Human(bytes),
                _ => Self::First,
            };
        }
        if starts(&["cmdstat_", "errorstat_"]) || database(name).is_some() {
            Self::Pairs
        } else if name.starts_with("latency_percentiles_") {
            Self::LargestPairs
        } else if name.ends_with("_in_progress") {
            Self::Max
        } else if name.ends_with("_status") {
            Self::Worst
        } else if ADDING_UP.contains(&name) || starts(ADDING_UP_FROM) {
            Self::Sum
        } else {
            Self::First
        }
    }

    /// Fields of this rule are added even if the first node has none of that name.
    pub(super) fn adds_fields(self) -> bool {
        matches!(self, Self::Pairs | Self::LargestPairs)
    }

    /// The value of the whole; `sum` gives the sum of another field.
    pub(super) fn apply<'v>(
        self,
        values: &[&'v str],
        sum: impl Fn(&str) -> Option<f64>,
    ) -> Cow<'v, str> {
        let first = values[0];
        let derived = match self {
            Self::Fixed(value) => return value.into(),
            // What one node says is more exact than what can be derived from it.
            _ if values.len() == 1 => None,
            Self::First => None,
            Self::Limit if values.contains(&"0") => return "0".into(),
            Self::Sum | Self::Limit => total(values),
            Self::Max => return extreme(values, |new, old| new > old).into(),
            Self::Min => return extreme(values, |new, old| new < old).into(),
            Self::Worst => {
                return values.iter().find(|value| **value != "ok").map_or(first, |v| v).into();
            }
            Self::Human(bytes) => sum(bytes).map(human),
            Self::Ratio(of, by) => match (sum(of), sum(by)) {
                (Some(of), Some(by)) if by > 0.0 => Some(format!("{:.2}", of / by)),
                _ => None,
            },
            Self::Percent(of, by, without) => {
                match (sum(of), sum(by), without.map_or(Some(0.0), sum)) {
                    (Some(of), Some(by), Some(without)) if by > without => {
                        Some(format!("{:.2}%", of * 100.0 / (by - without)))
                    }
                    _ => None,
                }
            }
            Self::Pairs => Some(pairs(values)),
            Self::LargestPairs => Some(largest_pairs(values)),
        };
        derived.map_or(first.into(), Cow::from)
    }
}

/// Counters and gauges that add up.
const ADDING_UP: &[&str] = &[
    "connected_clients",
    "cluster_connections",
    "maxclients",
    "blocked_clients",
    "tracking_clients",
    "watching_clients",
    "clients_in_timeout_table",
    "allocator_allocated",
    "allocator_active",
    "allocator_resident",
    "allocator_muzzy",
    "allocator_frag_bytes",
    "allocator_rss_bytes",
    "rss_overhead_bytes",
    "rdb_changes_since_last_save",
    "rdb_saves",
    "aof_rewrites",
    "aof_current_size",
    "aof_base_size",
    "aof_buffer_length",
    "rejected_connections",
    "expire_cycle_cpu_milliseconds",
    "current_eviction_exceeded_time",
    "client_query_buffer_limit_disconnections",
    "client_output_buffer_limit_disconnections",
    "migrate_cached_sockets",
    "slave_expires_tracked_keys",
    "current_active_defrag_time",
    "unexpected_error_replies",
    "dump_payload_sanitizations",
];

/// Beginnings of the names of more of them.
const ADDING_UP_FROM: &[&str] = &[
    "used_memory",
    "mem_",
    "lazyfree",
    "total_",
    "instantaneous_",
    "used_cpu_",
    "sync_",
    "expired_",
    "evicted_",
    "keyspace_",
    "pubsub",
    "active_defrag_",
    "tracking_total_",
    "io_threaded_",
    "acl_access_denied_",
    "reply_buffer_",
];

/// The number of a field `dbN`.
pub(super) fn database(name: &str) -> Option<u32> {
    name.strip_prefix("db")?.parse().ok()
}

/// `None` if one of them is no number.
fn total(values: &[&str]) -> Option<String> {
    let decimals = |value: &str| value.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    match values.iter().map(|value| decimals(value)).max()? {
        0 => {
            let numbers = values.iter().map(|value| value.parse::<i64>().ok());
            let sum = numbers.reduce(|sum, number| Some(sum?.saturating_add(number?)))?;
            sum.map(|sum| sum.to_string())
        }
        decimals => {
            let sum: f64 =
                values.iter().map(|value| value.parse::<f64>().ok()).sum::<Option<_>>()?;
            Some(format!("{sum:.decimals$}"))
        }
    }
}

fn extreme<'v>(values: &[&'v str], better: impl Fn(f64, f64) -> bool) -> &'v str {
    let number = |value: &str| value.parse::<f64>().ok();
    values
        .iter()
        .copied()
        .reduce(|best, value| match (number(value), number(best)) {
            (Some(new), Some(old)) if better(new, old) => value,
            _ => best,
        })
        .unwrap_or_default()
}

/// A number of bytes as a server writes it for people.
fn human(bytes: f64) -> String {
    let units = ["K", "M", "G", "T", "P"];
    if bytes < 1024.0 {
        return format!("{bytes:.0}B");
    }
    let mut scaled = bytes / 1024.0;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.2}{}", units[unit])
}

fn number_of(value: &str, key: &str) -> f64 {
    let mut pairs = value.split(',').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == key).and_then(|(_, number)| number.parse().ok()).unwrap_or(0.0)
}

/// The first value's keys with what `number` makes of all values.
fn write_pairs(values: &[&str], number: impl Fn(&str) -> String) -> String {
    let keys = values[0].split(',').filter_map(|pair| pair.split_once('='));
    let pairs: Vec<String> = keys.map(|(key, _)| format!("{key}={}", number(key))).collect();
    pairs.join(",")
}

fn pairs(values: &[&str]) -> String {
    let sum = |key: &str| values.iter().map(|value| number_of(value, key)).sum::<f64>();
    write_pairs(values, |key| match key {
        "usec_per_call" => format!("{:.2}", sum("usec") / sum("calls").max(1.0)),
        // The mean over keys that expire, not over nodes.
        "avg_ttl" => {
            let weigh = |value: &&str| number_of(value, key) * number_of(value, "expires");
            let weighted: f64 = values.iter().map(weigh).sum();
            format!("{:.0}", weighted / sum("expires").max(1.0))
        }
        _ => format!("{:.0}", sum(key)),
    })
}

fn largest_pairs(values: &[&str]) -> String {
    let largest = |key: &str| values.iter().map(|value| number_of(value, key)).fold(0.0, f64::max);
    write_pairs(values, |key| format!("{:.3}", largest(key)))
}
