//! The places of a client's replies, where they come from several links.
//!
//! Called by: `order`. There is one place for each reply that is not in the output yet, in the order
//! of the requests. The replies of one link come in order, so a place only names its way: replies
//! queue up on their way, and are put in order when they are moved to the output. Small replies are
//! copied there; large ones are written from where they lie.
//! Bound: see `order`. When a way takes more bytes, those that were sent are removed if they are
//! half of what it holds, and [`GARBAGE_BYTES`] or more.
//! Invariant: a way has as many places as replies that are to come or wait for their turn.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use heatsink_upstream::outgoing::{Block, Outgoing};
use slab::Slab;

use crate::downstream::order::Source;
use crate::downstream::shared_reply::Lent;

/// From this average size on, replies are written from where they lie.
const FAST_PATH_BYTES: usize = 256;
/// Pieces that one system call writes.
const SLICES: usize = 64;
/// With fewer bytes than this that were sent, a way is not compacted.
const GARBAGE_BYTES: usize = 8 << 10;
/// A buffer up to this size is kept for the next client.
const KEEP_BYTES: usize = 16 << 10;

/// The places of one client's replies.
#[derive(Debug)]
pub(crate) struct Spread {
    places: VecDeque<Place>,
    /// The number of the first place; may wrap around.
    first: u32,
    ways: Vec<Way>,
    /// Replies that were made here.
    local: Replies,
    /// Replies of places that were reserved, or are holes, and replies shared with other clients.
    filled: Slab<Filled>,
    /// Bytes that came and are not in the output yet.
    held: usize,
    /// Those of them that are shared with other clients.
    lent: usize,
    /// A buffer has grown larger than what is kept for the next client.
    is_large: bool,
}

/// A reply that came on no way.
#[derive(Debug)]
pub(super) enum Filled {
    Copied(Vec<u8>),
    Lent(Lent),
}

impl Filled {
    fn len(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Lent(lent) => lent.as_ref().len(),
        }
    }
}

/// Where one reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is the next of this way, come or not.
    Way(u32),
    /// It is the next that was made here.
    Local,
    /// It is to be given by number.
    Open,
    /// It was given by number, or is shared with other clients.
    Filled(u32),
    /// Only a part of it came, and no more will. This place is never taken out.
    Cut,
}

/// The queue of one source.
#[derive(Debug, Default)]
struct Way {
    source: Source,
    /// Replies that are still to come.
    owed: u32,
    replies: Replies,
}

impl Way {
    /// Whether it may be given to another source.
    fn is_unused(&self) -> bool {
        self.owed == 0 && self.replies.is_empty()
    }
}

/// Replies that came and are not in the output yet, oldest first.
#[derive(Debug, Default)]
struct Replies {
    /// The last may be incomplete.
    bytes: Vec<u8>,
    /// How many of the bytes are in the output.
    told: usize,
    /// Where each complete reply ends.
    ends: Vec<usize>,
    /// How many of these are in the output.
    next: usize,
}

impl Replies {
    fn is_empty(&self) -> bool {
        self.next == self.ends.len() && self.told == self.bytes.len()
    }

    fn len(&self) -> usize {
        self.ends.len() - self.next
    }

    /// Appends what came, and `ends`, which count from its beginning.
    #[inline]
    fn push(&mut self, bytes: &[u8], ends: &[usize]) {
        if self.is_empty() {
            self.bytes.clear();
            self.ends.clear();
            (self.told, self.next) = (0, 0);
        } else if self.told >= GARBAGE_BYTES && self.told >= self.bytes.len() / 2 {
            self.compact();
        }
        let base = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.ends.extend(ends.iter().map(|end| base + end));
    }

    fn compact(&mut self) {
        self.bytes.drain(..self.told);
        self.ends.drain(..self.next);
        for end in &mut self.ends {
            *end -= self.told;
        }
        (self.told, self.next) = (0, 0);
    }

    /// Takes the next reply, if it is complete.
    #[inline]
    fn pop(&mut self) -> Option<&[u8]> {
        let (start, end) = self.pop_span()?;
        Some(&self.bytes[start..end])
    }

    /// Takes the next reply, if it is complete: where it lies.
    #[inline]
    fn pop_span(&mut self) -> Option<(usize, usize)> {
        let end = *self.ends.get(self.next)?;
        self.next += 1;
        Some((std::mem::replace(&mut self.told, end), end))
    }

    /// Forgets the part of a reply that is not complete. Returns how many bytes that were.
    fn forget_part(&mut self) -> usize {
        let end = self.ends.last().map_or(self.told, |end| self.told.max(*end));
        let part = self.bytes.len() - end;
        self.bytes.truncate(end);
        part
    }

    /// Takes what is there of a reply that is not complete.
    fn pop_part(&mut self) -> &[u8] {
        let start = std::mem::replace(&mut self.told, self.bytes.len());
        &self.bytes[start..]
    }
}

/// Replies that lie next to each other on one way, or without one among those made here.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    way: Option<u32>,
    start: usize,
    end: usize,
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            places: VecDeque::new(),
            first: 0,
            ways: std::iter::repeat_with(Way::default).take(Source::HINTS).collect(),
            local: Replies::default(),
            filled: Slab::new(),
            held: 0,
            lent: 0,
            is_large: false,
        }
    }
}

impl Spread {
    /// Begins with `owed` outstanding replies that all come from `source`; the first place has the
    /// number `first`.
    pub(super) fn begin(&mut self, source: Source, owed: u32, first: u32) {
        debug_assert!(self.places.is_empty() && self.held == 0 && self.lent == 0);
        self.first = first;
        let hint = source.hint();
        let way = &mut self.ways[hint as usize];
        way.source = source;
        way.owed = owed;
        self.places.extend((0..owed).map(|_| Place::Way(hint)));
    }

    /// The number of the next place.
    pub(super) fn next_place(&self) -> u32 {
        self.first.wrapping_add(self.places.len() as u32)
    }

    /// Whether every reply is in the output.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.places.is_empty()
    }

    #[inline]
    pub(super) fn held_bytes(&self) -> usize {
        self.held
    }

    /// Bytes that are held for this client alone.
    #[inline]
    pub(super) fn copied_bytes(&self) -> usize {
        self.held - self.lent
    }

    /// Bytes that are held. Those that several clients hold are divided by their number.
    pub(super) fn share(&self) -> usize {
        let lent = self.filled.iter().filter_map(|(_, filled)| match filled {
            Filled::Copied(_) => None,
            Filled::Lent(lent) => Some(lent.share()),
        });
        self.copied_bytes() + lent.sum::<usize>()
    }

    /// Frees buffers that are too large to be kept for the next client.
    #[inline]
    pub(crate) fn trim(&mut self) {
        if self.is_large {
            *self = Self::default();
        }
    }

    /// See [`crate::downstream::order::Order::expect_from`].
    #[inline]
    pub(super) fn expect_from(
        &mut self,
        sources: &[(Source, u32)],
        route: impl Iterator<Item = u32>,
        ways: &mut Vec<u32>,
    ) {
        ways.extend(sources.iter().map(|(source, count)| self.owe(*source, *count)));
        self.places.extend(route.map(|source| Place::Way(ways[source as usize])));
    }

    /// Notes `count` replies that will come from `source`. Returns the number of their way.
    #[inline]
    fn owe(&mut self, source: Source, count: u32) -> u32 {
        let hint = source.hint();
        let way = if self.ways[hint as usize].source == source { hint } else { self.way(source) };
        self.ways[way as usize].owed += count;
        way
    }

    #[inline]
    pub(super) fn expect(&mut self, source: Source, count: u32) -> u32 {
        let way = self.owe(source, count);
        self.places.push_back(Place::Way(way));
        for _ in 1..count {
            self.places.push_back(Place::Way(way));
        }
        way
    }

    /// The way of a source that is not on the one of its hint.
    #[cold]
    fn way(&mut self, source: Source) -> u32 {
        if let Some(way) = self.ways.iter().position(|way| way.source == source) {
            return way as u32;
        }
        let hint = source.hint();
        let unused = if self.ways[hint as usize].is_unused() {
            Some(hint as usize)
        } else {
            self.ways.iter().position(Way::is_unused)
        };
        let way = unused.unwrap_or_else(|| {
            self.is_large = true;
            self.ways.push(Way::default());
            self.ways.len() - 1
        });
        self.ways[way].source = source;
        way as u32
    }

    pub(super) fn reserve(&mut self) -> u32 {
        let place = self.next_place();
        self.places.push_back(Place::Open);
        place
    }

    #[inline]
    pub(super) fn arrived(&mut self, way: u32, ends: &[usize], bytes: &[u8]) {
        let way = &mut self.ways[way as usize];
        way.owed -= ends.len() as u32;
        way.replies.push(bytes, ends);
        self.held += bytes.len();
        self.is_large |= way.replies.bytes.capacity() > KEEP_BYTES;
    }

    pub(super) fn part(&mut self, way: u32, bytes: &[u8], output: &mut Outgoing) {
        self.advance(output);
        let replies = &mut self.ways[way as usize].replies;
        if self.places.front() == Some(&Place::Way(way)) {
            debug_assert!(replies.is_empty());
            output.push(bytes);
        } else {
            replies.push(bytes, &[]);
            self.held += bytes.len();
            self.is_large = true;
        }
    }

    /// See [`crate::downstream::order::Order::hole`].
    pub(super) fn hole(&mut self, way: u32) -> u32 {
        let Some(index) = self.next_of(way) else {
            debug_assert!(false, "a reply to a request that was answered");
            return self.first.wrapping_sub(1);
        };
        self.places[index] = Place::Open;
        self.ways[way as usize].owed -= 1;
        self.first.wrapping_add(index as u32)
    }

    /// See [`crate::downstream::order::Order::cut`].
    pub(super) fn cut(&mut self, way: u32) -> bool {
        let index = self.next_of(way);
        debug_assert!(index.is_some(), "a part of a reply to a request that was answered");
        let Way { owed, replies, .. } = &mut self.ways[way as usize];
        if index == Some(0) {
            // A reply whose turn it is goes to the output piece by piece.
            self.places[0] = Place::Cut;
            *owed -= 1;
            return true;
        }
        self.held -= replies.forget_part();
        false
    }

    #[inline]
    pub(super) fn is_cut(&self) -> bool {
        self.places.front() == Some(&Place::Cut)
    }

    /// See [`crate::downstream::order::Order::places_of`].
    pub(super) fn places_of(&self, way: u32) -> impl Iterator<Item = u32> {
        self.owed_places(way).map(|index| self.first.wrapping_add(index as u32))
    }

    /// See [`crate::downstream::order::Order::is_next`].
    pub(super) fn is_next(&self, number: u32) -> bool {
        number == self.first && !self.places.is_empty()
    }

    /// The index of the place of the next reply that comes on a way.
    fn next_of(&self, way: u32) -> Option<usize> {
        self.owed_places(way).next()
    }

    /// The indices of the places of all replies that are still to come on a way.
    fn owed_places(&self, way: u32) -> impl Iterator<Item = usize> {
        let arrived = self.ways.get(way as usize).map_or(0, |way| way.replies.len());
        let of_way = move |(_, place): &(usize, &Place)| **place == Place::Way(way);
        self.places.iter().enumerate().filter(of_way).skip(arrived).map(|(index, _)| index)
    }

    /// Gives the reply of a place. False if the place waits for none.
    pub(super) fn fill(&mut self, number: u32, reply: impl FnOnce() -> Filled) -> bool {
        let index = number.wrapping_sub(self.first) as usize;
        let Some(Place::Open) = self.places.get(index) else { return false };
        self.places[index] = self.hold(reply());
        true
    }

    /// Holds a reply that came on no way. Returns its place.
    fn hold(&mut self, reply: Filled) -> Place {
        self.held += reply.len();
        if let Filled::Lent(_) = reply {
            self.lent += reply.len();
        }
        Place::Filled(self.filled.insert(reply) as u32)
    }

    pub(super) fn local_lent(&mut self, lent: Lent) {
        let place = self.hold(Filled::Lent(lent));
        self.places.push_back(place);
    }

    pub(super) fn local(&mut self, bytes: &[u8]) {
        self.places.push_back(Place::Local);
        self.local.push(bytes, &[bytes.len()]);
        self.held += bytes.len();
        self.is_large |= self.local.bytes.capacity() > KEEP_BYTES;
    }

    /// Moves the replies whose turn it is to the output.
    pub(super) fn advance(&mut self, output: &mut Outgoing) {
        let Self { places, first, ways, local, filled, held, lent, .. } = self;
        let before = output.len();
        let mut told = 0;
        for place in &*places {
            match *place {
                Place::Way(way) => {
                    let replies = &mut ways[way as usize].replies;
                    let Some((start, end)) = replies.pop_span() else {
                        output.push(replies.pop_part());
                        break;
                    };
                    output.push_from(&replies.bytes, start..end);
                }
                Place::Local => output.push(local.pop().unwrap_or_default()),
                Place::Open | Place::Cut => break,
                Place::Filled(at) => match filled.remove(at as usize) {
                    Filled::Copied(bytes) => output.push(&bytes),
                    Filled::Lent(reply) => {
                        *lent -= reply.as_ref().len();
                        output.push_block(Box::new(reply));
                    }
                },
            }
            told += 1;
        }
        places.drain(..told);
        *first = first.wrapping_add(told as u32);
        *held -= output.len() - before;
        self.is_large |= self.places.capacity() > 1024;
    }

    /// Whether replies are so large that copying them costs more than writing them in pieces.
    #[inline]
    pub(super) fn is_heavy(&self) -> bool {
        self.held >= FAST_PATH_BYTES * self.places.len()
    }

    /// Writes the replies whose turn it is from where they lie, up to the first that came on no way.
    /// `output`, which is empty before, gets what the socket does not take.
    pub(super) fn write(&mut self, to: &mut impl Write, output: &mut Outgoing) -> io::Result<()> {
        debug_assert!(output.is_empty());
        while output.is_empty() {
            let mut spans = [Span::default(); SLICES];
            let count = self.pop_spans(&mut spans);
            let spans = &spans[..count];
            if spans.is_empty() {
                break;
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            for (slice, span) in slices.iter_mut().zip(spans) {
                *slice = IoSlice::new(self.bytes(*span));
            }
            let slices = &slices[..count];
            if slices.iter().all(|slice| slice.is_empty()) {
                continue;
            }
            let mut written = loop {
                let written = match slices {
                    [only] => to.write(only),
                    _ => to.write_vectored(slices),
                };
                match written {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => break written,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break 0,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            };
            for slice in slices {
                let sent = written.min(slice.len());
                written -= sent;
                output.push(&slice[sent..]);
            }
        }
        Ok(())
    }

    /// Removes the places of replies whose turn it is. Their bytes stay on their ways until more come.
    fn pop_spans(&mut self, spans: &mut [Span]) -> usize {
        let Self { places, first, ways, local, held, .. } = self;
        let mut count = 0;
        while let Some(place) = places.front() {
            let (way, replies) = match *place {
                Place::Way(way) => (Some(way), &mut ways[way as usize].replies),
                Place::Local => (None, &mut *local),
                Place::Open | Place::Filled(_) | Place::Cut => break,
            };
            let follows =
                count > 0 && spans[count - 1].way == way && spans[count - 1].end == replies.told;
            if !follows && count == spans.len() {
                break;
            }
            let Some((start, end)) = replies.pop_span() else { break };
            if follows {
                spans[count - 1].end = end;
            } else {
                spans[count] = Span { way, start, end };
                count += 1;
            }
            *held -= end - start;
            places.pop_front();
            *first = first.wrapping_add(1);
        }
        count
    }

    fn bytes(&self, span: Span) -> &[u8] {
        let replies = span.way.map_or(&self.local, |way| &self.ways[way as usize].replies);
        &replies.bytes[span.start..span.end]
    }

    /// How much memory the buffers take.
    #[cfg(test)]
    pub(super) fn buffer_bytes(&self) -> usize {
        let ways = self.ways.iter().map(|way| &way.replies);
        ways.chain([&self.local]).map(|replies| replies.bytes.capacity()).sum()
    }
}
