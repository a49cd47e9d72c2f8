//! Two rings side by side: one for reads, one for writes.
//!
//! Called by: whoever counts both kinds of traffic.
//! Bound: that of both rings.
//! Invariant: a touch goes to exactly one of them.

use super::{ConfigError, HotRing, HotRingConfig};

/// A ring for reads and a ring for writes, each with its own settings.
///
/// ```
/// use heatsink_detect::hot_ring::{HotRingConfig, HotRings};
///
/// // Writes with a lower cap than reads.
/// let writes = HotRingConfig { node_cap: 50_000, ..HotRingConfig::writes() };
/// let rings = HotRings::new(&HotRingConfig::reads(), &writes, 0)?;
/// rings.reads.touch(b"page:1", 0);
/// rings.writes.touch(b"counter:1", 0);
/// assert_eq!(rings.reads.frequency(b"counter:1", 0), 0);
///
/// // Writes are forgotten after 600 ms, reads after two seconds.
/// assert_eq!(rings.reads.frequency(b"page:1", 700), 1);
/// assert_eq!(rings.writes.frequency(b"counter:1", 700), 0);
/// # Ok::<(), heatsink_detect::hot_ring::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct HotRings {
    /// Counts reads.
    pub reads: HotRing,
    /// Counts writes.
    pub writes: HotRing,
}

impl HotRings {
    /// Rings with the given settings; `now_ms` is when the first rotation period counts from.
    pub fn new(
        reads: &HotRingConfig,
        writes: &HotRingConfig,
        now_ms: u64,
    ) -> Result<Self, ConfigError> {
        Ok(Self { reads: HotRing::new(reads, now_ms)?, writes: HotRing::new(writes, now_ms)? })
    }

    /// Rings with the default settings for reads and for writes.
    pub fn with_defaults(now_ms: u64) -> Self {
        Self::new(&HotRingConfig::reads(), &HotRingConfig::writes(), now_ms)
            .expect("the defaults are valid")
    }
}
