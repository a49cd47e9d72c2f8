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

use foldhash::quality::RandomState;

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
    hot: HashMap<Vec<u8>, HotKey, RandomState>,
    rules: Rules,
    max_hot_keys: usize,
    left_out: u64,
    /// Ticks so far, to tell the keys of this one's report from the others.
    ticks: u64,
}

/// When a key is hot, and when no longer.
#[derive(Debug, Clone, Copy)]
struct Rules {
    thresholds: Thresholds,
    retire_fraction: f64,
    hold: Duration,
}

impl Rules {
    fn of(settings: &Settings) -> Self {
        Self {
            thresholds: settings.thresholds(),
            retire_fraction: settings.retire_fraction,
            hold: settings.hold(),
        }
    }
}

/// The kinds in which one key is hot, by `HeatKind as usize`.
#[derive(Debug, Default)]
struct HotKey {
    kinds: [Option<Phase>; 4],
    /// The last tick whose report held the key.
    seen: u64,
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
            hot: HashMap::default(),
            rules: Rules::of(settings),
            max_hot_keys: settings.max_hot_keys,
            left_out: 0,
            ticks: 0,
        }
    }

    /// Takes over other settings; what is hot stays hot until it cools down by the new ones.
    pub fn apply(&mut self, settings: &Settings) {
        self.rules = Rules::of(settings);
        self.max_hot_keys = settings.max_hot_keys;
    }

    /// Looks at the report of a tick. A key that is not in it counts as silent. Onsets come
    /// before recoveries, hottest first.
    pub fn tick(&mut self, now: Duration, report: &Report) -> Vec<Event> {
        let mut events = Vec::new();
        let mut recoveries = Vec::new();
        self.ticks = self.ticks.wrapping_add(1);
        for heat in &report.keys {
            self.look_at(now, heat, &mut events, &mut recoveries);
        }
        let silent = KeyHeat::default();
        let Self { hot, rules, ticks, .. } = self;
        hot.retain(|key, hot| {
            if hot.seen != *ticks {
                hot.cool_down(now, key, &silent, rules, &mut recoveries);
            }
            hot.is_hot()
        });
        events.append(&mut recoveries);
        events
    }

    /// One look-up for each key: this is most of what a tick with many named keys costs.
    fn look_at(
        &mut self,
        now: Duration,
        heat: &KeyHeat,
        onsets: &mut Vec<Event>,
        recoveries: &mut Vec<Event>,
    ) {
        let mut look = |hot: &mut HotKey| {
            hot.seen = self.ticks;
            hot.heat_up(now, heat, &self.rules, onsets);
            hot.cool_down(now, &heat.key, heat, &self.rules, recoveries);
        };
        if let Some(hot) = self.hot.get_mut(&heat.key) {
            look(hot);
        } else if !heat.exceeds_any(&self.rules.thresholds) {
            // Neither hot before nor now.
        } else if self.hot.len() >= self.max_hot_keys {
            self.left_out += 1;
        } else {
            look(self.hot.entry(heat.key.clone()).or_default());
        }
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
    fn heat_up(&mut self, now: Duration, heat: &KeyHeat, rules: &Rules, events: &mut Vec<Event>) {
        for kind in HeatKind::ALL {
            let threshold = rules.thresholds.of(kind);
            let phase = &mut self.kinds[kind as usize];
            if phase.is_none() && heat.exceeds(kind, threshold) {
                *phase = Some(Phase { since: now, below_since: None });
                let level = heat.level(kind);
                events.push(Event::Hot { heat: heat.clone(), kind, level, threshold });
            }
        }
    }

    fn cool_down(
        &mut self,
        now: Duration,
        key: &[u8],
        heat: &KeyHeat,
        rules: &Rules,
        events: &mut Vec<Event>,
    ) {
        for kind in HeatKind::ALL {
            let warm = heat.level(kind) >= rules.thresholds.of(kind) * rules.retire_fraction;
            let Some(hot_for) = self.cool(kind, warm, now, rules.hold) else { continue };
            let still_hot = self.is_hot();
            events.push(Event::Cooled { key: key.to_vec(), kind, hot_for, still_hot });
        }
    }

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
