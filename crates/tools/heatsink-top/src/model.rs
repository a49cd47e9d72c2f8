//! What the API says, in the form that is drawn.
//!
//! Called by: `source`, which reads it; `draw`, which shows it.
//! Bound: [`KEYS`] keys with [`SAMPLES`] rates each.
//! Invariant: except for those of a hot key, a field that is missing or of another type is absent,
//! never an error: `top` may be of another version than what it looks at.

use heatsink_admin::HotKeyView;
use heatsink_admin::key_name::decode;
use serde_json::Value;

/// Samples that are asked for: a minute of seconds.
pub(crate) const SAMPLES: u32 = 60;

/// Keys that are kept, the hottest ones.
const KEYS: usize = 1000;

/// The fleet at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) requests_per_second: Option<f64>,
    /// Of the proxies that say what they send upstream, like what they saved.
    pub(crate) served_per_second: Option<f64>,
    pub(crate) saved_per_second: Option<f64>,
    pub(crate) hottest_node_share: Option<f64>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) keys: Vec<Key>,
    pub(crate) members: usize,
    pub(crate) degraded: usize,
    /// Servers that members cannot reach, a line each.
    pub(crate) down: Vec<String>,
}

/// One node of the upstream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) commands_per_second: f64,
    pub(crate) share: f64,
}

/// One hot key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Key {
    /// As the API says it.
    pub(crate) hot: HotKeyView,
    /// What the API is asked with.
    pub(crate) address: Vec<u8>,
    /// What people see.
    pub(crate) name: String,
    /// With the shards of a split, and a star on what is only observed.
    pub(crate) mitigation: String,
    /// The time of day at which it was found.
    pub(crate) since: String,
    pub(crate) hit_ratio: Option<f64>,
    /// The last rates, oldest first.
    pub(crate) rates: Vec<f64>,
}

impl Key {
    /// Share of its requests that read.
    pub(crate) fn read_share(&self) -> Option<f64> {
        let requests = self.hot.frequency;
        (requests > 0.0).then(|| self.hot.reads_per_second / requests)
    }
}

/// More about one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Details {
    pub(crate) hash: String,
    /// Names and values of the figures that are measured.
    pub(crate) figures: Vec<(&'static str, String)>,
    pub(crate) policy: String,
    /// When, what and why, newest first.
    pub(crate) decisions: Vec<(String, String, String)>,
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_default()
}

/// The time of day of an RFC 3339 timestamp.
fn time_of_day(at: &str) -> String {
    at.get(11..19).unwrap_or(at).to_owned()
}

/// A key as it is shown.
pub(crate) fn visible(name: &str) -> String {
    if name.is_empty() { "(empty key)".to_owned() } else { spelled_out(name) }
}

/// What cannot be seen, or would disturb the terminal, spelled out.
pub(crate) fn spelled_out(name: &str) -> String {
    let is_strange = |letter: char| {
        // Marks that turn the direction of the text around could make one key look like another.
        letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut shown = String::with_capacity(name.len());
    for letter in name.chars() {
        if is_strange(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

impl Snapshot {
    /// Joins the answers of `/hotkeys`, `/history` and `/proxies`.
    pub(crate) fn new(keys: Vec<HotKeyView>, history: &Value, proxies: &Value) -> Self {
        let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let last = history["samples"].as_array().and_then(|samples| samples.last());
        let figure = |field: &str| last.and_then(|last| last[field].as_f64());
        let node = |node: &Value| Node {
            name: text(node, "node"),
            commands_per_second: number(node, "commands_per_second"),
            share: number(node, "share"),
        };
        let series = items(&history["keys"]);
        let mut keys: Vec<Key> = keys.into_iter().take(KEYS).map(Key::new).collect();
        for key in &mut keys {
            if let Some(series) = series.iter().find(|one| one["key_hash"] == key.hot.key_hash) {
                key.hit_ratio = series["hit_ratio"].as_f64();
                let rates = items(&series["requests_per_second"]);
                key.rates = rates.iter().filter_map(Value::as_f64).collect();
            }
        }
        let members = items(&proxies["items"]);
        let down = members.iter().flat_map(|member| items(&member["upstream_down"]));
        let mut down: Vec<String> = down.map(|node| down_line(&node)).collect();
        // Several members may say the same of one server.
        down.sort_unstable();
        down.dedup_by(|one, other| node_of(one) == node_of(other));
        Self {
            requests_per_second: figure("requests_per_second"),
            served_per_second: figure("served_per_second"),
            saved_per_second: figure("saved_per_second"),
            hottest_node_share: figure("hottest_node_share"),
            nodes: items(&history["nodes"]).iter().map(node).collect(),
            keys,
            members: members.len(),
            degraded: members.iter().filter(|member| member["degraded"] == true).count(),
            down,
        }
    }
}

fn down_line(node: &Value) -> String {
    let (name, since) = (text(node, "node"), time_of_day(&text(node, "since")));
    let error = spelled_out(&text(node, "error"));
    format!("{} down since {since}: {error}", spelled_out(&name))
}

/// The server that such a line is about.
fn node_of(line: &str) -> &str {
    line.split_once(" down since ").map_or(line, |(node, _)| node)
}

impl Key {
    fn new(hot: HotKeyView) -> Self {
        // A key that is not UTF-8 is written percent-encoded.
        let address = match hot.key_base64 {
            Some(_) => decode(&hot.key),
            None => hot.key.clone().into_bytes(),
        };
        let mut mitigation = hot.mitigation_type.clone();
        if hot.split_factor > 1 {
            mitigation = format!("{mitigation} x{}", hot.split_factor);
        }
        if hot.is_dry_run() {
            mitigation.push('*');
        }
        let (name, since) = (visible(&hot.key), time_of_day(&hot.detected_at));
        Self { hot, address, name, mitigation, since, hit_ratio: None, rates: Vec::new() }
    }
}

impl Details {
    /// Joins the answers of `/hotkeys/{key}/stats`, `/policy` and `/hotkeys/{key}/history`.
    pub(crate) fn new(stats: &Value, policy: &Value, history: &Value) -> Self {
        let percent = |field: &str| {
            let share = stats[field].as_f64();
            share.map(|share| format!("{:.1} %", share * 100.0))
        };
        let collapse = stats["collapse_ratio"].as_f64().map(|ratio| format!("{ratio:.1}"));
        let shards = stats["shards"].as_array().map(|shards| shards.len().to_string());
        let figures = [
            ("Local cache", percent("local_cache_hit_ratio")),
            ("Collapsed", collapse),
            ("Shards", shards),
        ];
        let rule = match policy["rule"]["number"].as_u64() {
            Some(number) => format!("rule {number}, {}", visible(&text(&policy["rule"], "match"))),
            None => "the default".to_owned(),
        };
        let allowed = policy["allowed_mitigations"].as_array().cloned().unwrap_or_default();
        let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        let decision = |one: &Value| {
            let what = match one["status"].as_str() {
                Some(given) => format!("{given}: {}", text(one, "mitigation_type")),
                None => "removed".to_owned(),
            };
            (time_of_day(&text(one, "at")), what, text(one, "reason"))
        };
        let decisions = history["decisions"].as_array().cloned().unwrap_or_default();
        Self {
            hash: text(stats, "key_hash"),
            figures: figures.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
            policy: format!("{} ({rule}); allows {}", text(policy, "mode"), allowed.join(", ")),
            decisions: decisions.iter().rev().map(decision).collect(),
        }
    }
}
