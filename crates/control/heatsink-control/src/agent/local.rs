//! Entries of a proxy that is on its own, found by its own counts.
//!
//! Called by: the agent, each tick. Bound: `max_hot_keys` of the detector.
//! Invariant: while the proxy is with the fleet no local entry is made. One that was made
//! before gives way to the registry's, and ends after `handback` at the latest: by then the
//! aggregators have found the key, if it is hot for the fleet.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use foldhash::fast::RandomState;
use heatsink_detect::heat::{HeatKind, KeyHeat};
use heatsink_detect::report::Report;
use heatsink_detect::tracker::Tracker;

use super::{Map, Scene};
use crate::aggregate::reaches;
use crate::decision::{Case, decide};
use crate::entry::{Entry, Origin, Status};
use crate::settings::Settings;

#[derive(Debug)]
pub(super) struct Local {
    tracker: Tracker,
    entries: Map<Entry>,
    /// When the entries end, once the proxy is with the fleet again.
    ends_at: Option<Duration>,
    generation: u64,
}

impl Local {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            tracker: Tracker::new(&settings.detect),
            entries: Map::default(),
            ends_at: None,
            generation: 0,
        }
    }

    pub(super) fn apply(&mut self, settings: &Settings) {
        self.tracker.apply(&settings.detect);
    }

    /// Follows the counts at all times, so that a proxy that loses the fleet knows at once
    /// what is hot. `holds` tells whether a key has a record that is in force.
    pub(super) fn tick(&mut self, scene: &Scene<'_>, holds: impl Fn(&[u8]) -> bool) {
        self.tracker.tick(scene.now, &scaled(scene));
        let before = self.entries.len();
        let ended = if scene.alone {
            self.ends_at = None;
            false
        } else {
            let end = *self.ends_at.get_or_insert(scene.now + scene.settings.handback);
            end <= scene.now
        };
        let tracker = &self.tracker;
        self.entries.retain(|key, _| {
            !ended
                && !holds(key)
                && scene.registry.blocked_for(scene.now, key).is_none()
                && scene.policies.of(key).mode.counts()
                && (!scene.alone || tracker.is_hot(key))
        });
        if self.entries.len() != before {
            self.generation += 1;
        }
        if scene.alone {
            self.find(scene, holds);
        }
    }

    /// Finds what is hot here and has no record that holds.
    fn find(&mut self, scene: &Scene<'_>, holds: impl Fn(&[u8]) -> bool) {
        let hot = self.tracker.hot_keys();
        let new: Vec<Vec<u8>> = hot
            .filter(|key| !self.entries.contains_key(*key) && !holds(key))
            .filter(|key| scene.registry.blocked_for(scene.now, key).is_none())
            .map(<[u8]>::to_vec)
            .collect();
        if new.is_empty() {
            return;
        }
        let wanted: HashSet<Vec<u8>, RandomState> = new.into_iter().collect();
        for heat in scene.report.keys.iter().filter(|heat| wanted.contains(&heat.key)) {
            if let Some(entry) = entry(scene, heat) {
                self.entries.insert(heat.key.clone(), entry);
                self.generation += 1;
            }
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        self.entries.iter().map(|(key, entry)| (key.as_slice(), entry))
    }
}

/// The report as the tracker, which knows one threshold, has to see it: keys whose rule has
/// another one with rates in proportion, and without those that are neither hot nor warm.
fn scaled<'a>(scene: &Scene<'a>) -> Cow<'a, Report> {
    if scene.policies.lowest_threshold().is_none() {
        return Cow::Borrowed(scene.report);
    }
    let general = scene.settings.detect.thresholds();
    let fraction = scene.settings.detect.retire_fraction;
    let mut lowest = general;
    if let Some(threshold) = scene.policies.lowest_threshold() {
        lowest.requests_per_second = lowest.requests_per_second.min(f64::from(threshold));
    }
    let warm = scene.report.keys.iter().filter(|heat| reaches(heat, &lowest, fraction));
    let scale = |heat: &KeyHeat| {
        let own = scene.settings.thresholds(&scene.policies.of(&heat.key));
        let factor = general.requests_per_second / own.requests_per_second;
        KeyHeat {
            reads_per_second: heat.reads_per_second * factor,
            writes_per_second: heat.writes_per_second * factor,
            error_per_second: heat.error_per_second * factor,
            ..heat.clone()
        }
    };
    Cow::Owned(Report { keys: warm.map(scale).collect(), ..Report::default() })
}

/// What a proxy does about a key that is hot by its own count.
fn entry(scene: &Scene<'_>, heat: &KeyHeat) -> Option<Entry> {
    let policy = scene.policies.of(&heat.key).local_only();
    let thresholds = scene.settings.thresholds(&policy);
    let kind = HeatKind::ALL.into_iter().find(|kind| heat.exceeds(*kind, thresholds.of(*kind)))?;
    let value = (scene.kind_of)(&heat.key);
    let threshold = thresholds.of(kind);
    let case = Case { heat, value, proxies: 1, kind, threshold, policy };
    let decision = decide(&case, &scene.settings.decision)?;
    Some(Entry {
        mitigation: decision.mitigation,
        split_factor: 1,
        ttl_seconds: None,
        origin: Origin::Local,
        status: Status::Active,
        reason: format!("{}; found by this proxy alone", decision.reason),
        dry_run: decision.dry_run,
        frequency: heat.requests_per_second(),
        reads_per_second: heat.reads_per_second,
        writes_per_second: heat.writes_per_second,
        detected_at_ms: 0,
        split: None,
        pause: None,
    })
}
