//! `heatsink keys`: the registry of hot keys from the command line, over the admin API.
//!
//! Tables for people, or with `--json` what the API says, for scripts.
//! Invariant: stdout carries the answer and nothing else.

mod table;

use std::io::{self, Write as _};

use heatsink_admin::HotKeyView;
use heatsink_admin::client::{Client, ClientError};
use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;
use serde_json::{Value, json};

use crate::exit::Failure;
use table::{Align, Table};

/// What is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// All hot keys, or those that match.
    List { filters: Vec<(&'static str, String)> },
    /// Force a key in.
    Promote { key: String, mitigation: String, split_factor: Option<u32>, ttl_seconds: Option<u64> },
    /// Take a key out.
    Demote { key: String },
    /// What its mitigation achieves.
    Stats { key: String },
    /// What it may get, and by which rule.
    Policy { key: String },
    /// What the rules give, and the default.
    Policies,
}

/// Where to ask, and how to answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) admin: String,
    pub(crate) token: Option<String>,
    pub(crate) json: bool,
}

/// Asks, and prints the answer.
pub(crate) fn run(request: &Request) -> Result<(), Failure> {
    let client =
        Client::new(&request.admin, request.token.as_deref()).map_err(|error| failure(&error))?;
    let answer = ask(&client, &request.verb)?;
    let mut text =
        if request.json { format!("{:#}", answer.json()) } else { words(&request.verb, &answer) };
    text.push('\n');
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::Runtime(format!("cannot write to stdout: {error}")))
}

fn failure(error: &ClientError) -> Failure {
    Failure::Runtime(error.to_string())
}

/// What the API said.
#[derive(Debug)]
enum Answer {
    /// Hot keys.
    Keys(Vec<HotKeyView>),
    /// The hot key that it now is.
    Promoted(Box<HotKeyView>),
    /// Anything else.
    Other(Value),
}

impl Answer {
    fn json(&self) -> Value {
        match self {
            Self::Keys(keys) => json!(keys),
            Self::Promoted(hot) => json!(hot),
            Self::Other(answer) => answer.clone(),
        }
    }
}

fn ask(client: &Client, verb: &Verb) -> Result<Answer, Failure> {
    let answer = match verb {
        Verb::List { filters } => {
            let filters: Vec<_> =
                filters.iter().map(|(name, value)| (*name, value.as_str())).collect();
            client.list(&filters).map(Answer::Keys)
        }
        Verb::Promote { key, mitigation, split_factor, ttl_seconds } => {
            let mitigation: Mitigation = mitigation.parse().map_err(|_| {
                let known: Vec<_> = Mitigation::ALL.iter().map(|each| each.name()).collect();
                Failure::Runtime(format!("{mitigation} is not one of {}", known.join(", ")))
            })?;
            let promotion =
                Promotion { mitigation, split_factor: *split_factor, ttl_seconds: *ttl_seconds };
            client.promote(key.as_bytes(), promotion).map(|hot| Answer::Promoted(Box::new(hot)))
        }
        Verb::Demote { key } => client.demote(key.as_bytes()).map(Answer::Other),
        Verb::Stats { key } => client.stats(key.as_bytes()).map(Answer::Other),
        Verb::Policy { key } => client.policy(key.as_bytes()).map(Answer::Other),
        Verb::Policies => client.policies().map(Answer::Other),
    };
    answer.map_err(|error| failure(&error))
}

fn words(verb: &Verb, answer: &Answer) -> String {
    let answer = match answer {
        Answer::Keys(keys) => return list(keys),
        Answer::Promoted(hot) => {
            let (key, mitigation) = (printable(&hot.key), printable(&hot.mitigation_type));
            return format!("{key}: {mitigation}, {}", printable(&hot.reason));
        }
        Answer::Other(answer) => answer,
    };
    match verb {
        Verb::Demote { .. } => format!(
            "{}: removed; not promoted automatically for {} s",
            text(answer, "key"),
            answer["blocked_seconds"]
        ),
        Verb::Stats { .. } => stats(answer),
        Verb::Policies => rules(answer["items"].as_array().map_or(&[], Vec::as_slice)),
        Verb::Policy { .. } | Verb::List { .. } | Verb::Promote { .. } => pairs(answer),
    }
}

fn list(keys: &[HotKeyView]) -> String {
    if keys.is_empty() {
        return "no hot keys".to_owned();
    }
    let mut table = Table::new(&[
        ("KEY", Align::Left),
        ("REQ/S", Align::Right),
        ("READS", Align::Right),
        ("MITIGATION", Align::Left),
        ("STATUS", Align::Left),
        ("ORIGIN", Align::Left),
        ("TTL", Align::Right),
        ("WHY", Align::Left),
    ]);
    for hot in keys {
        let share = if hot.frequency > 0.0 {
            format!("{:.1} %", (1000.0 * hot.reads_per_second / hot.frequency).floor() / 10.0)
        } else {
            "-".to_owned()
        };
        let mut mitigation = printable(&hot.mitigation_type);
        if hot.split_factor > 1 {
            mitigation = format!("{mitigation} x{}", hot.split_factor);
        }
        if hot.is_dry_run() {
            mitigation.push_str(" (dry run)");
        } else if let Some(split) = &hot.split {
            mitigation = format!("{mitigation}, a {}", printable(&split.kind));
        } else if hot.mitigation_type == Mitigation::Split.name() {
            mitigation.push_str(" (not yet)");
        }
        let ttl = hot.ttl_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds} s"));
        table.row(vec![
            printable(&hot.key),
            format!("{:.0}", hot.frequency),
            share,
            mitigation,
            printable(&hot.status),
            printable(&hot.origin),
            ttl,
            printable(&hot.reason),
        ]);
    }
    table.to_string()
}

fn rules(items: &[Value]) -> String {
    let mut table = Table::new(&[
        ("RULE", Align::Right),
        ("MATCH", Align::Left),
        ("MODE", Align::Left),
        ("ALLOWS", Align::Left),
        ("SETTINGS", Align::Left),
    ]);
    let joined = |words: Vec<String>| {
        if words.is_empty() { "-".to_owned() } else { words.join(", ") }
    };
    for item in items {
        let (number, pattern) = match item["rule"]["number"].as_u64() {
            Some(number) => (number.to_string(), text(&item["rule"], "match")),
            None => ("-".to_owned(), "(all other keys)".to_owned()),
        };
        let allowed = item["allowed_mitigations"].as_array().into_iter().flatten();
        let settings = item["settings"].as_object().into_iter().flatten();
        table.row(vec![
            number,
            pattern,
            text(item, "mode"),
            joined(allowed.map(shown).collect()),
            joined(settings.map(|(name, value)| format!("{name} = {}", shown(value))).collect()),
        ]);
    }
    table.to_string()
}

/// The figures, and a table each of the shards and their nodes, if the key is split.
fn stats(answer: &Value) -> String {
    let mut figures = answer.clone();
    let mut take = |field: &str| match figures[field].take() {
        Value::Array(items) => Some(items),
        _ => None,
    };
    let (shards, nodes) = (take("shards"), take("nodes"));
    if let Some(fields) = figures.as_object_mut() {
        fields.retain(|name, _| !matches!(name.as_str(), "shards" | "nodes"));
    }
    let tables = [shards.map(|shards| shard_table(&shards)), nodes.map(|nodes| node_table(&nodes))];
    let parts = std::iter::once(pairs(&figures)).chain(tables.into_iter().flatten());
    parts.collect::<Vec<_>>().join("\n\n")
}

fn shard_table(shards: &[Value]) -> String {
    let fields = [("value", "VALUE"), ("count", "MEMBERS"), ("bytes", "BYTES")];
    let is_there = |field: &str| shards.iter().any(|shard| !shard[field].is_null());
    let (field, head) =
        fields.into_iter().find(|(field, _)| is_there(field)).unwrap_or(("count", "MEMBERS"));
    let mut table = Table::new(&[
        ("SHARD", Align::Right),
        ("NODE", Align::Left),
        (head, Align::Right),
        ("WRITES", Align::Right),
        ("NAME", Align::Left),
    ]);
    for shard in shards {
        table.row(vec![
            shown(&shard["index"]),
            shown(&shard["node"]),
            shown(&shard[field]),
            shown(&shard["writes_total"]),
            shown(&shard["name"]),
        ]);
    }
    table.to_string()
}

fn node_table(nodes: &[Value]) -> String {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("SHARDS", Align::Right),
        ("WRITES", Align::Right),
        ("SHARE", Align::Right),
    ]);
    for node in nodes {
        let share = node["write_share"].as_f64();
        table.row(vec![
            shown(&node["node"]),
            shown(&node["shards"]),
            shown(&node["writes_total"]),
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
        ]);
    }
    table.to_string()
}

/// Each field on a line of its own.
fn pairs(answer: &Value) -> String {
    let Some(fields) = answer.as_object() else { return answer.to_string() };
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]);
    for (name, value) in fields {
        match value {
            Value::Object(parts) => {
                for (part, value) in parts {
                    table.row(vec![format!("{name}.{part}"), shown(value)]);
                }
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                for (number, item) in items.iter().enumerate() {
                    let fields = item.as_object().into_iter().flatten();
                    let words: Vec<_> =
                        fields.map(|(name, value)| format!("{name} {}", shown(value))).collect();
                    table.row(vec![format!("{name}.{number}"), words.join(", ")]);
                }
            }
            value => table.row(vec![name.clone(), shown(value)]),
        }
    }
    table.to_string()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

fn text(item: &Value, field: &str) -> String {
    item[field].as_str().map_or_else(|| "-".to_owned(), printable)
}

/// A key can hold anything; a terminal must not obey it.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|char| {
            let shown: Vec<char> =
                if char.is_control() { char.escape_default().collect() } else { vec![char] };
            shown
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_table() {
        let hot = HotKeyView {
            key: "user:9999".to_owned(),
            frequency: 48_211.0,
            reads_per_second: 48_190.0,
            mitigation_type: "local_cache".to_owned(),
            split_factor: 1,
            ttl_seconds: Some(60),
            status: "active".to_owned(),
            origin: "auto".to_owned(),
            reason: "48 211 req/s over 2 proxies".to_owned(),
            ..HotKeyView::default()
        };
        let other = HotKeyView {
            key: "a\u{1b}[2Jb".to_owned(),
            mitigation_type: "split".to_owned(),
            split_factor: 8,
            dry_run: Some(true),
            status: "cooling".to_owned(),
            origin: "manual".to_owned(),
            reason: "promoted".to_owned(),
            ..HotKeyView::default()
        };
        assert_eq!(
            list(&[hot, other]),
            "KEY          REQ/S   READS  MITIGATION          STATUS   ORIGIN   TTL  WHY\n\
             user:9999    48211  99.9 %  local_cache         active   auto    60 s  48 211 req/s over 2 proxies\n\
             a\\u{1b}[2Jb      0       -  split x8 (dry run)  cooling  manual     -  promoted"
        );
        assert_eq!(list(&[]), "no hot keys");
    }

    #[test]
    fn rules_are_a_table() {
        let items = [
            json!({"rule": {"number": 1, "match": "balance:*"}, "mode": "exact",
                "allowed_mitigations": ["coalesce"], "settings": {"hot_threshold": "500"}}),
            json!({"rule": null, "mode": "off", "allowed_mitigations": [], "settings": {}}),
        ];
        assert_eq!(
            rules(&items),
            "RULE  MATCH             MODE   ALLOWS    SETTINGS\n   \
             1  balance:*         exact  coalesce  hot_threshold = 500\n   \
             -  (all other keys)  off    -         -"
        );
    }

    #[test]
    fn answers_in_words() {
        let verb = Verb::Demote { key: "a".to_owned() };
        let answer = Answer::Other(json!({"key": "a", "blocked_seconds": 300}));
        assert_eq!(words(&verb, &answer), "a: removed; not promoted automatically for 300 s");
        let verb = Verb::Stats { key: "a".to_owned() };
        let answer = Answer::Other(json!({"requests_per_second": 12.5, "hit_ratio": null}));
        assert_eq!(words(&verb, &answer), "hit_ratio            -\nrequests_per_second  12.5");
    }

    #[test]
    fn shards_and_their_nodes_are_tables() {
        let verb = Verb::Stats { key: "a".to_owned() };
        let answer = json!({
            "hit_ratio": 0.5,
            "shards": [
                {"index": 0, "name": "s:0", "node": "n1:1", "value": -775, "writes_total": 30},
                {"index": 1, "name": "s:1", "node": "n2:1", "writes_total": 10}
            ],
            "nodes": [
                {"node": "n1:1", "shards": 1, "writes_total": 30, "write_share": 0.75},
                {"node": "n2:1", "shards": 1, "writes_total": 10, "write_share": null}
            ]
        });
        assert_eq!(
            words(&verb, &Answer::Other(answer)),
            "hit_ratio  0.5\n\n\
             SHARD  NODE  VALUE  WRITES  NAME\n    \
             0  n1:1   -775      30  s:0\n    \
             1  n2:1      -      10  s:1\n\n\
             NODE  SHARDS  WRITES   SHARE\n\
             n1:1       1      30  75.0 %\n\
             n2:1       1      10       -"
        );
        let whole = json!({"hit_ratio": 0.5, "shards": null, "nodes": null});
        assert_eq!(words(&verb, &Answer::Other(whole)), "hit_ratio  0.5");
    }
}
