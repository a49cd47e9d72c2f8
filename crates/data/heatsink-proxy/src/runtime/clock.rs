//! Time that goes on while the process is stopped and while the machine sleeps.
//!
//! Called by: code that relies on something seen some time ago; see `SplitMailbox::is_believed`.
//!
//! A worker relies on what it knows of split keys for some seconds. Tombstones, which keep a process with
//! old knowledge from writing to shards that nobody reads, live for ten minutes. A process can stand
//! still for longer than both, and `Instant` does not count the sleep of a machine:
//!
//! ```text
//! worker                                    others
//! what is known is fresh: SADD shard x
//!   is planned, not sent
//! stands still                              make the key whole: tombstones
//!                                           ten minutes: the tombstones are gone
//! sends it: executed, and lost
//! ```
//!
//! So the age of that knowledge is checked for each request, and after a pause longer than [`PAUSE`] a
//! worker gives up the links that have unsent requests, or requests that would be sent again.

#[cfg(test)]
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// The clock that a worker goes by; a test has one that it moves itself.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clock {
    #[default]
    System,
    #[cfg(test)]
    Manual(Manual),
}

impl Clock {
    /// The time at this very moment. The time of a turn is its worker's `now`.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::System => Instant::now(),
            #[cfg(test)]
            Self::Manual(manual) => manual.look(),
        }
    }

    /// See [`uptime`].
    #[inline]
    pub(crate) fn uptime(&self) -> Duration {
        match self {
            Self::System => uptime(),
            #[cfg(test)]
            Self::Manual(manual) => manual.passed(),
        }
    }

    /// The time of day.
    pub(crate) fn wall(&self) -> SystemTime {
        match self {
            Self::System => SystemTime::now(),
            #[cfg(test)]
            Self::Manual(manual) => {
                SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + manual.passed()
            }
        }
    }
}

/// Stands still unless it is moved.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(crate) struct Manual {
    origin: Instant,
    micros: Arc<AtomicU64>,
    /// How much time passes right after the next look.
    pause_micros: Arc<AtomicU64>,
}

#[cfg(test)]
impl Manual {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), micros: Arc::default(), pause_micros: Arc::default() }
    }

    fn look(&self) -> Instant {
        let now = self.origin + self.passed();
        let pause = self.pause_micros.swap(0, Ordering::Relaxed);
        self.micros.fetch_add(pause, Ordering::Relaxed);
        now
    }

    /// Makes time pass right after the next look.
    pub(crate) fn pause_behind_next_look(&self, time: Duration) {
        self.pause_micros.store(time.as_micros() as u64, Ordering::Relaxed);
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.micros.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    fn passed(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

/// After a longer pause, nothing is sent that was planned before it.
const PAUSE: Duration = Duration::from_secs(60);

/// Time since some moment before the start of this process, sleep of the machine included.
pub fn uptime() -> Duration {
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, clock_gettime};
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    }
    #[cfg(not(target_os = "linux"))]
    {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        ORIGIN.get_or_init(std::time::Instant::now).elapsed()
    }
}

/// Notices that the process stood still.
#[derive(Debug, Default)]
pub(crate) struct Awake {
    seen: Option<Duration>,
}

impl Awake {
    /// The process is awake now; for how long it was not, if that is long.
    pub(crate) fn note(&mut self, now: Duration) -> Option<Duration> {
        let before = self.seen.replace(now)?;
        now.checked_sub(before).filter(|pause| *pause > PAUSE)
    }

    /// Nobody cares.
    pub(crate) fn forget(&mut self) {
        self.seen = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_pause_is_noticed_once() {
        let mut awake = Awake::default();
        assert_eq!(awake.note(Duration::from_secs(1000)), None, "nothing was planned before");
        assert_eq!(awake.note(Duration::from_secs(1050)), None);
        assert_eq!(awake.note(Duration::from_secs(1111)), Some(Duration::from_secs(61)));
        assert_eq!(awake.note(Duration::from_secs(1112)), None);
        awake.forget();
        assert_eq!(awake.note(Duration::from_secs(9999)), None);
    }

    #[test]
    fn it_goes_on() {
        let before = uptime();
        std::thread::sleep(Duration::from_millis(2));
        assert!(uptime() >= before + Duration::from_millis(2));
    }
}
