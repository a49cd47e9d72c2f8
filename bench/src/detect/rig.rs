//! A detector of two workers in virtual time, beside exact counts of the same window.
//!
//! Called by: `detect::accuracy` and `detect::onset`.
//! Bound: a counter for each key that is followed, and the requests of a window.
//! Invariant: the window of the exact counts is that of the detector: the 20 slots that were
//! closed last.

use std::collections::{HashSet, VecDeque};
use std::mem;
use std::time::Duration;

use heatsink_detect::config::Settings;
use heatsink_detect::heat::{HeatKind, Kind};
use heatsink_detect::heavy::WorkerCounter;
use heatsink_detect::key::KeyHasher;
use heatsink_detect::report::{Merger, Report};
use heatsink_detect::snapshot::Snapshot;
use heatsink_detect::tracker::{Event, Tracker};

use super::stream::Name;

pub(crate) const TICK: Duration = Duration::from_millis(50);
pub(crate) const TICKS_PER_SECOND: usize = 20;
/// Requests/s; the default.
pub(crate) const THRESHOLD: u32 = 1000;
/// Keys that come once are numbered from here.
const SCANNED: u64 = 1 << 40;

pub(crate) struct Rig {
    workers: Vec<WorkerCounter>,
    snapshots: Vec<Snapshot>,
    merger: Merger,
    tracker: Tracker,
    hasher: KeyHasher,
    pub(crate) random: fastrand::Rng,
    pub(crate) now: Duration,
    /// Requests of each key in the window.
    exact: Vec<u32>,
    /// Those at the threshold or over it.
    due: HashSet<u32>,
    /// The requests of each slot of the window, the open one last.
    slots: VecDeque<Vec<u32>>,
    scanned: u64,
}

impl Rig {
    /// Follows the keys below `keys`.
    pub(crate) fn new(keys: usize, seed: u64) -> Self {
        let settings = Settings::default();
        assert_eq!(settings.hot_threshold, THRESHOLD);
        assert_eq!(settings.report_threshold, THRESHOLD);
        assert_eq!(settings.slot_length(), TICK);
        let worker = |_| WorkerCounter::new(&settings, 2, Duration::ZERO);
        Self {
            workers: (0..2).map(worker).collect(),
            snapshots: vec![Snapshot::new(); 2],
            merger: Merger::new(),
            tracker: Tracker::new(&settings),
            hasher: KeyHasher::with_seed(seed),
            random: fastrand::Rng::with_seed(seed),
            now: Duration::ZERO,
            exact: vec![0; keys],
            due: HashSet::new(),
            slots: VecDeque::from([Vec::new()]),
            scanned: SCANNED,
        }
    }

    /// A request of a key that is followed, to any worker; one in ten is a write.
    pub(crate) fn request(&mut self, key: usize) {
        self.count(key as u64);
        let exact = &mut self.exact[key];
        *exact += 1;
        if *exact == THRESHOLD {
            self.due.insert(key as u32);
        }
        if let Some(open) = self.slots.back_mut() {
            open.push(key as u32);
        }
    }

    /// Requests of so many keys that come once each.
    pub(crate) fn scan(&mut self, keys: usize) {
        for _ in 0..keys {
            self.count(self.scanned);
            self.scanned += 1;
        }
    }

    fn count(&mut self, key: u64) {
        let drawn = self.random.u16(..);
        let kind = if drawn >> 8 < 26 { Kind::Write } else { Kind::Read };
        let name = Name::of(key);
        let key = self.hasher.key(name.bytes());
        self.workers[usize::from(drawn & 1)].record(key, kind, 100, false);
    }

    pub(crate) fn tick(&mut self) -> (Report, Vec<Event>) {
        self.now += TICK;
        for (worker, snapshot) in self.workers.iter_mut().zip(&mut self.snapshots) {
            worker.drain_into(self.now, snapshot);
        }
        let report = self.merger.merge(self.now, &self.snapshots.iter().collect::<Vec<_>>());
        let mut expired = Vec::new();
        if self.slots.len() > TICKS_PER_SECOND {
            expired = self.slots.pop_front().unwrap_or_default();
        }
        for key in &expired {
            let exact = &mut self.exact[*key as usize];
            *exact -= 1;
            if *exact == THRESHOLD - 1 {
                self.due.remove(key);
            }
        }
        expired.clear();
        self.slots.push_back(mem::take(&mut expired));
        let events = self.tracker.tick(self.now, &report);
        (report, events)
    }

    /// Requests of a key in the window; one that is not followed came once.
    pub(crate) fn exact(&self, key: u64) -> u32 {
        usize::try_from(key).ok().and_then(|key| self.exact.get(key)).copied().unwrap_or(1)
    }

    /// The keys that a report must contain.
    pub(crate) fn due(&self) -> impl Iterator<Item = u64> {
        self.due.iter().copied().map(u64::from)
    }
}

/// Whether the event says that this key has become hot.
pub(crate) fn is_onset(event: &Event, key: usize) -> bool {
    matches!(event, Event::Hot { heat, kind: HeatKind::Rate, .. }
        if Name::number(&heat.key) == Some(key as u64))
}
