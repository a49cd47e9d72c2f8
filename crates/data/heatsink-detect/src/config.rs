//! Settings of the detector, with the defaults of the `[detect]` section.
//!
//! Called by: whoever builds counters, mergers and trackers.
//! Invariant: what [`Settings::validate`] accepts can be built without a panic.

use std::fmt;
use std::time::Duration;

use crate::heat::Thresholds;
use crate::sketch::{MAX_DEPTH, Shape};

/// What the detector can be told.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Length of the sliding window over which requests are counted.
    pub window_ms: u32,
    /// Time between two ticks, and the length of a sub-slot of the window.
    pub tick_ms: u32,
    /// Requests/s on one key over the whole fleet that make it hot.
    pub hot_threshold: u32,
    /// Requests/s on one key on this proxy that are worth a report; lowered by
    /// [`Settings::report_floor`] when there are several proxies.
    pub report_threshold: u32,
    /// A key cools down below this fraction of a threshold ...
    pub retire_fraction: f64,
    /// ... when it stays there for this long.
    pub hold_seconds: u32,
    /// Rows of the sketch.
    pub sketch_depth: usize,
    /// Counters in a row of the sketch.
    pub sketch_width: usize,
    /// Bytes/s moved for one key that make it hot.
    pub hot_bytes_per_second: u64,
    /// Misses/s of one key that are a miss storm.
    pub miss_storm_threshold: u32,
    /// Writes of one key in flight at once that are write contention.
    pub write_contention_threshold: u32,
    /// Keys whose names one worker holds at most.
    pub table_entries: usize,
    /// Longer keys are counted but never named.
    pub max_key_bytes: usize,
    /// Keys one worker counts exactly at most, to measure the sketch's error.
    pub truth_entries: usize,
    /// Keys that may be hot at once; further ones wait until one cools down.
    pub max_hot_keys: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window_ms: 1000,
            tick_ms: 50,
            hot_threshold: 1000,
            report_threshold: 1000,
            retire_fraction: 0.5,
            hold_seconds: 30,
            sketch_depth: 4,
            sketch_width: 2048,
            hot_bytes_per_second: 64 << 20,
            miss_storm_threshold: 500,
            write_contention_threshold: 16,
            table_entries: 1024,
            max_key_bytes: 1024,
            truth_entries: 1024,
            max_hot_keys: 1024,
        }
    }
}

impl Settings {
    /// Says what is wrong with the settings, if anything is.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let slots = self.window_ms.checked_div(self.tick_ms).unwrap_or(0);
        let faults = [
            (
                slots == 0 || slots > 1000,
                "tick_ms",
                "must be 1 to 1000 times shorter than window_ms",
            ),
            (self.hot_threshold == 0, "hot_threshold", "must be positive"),
            (self.report_threshold == 0, "report_threshold", "must be positive"),
            (
                !(self.retire_fraction > 0.0 && self.retire_fraction <= 1.0),
                "retire_fraction",
                "must be above 0 and at most 1",
            ),
            (!(1..=MAX_DEPTH).contains(&self.sketch_depth), "sketch_depth", "must be 1 to 8"),
            (
                !(16..=1 << 24).contains(&self.sketch_width),
                "sketch_width",
                "must be 16 to 16 777 216",
            ),
            (self.hot_bytes_per_second == 0, "hot_bytes_per_second", "must be positive"),
            (self.miss_storm_threshold == 0, "miss_storm_threshold", "must be positive"),
            (
                self.write_contention_threshold == 0,
                "write_contention_threshold",
                "must be positive",
            ),
            (
                !(8..=1 << 20).contains(&self.table_entries),
                "table_entries",
                "must be 8 to 1 048 576",
            ),
        ];
        match faults.into_iter().find(|(wrong, ..)| *wrong) {
            Some((_, setting, reason)) => Err(SettingsError { setting, reason }),
            None => Ok(()),
        }
    }

    /// Rows and columns of the sketch.
    pub fn shape(&self) -> Shape {
        Shape::new(self.sketch_depth, self.sketch_width)
    }

    /// Length of the window: whole sub-slots, never shorter than asked for.
    pub fn window(&self) -> Duration {
        self.slot_length() * self.window_ms.div_ceil(self.tick_ms)
    }

    /// Length of a sub-slot.
    pub fn slot_length(&self) -> Duration {
        Duration::from_millis(u64::from(self.tick_ms))
    }

    /// Closed sub-slots in a window.
    pub fn slots(&self) -> usize {
        self.window_ms.div_ceil(self.tick_ms) as usize
    }

    /// How long a key stays hot after it fell below the retire fraction.
    pub fn hold(&self) -> Duration {
        Duration::from_secs(u64::from(self.hold_seconds))
    }

    /// What makes a key hot.
    pub fn thresholds(&self) -> Thresholds {
        Thresholds {
            requests_per_second: f64::from(self.hot_threshold),
            bytes_per_second: self.hot_bytes_per_second as f64,
            misses_per_second: f64::from(self.miss_storm_threshold),
            writes_in_flight: f64::from(self.write_contention_threshold),
        }
    }

    /// Requests/s from which this proxy reports a key when `live_proxies` share the traffic:
    /// low enough that a key which is hot only in the sum is reported by somebody.
    pub fn report_floor(&self, live_proxies: usize) -> u32 {
        let share = self.hot_threshold / u32::try_from(live_proxies.max(1)).unwrap_or(u32::MAX);
        self.report_threshold.min(share).max(1)
    }
}

/// A setting out of its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// Name of the setting, as in the configuration file.
    pub setting: &'static str,
    /// What it has to be.
    pub reason: &'static str,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.setting, self.reason)
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn defaults_are_valid_and_faults_are_named() {
        let valid = Settings::default();
        assert_eq!(valid.validate(), Ok(()));
        assert_eq!(valid.slots(), 20);
        let fault = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.validate().expect_err("out of range").setting
        };
        assert_eq!(fault(|s| s.tick_ms = 0), "tick_ms");
        assert_eq!(fault(|s| s.tick_ms = 1001), "tick_ms");
        assert_eq!(fault(|s| s.sketch_depth = 9), "sketch_depth");
        assert_eq!(fault(|s| s.retire_fraction = f64::NAN), "retire_fraction");
        assert_eq!(fault(|s| s.table_entries = 0), "table_entries");
    }

    #[test]
    fn the_floor_follows_the_fleet() {
        let settings = Settings { hot_threshold: 3000, ..Settings::default() };
        assert_eq!(settings.report_floor(1), 1000);
        assert_eq!(settings.report_floor(10), 300);
        assert_eq!(settings.report_floor(1_000_000), 1);
    }
}
