//! The time by which entries age.
//!
//! Called by: every look at an entry, so reading it must cost little.
//! Bound: the system's coarse monotonic clock lags behind by up to 4 ms; nothing here is promised
//! more precisely than that. It stands still while the machine is suspended.
//! Invariant: it never goes back, and no clock of another machine is compared with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Milliseconds since an origin that means nothing.
pub(crate) type Ms = u64;

/// What a cache takes for the time: the system's monotonic clock, or one that a test moves.
///
/// ```
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let clock = heatsink::Clock::manual();
/// let cache = heatsink::Cache::<u32, u32>::builder("squares")
///     .ttl(Duration::from_secs(60))
///     .clock(clock.clone())
///     .build()
///     .await?;
/// cache.put(&3, 9).await?;
/// clock.advance(Duration::from_secs(61));
/// assert!(cache.peek(&3).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// The system's.
    pub fn system() -> Self {
        Self(None)
    }

    /// One that stands still until it is moved. Timeouts of callers run by the runtime's own.
    pub fn manual() -> Self {
        Self(Some(Arc::new(AtomicU64::new(1 << 40))))
    }

    /// Moves a manual clock; the system's is not impressed.
    pub fn advance(&self, by: Duration) {
        if let Some(now) = &self.0 {
            now.fetch_add(whole_ms(by), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Ms {
        match &self.0 {
            None => system_now(),
            Some(now) => now.load(Ordering::Relaxed),
        }
    }
}

#[cfg(target_os = "linux")]
#[inline]
fn system_now() -> Ms {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(not(target_os = "linux"))]
fn system_now() -> Ms {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

pub(crate) fn whole_ms(duration: Duration) -> Ms {
    Ms::try_from(duration.as_millis()).unwrap_or(Ms::MAX >> 1).min(Ms::MAX >> 1)
}
