//! Onset and recovery: turns the reports of the ticks into "this key is hot now" and "it has
//! cooled down".
//!
//! Called by: the ticker of a proxy with its own reports, the aggregator with the sums.
//! Bound: a fixed number of hot keys; a key beyond it is left out, counted, and looked at
//! again at the next tick.
//! Invariant: for each key and kind of heat, `Hot` and `Cooled` alternate, beginning with
//! `Hot`. `Cooled` comes when the key was below the retire fraction, at every tick, for the
//! whole hold time; one tick above it starts the hold anew. Between the retire fraction and
//! the threshold nothing changes, so a key that hovers there does not flap.

use std::collections::HashMap;
use std::time::Duration;

use crate::config::Settings;
use crate::heat::{HeatKind, KeyHeat, Thresholds};
use crate::report::Report;

/// A change of a key's state.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The key crossed a threshold.
    Hot {
        /// What is known of the key at this tick.
        heat: KeyHeat,
        /// In which way it is hot.
        kind: HeatKind,
        /// The measure that crossed: requests/s, bytes/s, misses/s or writes in flight.
        level: f64,
        /// What it crossed.
        threshold: f64,
    },
    /// The key stayed below the retire fraction for the hold time.
    Cooled {
        /// The raw key.
        key: Vec<u8>,
        /// In which way it was hot.
        kind: HeatKind,
        /// How long it had been hot in this way, the hold time included.
        hot_for: Duration,
        /// Whether it is still hot in another way.
        still_hot: bool,
    },
}

/// Follows the hot keys from tick to tick.
#[derive(Debug)]
pub struct Tracker {
    hot: HashMap<Vec<u8>, HotKey>,
    thresholds: Thresholds,
    retire_fraction: f64,
    hold: Duration,
    max_hot_keys: usize,
    left_out: u64,
}

/// The kinds in which one key is hot, by `HeatKind as usize`.
#[derive(Debug, Default)]
struct HotKey {
    kinds: [Option<Phase>; 4],
}

#[derive(Debug, Clone, Copy)]
struct Phase {
    since: Duration,
    /// The first of the ticks without a break that found the key below the retire fraction.
    below_since: Option<Duration>,
}

impl Tracker {
    /// A tracker that knows no hot key yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            hot: HashMap::new(),
            thresholds: settings.thresholds(),
            retire_fraction: settings.retire_fraction,
            hold: settings.hold(),
            max_hot_keys: settings.max_hot_keys,
            left_out: 0,
        }
    }

    /// Takes over other settings; what is hot stays hot until it cools down by the new ones.
    pub fn apply(&mut self, settings: &Settings) {
        self.thresholds = settings.thresholds();
        self.retire_fraction = settings.retire_fraction;
        self.hold = settings.hold();
        self.max_hot_keys = settings.max_hot_keys;
    }

    /// Looks at the report of a tick. A key that is not in it counts as silent. Onsets come
    /// before recoveries, hottest first.
    pub fn tick(&mut self, now: Duration, report: &Report) -> Vec<Event> {
        let mut events = Vec::new();
        for heat in &report.keys {
            self.heat_up(now, heat, &mut events);
        }
        if !self.hot.is_empty() {
            self.cool_down(now, report, &mut events);
        }
        events
    }

    fn heat_up(&mut self, now: Duration, heat: &KeyHeat, events: &mut Vec<Event>) {
        for kind in HeatKind::ALL {
            let threshold = self.thresholds.of(kind);
            if !heat.exceeds(kind, threshold) {
                continue;
            }
            if !self.hot.contains_key(&heat.key) {
                if self.hot.len() >= self.max_hot_keys {
                    self.left_out += 1;
                    return;
                }
                self.hot.insert(heat.key.clone(), HotKey::default());
            }
            let Some(hot) = self.hot.get_mut(&heat.key) else { return };
            let phase = &mut hot.kinds[kind as usize];
            if phase.is_none() {
                *phase = Some(Phase { since: now, below_since: None });
                let level = heat.level(kind);
                events.push(Event::Hot { heat: heat.clone(), kind, level, threshold });
            }
        }
    }

    fn cool_down(&mut self, now: Duration, report: &Report, events: &mut Vec<Event>) {
        let silent = KeyHeat::default();
        let reported: HashMap<&[u8], &KeyHeat> = report
            .keys
            .iter()
            .filter(|heat| self.hot.contains_key(&heat.key))
            .map(|heat| (heat.key.as_slice(), heat))
            .collect();
        let Self { hot, thresholds, retire_fraction, hold, .. } = self;
        hot.retain(|key, hot| {
            let heat = reported.get(key.as_slice()).copied().unwrap_or(&silent);
            for kind in HeatKind::ALL {
                let warm = heat.level(kind) >= thresholds.of(kind) * *retire_fraction;
                let Some(hot_for) = hot.cool(kind, warm, now, *hold) else { continue };
                let still_hot = hot.is_hot();
                events.push(Event::Cooled { key: key.clone(), kind, hot_for, still_hot });
            }
            hot.is_hot()
        });
    }

    /// Keys that are hot now.
    pub fn hot_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.hot.keys().map(Vec::as_slice)
    }

    /// Whether a key is hot, in any way.
    pub fn is_hot(&self, key: &[u8]) -> bool {
        self.hot.contains_key(key)
    }

    /// How often a key was left out because too many were hot already.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl HotKey {
    fn is_hot(&self) -> bool {
        self.kinds.iter().any(Option::is_some)
    }

    /// Notes whether the key is warm; how long it had been hot, if this ends it.
    fn cool(
        &mut self,
        kind: HeatKind,
        warm: bool,
        now: Duration,
        hold: Duration,
    ) -> Option<Duration> {
        let phase = self.kinds[kind as usize].as_mut()?;
        if warm {
            phase.below_since = None;
            return None;
        }
        let below_since = *phase.below_since.get_or_insert(now);
        if now.saturating_sub(below_since) < hold {
            return None;
        }
        let since = phase.since;
        self.kinds[kind as usize] = None;
        Some(now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests;
