//! The last five minutes of the fleet and of its hottest keys, and the last decisions.
//!
//! Called by: [`crate::Server`], which takes a sample each [`crate::Settings::sample_interval`]
//! for as long as it runs; the routes and the stream of events, which show them.
//! Bound: [`SAMPLES`] samples of the fleet and of each of at most [`SERIES`] keys, and
//! [`DECISIONS`] decisions: about a megabyte, however many keys there are.
//! Invariant: what nobody measures is absent, never zero.
//!
//! Each process keeps this in its own memory, for people who look at the page. For longer times there
//! is `/metrics`.

use std::collections::{HashMap, VecDeque};

use heatsink_control::entry::Mitigation;

use crate::control::{Change, Control, Event, HotKey, Load, Proxy};

/// Samples that are kept: five minutes of seconds.
pub(crate) const SAMPLES: usize = 300;

/// Hot keys in one sample: those with the most requests.
const SAMPLED_KEYS: usize = 100;

/// Keys whose samples are kept.
const SERIES: usize = 200;

/// Decisions that are kept, of all keys together.
const DECISIONS: usize = 512;

/// One moment of the fleet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at_ms: u64,
    pub(crate) fleet: FleetSample,
    /// The sum of what proxies send upstream, over those that report it.
    pub(crate) load: Option<Load>,
    /// The hottest keys, hottest first.
    pub(crate) keys: Vec<(Vec<u8>, KeySample)>,
    pub(crate) members: Vec<Proxy>,
}

/// The fleet in few figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FleetSample {
    /// Requests/s of all proxies.
    pub(crate) requests_per_second: Option<f64>,
    /// Requests/s from clients, of the proxies that report what they send upstream.
    pub(crate) served_per_second: Option<f64>,
    /// Requests/s among those that they did not have to send upstream.
    pub(crate) saved_per_second: Option<f64>,
    /// Share of their commands that goes to the hottest node, 0 to 1.
    pub(crate) hottest_node_share: Option<f64>,
}

/// A hot key in three figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct KeySample {
    pub(crate) reads_per_second: f64,
    pub(crate) writes_per_second: f64,
    /// Only of keys that are cached. With combined writes the ratio would be too high: all of them count as
    /// absorbed, including the one that is sent.
    pub(crate) hit_ratio: Option<f64>,
}

impl KeySample {
    pub(crate) fn requests_per_second(&self) -> f64 {
        self.reads_per_second + self.writes_per_second
    }
}

/// What was decided about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) at_ms: u64,
    pub(crate) key: Vec<u8>,
    /// The status and the mitigation that it was given; nothing if it left the registry.
    pub(crate) entry: Option<(&'static str, &'static str)>,
    pub(crate) reason: String,
}

impl Sample {
    /// Looks at the fleet as it is now.
    pub(crate) fn take(control: &dyn Control, at_ms: u64) -> Self {
        let mut hot = control.hot_keys();
        hot.sort_by(|a, b| b.entry.frequency.total_cmp(&a.entry.frequency));
        hot.truncate(SAMPLED_KEYS);
        let keys: Vec<(Vec<u8>, KeySample)> = hot
            .into_iter()
            .map(|hot| {
                let is_cached = hot.entry.mitigation == Mitigation::LocalCache;
                let stats = is_cached.then(|| control.stats(&hot.key)).flatten();
                let hit_ratio = stats.and_then(|stats| {
                    // Without an aggregator only what this process itself cached is known.
                    stats.hit_ratio.or(stats.local_cache_hit_ratio)
                });
                let sample = KeySample {
                    reads_per_second: finite(hot.entry.reads_per_second),
                    writes_per_second: finite(hot.entry.writes_per_second),
                    hit_ratio: hit_ratio.filter(|ratio| ratio.is_finite()),
                };
                (hot.key, sample)
            })
            .collect();
        let members = control.proxies();
        let rates = members.iter().filter_map(|member| member.requests_per_second);
        let load = Load::sum(members.iter().filter_map(|member| member.load.as_ref()));
        let fleet = FleetSample {
            requests_per_second: total_of(rates),
            served_per_second: load.as_ref().map(|load| load.served_per_second),
            saved_per_second: load.as_ref().map(Load::saved_per_second),
            hottest_node_share: load.as_ref().and_then(Load::hottest_node_share),
        };
        Self { at_ms, fleet, load, keys, members }
    }
}

/// The sum, if there is anything to sum up.
fn total_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(|a, b| a + b).filter(|total| total.is_finite())
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// The samples and decisions that are kept.
#[derive(Debug, Default)]
pub(crate) struct History {
    fleet: VecDeque<(u64, FleetSample)>,
    load: Option<Load>,
    keys: HashMap<Vec<u8>, VecDeque<(u64, KeySample)>>,
    decisions: VecDeque<Decision>,
}

impl History {
    /// Keeps a sample, and forgets what has become too old.
    pub(crate) fn keep(&mut self, sample: &Sample) {
        push(&mut self.fleet, SAMPLES, (sample.at_ms, sample.fleet));
        self.load.clone_from(&sample.load);
        for (key, figures) in &sample.keys {
            let series = self.keys.entry(key.clone()).or_default();
            push(series, SAMPLES, (sample.at_ms, *figures));
        }
        let oldest = self.fleet.front().map_or(0, |(at_ms, _)| *at_ms);
        self.keys.retain(|_, series| series.back().is_some_and(|(at_ms, _)| *at_ms >= oldest));
        if self.keys.len() > SERIES {
            self.forget_coldest();
        }
    }

    /// Drops the keys that have been out of the samples for the longest.
    fn forget_coldest(&mut self) {
        let last = |series: &VecDeque<(u64, KeySample)>| series.back().map_or(0, |last| last.0);
        let mut ends: Vec<u64> = self.keys.values().map(last).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let oldest = ends[SERIES - 1];
        self.keys.retain(|_, series| last(series) >= oldest);
    }

    /// Keeps what an event says about a key.
    pub(crate) fn decided(&mut self, event: Event) {
        let (key, entry, reason) = match event.change {
            Change::HotKey(hot) => {
                let HotKey { key, entry, .. } = *hot;
                (key, Some((entry.status.name(), entry.mitigation.name())), entry.reason)
            }
            Change::Removed { key, reason } => (key, None, reason),
            Change::Readiness(_) => return,
        };
        let decision = Decision { at_ms: event.at_ms, key, entry, reason };
        push(&mut self.decisions, DECISIONS, decision);
    }

    /// The fleet's last `count` samples, oldest first.
    pub(crate) fn fleet(&self, count: usize) -> impl Iterator<Item = &(u64, FleetSample)> {
        self.fleet.iter().skip(self.fleet.len().saturating_sub(count))
    }

    /// What all proxies sent upstream in the last sample.
    pub(crate) fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }

    /// The keys of the last `count` samples with what those say of them, oldest first.
    pub(crate) fn keys(
        &self,
        count: usize,
    ) -> impl Iterator<Item = (&[u8], impl Iterator<Item = &(u64, KeySample)>)> {
        let since = self.fleet(count).next().map_or(u64::MAX, |(at_ms, _)| *at_ms);
        self.keys.iter().filter_map(move |(key, series)| {
            let from = series.partition_point(|(at_ms, _)| *at_ms < since);
            (from < series.len()).then(|| (key.as_slice(), series.iter().skip(from)))
        })
    }

    /// What is known of one key, oldest first.
    pub(crate) fn key(&self, key: &[u8]) -> impl Iterator<Item = &(u64, KeySample)> {
        self.keys.get(key).into_iter().flatten()
    }

    /// What was decided about a key, oldest first.
    pub(crate) fn decisions(&self, key: &[u8]) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().filter(move |decision| decision.key == key)
    }
}

fn push<T>(kept: &mut VecDeque<T>, limit: usize, new: T) {
    if kept.len() == limit {
        kept.pop_front();
    }
    kept.push_back(new);
}

#[cfg(test)]
mod tests;
