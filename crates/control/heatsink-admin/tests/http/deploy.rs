//! The dashboard and the alert rules use metrics and labels that exist.

use std::collections::BTreeSet;

use heatsink_admin::Settings;
use serde_json::Value;

use crate::exposition::Exposition;
use crate::rig::Rig;

const DASHBOARD: &str = include_str!("../../../../../deploy/grafana/heatsink.json");
const RULES: &str = include_str!("../../../../../deploy/prometheus/heatsink-rules.yml");
const EXAMPLE: &str = include_str!("../../../../../deploy/prometheus/prometheus.yml");

/// Labels that Prometheus adds to every sample.
const TARGET_LABELS: &[&str] = &["instance", "job"];

fn real() -> Exposition {
    Exposition::parse(&Rig::start(Settings::default()).get("/metrics").text())
}

/// Every string under a member of this name, anywhere.
fn members<'a>(node: &'a Value, name: &str, found: &mut Vec<&'a str>) {
    match node {
        Value::Object(all) => {
            for (key, inner) in all {
                match inner {
                    Value::String(text) if key == name => found.push(text),
                    other => members(other, name, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| members(item, name, found)),
        _ => {}
    }
}

fn dashboard() -> Value {
    serde_json::from_str(DASHBOARD).unwrap()
}

fn rules() -> Value {
    yaml_serde::from_str(RULES).unwrap()
}

fn expressions() -> Vec<String> {
    let (dashboard, rules) = (dashboard(), rules());
    let mut found = Vec::new();
    members(&dashboard, "expr", &mut found);
    members(&dashboard["templating"], "query", &mut found);
    members(&rules, "expr", &mut found);
    found.into_iter().filter(|text| *text != "prometheus").map(str::to_owned).collect()
}

/// The names in an expression, each with the labels that are matched on it.
fn names(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find("heatsink") {
        let tail = &rest[start..];
        let end = tail.find(|c| !is_name(c)).unwrap_or(tail.len());
        let mut labels = Vec::new();
        let mut behind = &tail[end..];
        if let Some(inner) = behind.strip_prefix('{') {
            let close = inner.find('}').expect("a closed matcher");
            for matcher in inner[..close].split(',') {
                labels.push(matcher.split(['=', '!']).next().unwrap().trim().to_owned());
            }
            behind = &inner[close..];
        }
        found.push((tail[..end].to_owned(), labels));
        rest = behind;
    }
    found
}

#[test]
fn every_metric_and_label_that_is_used_exists() {
    let real = real();
    let existing = real.names();
    let rules = rules();
    let mut recorded = Vec::new();
    members(&rules, "record", &mut recorded);
    let expressions = expressions();
    assert!(expressions.len() > 40, "{}", expressions.len());
    for expression in &expressions {
        let used = names(expression);
        assert!(!used.is_empty(), "{expression}");
        let mut labels: BTreeSet<String> =
            TARGET_LABELS.iter().map(|&label| label.into()).collect();
        for (name, matched) in &used {
            assert!(
                existing.contains(name) || recorded.contains(&name.as_str()),
                "{name} in {expression}"
            );
            let has = real.label_names(name);
            for label in matched {
                assert!(
                    has.contains(label) || TARGET_LABELS.contains(&label.as_str()),
                    "{label} in {expression}"
                );
            }
            labels.extend(has);
        }
        for list in expression.split("by (").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            for label in list.split(',').map(str::trim) {
                assert!(labels.contains(label), "{label} in {expression}");
            }
        }
        let balance =
            |open, close| expression.matches(open).count() == expression.matches(close).count();
        assert!(balance('(', ')') && balance('{', '}') && balance('[', ']'), "{expression}");
    }
}

#[test]
fn every_metric_that_exists_is_shown() {
    let used: BTreeSet<String> = expressions()
        .iter()
        .flat_map(|expression| names(expression))
        .map(|(name, _)| name)
        .collect();
    for name in real().names() {
        // The sum and the count of a histogram come with its buckets.
        let histogram = ["_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let shown = histogram.map_or_else(|| name.clone(), |base| format!("{base}_bucket"));
        assert!(used.contains(&shown), "{name}");
    }
}

#[test]
fn counters_are_used_as_rates_and_gauges_are_not() {
    for expression in expressions() {
        for (name, _) in names(&expression) {
            let counter = name.ends_with("_total") || name.ends_with("_bucket");
            let rated = ["rate(", "increase("]
                .iter()
                .any(|call| expression.contains(&format!("{call}{name}")));
            assert_eq!(counter, rated, "{name} in {expression}");
        }
    }
}

#[test]
fn legends_name_labels_that_exist() {
    let real = real();
    let dashboard = dashboard();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let mut labels: BTreeSet<String> = BTreeSet::from(["instance".to_owned()]);
            for (name, _) in names(expression) {
                labels.extend(real.label_names(&name));
            }
            let legend = target["legendFormat"].as_str().unwrap();
            for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
                assert!(labels.contains(label), "{label} of {expression}");
                assert!(
                    !expression.contains("by (") || expression.contains(label),
                    "{label} is summed away in {expression}"
                );
            }
        }
    }
}

#[test]
fn panels_have_their_own_places() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()));
        let title = panel["title"].as_str().unwrap();
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{title}");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "{title} covers another");
            }
        }
        if panel["type"] != "row" {
            assert!(panel["description"].as_str().unwrap().ends_with('.'), "{title}");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}");
        }
    }
}

#[test]
fn every_alert_says_how_bad_it_is_and_what_to_do() {
    let rules = rules();
    let mut alerts = BTreeSet::new();
    for rule in rules["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
    {
        let Some(alert) = rule["alert"].as_str() else { continue };
        assert!(alerts.insert(alert.to_owned()), "{alert} twice");
        assert!(alert.starts_with("Heatsink"));
        assert!(
            ["page", "ticket"].contains(&rule["labels"]["severity"].as_str().unwrap()),
            "{alert}"
        );
        for annotation in ["summary", "description"] {
            assert!(rule["annotations"][annotation].is_string(), "{alert}");
        }
    }
    assert!(alerts.len() >= 10);
    let example: Value = yaml_serde::from_str(EXAMPLE).unwrap();
    assert_eq!(example["rule_files"][0], "heatsink-rules.yml");
}
