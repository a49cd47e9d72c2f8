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
//! while half of the contention threshold is in flight.

use std::time::Duration;

use crate::clock::SlotClock;
use crate::config::Settings;
use crate::heat::Kind;
use crate::key::Key;
use crate::snapshot::{Snapshot, SnapshotEntry};
use crate::table::{Claim, Entry, Table, Weights};
use crate::truth::{Truth, TruthReading};
use crate::window::Window;

/// Counters of writes in flight, shared by the keys whose hashes fall together.
const IN_FLIGHT_CELLS: usize = 2048;

/// Marks a ticket whose key has no name.
const NO_PLACE: u32 = u32::MAX;

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
    /// Exact sums, because begin and end cancel out: never below a key's writes in flight.
    in_flight: Vec<u32>,
    clock: SlotClock,
    settings: Settings,
    workers: usize,
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

/// A write in flight, to be given back when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a write that is never ended counts as in flight for ever"]
pub struct WriteTicket {
    cell: u32,
    place: u32,
    generation: u32,
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
            table: Table::new(settings.table_entries, slots, weights(settings, report_threshold)),
            in_flight: vec![0; IN_FLIGHT_CELLS],
            clock: SlotClock::new(settings.slot_length(), now),
            settings: settings.clone(),
            workers: workers.max(1),
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
        self.table.weights = weights(&self.settings, self.report_threshold);
        self.set_bars();
    }

    /// Counts one request that went upstream, or will. Bytes and misses that are known only
    /// with the reply can follow in [`WorkerCounter::record_reply`].
    #[inline]
    pub fn record(&mut self, key: Key<'_>, kind: Kind, bytes_moved: u64, miss: bool) {
        self.count(key, Request { kind, bytes: bytes_moved, miss, absorbed: false });
    }

    /// Counts one request that a mitigation answered: a key does not cool down because it
    /// is being cooled.
    #[inline]
    pub fn record_absorbed(&mut self, key: Key<'_>, kind: Kind, bytes_moved: u64) {
        self.count(key, Request { kind, bytes: bytes_moved, miss: false, absorbed: true });
    }

    /// Adds what the reply shows to a request that is counted already.
    #[inline]
    pub fn record_reply(&mut self, key: Key<'_>, bytes_moved: u64, miss: bool) {
        if bytes_moved == 0 && !miss {
            return;
        }
        let place = match self.table.find(key) {
            Some(place) => place,
            None if bytes_moved >= self.bars.bytes || miss => {
                match self.admit_reply(key, bytes_moved, miss) {
                    Some(place) => place,
                    None => return,
                }
            }
            None => return,
        };
        let open = &mut self.table.entry_mut(place).open;
        open.bytes = open.bytes.saturating_add(bytes_moved);
        open.misses = open.misses.saturating_add(u32::from(miss));
    }

    /// A write is on its way upstream.
    #[inline]
    pub fn begin_write(&mut self, key: Key<'_>) -> WriteTicket {
        let cell = (key.hash() >> 40) as usize % IN_FLIGHT_CELLS;
        self.in_flight[cell] = self.in_flight[cell].saturating_add(1);
        let in_flight = self.in_flight[cell];
        let place = match self.table.find(key) {
            Some(place) => Some(place),
            None if in_flight >= self.bars.in_flight => self.admit_write(key, in_flight),
            None => None,
        };
        let Some(place) = place else {
            return WriteTicket { cell: cell as u32, place: NO_PLACE, generation: 0 };
        };
        let entry = self.table.entry_mut(place);
        entry.begin_write();
        WriteTicket { cell: cell as u32, place: place as u32, generation: entry.generation }
    }

    /// A write was answered, failed or given up.
    #[inline]
    pub fn end_write(&mut self, ticket: WriteTicket) {
        let cell = &mut self.in_flight[ticket.cell as usize];
        *cell = cell.saturating_sub(1);
        if ticket.place == NO_PLACE {
            return;
        }
        let entry = self.table.entry_mut(ticket.place as usize);
        if entry.generation == ticket.generation {
            entry.in_flight = entry.in_flight.saturating_sub(1);
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as a call the key goes over the stack: 2 ns more")]
    fn count(&mut self, key: Key<'_>, request: Request) {
        let stream = &mut self.streams[request.kind as usize];
        let estimate = stream.window.add(key.hash(), 1);
        stream.truth.record(key.hash());
        let place = match self.table.find(key) {
            Some(place) => place,
            None if self.bars.are_reached(estimate, request) => {
                match self.admit_request(key, estimate, request) {
                    Some(place) => place,
                    None => return,
                }
            }
            None => return,
        };
        let open = &mut self.table.entry_mut(place).open;
        open.record(request.kind, request.bytes, request.miss, request.absorbed);
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

    #[cold]
    fn admit_reply(&mut self, key: Key<'_>, bytes: u64, miss: bool) -> Option<usize> {
        let claim = Claim { bytes, misses: u32::from(miss), ..self.claim(key) };
        let requests = claim.carried[0].saturating_add(claim.carried[1]);
        if bytes < self.bars.bytes && requests < self.bars.missed_requests {
            return None;
        }
        self.admit(key, &claim)
    }

    #[cold]
    fn admit_write(&mut self, key: Key<'_>, in_flight: u32) -> Option<usize> {
        let claim = Claim { in_flight, ..self.claim(key) };
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
            });
            snapshot.keys.extend_from_slice(&entry.key);
            entry.in_flight_peak = entry.in_flight;
        }
        snapshot.refused = self.refused;
        snapshot.too_long = self.too_long;
    }

    /// Lets go of names that were known for a whole window and are far below every bar.
    fn sweep(&mut self) {
        let Self { table, bars, settings, .. } = self;
        let window_s = settings.window().as_secs_f64();
        let requests = bars.requests[0].min(bars.requests[1]).div_ceil(2);
        let bytes = (settings.hot_bytes_per_second as f64 * window_s / 8.0) as u64;
        let misses = (f64::from(settings.miss_storm_threshold) * window_s / 8.0) as u32;
        let in_flight = bars.in_flight.div_ceil(2);
        table.sweep(|entry: &Entry| {
            let certain = entry.certain();
            entry.is_young()
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
        let quarter = self.settings.miss_storm_threshold / (4 * self.workers as u32);
        self.bars = Bars {
            requests,
            bytes: (self.settings.hot_bytes_per_second / u64::from(self.report_threshold)).max(1),
            missed_requests: quarter.max(1),
            in_flight: (self.settings.write_contention_threshold / 2).max(1),
        };
    }

    /// Bytes in use: fixed for the sketches, bounded for the names.
    pub fn memory_bytes(&self) -> usize {
        let streams = self.streams.iter();
        streams
            .map(|stream| stream.window.memory_bytes() + stream.truth.memory_bytes())
            .sum::<usize>()
            + self.table.memory_bytes()
            + size_of_val(self.in_flight.as_slice())
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

fn weights(settings: &Settings, report_threshold: u32) -> Weights {
    let window_s = settings.window().as_secs_f32();
    Weights {
        request: 1.0 / (report_threshold as f32 * window_s),
        byte: 1.0 / (settings.hot_bytes_per_second as f32 * window_s),
        miss: 1.0 / (settings.miss_storm_threshold as f32 * window_s),
        write_in_flight: 1.0 / settings.write_contention_threshold as f32,
    }
}

#[cfg(test)]
mod tests;
