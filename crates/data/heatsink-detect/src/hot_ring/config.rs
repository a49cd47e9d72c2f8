//! What can be set on a ring, with the defaults for reads and for writes.
//!
//! Called by: whoever makes a ring.
//! Bound: the limits that `validate` enforces.
//! Invariant: a ring exists only with settings that passed `validate`.

use std::{error, fmt};

use super::link::{BUCKETS_MAX, NODES_MAX};

/// A sliding window: the touches of the last `slots` slots count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Slots in the window, the present one included: 1 to 64.
    pub slots: u32,
    /// Length of a slot.
    pub slot_ms: u32,
}

/// Periodic decay: `count >>= shift` at the end of every interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decay {
    /// Length of an interval.
    pub interval_ms: u32,
    /// Bits to shift by: 1 to 31.
    pub shift: u32,
}

/// An estimate filter in front of the ring: a key gets a node only when it was touched
/// `at_least` times within one period.
///
/// The filter is sized for the traffic of one period: it holds the cold keys back well
/// while a period brings no more touches than about `columns * at_least / 2`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// Touches within one period that earn a node: 1 to 65 535.
    pub at_least: u16,
    /// Length of a period.
    pub period_ms: u32,
    /// Columns of the filter, a power of two from 8 to 2^20; eight bytes each.
    pub columns: usize,
}

impl Default for Admission {
    /// Sixteen touches within 250 ms; 256 KiB.
    fn default() -> Self {
        Self { at_least: 16, period_ms: 250, columns: 32_768 }
    }
}

/// Dual-ring rotation: how keys that are no longer touched leave the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotation {
    /// One generation forever. The cheapest: a touch need not ask which one is active.
    Off,
    /// A new generation when [`HotRing::rotate`](super::HotRing::rotate) is called.
    OnCall,
    /// A new generation each time this many milliseconds have passed, and when it is called for.
    Every(u64),
}

/// The settings of one ring.
///
/// ```
/// use heatsink_detect::hot_ring::{Admission, HotRingConfig};
///
/// let config = HotRingConfig {
///     node_cap: 10_000,
///     admission: Some(Admission::default()),
///     ..HotRingConfig::reads()
/// };
/// assert_eq!(config.buckets, 4096);
/// assert!(config.validate().is_ok());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotRingConfig {
    /// Buckets at the start, a power of two. The table doubles when the keys outgrow it.
    pub buckets: usize,
    /// The sliding window; it wins over `decay` when both are set.
    pub window: Option<Window>,
    /// Periodic decay, used when there is no window.
    pub decay: Option<Decay>,
    /// Keys that a generation may hold.
    pub node_cap: usize,
    /// At the cap, one new key in `2^sample_bits` is still admitted, always the same
    /// ones, until there are twice `node_cap`. Zero admits none: a strict cap.
    pub sample_bits: u32,
    /// Whether, and when, the ring begins a new generation.
    pub rotation: Rotation,
    /// The filter in front of the ring; none admits every key at its first touch.
    pub admission: Option<Admission>,
    /// Seed of the hash; none draws one, so that nobody outside can aim at one bucket.
    pub seed: Option<u64>,
}

impl Default for HotRingConfig {
    /// The settings for reads.
    fn default() -> Self {
        Self::reads()
    }
}

impl HotRingConfig {
    /// The defaults of a ring that counts reads: a window of 8 slots of 250 ms.
    pub const fn reads() -> Self {
        Self {
            buckets: 4096,
            window: Some(Window { slots: 8, slot_ms: 250 }),
            decay: None,
            node_cap: 250_000,
            sample_bits: 0,
            rotation: Rotation::Off,
            admission: None,
            seed: None,
        }
    }

    /// The defaults of a ring that counts writes: a window of 6 slots of 100 ms.
    pub const fn writes() -> Self {
        Self { window: Some(Window { slots: 6, slot_ms: 100 }), ..Self::reads() }
    }

    /// Says which setting, if any, cannot work.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |setting, rule| Err(ConfigError { setting, rule });
        if !self.buckets.is_power_of_two() || self.buckets > BUCKETS_MAX {
            return refuse("buckets", "must be a power of two up to 2^29");
        }
        if self.node_cap == 0 || self.node_cap > NODES_MAX / 8 {
            return refuse("node_cap", "must be 1 to 2^27");
        }
        if self.sample_bits > 20 {
            return refuse("sample_bits", "must be 0 to 20");
        }
        if let Some(window) = self.window
            && (!(1..=64).contains(&window.slots) || window.slot_ms == 0)
        {
            return refuse("window", "must have 1 to 64 slots of at least 1 ms");
        }
        if let Some(decay) = self.decay
            && (!(1..=31).contains(&decay.shift) || decay.interval_ms == 0)
        {
            return refuse("decay", "must shift by 1 to 31 every 1 ms or more");
        }
        if self.rotation == Rotation::Every(0) {
            return refuse("rotation", "must be every 1 ms or more");
        }
        if let Some(admission) = self.admission
            && (!admission.columns.is_power_of_two()
                || !(8..=1 << 20).contains(&admission.columns)
                || admission.at_least == 0
                || admission.period_ms == 0)
        {
            return refuse(
                "admission",
                "must have a power of two of columns from 8 to 2^20, \
                 at least 1 touch and at least 1 ms",
            );
        }
        Ok(())
    }
}

/// A setting that cannot work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The field of [`HotRingConfig`].
    pub setting: &'static str,
    /// What it must be.
    pub rule: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hot ring: {} {}", self.setting, self.rule)
    }
}

impl error::Error for ConfigError {}
