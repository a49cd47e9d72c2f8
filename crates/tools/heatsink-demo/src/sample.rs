//! What is shown: the scene, and twice a second how it stands.

use std::io;
use std::time::Duration;

use serde_json::Value;

use crate::acts::Act;

/// What does not change.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Where the page is.
    pub page: String,
    /// Where clients connect.
    pub proxies: Vec<String>,
    /// What they stand before, in words.
    pub upstream: String,
    /// Requests/s that a node can answer, if that is known.
    pub capacity_per_second: Option<u32>,
    /// Requests/s of the shop.
    pub rate_per_second: u32,
    /// How long it takes.
    pub length: Duration,
}

/// A node in the last second.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLine {
    /// Where it is.
    pub name: String,
    /// Requests/s.
    pub requests_per_second: f64,
    /// Of the requests to all nodes, 0 to 1.
    pub share: f64,
    /// Of its capacity, 0 to 1 and beyond, if that is known.
    pub load: Option<f64>,
}

/// A hot key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HotKeyLine {
    /// Its name.
    pub key: String,
    /// Requests/s.
    pub requests_per_second: f64,
    /// What is done about it.
    pub mitigation: String,
    /// `active`, `cooling`, ...
    pub status: String,
    /// Nothing is done; this is what would be.
    pub dry_run: bool,
    /// Why.
    pub reason: String,
}

impl HotKeyLine {
    /// Reads what the admin API tells.
    pub(crate) fn of_json(item: &Value) -> Self {
        let text = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
        Self {
            key: text("key"),
            requests_per_second: item["frequency"].as_f64().unwrap_or_default(),
            mitigation: text("mitigation_type"),
            status: text("status"),
            dry_run: item["dry_run"].as_bool().unwrap_or_default(),
            reason: text("reason"),
        }
    }

    /// What is done, in words.
    pub fn treatment(&self) -> String {
        let mut words = self.mitigation.clone();
        if self.dry_run {
            words.push_str(" (only observed)");
        }
        words
    }
}

/// How it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Since the shop opened.
    pub at: Duration,
    /// The act.
    pub act: Act,
    /// Heatsink acts.
    pub mitigates: bool,
    /// Requests/s that were answered.
    pub requests_per_second: f64,
    /// Requests/s that nobody waited for any longer.
    pub given_up_per_second: f64,
    /// The median.
    pub p50: Duration,
    /// 99 of 100 were faster.
    pub p99: Duration,
    /// Requests/s to the nodes.
    pub upstream_per_second: f64,
    /// Of the requests, those that no node had to answer, 0 to 1.
    pub saved: f64,
    /// The nodes.
    pub nodes: Vec<NodeLine>,
    /// The hot keys, hottest first.
    pub hot_keys: Vec<HotKeyLine>,
    /// Wrong replies so far.
    pub mismatches: u64,
    /// Errors so far.
    pub errors: u64,
}

/// What whoever watches wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Mitigation on, or off.
    Toggle,
    /// The end.
    Quit,
}

/// Something that shows it.
pub trait View {
    /// Everything runs.
    fn open(&mut self, scene: &Scene) -> io::Result<()>;
    /// Something happened that is worth a line.
    fn event(&mut self, at: Duration, words: &str) -> io::Result<()>;
    /// How it stands.
    fn sample(&mut self, sample: &Sample) -> io::Result<()>;
    /// Waits this long at most, or until something is wanted.
    fn wait(&mut self, time: Duration) -> io::Result<Option<Wish>>;
}
