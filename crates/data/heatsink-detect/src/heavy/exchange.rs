//! Requests on their way: what only the reply shows, and how many writes are out at once.
//!
//! Called by: the `observe` stage, with [`WorkerCounter::begin`] when a request leaves and
//! [`WorkerCounter::answered`] when its reply is there, or will never be.
//! Bound: one counter for each of [`IN_FLIGHT_CELLS`] groups of keys, [`WANTED`] hashes.
//!
//! When a reply comes, its request and with it the name of the key are gone; the [`Tag`] that
//! waited instead knows the hash, and the place in the table of a key that had a name. A key
//! without one whose reply is huge, or says that there is nothing, is *wanted*: its next
//! request brings the name.

use crate::heat::Kind;
use crate::key::Key;
use crate::table::Claim;

use super::{Request, WorkerCounter};

/// Counters of writes in flight, shared by the keys whose hashes fall together.
const IN_FLIGHT_CELLS: usize = 2048;
/// Keys that are waited for to give their names; a newer one takes the place of an older.
const WANTED: usize = 16;

/// Marks a tag whose key has no name.
const NO_PLACE: u32 = (1 << 30) - 1;
/// Marks a tag of a write.
const WRITE: u32 = 1 << 31;
/// Marks a tag of a write that counts as in flight.
const IN_FLIGHT: u32 = 1 << 30;

/// A request on its way, to be given back with what its reply shows.
///
/// Two numbers are handed over in registers, three are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a write that is never answered counts as in flight for ever"]
pub struct Tag {
    hash: u64,
    /// Above, the generation of the key's entry in the table. Below, its place, whether the key
    /// is written to, and whether that counts as in flight.
    entry: u64,
}

impl Tag {
    #[inline]
    fn new(hash: u64, place: u32, flags: u32, generation: u32) -> Self {
        Self { hash, entry: u64::from(generation) << 32 | u64::from(place | flags) }
    }

    /// Whether the request writes.
    #[inline]
    pub fn is_write(self) -> bool {
        self.entry & u64::from(WRITE) != 0
    }

    /// The same request, without that it is in flight: whoever takes that apart answers both.
    pub fn grounded(self) -> Self {
        Self { entry: self.entry & !u64::from(IN_FLIGHT), ..self }
    }

    /// Whether the key had a name when the request was counted.
    pub fn is_named(self) -> bool {
        self.place() != NO_PLACE
    }

    /// Whether it is a write that counts as in flight.
    #[inline]
    pub fn is_in_flight(self) -> bool {
        self.entry & u64::from(IN_FLIGHT) != 0
    }

    /// The hash of the key.
    pub fn hash(self) -> u64 {
        self.hash
    }

    #[inline]
    fn place(self) -> u32 {
        self.entry as u32 & NO_PLACE
    }

    #[inline]
    fn generation(self) -> u32 {
        (self.entry >> 32) as u32
    }
}

/// What is kept of requests that are on their way.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Exact sums, because begin and end cancel out: never below a key's writes in flight.
    in_flight: Vec<u32>,
    /// All of them together.
    in_flight_total: u32,
    wanted: [u64; WANTED],
    /// How many of them there are, and where the next goes.
    wanted_count: usize,
    next_wanted: usize,
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            in_flight: vec![0; IN_FLIGHT_CELLS],
            in_flight_total: 0,
            wanted: [0; WANTED],
            wanted_count: 0,
            next_wanted: 0,
        }
    }
}

impl Exchange {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(self.in_flight.as_slice())
    }

    #[inline]
    pub(super) fn is_wanted(&self, hash: u64) -> bool {
        self.wanted_count > 0 && self.wanted.contains(&hash)
    }

    fn want(&mut self, hash: u64) {
        if self.wanted.contains(&hash) {
            return;
        }
        let place = &mut self.wanted[self.next_wanted];
        self.wanted_count += usize::from(*place == 0);
        *place = hash;
        self.next_wanted = (self.next_wanted + 1) % WANTED;
    }

    fn found(&mut self, hash: u64) {
        for place in &mut self.wanted {
            if *place == hash {
                *place = 0;
                self.wanted_count -= 1;
            }
        }
    }

    /// Writes in flight that a cell holds by chance with all the others that are out, but for
    /// one time in a hundred or so.
    pub(super) fn in_flight_noise(&self) -> f64 {
        let mean = f64::from(self.in_flight_total) / IN_FLIGHT_CELLS as f64;
        (2.0 + mean + 3.0 * mean.sqrt()).round()
    }

    #[inline]
    fn cell(&mut self, hash: u64) -> &mut u32 {
        &mut self.in_flight[(hash >> 40) as usize % IN_FLIGHT_CELLS]
    }
}

impl WorkerCounter {
    /// Counts one request that goes upstream now, with the bytes that it brings, and with what
    /// it shows of the value (see [`crate::heat::KeyHeat::value_kind`]). A write counts as in
    /// flight until it is answered.
    #[inline]
    pub fn begin(&mut self, key: Key<'_>, kind: Kind, bytes: u64, value_kind: u8) -> Tag {
        let place = self.count(key, Request { kind, bytes, miss: false, absorbed: false });
        if kind == Kind::Read {
            return self.tag(key, place, value_kind, 0);
        }
        let place = self.lift(key, place);
        self.tag(key, place, value_kind, WRITE | IN_FLIGHT)
    }

    /// A write is in flight from now on; its place in the table, which that may have brought.
    #[inline]
    fn lift(&mut self, key: Key<'_>, mut place: Option<usize>) -> Option<usize> {
        self.exchange.in_flight_total += 1;
        let cell = self.exchange.cell(key.hash());
        *cell = cell.saturating_add(1);
        let in_flight = *cell;
        if place.is_none() && in_flight >= self.bars.in_flight {
            place = self.admit_write(key, in_flight);
        }
        if let Some(place) = place {
            self.table.entry_mut(place).begin_write();
        }
        place
    }

    /// Reads what requests of this key will need when they are counted, and does nothing: with
    /// several that come together the fetches overlap. The number means nothing.
    #[inline]
    pub fn foresee(&self, hash: u64, kind: Kind) -> u16 {
        self.streams[kind as usize].window.look(hash)
    }

    /// A write that [`WorkerCounter::begin_behind`] has counted turns out to be in flight.
    #[inline]
    pub fn take_off(&mut self, key: Key<'_>, tag: Tag, value_kind: u8) -> Tag {
        let place = tag.is_named().then(|| tag.place() as usize);
        let place = self.lift(key, place);
        self.tag(key, place, value_kind, WRITE | IN_FLIGHT)
    }

    /// Counts one write that goes upstream behind another one of the same client to the same
    /// key. The two do not contend: it is not in flight besides the other.
    #[inline]
    pub fn begin_behind(&mut self, key: Key<'_>, bytes: u64, value_kind: u8) -> Tag {
        let request = Request { kind: Kind::Write, bytes, miss: false, absorbed: false };
        let place = self.count(key, request);
        self.tag(key, place, value_kind, WRITE)
    }

    #[inline]
    fn tag(&mut self, key: Key<'_>, place: Option<usize>, value_kind: u8, flags: u32) -> Tag {
        match place {
            Some(place) => {
                let entry = self.table.entry_mut(place);
                if value_kind != 0 {
                    entry.value_kind = value_kind;
                }
                let generation = entry.generation;
                Tag::new(key.hash(), place as u32, flags, generation)
            }
            None => Tag::new(key.hash(), NO_PLACE, flags, 0),
        }
    }

    /// More of a request that has begun went by: `bytes`, which makes `total` in all.
    pub fn moved(&mut self, tag: Tag, bytes: u64, total: u64) {
        if tag.place() == NO_PLACE {
            if total >= self.bars.bytes {
                self.exchange.want(tag.hash);
            }
            return;
        }
        let entry = self.table.entry_mut(tag.place() as usize);
        if entry.generation == tag.generation() {
            entry.open.bytes = entry.open.bytes.saturating_add(bytes);
        }
    }

    /// The reply to a request has come, with its number of bytes, and whether it said that there is
    /// nothing; or it failed or was given up, with neither.
    #[inline]
    pub fn answered(&mut self, tag: Tag, bytes: u64, miss: bool) {
        if tag.is_in_flight() {
            self.exchange.in_flight_total = self.exchange.in_flight_total.saturating_sub(1);
            let cell = self.exchange.cell(tag.hash);
            *cell = cell.saturating_sub(1);
        }
        if tag.place() == NO_PLACE {
            if bytes >= self.bars.bytes || miss {
                self.want_unnamed(tag.hash, bytes, miss);
            }
            return;
        }
        let entry = self.table.entry_mut(tag.place() as usize);
        if entry.generation != tag.generation() {
            return;
        }
        if tag.is_in_flight() {
            entry.in_flight = entry.in_flight.saturating_sub(1);
        }
        entry.open.bytes = entry.open.bytes.saturating_add(bytes);
        entry.open.misses = entry.open.misses.saturating_add(u32::from(miss));
    }

    #[cold]
    fn want_unnamed(&mut self, hash: u64, bytes: u64, miss: bool) {
        let requests = self.streams.iter().map(|stream| stream.window.estimate(hash)).sum::<u32>();
        if bytes >= self.bars.bytes || (miss && requests >= self.bars.missed_requests) {
            self.exchange.want(hash);
        }
    }

    /// A key whose reply made it interesting: its next request is here.
    #[cold]
    pub(super) fn admit_wanted(&mut self, key: Key<'_>) -> Option<usize> {
        self.exchange.found(key.hash());
        // A reply that moves so much, or a miss too many, is worth one threshold's share.
        let claim = Claim { bytes: self.bars.bytes, misses: 1, ..self.claim(key) };
        self.admit(key, &claim)
    }

    #[cold]
    fn admit_write(&mut self, key: Key<'_>, in_flight: u32) -> Option<usize> {
        let claim = Claim { in_flight, ..self.claim(key) };
        self.admit(key, &claim)
    }
}
