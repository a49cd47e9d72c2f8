//! Settings of the control plane, with their defaults.
//!
//! Called by: whoever builds registries, aggregators and agents.

use std::time::Duration;

use heatsink_detect::config::Settings as Detect;
use heatsink_detect::heat::Thresholds;

use crate::decision;
use crate::policy::Effective;

/// The settings of aggregators and agents.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What is hot, and for how long it has to cool.
    pub detect: Detect,
    /// Where the lines between mitigations are drawn.
    pub decision: decision::Settings,
    /// How long an automatic entry lives unless it is renewed.
    pub registry_ttl: Duration,
    /// Records that the registry may have; with as many, nothing is promoted automatically
    /// until one ends. Not above the store's own bound.
    pub registry_keys: usize,
    /// Time after which a proxy sends a report even if there is nothing to report.
    pub report_interval: Duration,
    /// Keys in a report that are neither registered nor watched.
    pub report_keys: usize,
    /// Bytes of a report. Not above what the store takes as one message.
    pub report_bytes: usize,
    /// Keys on the watch list.
    pub watch_keys: usize,
    /// How long a proxy watches a key after it was last asked to.
    pub watch_life: Duration,
    /// Time between two watch lists while there is something to watch.
    pub watch_interval: Duration,
    /// How long a list of members is believed.
    pub members_life: Duration,
    /// Time after which an intent that had no effect is repeated.
    pub retry: Duration,
    /// Silence of the store after which a proxy is on its own.
    pub store_patience: Duration,
    /// Time without an aggregator, or without a list of members, after which a proxy is on its own.
    pub aggregator_patience: Duration,
    /// How long local entries outlive the loss of the store, so that aggregators can find
    /// them anew.
    pub handback: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            detect: Detect::default(),
            decision: decision::Settings::default(),
            registry_ttl: Duration::from_secs(60),
            registry_keys: 1024,
            report_interval: Duration::from_secs(1),
            report_keys: 256,
            report_bytes: 512 << 10,
            watch_keys: 128,
            watch_life: Duration::from_secs(3),
            watch_interval: Duration::from_secs(1),
            members_life: Duration::from_secs(3),
            retry: Duration::from_millis(500),
            store_patience: Duration::from_secs(1),
            aggregator_patience: Duration::from_secs(2),
            handback: Duration::from_secs(5),
        }
    }
}

/// Reports count for at least this long: a proxy may be silent for a second, and late.
const LEAST_REPORT_LIFE: Duration = Duration::from_millis(1500);

impl Settings {
    /// How long a report counts after it was received. A proxy tells of a tick at most once,
    /// so a slow one is waited for; two may get lost.
    pub fn report_life(&self) -> Duration {
        let tick = Duration::from_millis(u64::from(self.detect.tick_ms));
        LEAST_REPORT_LIFE.max(3 * tick + self.detect.window() / 2)
    }

    /// What makes a key with this policy hot.
    pub fn thresholds(&self, policy: &Effective<'_>) -> Thresholds {
        let mut thresholds = self.detect.thresholds();
        if let Some(threshold) = policy.rights.hot_threshold {
            thresholds.requests_per_second = f64::from(threshold.max(1));
        }
        thresholds
    }
}
