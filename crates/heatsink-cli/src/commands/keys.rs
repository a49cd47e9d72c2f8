//! `heatsink keys`: the registry of hot keys from the command line, over the admin API.
//!
//! Tables for people, or with `--json` what the API says, for scripts.
//! Invariant: stdout carries the answer and nothing else.

mod table;

use std::io::{self, Write as _};

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
    let mut text = if request.json { format!("{answer:#}") } else { words(&request.verb, &answer) };
    text.push('\n');
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::Runtime(format!("cannot write to stdout: {error}")))
}

fn failure(error: &ClientError) -> Failure {
    Failure::Runtime(error.to_string())
}

fn ask(client: &Client, verb: &Verb) -> Result<Value, Failure> {
    let answer = match verb {
        Verb::List { filters } => {
            let filters: Vec<_> =
                filters.iter().map(|(name, value)| (*name, value.as_str())).collect();
            client.list(&filters).map(Value::Array)
        }
        Verb::Promote { key, mitigation, split_factor, ttl_seconds } => {
            let mitigation: Mitigation = mitigation.parse().map_err(|_| {
                let known: Vec<_> = Mitigation::ALL.iter().map(|each| each.name()).collect();
                Failure::Runtime(format!("{mitigation} is not one of {}", known.join(", ")))
            })?;
            let promotion =
                Promotion { mitigation, split_factor: *split_factor, ttl_seconds: *ttl_seconds };
            client.promote(key.as_bytes(), promotion)
        }
        Verb::Demote { key } => client.demote(key.as_bytes()),
        Verb::Stats { key } => client.stats(key.as_bytes()),
        Verb::Policy { key } => client.policy(key.as_bytes()),
    };
    answer.map_err(|error| failure(&error))
}

fn words(verb: &Verb, answer: &Value) -> String {
    match verb {
        Verb::List { .. } => list(answer.as_array().map_or(&[], Vec::as_slice)),
        Verb::Promote { .. } => {
            let (key, mitigation) = (text(answer, "key"), text(answer, "mitigation_type"));
            format!("{key}: {mitigation}, {}", text(answer, "reason"))
        }
        Verb::Demote { .. } => format!(
            "{}: removed; not promoted automatically for {} s",
            text(answer, "key"),
            answer["blocked_seconds"]
        ),
        Verb::Stats { .. } | Verb::Policy { .. } => pairs(answer),
    }
}

fn list(items: &[Value]) -> String {
    if items.is_empty() {
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
    for item in items {
        let frequency = item["frequency"].as_f64().unwrap_or(0.0);
        let reads = item["reads_per_second"].as_f64().unwrap_or(0.0);
        let share = if frequency > 0.0 {
            format!("{:.1} %", (1000.0 * reads / frequency).floor() / 10.0)
        } else {
            "-".to_owned()
        };
        let mut mitigation = text(item, "mitigation_type");
        if item["split_factor"].as_u64().is_some_and(|factor| factor > 1) {
            mitigation = format!("{mitigation} x{}", item["split_factor"]);
        }
        if item["dry_run"] == json!(true) {
            mitigation.push_str(" (dry run)");
        } else if let Some(kind) = item["split"]["kind"].as_str() {
            mitigation = format!("{mitigation}, a {kind}");
        } else if item["mitigation_type"] == json!("split") {
            mitigation.push_str(" (not yet)");
        }
        let ttl = match item["ttl_seconds"].as_u64() {
            Some(seconds) => format!("{seconds} s"),
            None => "-".to_owned(),
        };
        table.row(vec![
            text(item, "key"),
            format!("{frequency:.0}"),
            share,
            mitigation,
            text(item, "status"),
            text(item, "origin"),
            ttl,
            text(item, "reason"),
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

    fn item() -> Value {
        json!({
            "key": "user:9999", "frequency": 48_211.0, "reads_per_second": 48_190.0,
            "mitigation_type": "local_cache", "split_factor": 1, "ttl_seconds": 60,
            "status": "active", "origin": "auto", "reason": "48 211 req/s over 2 proxies"
        })
    }

    #[test]
    fn a_list_is_a_table() {
        let other = json!({
            "key": "a\u{1b}[2Jb", "frequency": 0.0, "reads_per_second": 0.0,
            "mitigation_type": "split", "split_factor": 8, "ttl_seconds": null, "dry_run": true,
            "status": "cooling", "origin": "manual", "reason": "promoted"
        });
        assert_eq!(
            list(&[item(), other]),
            "KEY          REQ/S   READS  MITIGATION          STATUS   ORIGIN   TTL  WHY\n\
             user:9999    48211  99.9 %  local_cache         active   auto    60 s  48 211 req/s over 2 proxies\n\
             a\\u{1b}[2Jb      0       -  split x8 (dry run)  cooling  manual     -  promoted"
        );
        assert_eq!(list(&[]), "no hot keys");
    }

    #[test]
    fn answers_in_words() {
        let verb = Verb::Demote { key: "a".to_owned() };
        let answer = json!({"key": "a", "blocked_seconds": 300});
        assert_eq!(words(&verb, &answer), "a: removed; not promoted automatically for 300 s");
        let verb = Verb::Stats { key: "a".to_owned() };
        let answer = json!({"requests_per_second": 12.5, "hit_ratio": null});
        assert_eq!(words(&verb, &answer), "hit_ratio            -\nrequests_per_second  12.5");
    }
}
