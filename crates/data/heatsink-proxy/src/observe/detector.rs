//! The other end of the counting: what all workers saw, added up at each tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use heatsink_detect::config::Settings;
use heatsink_detect::handover::{Inbox, Outbox, pair};
use heatsink_detect::key::KeyHasher;
use heatsink_detect::report::{Merger, Report};

use crate::observe::until_next;

/// What a worker needs to count.
#[derive(Debug)]
pub(crate) struct Station {
    pub(super) outbox: Outbox,
    pub(super) hasher: KeyHasher,
    pub(super) threshold: Arc<AtomicU32>,
    pub(super) proxies: Arc<AtomicU32>,
    pub(super) origin: Instant,
}

/// What the workers of a proxy count, added up. Whoever holds it calls [`Detector::tick`] as
/// often as it wants to know, at best when [`Detector::next_tick`] says.
#[derive(Debug)]
pub struct Detector {
    inboxes: Vec<Inbox>,
    merger: Merger,
    hasher: KeyHasher,
    threshold: Arc<AtomicU32>,
    proxies: Arc<AtomicU32>,
    origin: Instant,
    tick: Duration,
}

/// A station for each worker, and the place where all of it comes together.
pub(crate) fn stations(settings: &Settings, workers: usize) -> (Vec<Station>, Detector) {
    let hasher = KeyHasher::random();
    let threshold = Arc::new(AtomicU32::new(settings.report_threshold));
    let proxies = Arc::new(AtomicU32::new(1));
    let origin = Instant::now();
    let mut inboxes = Vec::new();
    let mut stations = Vec::new();
    for _ in 0..workers {
        let (outbox, inbox) = pair();
        inboxes.push(inbox);
        stations.push(Station {
            outbox,
            hasher: hasher.clone(),
            threshold: Arc::clone(&threshold),
            proxies: Arc::clone(&proxies),
            origin,
        });
    }
    let tick = settings.slot_length();
    let merger = Merger::new();
    (stations, Detector { inboxes, merger, hasher, threshold, proxies, origin, tick })
}

impl Detector {
    /// What all workers together saw in the last window.
    pub fn tick(&mut self) -> Report {
        self.tick_with([])
    }

    /// What all workers together saw in the last window. The keys in `asked` are in the report whatever
    /// their count, unless they were not requested at all. For those that no worker has named, the
    /// figures are the sketches' estimates.
    pub fn tick_with<'a>(&mut self, asked: impl IntoIterator<Item = &'a [u8]>) -> Report {
        let now = self.origin.elapsed();
        let snapshots: Vec<_> = self.inboxes.iter_mut().map(Inbox::latest).collect();
        let asked = asked.into_iter().map(|name| self.hasher.key(name));
        self.merger.merge_with(now, &snapshots, asked)
    }

    /// A moment when all workers have just told what they saw.
    pub fn next_tick(&self) -> Instant {
        let now = Instant::now();
        let since = now.saturating_duration_since(self.origin);
        now + until_next(since, self.tick) + self.tick / 10
    }

    /// The time between two ticks.
    pub fn tick_length(&self) -> Duration {
        self.tick
    }

    /// The time since counting began, which reports and trackers are told.
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Requests/s on one key from which it is named; effective with the workers' next tick.
    pub fn set_report_threshold(&self, requests_per_second: u32) {
        self.threshold.store(requests_per_second.max(1), Ordering::Relaxed);
    }

    /// How many proxies share the traffic, and with it the thresholds for bytes, misses and
    /// writes in flight; effective with the workers' next tick.
    pub fn set_proxies(&self, proxies: usize) {
        let proxies = u32::try_from(proxies.max(1)).unwrap_or(u32::MAX);
        self.proxies.store(proxies, Ordering::Relaxed);
    }
}
