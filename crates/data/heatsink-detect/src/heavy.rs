//! The counter of one worker: every request is counted, the heavy hitters get a name.
//!
//! Called by: the `observe` stage with every key of every request; `drain_into` at each tick,
//! by the worker that owns the counter.
//! Bound: memory is fixed when the counter is built ([`WorkerCounter::memory_bytes`]) but for
//! the names, which are bounded in number and length.
//! Invariant: nothing here is shared, so no cache line is written that another worker reads.
//!
//! # Who gets a name
//!
//! A key is admitted to the table when the sketch's estimate for one kind of request reaches
//! the *bar*. With `T` the reporting threshold and `w` workers, the bar lies between `T/8w`
//! and `T/4w`; between the two it is twice the mean load of a sketch cell, so that a busy
//! sketch does not fill the table with noise. Estimates are never too low, so of a key that
//! reaches `T` at most `T/4w` reads and `T/4w` writes on each worker, at most half of `T` in
//! all, went by unnamed; the rest is counted exactly. That is why a report can demand that
//! half of the threshold is certain and still miss nobody.
//!
//! Three more ways lead in: a single request that moves more bytes than the byte threshold
//! divided by `T`; a miss when the estimate is a quarter of the miss threshold; and a write
//! while half of the contention threshold is in flight. All three thresholds are those of the
//! fleet, and this worker's share of them counts: the part of one of `w` workers of one of so
//! many proxies ([`WorkerCounter::set_proxies`]). Of writes in flight at least two are needed,
//! and more where two of many that are out meet by chance. What only the reply shows lets the
//! key in with its next request, see [`Tag`].

mod exchange;

use std::time::Duration;

use crate::clock::SlotClock;
use crate::config::Settings;
use crate::heat::Kind;
use crate::key::Key;
use crate::snapshot::{Snapshot, SnapshotEntry};
use crate::table::{Claim, Entry, Table, Weights};
use crate::truth::{Truth, TruthReading};
use crate::window::Window;
use exchange::Exchange;
pub use exchange::Tag;

/// Keys that are kept by name however few requests they get.
pub const MOST_FOLLOWED: usize = 256;

/// Counts the requests of one worker.
///
/// Aligned so that two counters side by side in memory share no cache line, nor a pair of
/// them that is fetched together.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerCounter {
    streams: [Stream; 2],
    bars: Bars,
    table: Table,
    exchange: Exchange,
    clock: SlotClock,
    settings: Settings,
    workers: usize,
    proxies: usize,
    report_threshold: u32,
    refused: u64,
    too_long: u64,
}

/// Everything that is kept for one kind of request.
#[derive(Debug)]
struct Stream {
    window: Window,
    truth: Truth,
}

/// From where on a key is admitted to the table.
#[derive(Debug, Clone, Copy, Default)]
struct Bars {
    /// Estimated requests in the window, by kind.
    requests: [u32; 2],
    /// Bytes of a single request.
    bytes: u64,
    /// Estimated requests in the window, for a request that missed.
    missed_requests: u32,
    /// Writes in flight.
    in_flight: u32,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    kind: Kind,
    bytes: u64,
    miss: bool,
    absorbed: bool,
}

impl WorkerCounter {
    /// A counter for one of `workers` workers. Time is what has passed since an origin that
    /// the caller chooses, the same for all workers.
    pub fn new(settings: &Settings, workers: usize, now: Duration) -> Self {
        let slots = settings.slots();
        let stream = || Stream {
            window: Window::new(settings.shape(), slots),
            truth: Truth::new(settings.truth_entries, slots),
        };
        let report_threshold = settings.report_threshold;
        let mut counter = Self {
            streams: [stream(), stream()],
            bars: Bars::default(),
            table: Table::new(
                settings.table_entries,
                slots,
                weights(settings, report_threshold, 1),
            ),
            exchange: Exchange::default(),
            clock: SlotClock::new(settings.slot_length(), now),
            settings: settings.clone(),
            workers: workers.max(1),
            proxies: 1,
            report_threshold,
            refused: 0,
            too_long: 0,
        };
        counter.set_bars();
        counter
    }

    /// Follows the fleet: requests/s on this proxy from which a key is worth a report, see
    /// [`Settings::report_floor`].
    pub fn set_report_threshold(&mut self, requests_per_second: u32) {
        self.report_threshold = requests_per_second.max(1);
        self.set_weights();
    }

    /// Follows the fleet: this many proxies share the traffic, and the thresholds for bytes,
    /// misses and writes in flight.
    pub fn set_proxies(&mut self, proxies: usize) {
        self.proxies = proxies.max(1);
        self.set_weights();
    }

    /// Takes over settings that were changed: the thresholds for bytes, misses and writes in
    /// flight, and the retire fraction. The others are for a counter that is built anew, but
    /// for the one that [`WorkerCounter::set_report_threshold`] changes.
    pub fn apply(&mut self, settings: &Settings) {
        self.settings.hot_bytes_per_second = settings.hot_bytes_per_second;
        self.settings.miss_storm_threshold = settings.miss_storm_threshold;
        self.settings.write_contention_threshold = settings.write_contention_threshold;
        self.settings.retire_fraction = settings.retire_fraction;
        self.set_weights();
    }

    /// Keeps these keys by name from now on, and no others, so that their counts are exact however
    /// few requests they get; [`MOST_FOLLOWED`] of them at most, and half of the places that a key
    /// may have. What does not fit is estimated.
    pub fn follow<'a>(&mut self, keys: impl IntoIterator<Item = Key<'a>>) {
        self.table.follow_nobody();
        let fits = |key: &Key<'_>| key.bytes().len() <= self.settings.max_key_bytes;
        let keys: Vec<_> = keys.into_iter().filter(fits).take(MOST_FOLLOWED).collect();
        for key in keys {
            let claim = self.claim(key);
            self.table.follow(key, &claim);
        }
    }

    fn set_weights(&mut self) {
        self.table.set_weights(weights(&self.settings, self.report_threshold, self.proxies));
        self.set_bars();
    }

    /// Counts one request of which everything is known. Where bytes and misses are known only
    /// with the reply, [`WorkerCounter::begin`] is the one to call.
    #[inline]
    pub fn record(&mut self, key: Key<'_>, kind: Kind, bytes_moved: u64, miss: bool) {
        let _ = self.count(key, Request { kind, bytes: bytes_moved, miss, absorbed: false });
    }

    /// Counts requests that were gathered elsewhere, of which no more is known, as if they had come
    /// now one after the other.
    pub fn record_many(&mut self, key: Key<'_>, kind: Kind, requests: u32) {
        let Some(others) = requests.checked_sub(1) else { return };
        if others > 0 {
            let stream = &mut self.streams[kind as usize];
            stream.window.add(key.hash(), others);
            stream.truth.record_many(key.hash(), others);
            // One that gets its name only now carries what the sketch says.
            if let Some(place) = self.table.find(key) {
                let requests = &mut self.table.entry_mut(place).open.requests[kind as usize];
                *requests = requests.saturating_add(others);
            }
        }
        self.record(key, kind, 0, false);
    }

    /// Counts one request that a mitigation answered: a key does not cool down because it
    /// is being cooled.
    #[inline]
    pub fn record_absorbed(&mut self, key: Key<'_>, kind: Kind, bytes_moved: u64) {
        let _ = self.count(key, Request { kind, bytes: bytes_moved, miss: false, absorbed: true });
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as a call the key goes over the stack: 2 ns more")]
    fn count(&mut self, key: Key<'_>, request: Request) -> Option<usize> {
        let stream = &mut self.streams[request.kind as usize];
        let maybe_over = stream.window.add_one(key.hash());
        stream.truth.record(key.hash());
        let place = match self.table.find(key) {
            Some(place) => place,
            None if maybe_over || request.miss || request.bytes >= self.bars.bytes => {
                self.consider(key, request)?
            }
            None if self.exchange.is_wanted(key.hash()) => self.admit_wanted(key)?,
            None => return None,
        };
        let open = &mut self.table.entry_mut(place).open;
        open.record(request.kind, request.bytes, request.miss, request.absorbed);
        Some(place)
    }

    /// A key without a name that may have deserved one.
    #[inline(never)]
    fn consider(&mut self, key: Key<'_>, request: Request) -> Option<usize> {
        let estimate = self.streams[request.kind as usize].window.estimate(key.hash());
        if self.bars.are_reached(estimate, request) {
            self.admit_request(key, estimate, request)
        } else if self.exchange.is_wanted(key.hash()) {
            self.admit_wanted(key)
        } else {
            None
        }
    }

    #[cold]
    fn admit_request(&mut self, key: Key<'_>, estimate: u32, request: Request) -> Option<usize> {
        let mut claim = self.claim(key);
        // The request itself is not carried, it is counted exactly when it is in.
        claim.carried[request.kind as usize] = estimate - 1;
        claim.bytes = request.bytes;
        claim.misses = u32::from(request.miss);
        self.admit(key, &claim)
    }

    /// What the sketches say for a key. Noise is the mean load of a cell, counted up to now:
    /// a scan can fill the sketch between two ticks.
    fn claim(&self, key: Key<'_>) -> Claim {
        let mut claim = Claim::default();
        for (carried, stream) in claim.carried.iter_mut().zip(&self.streams) {
            *carried = stream.window.estimate(key.hash());
            let noise = stream.window.total() / stream.window.shape().width() as u64;
            let credit = carried.saturating_sub(u32::try_from(noise).unwrap_or(u32::MAX));
            claim.credit = claim.credit.saturating_add(credit);
        }
        claim
    }

    fn admit(&mut self, key: Key<'_>, claim: &Claim) -> Option<usize> {
        if key.bytes().len() > self.settings.max_key_bytes {
            self.too_long += 1;
            return None;
        }
        let place = self.table.admit(key, claim);
        self.refused += u64::from(place.is_none());
        place
    }

    /// Ends the slots that have passed and writes what the window holds to `snapshot`.
    pub fn drain_into(&mut self, now: Duration, snapshot: &mut Snapshot) {
        let steps = self.clock.advance(now);
        for stream in &mut self.streams {
            stream.window.rotate(steps);
            stream.truth.rotate(steps);
        }
        self.table.rotate(steps);
        self.set_bars();
        self.sweep();
        snapshot.taken_at = now;
        snapshot.window = self.settings.window();
        snapshot.truth = TruthReading::default();
        for (stream, sketch) in self.streams.iter().zip(&mut snapshot.sketches) {
            stream.window.copy_to(sketch);
            snapshot.truth.merge(&stream.truth.read(|hash| stream.window.estimate(hash)));
        }
        snapshot.keys.clear();
        snapshot.entries.clear();
        for (hash, entry) in self.table.iter_mut() {
            let at_most = [Kind::Read, Kind::Write].map(|kind| {
                entry.at_most(kind).min(self.streams[kind as usize].window.estimate(hash))
            });
            snapshot.entries.push(SnapshotEntry {
                hash,
                key_start: snapshot.keys.len(),
                key_len: entry.key.len(),
                certain: entry.certain(),
                at_most,
                in_flight_peak: entry.in_flight_peak,
                value_kind: entry.value_kind,
            });
            snapshot.keys.extend_from_slice(&entry.key);
            entry.in_flight_peak = entry.in_flight;
        }
        snapshot.refused = self.refused;
        snapshot.too_long = self.too_long;
    }

    /// Lets go of names that were known for a whole window and are far below every bar.
    fn sweep(&mut self) {
        let Self { table, bars, settings, workers, proxies, .. } = self;
        let share = settings.window().as_secs_f64() / (*workers * *proxies) as f64;
        let requests = bars.requests[0].min(bars.requests[1]).div_ceil(2);
        let bytes = (settings.hot_bytes_per_second as f64 * share / 8.0) as u64;
        let misses = (f64::from(settings.miss_storm_threshold) * share / 8.0) as u32;
        // One write in flight is no contention.
        let in_flight = bars.in_flight.div_ceil(2).max(2);
        table.sweep(|entry: &Entry| {
            let certain = entry.certain();
            entry.is_followed
                || entry.is_young()
                || certain.requests[0].saturating_add(certain.requests[1]) >= requests
                || certain.bytes >= bytes.max(1)
                || certain.misses >= misses.max(1)
                || entry.in_flight_peak >= in_flight
        });
    }

    fn set_bars(&mut self) {
        let window_s = self.settings.window().as_secs_f64();
        let share = f64::from(self.report_threshold) * window_s / self.workers as f64;
        let highest = share * 0.25_f64.min(self.settings.retire_fraction / 2.0);
        let lowest = (share / 8.0).min(highest);
        let requests = [0, 1].map(|kind: usize| {
            let window = &self.streams[kind].window;
            let cell_load = window.total() as f64 / window.shape().width() as f64;
            ((2.0 * cell_load).clamp(lowest, highest) as u32).max(1)
        });
        let settings = &self.settings;
        let shares = (self.workers * self.proxies) as f64;
        let misses = f64::from(settings.miss_storm_threshold) * window_s / shares;
        let bytes = settings.hot_bytes_per_second as f64 / self.proxies as f64;
        // What chance brings together raises the bar, though never over half of the threshold.
        let half = f64::from(settings.write_contention_threshold) / 2.0;
        let in_flight =
            self.exchange.in_flight_noise().clamp(1.0, half.max(1.0)).max(half / shares);
        self.bars = Bars {
            requests,
            bytes: ((bytes / f64::from(self.report_threshold)) as u64).max(1),
            missed_requests: ((misses / 4.0) as u32).max(1),
            in_flight: (in_flight as u32).max(1),
        };
        for (stream, bar) in self.streams.iter_mut().zip(requests) {
            stream.window.set_bar(bar);
        }
    }

    /// Bytes in use: fixed for the sketches, bounded for the names.
    pub fn memory_bytes(&self) -> usize {
        let streams = self.streams.iter();
        streams
            .map(|stream| stream.window.memory_bytes() + stream.truth.memory_bytes())
            .sum::<usize>()
            + self.table.memory_bytes()
            + self.exchange.memory_bytes()
            + size_of::<Self>()
    }
}

impl Bars {
    #[inline]
    fn are_reached(&self, estimate: u32, request: Request) -> bool {
        estimate >= self.requests[request.kind as usize]
            || request.bytes >= self.bytes
            || (request.miss && estimate >= self.missed_requests)
    }
}

fn weights(settings: &Settings, report_threshold: u32, proxies: usize) -> Weights {
    let window_s = settings.window().as_secs_f32();
    let proxies = proxies as f32;
    Weights {
        request: 1.0 / (report_threshold as f32 * window_s),
        byte: proxies / (settings.hot_bytes_per_second as f32 * window_s),
        miss: proxies / (settings.miss_storm_threshold as f32 * window_s),
        write_in_flight: proxies / settings.write_contention_threshold as f32,
    }
}

#[cfg(test)]
mod tests;
