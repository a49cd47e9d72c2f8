//! Typed reading of the table.
//!
//! Called by: `validate` and `contradictions`.
//! Invariant: a key of another kind is a slip in this crate, which the tests of `validate`
//! find, since every key that is read is read on every run.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use heatsink_upstream::address::Url;

use super::merge::{Setting, Settings};
use super::value::Value;

impl Settings {
    pub(super) fn whole(&self, path: &str) -> u64 {
        match &self.get(path).value {
            Value::Whole(number) | Value::Bytes(number) => *number,
            other => unreachable!("{path} is {other}, not a number"),
        }
    }

    pub(super) fn fraction(&self, path: &str) -> f64 {
        match &self.get(path).value {
            Value::Fraction(number) => *number,
            other => unreachable!("{path} is {other}, not a fraction"),
        }
    }

    pub(super) fn milliseconds(&self, path: &str) -> Duration {
        Duration::from_millis(self.whole(path))
    }

    pub(super) fn text(&self, path: &str) -> &str {
        self.get(path).text()
    }

    pub(super) fn switch(&self, path: &str) -> bool {
        self.get(path).switch()
    }

    /// `None` if empty.
    pub(super) fn path(&self, path: &str) -> Option<PathBuf> {
        match &self.get(path).value {
            Value::Nothing => None,
            _ => Some(PathBuf::from(self.text(path))),
        }
    }

    /// `None` if empty.
    pub(super) fn host(&self, path: &str) -> Option<String> {
        match &self.get(path).value {
            Value::Nothing => None,
            _ => Some(self.text(path).to_owned()),
        }
    }

    /// `None` if empty.
    pub(super) fn host_port(&self, path: &str) -> Option<(String, u16)> {
        match &self.get(path).value {
            Value::Nothing => None,
            Value::HostPort { host, port } => Some((host.clone(), *port)),
            other => unreachable!("{path} is {other}, not a host with a port"),
        }
    }

    /// `None` if empty.
    pub(super) fn address(&self, path: &str) -> Option<SocketAddr> {
        match &self.get(path).value {
            Value::Nothing => None,
            Value::Address(address) => Some(*address),
            other => unreachable!("{path} is {other}, not an address"),
        }
    }

    pub(super) fn url(&self, path: &str) -> &Url {
        match &self.get(path).value {
            Value::Url { url, .. } => url,
            other => unreachable!("{path} is {other}, not a URL"),
        }
    }
}

impl Setting {
    pub(super) fn whole(&self) -> u64 {
        match self.value {
            Value::Whole(number) => number,
            ref other => unreachable!("{} is {other}, not a number", self.key.path),
        }
    }

    pub(super) fn text(&self) -> &str {
        match &self.value {
            Value::Text(text) => text,
            Value::Word(word) => word,
            other => unreachable!("{} is {other}, not a text", self.key.path),
        }
    }

    pub(super) fn switch(&self) -> bool {
        match self.value {
            Value::Switch(switch) => switch,
            ref other => unreachable!("{} is {other}, not true or false", self.key.path),
        }
    }
}
