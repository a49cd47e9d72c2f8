//! What is shown: the scene, and twice a second how it stands.

use std::io;
use std::time::Duration;

use heatsink_admin::HotKeyView;

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

/// What is done about a hot key, in words.
pub(crate) fn treatment(hot: &HotKeyView) -> String {
    let mut words = hot.mitigation_type.clone();
    if hot.is_dry_run() {
        words.push_str(" (only observed)");
    }
    words
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
    pub hot_keys: Vec<HotKeyView>,
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
