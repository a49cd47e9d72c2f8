//! Which keys of this cache are hot.
//!
//! Called by: every `get`; a hit only adds to its record, and every [`Heat::batch`]th comes here.
//! Bound: one counter of the detector, whose size is fixed; a key's count is behind by at most a
//! batch.
//! Invariant: counting allocates nothing. A `get` that finds a tick due rings a bell, and a task
//! does it; a cache that nobody asks wakes nobody.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use foldhash::fast::{FixedState, RandomState};
use heatsink_detect::config::Settings;
use heatsink_detect::heat::Kind;
use heatsink_detect::heavy::WorkerCounter;
use heatsink_detect::key::KeyHasher;
use heatsink_detect::report::Merger;
use heatsink_detect::snapshot::Snapshot;
use heatsink_detect::tracker::{Event, Tracker};
use tokio::sync::Notify;

use crate::clock::{Clock, Ms};
use crate::sync::Spawner;

pub(crate) struct Heat {
    counting: Mutex<Counting>,
    hasher: KeyHasher,
    /// Those that are hot, with their rate at the last tick.
    hot: RwLock<HashMap<Vec<u8>, f64, RandomState>>,
    is_any_hot: AtomicBool,
    next_tick: AtomicU64,
    tick: Ms,
    clock: Clock,
    /// Rung when a tick is due, and when there will be none any more.
    bell: Arc<Notify>,
    batch: u32,
    names: FixedState,
    /// Whose word on what is hot counts; the fleet then also does the ticks.
    #[cfg(feature = "fleet")]
    fleet: Option<crate::Fleet>,
}

struct Counting {
    counter: WorkerCounter,
    snapshot: Snapshot,
    merger: Merger,
    tracker: Tracker,
}

impl Heat {
    #[cfg(feature = "fleet")]
    pub(crate) fn of_fleet(fleet: &crate::Fleet, clock: &Clock) -> Arc<Self> {
        let place = &fleet.place;
        let mut heat = Self::new(&place.detect, clock);
        heat.hasher = place.hasher.clone();
        heat.fleet = Some(fleet.clone());
        let heat = Arc::new(heat);
        place.add(&heat);
        heat
    }

    pub(crate) fn new(settings: &Settings, clock: &Clock) -> Self {
        let now = clock.now();
        Self {
            #[cfg(feature = "fleet")]
            fleet: None,
            counting: Mutex::new(Counting {
                counter: WorkerCounter::new(settings, 1, Duration::from_millis(now)),
                snapshot: Snapshot::new(),
                merger: Merger::new(),
                tracker: Tracker::new(settings),
            }),
            hasher: KeyHasher::random(),
            hot: RwLock::default(),
            is_any_hot: AtomicBool::new(false),
            next_tick: AtomicU64::new(now),
            tick: u64::from(settings.tick_ms),
            clock: clock.clone(),
            bell: Arc::default(),
            // About a sixteenth of what makes a key hot, so that a rate is right within a few percent.
            batch: (settings.hot_threshold / 16).clamp(1, 64).next_power_of_two(),
            names: FixedState::with_seed(fastrand::u64(..)),
        }
    }

    /// With a task that does the ticks.
    pub(crate) fn ticking(settings: &Settings, clock: &Clock, spawner: &Spawner) -> Arc<Self> {
        let heat = Arc::new(Self::new(settings, clock));
        let (bell, ticked) = (Arc::clone(&heat.bell), Arc::downgrade(&heat));
        spawner.spawn(async move {
            loop {
                bell.notified().await;
                let Some(heat) = ticked.upgrade() else { return };
                heat.tick(&mut heat.lock(), heat.clock.now());
            }
        });
        heat
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counting> {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks that are told at once: a power of two.
    #[inline]
    pub(crate) fn batch(&self) -> u32 {
        self.batch
    }

    /// What a key is called where it has no other name.
    pub(crate) fn name_of<Q: Hash + ?Sized>(&self, key: &Q) -> [u8; 8] {
        self.names.hash_one(key).to_be_bytes()
    }

    pub(crate) fn count(&self, name: &[u8], looks: u32, is_miss: bool, now: Ms) {
        let key = self.hasher.key(name);
        let mut counting = self.lock();
        if is_miss {
            counting.counter.record(key, Kind::Read, 0, true);
        } else {
            counting.counter.record_many(key, Kind::Read, looks);
        }
        drop(counting);
        if !self.is_in_fleet() && now >= self.next_tick.load(Ordering::Relaxed) {
            self.next_tick.store(now + self.tick, Ordering::Relaxed);
            self.bell.notify_one();
        }
    }

    #[cfg(feature = "fleet")]
    fn is_in_fleet(&self) -> bool {
        self.fleet.is_some()
    }

    #[cfg(not(feature = "fleet"))]
    #[expect(clippy::unused_self, reason = "the other one uses it")]
    fn is_in_fleet(&self) -> bool {
        false
    }

    #[cfg(feature = "fleet")]
    pub(crate) fn drain_into(&self, now: Duration, snapshot: &mut Snapshot) {
        let mut counting = self.lock();
        counting.counter.drain_into(now, snapshot);
    }

    #[cfg(feature = "fleet")]
    pub(crate) fn set_report_threshold(&self, requests_per_second: u32) {
        let mut counting = self.lock();
        counting.counter.set_report_threshold(requests_per_second);
    }

    fn tick(&self, counting: &mut Counting, now: Ms) {
        let now = Duration::from_millis(now);
        let Counting { counter, snapshot, merger, tracker } = counting;
        counter.drain_into(now, snapshot);
        let report = merger.merge(now, &[&*snapshot]);
        let events = tracker.tick(now, &report);
        if events.is_empty() && !self.is_any_hot.load(Ordering::Relaxed) {
            return;
        }
        let mut hot = self.hot.write().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            match event {
                Event::Hot { heat, level, .. } => {
                    tracing::debug!(key = %heat.key.escape_ascii(), rate = level, "a key is hot");
                    hot.insert(heat.key, level);
                }
                Event::Cooled { key, still_hot: false, .. } => {
                    tracing::debug!(key = %key.escape_ascii(), "a key has cooled down");
                    hot.remove(&key);
                }
                Event::Cooled { .. } => {}
            }
        }
        for heat in &report.keys {
            if let Some(rate) = hot.get_mut(&heat.key) {
                *rate = heat.requests_per_second();
            }
        }
        self.is_any_hot.store(!hot.is_empty(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_any_hot(&self) -> bool {
        #[cfg(feature = "fleet")]
        if let Some(fleet) = &self.fleet {
            return fleet.place.is_any_hot();
        }
        self.is_any_hot.load(Ordering::Relaxed)
    }

    pub(crate) fn is_hot(&self, name: &[u8]) -> bool {
        #[cfg(feature = "fleet")]
        if let Some(fleet) = &self.fleet {
            return fleet.place.is_hot(name);
        }
        self.hot.read().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    pub(crate) fn hottest(&self, now: Ms) -> Vec<(Vec<u8>, f64)> {
        #[cfg(feature = "fleet")]
        if let Some(fleet) = &self.fleet {
            return fleet.place.hottest();
        }
        let mut counting = self.lock();
        self.tick(&mut counting, now);
        drop(counting);
        let hot = self.hot.read().unwrap_or_else(PoisonError::into_inner);
        let mut hottest: Vec<_> = hot.iter().map(|(key, rate)| (key.clone(), *rate)).collect();
        hottest.sort_by(|one, other| other.1.total_cmp(&one.1));
        hottest
    }
}

impl Drop for Heat {
    fn drop(&mut self) {
        self.bell.notify_one();
    }
}
