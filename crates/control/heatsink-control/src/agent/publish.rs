//! What a proxy tells the aggregators.
//!
//! Called by: the agent, each tick. Bound: those that are registered or watched, then
//! `report_keys` others, largest first, as far as `report_bytes` go.
//! Invariant: a key that is over the threshold in the whole fleet is told by at least one
//! proxy, because one of them has its share; a registered or watched key is told whatever
//! its count. A proxy with nothing to say says so, at least once in `report_interval`.

use std::time::Duration;

use heatsink_detect::heat::{HeatKind, KeyHeat, Thresholds};

use super::{Map, Scene};
use crate::wire::{self, Counts, KeyRecord};

#[derive(Debug)]
pub(super) struct Publisher {
    member: String,
    boot: u64,
    sequence: u64,
    /// When the last report went out, and whether it named keys.
    last: Option<(Duration, bool)>,
}

impl Publisher {
    pub(super) fn new(member: &str, boot: u64) -> Self {
        Self { member: member.to_owned(), boot, sequence: 0, last: None }
    }

    /// The bytes of a report, if one is due.
    pub(super) fn tick(&mut self, scene: &Scene<'_>, watched: &Map<Duration>) -> Option<Vec<u8>> {
        let room = scene.settings.report_bytes;
        let room = room.saturating_sub(wire::Report::head_bytes(&self.member));
        let keys = choose(scene, watched, room);
        let due = self.last.is_none_or(|(at, had_keys)| {
            had_keys || scene.now.saturating_sub(at) >= scene.settings.report_interval
        });
        if keys.is_empty() && !due {
            return None;
        }
        self.last = Some((scene.now, !keys.is_empty()));
        self.sequence += 1;
        let report = wire::Report {
            member: &self.member,
            boot: self.boot,
            sequence: self.sequence,
            reads_per_second: scene.report.reads_per_second as u64,
            writes_per_second: scene.report.writes_per_second as u64,
            keys,
        };
        Some(report.encode())
    }
}

/// The keys to tell: `room` bytes of them. The detector's list is in order, largest first.
fn choose<'a>(scene: &Scene<'a>, watched: &Map<Duration>, mut room: usize) -> Vec<KeyRecord<'a>> {
    let floors = Floors::new(scene);
    let mut others = scene.settings.report_keys;
    let mut asked_for = Vec::new();
    let mut found = Vec::new();
    for heat in &scene.report.keys {
        if scene.registry.get(&heat.key).is_some() || watched.contains_key(&heat.key) {
            asked_for.push(heat);
        } else if others > 0 && floors.are_reached(scene, heat) {
            others -= 1;
            found.push(heat);
        }
    }
    let record = |heat: &'a KeyHeat| {
        let value = (scene.kind_of)(&heat.key);
        KeyRecord { key: &heat.key, value, counts: Counts::from_heat(heat) }
    };
    let fits = |record: &KeyRecord<'a>| {
        let bytes = record.encoded_bytes();
        let fits = record.key.len() <= wire::MAX_KEY_BYTES && bytes <= room;
        room -= if fits { bytes } else { 0 };
        fits
    };
    let chosen = asked_for.into_iter().chain(found).map(record).filter(fits);
    chosen.take(wire::MAX_KEYS).collect()
}

/// From where on a key is worth telling: its share of the thresholds.
struct Floors {
    general: Thresholds,
    /// Requests/s below which no rule makes a key worth telling.
    lowest: f64,
}

impl Floors {
    fn new(scene: &Scene<'_>) -> Self {
        let detect = &scene.settings.detect;
        let share = 1.0 / scene.proxies as f64;
        let thresholds = detect.thresholds();
        let floor = f64::from(detect.report_floor(scene.proxies));
        let lowest = scene.policies.lowest_threshold();
        Self {
            general: Thresholds {
                requests_per_second: floor,
                bytes_per_second: thresholds.bytes_per_second * share,
                misses_per_second: thresholds.misses_per_second * share,
                writes_in_flight: thresholds.writes_in_flight * share,
            },
            lowest: lowest.map_or(floor, |lowest| floor.min(f64::from(lowest) * share)),
        }
    }

    fn are_reached(&self, scene: &Scene<'_>, heat: &KeyHeat) -> bool {
        let by_rate = heat.exceeds(HeatKind::Rate, self.lowest);
        if !by_rate && !heat.exceeds_any(&self.general) {
            return false;
        }
        let policy = scene.policies.of(&heat.key);
        let mut floors = self.general;
        if let Some(threshold) = policy.rights.hot_threshold {
            let share = f64::from(threshold) / scene.proxies as f64;
            floors.requests_per_second =
                share.min(f64::from(scene.settings.detect.report_threshold));
        }
        policy.mode.counts() && heat.exceeds_any(&floors)
    }
}
