//! The hot set that the data plane gets.
//!
//! Called by: the agent, each tick; built only if something changed, or while the proxy is on
//! its own, when entries may end by their time.
//! Invariant: an entry that has moved data is kept, whatever its time and the policies say:
//! without it clients would miss the data.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::local::Local;
use super::{HotKey, HotSet, Map, Scene};
use crate::aggregate::reaches;
use crate::entry::{Entry, Mitigation, Origin};
use crate::policy::Mode;
use crate::registry::Record;

#[derive(Debug, Default)]
pub(super) struct Effect {
    hot: Arc<HotSet>,
    /// The generations of registry and local entries that the set was made of.
    made_of: Option<(u64, u64)>,
    /// Records that ended by their time while the proxy was on its own, with their epoch.
    ended: Map<u64>,
}

impl Effect {
    pub(super) fn hot(&self) -> &Arc<HotSet> {
        &self.hot
    }

    /// The policies are others.
    pub(super) fn forget(&mut self) {
        self.made_of = None;
    }

    /// Looks at which records are in force.
    pub(super) fn look(&mut self, scene: &Scene<'_>) {
        if scene.alone {
            self.end_expired(scene);
        } else if !self.ended.is_empty() {
            self.ended.clear();
            self.made_of = None;
        }
    }

    /// Whether a key has a record that is in force.
    pub(super) fn holds(&self, scene: &Scene<'_>, key: &[u8]) -> bool {
        let record = scene.registry.get(key);
        record.is_some_and(|record| self.ended.get(key) != Some(&record.epoch))
    }

    /// The set, if it is another one than before.
    pub(super) fn tick(&mut self, scene: &Scene<'_>, local: &Local) -> Option<Arc<HotSet>> {
        let made_of = (scene.registry.generation(), local.generation());
        if self.made_of == Some(made_of) {
            return None;
        }
        self.made_of = Some(made_of);
        let mut keys: Vec<HotKey> = scene
            .registry
            .iter()
            .filter(|(key, record)| self.ended.get(*key) != Some(&record.epoch))
            .filter_map(|(key, record)| hot_key(scene, key, &record.entry, record.epoch))
            .chain(
                local
                    .iter()
                    .filter(|(key, _)| !self.holds(scene, key))
                    .filter_map(|(key, entry)| hot_key(scene, key, entry, 0)),
            )
            .collect();
        keys.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        if keys == self.hot.keys {
            return None;
        }
        self.hot = Arc::new(HotSet { version: self.hot.version + 1, keys });
        Some(Arc::clone(&self.hot))
    }

    /// Ends records whose time is over and that nobody can renew: manual ones as the operator
    /// said, automatic ones once their key is cold here.
    fn end_expired(&mut self, scene: &Scene<'_>) {
        let before = self.ended.len();
        let over: Vec<(&[u8], &Record)> = scene
            .registry
            .iter()
            .filter(|(_, record)| record.is_expired(scene.now))
            .filter(|(key, record)| self.ended.get(*key) != Some(&record.epoch))
            .filter(|(_, record)| !has_moved_data(&record.entry))
            .collect();
        if over.is_empty() {
            return;
        }
        let warm = warm_here(scene);
        for (key, record) in over {
            if record.entry.origin == Origin::Manual || !warm.contains(key) {
                self.ended.insert(key.to_vec(), record.epoch);
            }
        }
        if self.ended.len() != before {
            self.made_of = None;
        }
    }
}

/// Keys with at least this proxy's share of what keeps them warm in the fleet.
fn warm_here<'a>(scene: &Scene<'a>) -> HashSet<&'a [u8], RandomState> {
    let share = scene.settings.detect.retire_fraction / scene.proxies as f64;
    let warm = scene.report.keys.iter().filter(|heat| {
        let policy = scene.policies.of(&heat.key);
        reaches(heat, &scene.settings.thresholds(&policy), share)
    });
    warm.map(|heat| heat.key.as_slice()).collect()
}

fn has_moved_data(entry: &Entry) -> bool {
    entry.split.is_some() || entry.mitigation == Mitigation::Copies && !entry.dry_run
}

/// An entry, cut down to what this proxy's policies allow.
fn hot_key(scene: &Scene<'_>, key: &[u8], entry: &Entry, epoch: u64) -> Option<HotKey> {
    let mut hot = HotKey {
        key: key.to_vec(),
        mitigation: entry.mitigation,
        split_factor: entry.split_factor,
        status: entry.status,
        dry_run: entry.dry_run,
        origin: entry.origin,
        epoch,
        split: entry.split.clone(),
    };
    if has_moved_data(entry) {
        return Some(hot);
    }
    let policy = scene.policies.of(key);
    if policy.own {
        return None;
    }
    match policy.mode {
        Mode::Off => return None,
        Mode::Observe => hot.dry_run = true,
        Mode::Exact => hot.mitigation = Mitigation::Coalesce,
        Mode::Coherent | Mode::Relaxed => {}
    }
    Some(hot)
}
