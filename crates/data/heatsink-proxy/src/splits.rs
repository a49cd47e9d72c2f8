//! Split keys, as the control plane hands them over, and what workers tell it about them.
//!
//! Called by: whoever moves data, through [`crate::Handle`]; the workers, once a turn and when a
//! command needs a key to be whole.
//! Bound: one entry a key among what is wanted, and `MAX_MARKERS` markers.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use heatsink_split::Layout;

use crate::runtime::clock::Clock;

/// Where a key stands that is split, or about to be, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Splitting {
    /// Writes are held. The value is at the key, and is about to be moved, or has just been.
    Freezing {
        /// Where it will be.
        layout: Arc<Layout>,
        /// A name in the key's slot that exists until the value is moved, and never again.
        permit: Arc<[u8]>,
    },
    /// The value is in the shards.
    Split(Arc<Layout>),
    /// Writes are held. The value is in the shards, or in what they were sealed as.
    Draining(Arc<Layout>),
}

impl Splitting {
    /// Where the parts are, or will be.
    pub fn layout(&self) -> &Arc<Layout> {
        match self {
            Self::Freezing { layout, .. } | Self::Split(layout) | Self::Draining(layout) => layout,
        }
    }
}

/// A key that has to be made whole for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeWanted {
    /// The key.
    pub key: Vec<u8>,
    /// What for.
    pub command: String,
}

/// Upper bounds of [`FanOut`], in microseconds.
pub const FAN_OUT_BOUNDS: [u64; 10] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000];

/// How long it took from a request about a whole split key until its reply was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FanOut {
    /// Requests up to each of [`FAN_OUT_BOUNDS`], and not up to the one before; last, the others.
    pub counts: [u64; FAN_OUT_BOUNDS.len() + 1],
    /// Their times together.
    pub sum: Duration,
}

/// The year 2020, from which stamps count: they last until 2091.
const STAMPS_SINCE: Duration = Duration::from_secs(1_577_836_800);
/// Stamps of a microsecond, as a power of two.
const STAMP_BITS: u32 = 12;

/// Keys with unknown markers that are remembered until they are taken; a command that waits at another
/// one notes it again before long.
const MAX_MARKERS: usize = 1024;

/// What is called when a key has to be made whole.
type Alarm = Box<dyn Fn() + Send + Sync>;

/// What workers and the control plane tell each other of split keys.
pub(crate) struct SplitMailbox {
    /// By worker: everything that was sent while other keys were hot than in this version has been
    /// answered.
    settled: Vec<AtomicU64>,
    clock: Clock,
    /// Until when what is known of split keys may be relied on, in milliseconds of [`uptime`].
    believed: AtomicU64,
    /// Until when no command may take away the tombstones of splits that have ended, in the same.
    kept: AtomicU64,
    wanted: Mutex<Vec<WholeWanted>>,
    /// Keys at which a marker was found that no version of the hot keys has told of.
    markers: Mutex<BTreeSet<Vec<u8>>>,
    alarm: OnceLock<Alarm>,
    fan_out: [AtomicU64; FAN_OUT_BOUNDS.len() + 1],
    fan_out_micros: AtomicU64,
    /// The next stamp of a list's element that nobody has used.
    next_stamp: AtomicU64,
}

impl fmt::Debug for SplitMailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SplitMailbox").field("settled", &self.settled).finish_non_exhaustive()
    }
}

impl SplitMailbox {
    pub(crate) fn new(workers: usize, clock: Clock) -> Self {
        Self {
            clock,
            settled: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            believed: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            wanted: Mutex::default(),
            markers: Mutex::default(),
            alarm: OnceLock::new(),
            fan_out: Default::default(),
            fan_out_micros: AtomicU64::new(0),
            // Those before are for elements that were there when a list was split.
            next_stamp: AtomicU64::new(2 * heatsink_split::stamp::PER_CALL),
        }
    }

    /// Stamps for elements that are pushed now: the first of so many.
    ///
    /// In this process each is above those that were taken before, by whichever worker. Those of
    /// other processes are ordered by the clock. A microsecond has 4096 of them, more than can be
    /// pushed meanwhile, so they never run ahead of it:
    ///
    /// 1. A worker pushes a lot; were its stamps from the future,
    /// 2. what another process pushes next would go before that.
    pub(crate) fn stamps(&self, count: usize) -> u64 {
        let micros = self
            .clock
            .wall()
            .duration_since(std::time::UNIX_EPOCH + STAMPS_SINCE)
            .map_or(0, |time| time.as_micros() as u64);
        let now = micros << STAMP_BITS;
        let next = |next: u64| Some(now.max(next) + count as u64);
        let taken = self.next_stamp.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        taken.map_or(now, |next| now.max(next))
    }

    pub(crate) fn settle(&self, worker: usize, version: u64) {
        self.settled[worker].store(version, Ordering::Release);
    }

    pub(crate) fn settled(&self) -> u64 {
        self.settled.iter().map(|version| version.load(Ordering::Acquire)).min().unwrap_or(0)
    }

    pub(crate) fn believe(&self, until: Duration) {
        self.believed.store(until.as_millis() as u64, Ordering::Release);
    }

    /// Whether what is known may be relied on at this very moment. The time that a worker took at
    /// the beginning of its turn will not do: it may have stood still since.
    pub(crate) fn is_believed(&self) -> bool {
        self.clock.uptime().as_millis() as u64 <= self.believed.load(Ordering::Acquire)
    }

    pub(crate) fn keep_tombstones(&self, until: Duration) {
        self.kept.fetch_max(until.as_millis() as u64, Ordering::AcqRel);
    }

    /// Whether tombstones are still needed: other proxies may believe in their shards.
    pub(crate) fn keeps_tombstones(&self) -> bool {
        let kept = self.kept.load(Ordering::Acquire);
        kept > 0 && self.clock.uptime().as_millis() as u64 <= kept
    }

    pub(crate) fn want_whole(&self, key: &[u8], command: &str) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.iter().any(|wanted| wanted.key == key) {
            return;
        }
        wanted.push(WholeWanted { key: key.to_vec(), command: command.to_owned() });
        drop(wanted);
        if let Some(alarm) = self.alarm.get() {
            alarm();
        }
    }

    /// A command was refused by the marker of a split that the worker knows nothing of.
    pub(crate) fn note_marker(&self, key: &[u8]) {
        let mut markers = self.markers.lock().unwrap_or_else(PoisonError::into_inner);
        if markers.contains(key) || markers.len() >= MAX_MARKERS {
            return;
        }
        markers.insert(key.to_vec());
        drop(markers);
        if let Some(alarm) = self.alarm.get() {
            alarm();
        }
    }

    pub(crate) fn take_markers(&self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut *self.markers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A request about a whole split key is answered.
    pub(crate) fn collected(&self, took: Duration) {
        let micros = took.as_micros() as u64;
        let bucket = FAN_OUT_BOUNDS.partition_point(|bound| *bound < micros);
        self.fan_out[bucket].fetch_add(1, Ordering::Relaxed);
        self.fan_out_micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(crate) fn fan_out(&self) -> FanOut {
        let counts = std::array::from_fn(|bucket| self.fan_out[bucket].load(Ordering::Relaxed));
        let sum = Duration::from_micros(self.fan_out_micros.load(Ordering::Relaxed));
        FanOut { counts, sum }
    }

    pub(crate) fn take_wanted(&self) -> Vec<WholeWanted> {
        std::mem::take(&mut *self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_alarm(&self, alarm: Alarm) {
        let _ = self.alarm.set(alarm);
    }
}
