//! Two proxies for whose clients nothing but speed may change.
//!
//! Called by: the tests that record through Heatsink, and by the faults.
//! Bound: a fleet serves a few histories, whose keys stay hot until it ends.
//! Invariant: every key of a history is hot in exact mode, or none is.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use heatsink_conformance::Heatsink;
use heatsink_proxy::hot_keys::Treatment;

/// Longer than a worker that has nothing to do keeps to itself what it has counted.
const TICK: Duration = Duration::from_millis(1100);

/// What was spared, as far as the proxies have told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spared {
    /// Reads that were given the reply to another's.
    pub(crate) joined: u64,
    /// Reads that were sent.
    pub(crate) reads: u64,
    /// Writes that may have been combined.
    pub(crate) changes: u64,
    /// Writes that were sent for them.
    pub(crate) batches: u64,
}

impl AddAssign for Spared {
    fn add_assign(&mut self, other: Self) {
        self.joined += other.joined;
        self.reads += other.reads;
        self.changes += other.changes;
        self.batches += other.batches;
    }
}

/// How proxies are set up.
#[derive(Clone, Copy, Debug)]
struct Settings {
    workers: usize,
    /// Short, so that a server which is paused is given up.
    is_impatient: bool,
}

/// The proxies before one upstream.
pub(crate) struct Fleet {
    url: String,
    proxies: Vec<(Settings, Heatsink)>,
    keys: Vec<String>,
    gone: Spared,
}

impl Fleet {
    /// Two of them, the second with one or two workers; some give up soon.
    pub(crate) fn start(url: String, rng: &mut Rng, may_be_impatient: bool) -> Self {
        let settings = |index: usize| Settings {
            workers: rng.usize(1..=1 + index),
            is_impatient: may_be_impatient && rng.bool(),
        };
        let settings: Vec<Settings> = (0..2).map(settings).collect();
        let start = |settings| (settings, start_proxy(&url, settings));
        let proxies = settings.into_iter().map(start).collect();
        Self { url, proxies, keys: Vec::new(), gone: Spared::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.proxies.len()
    }

    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        self.proxies.iter().map(|(_, heatsink)| heatsink.addr()).collect()
    }

    /// Makes these keys hot, beside those that are.
    pub(crate) fn heat(&mut self, keys: &[String]) {
        self.keys.extend(keys.iter().cloned());
        (0..self.len()).for_each(|index| self.switch(index, true));
    }

    /// Switches what one proxy does for its keys on or off.
    pub(crate) fn switch(&self, index: usize, is_on: bool) {
        let keys = if is_on { self.keys.as_slice() } else { &[] };
        self.proxies[index].1.heat(keys, Treatment::EXACT);
    }

    /// Ends a proxy at once and starts another in its place.
    pub(crate) fn replace(&mut self, index: usize) -> SocketAddr {
        self.gone += self.spared_by(index);
        let (settings, heatsink) = &mut self.proxies[index];
        heatsink.shutdown(Duration::ZERO);
        *heatsink = start_proxy(&self.url, *settings);
        let addr = heatsink.addr();
        self.switch(index, true);
        addr
    }

    /// What was spared since the start. What was counted right before keys were switched off or
    /// a proxy was replaced is missing.
    pub(crate) fn spared(&self) -> Spared {
        thread::sleep(TICK);
        let mut sum = self.gone;
        (0..self.len()).for_each(|index| sum += self.spared_by(index));
        sum
    }

    fn spared_by(&self, index: usize) -> Spared {
        let handle = self.proxies[index].1.proxy().handle();
        let mut sum = Spared::default();
        for cooled in self.keys.iter().filter_map(|key| handle.cooled(key.as_bytes())) {
            let (joined, reads) = (cooled.joined, cooled.reads);
            let (changes, batches) = (cooled.changes, cooled.batches);
            sum += Spared { joined, reads, changes, batches };
        }
        sum
    }
}

fn start_proxy(url: &str, settings: Settings) -> Heatsink {
    Heatsink::before_url(url, |config| {
        config.workers = settings.workers;
        if settings.is_impatient {
            config.live.timeouts.silence = Some(Duration::from_millis(60));
            config.live.coalesce.max_wait = Duration::from_millis(30);
        }
    })
}
