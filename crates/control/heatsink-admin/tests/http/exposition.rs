//! A strict reader of the Prometheus text format: what Prometheus would refuse panics here.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Exposition {
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

impl Exposition {
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.is_empty() || text.ends_with('\n'), "the last line ends");
        let mut kinds: BTreeMap<String, String> = BTreeMap::new();
        let mut helped = BTreeSet::new();
        let mut samples = BTreeMap::new();
        let mut family = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
                assert!(kind != "counter" || name.ends_with("_total"), "{line}");
                name.clone_into(&mut family);
            } else {
                let (name, labels, value) = sample(line);
                let suffix = name.strip_prefix(&family).expect("samples follow their TYPE");
                let histogram = kinds[&family] == "histogram";
                assert!(
                    if histogram {
                        ["_bucket", "_sum", "_count"].contains(&suffix)
                    } else {
                        suffix.is_empty()
                    },
                    "{line}"
                );
                assert!(samples.insert((name, labels), value).is_none(), "twice: {line}");
            }
        }
        Self { samples }
    }

    /// The only sample with this name and, among others, these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut found = self.samples.iter().filter(|((other, has), _)| {
            other == name
                && labels
                    .iter()
                    .all(|(label, value)| has.get(*label).map(String::as_str) == Some(value))
        });
        let value = found.next().map(|(_, value)| *value);
        assert!(found.next().is_none(), "more than one {name} {labels:?}");
        value
    }

    /// The values of a label.
    pub(crate) fn labels(&self, name: &str, label: &str) -> BTreeSet<String> {
        let samples = self.samples.keys().filter(|(other, _)| other == name);
        samples.filter_map(|(_, labels)| labels.get(label).cloned()).collect()
    }

    /// The names of the samples.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.samples.keys().map(|(name, _)| name.clone()).collect()
    }

    /// Names of labels that samples of this name have.
    pub(crate) fn label_names(&self, name: &str) -> BTreeSet<String> {
        let samples = self.samples.keys().filter(|(other, _)| other == name);
        samples.flat_map(|(_, labels)| labels.keys().cloned()).collect()
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name) && name.starts_with("heatsink_"), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, behind) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(label), "{line}");
            let (value, behind) = quoted(behind);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            if let Some(end) = behind.strip_prefix('}') {
                rest = end;
                break;
            }
            rest = behind.strip_prefix(',').unwrap_or_else(|| panic!("{line}"));
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
}

/// A label's value up to its closing quote, and what is behind that.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match characters.next().unwrap().1 {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                other => panic!("unknown escape {other}"),
            }),
            other => value.push(other),
        }
    }
    panic!("no closing quote: {text}")
}
