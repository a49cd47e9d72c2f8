//! The order of replies: each client gets them in the order of its requests, wherever they
//! come from.
//!
//! Called by: `clients`, for everything that a client is told.
//! A run of requests that went the same way is a *segment*; the replies of the first segment
//! pass straight through, those of later ones are held until their turn. A client whose
//! requests all go one way has no segments at all, and nothing is held.
//! Bound: what is held counts towards `limits.max_output_bytes`; the number of segments is at
//! most that of unanswered requests and of answers made here behind them.
//! Invariant: `outstanding` is the sum of what the segments are owed, holes included; without
//! segments, all of it belongs to the segment numbered `tail`.

use std::collections::VecDeque;

use heatsink_upstream::outgoing::Outgoing;

use crate::connection::BufferPool;

/// Where replies come from: a link, or something that will answer once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source(pub(crate) u64);

impl Source {
    /// Never the same as another: a segment of its own.
    pub(crate) const ONCE: Self = Self(u64::MAX);
}

/// The order of one client's replies.
#[derive(Debug, Default)]
pub(crate) struct Order {
    segments: VecDeque<Segment>,
    /// The number of the last segment.
    tail: u32,
    /// Where the last segment's replies come from.
    source: Source,
    /// Requests that are not answered yet.
    outstanding: u32,
    /// Requests so far, and so far when the last burst began; both may wrap around.
    asked: u32,
    burst: u32,
    /// Bytes that wait for their turn.
    held: usize,
    next_hole: u32,
}

/// Replies of requests that went the same way one after another.
#[derive(Debug, Default)]
struct Segment {
    /// Replies that are still to come the usual way.
    owed: u32,
    /// What has come and could not be passed on, up to the first hole.
    ready: Vec<u8>,
    /// What is from there on.
    rest: VecDeque<Piece>,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    /// A reply that was sent for elsewhere.
    Hole(u32),
}

impl Segment {
    fn owing(owed: u32) -> Self {
        Self { owed, ..Self::default() }
    }

    fn is_clear(&self) -> bool {
        self.ready.is_empty() && self.rest.is_empty()
    }

    fn append(&mut self, bytes: &[u8], pool: &mut BufferPool) {
        match self.rest.back_mut() {
            Some(Piece::Bytes(last)) => last.extend_from_slice(bytes),
            Some(Piece::Hole(_)) => self.rest.push_back(Piece::Bytes(bytes.to_vec())),
            None => {
                if self.ready.capacity() == 0 {
                    self.ready = pool.take();
                }
                self.ready.extend_from_slice(bytes);
            }
        }
    }

    /// Passes on what comes before the first hole; true if nothing more will come.
    fn drain(&mut self, held: &mut usize, output: &mut Outgoing, pool: &mut BufferPool) -> bool {
        if self.ready.capacity() > 0 {
            *held -= self.ready.len();
            output.push(&self.ready);
            pool.give(std::mem::take(&mut self.ready));
        }
        while let Some(Piece::Bytes(bytes)) = self.rest.front() {
            *held -= bytes.len();
            output.push(bytes);
            self.rest.pop_front();
        }
        self.owed == 0 && self.rest.is_empty()
    }
}

impl Order {
    /// Requests that are not answered yet.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Bytes that wait for their turn.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held
    }

    /// `count` requests go to `source`; the number their replies are to come with.
    #[inline]
    pub(crate) fn expect(&mut self, source: Source, count: u32) -> u32 {
        if self.outstanding == 0 && self.segments.is_empty() {
            self.tail = self.tail.wrapping_add(1);
        } else if self.source == source && source != Source::ONCE {
            if let Some(last) = self.segments.back_mut() {
                last.owed += count;
            }
        } else {
            self.materialise();
            self.segments.push_back(Segment::owing(count));
            self.tail = self.tail.wrapping_add(1);
        }
        self.source = source;
        self.outstanding += count;
        self.asked = self.asked.wrapping_add(count);
        self.tail
    }

    /// Nothing more of the burst under way is waited for.
    pub(crate) fn end_burst(&mut self) {
        self.burst = self.asked.wrapping_sub(self.outstanding);
    }

    /// As many replies are still to come as belong to the burst of requests under way. What
    /// was asked meanwhile is the next burst.
    #[inline]
    pub(crate) fn is_within_burst(&mut self) -> bool {
        let answered = self.asked.wrapping_sub(self.outstanding);
        if (self.burst.wrapping_sub(answered) as i32) > 0 {
            return true;
        }
        self.burst = self.asked;
        false
    }

    /// Makes the segment that everything outstanding belongs to visible.
    fn materialise(&mut self) {
        if self.segments.is_empty() {
            self.segments.push_back(Segment::owing(self.outstanding));
        }
    }

    /// `count` replies have come, to their last byte.
    #[inline]
    pub(crate) fn arrived(
        &mut self,
        seq: u32,
        count: u32,
        bytes: &[u8],
        output: &mut Outgoing,
        pool: &mut BufferPool,
    ) {
        self.outstanding -= count;
        if self.segments.is_empty() {
            output.push(bytes);
        } else {
            self.place(seq, count, bytes, output, pool);
        }
    }

    /// A piece of a reply has come that is not complete yet.
    pub(crate) fn part(
        &mut self,
        seq: u32,
        bytes: &[u8],
        output: &mut Outgoing,
        pool: &mut BufferPool,
    ) {
        if self.segments.is_empty() {
            output.push(bytes);
        } else {
            self.place(seq, 0, bytes, output, pool);
        }
    }

    fn index(&self, seq: u32) -> usize {
        let first = self.tail.wrapping_sub(self.segments.len() as u32 - 1);
        seq.wrapping_sub(first) as usize
    }

    fn place(
        &mut self,
        seq: u32,
        count: u32,
        bytes: &[u8],
        output: &mut Outgoing,
        pool: &mut BufferPool,
    ) {
        let index = self.index(seq);
        let Some(segment) = self.segments.get_mut(index) else {
            debug_assert!(false, "a reply to a request that was answered");
            return;
        };
        segment.owed -= count;
        if index == 0 && segment.is_clear() {
            output.push(bytes);
        } else {
            self.held += bytes.len();
            segment.append(bytes, pool);
        }
        if index == 0 {
            self.advance(output, pool);
        }
    }

    /// Passes on whatever has its turn now.
    fn advance(&mut self, output: &mut Outgoing, pool: &mut BufferPool) {
        while let Some(first) = self.segments.front_mut() {
            if !first.drain(&mut self.held, output, pool) {
                break;
            }
            self.segments.pop_front();
        }
        // The last one needs no record, unless something of it is missing in the middle.
        if self.segments.len() == 1 && self.segments[0].is_clear() {
            self.segments.clear();
        }
    }

    /// The next reply of segment `seq` is sent for elsewhere; [`Self::fill`] brings it.
    pub(crate) fn hole(&mut self, seq: u32) -> u32 {
        self.materialise();
        let index = self.index(seq);
        let hole = self.next_hole;
        self.next_hole = self.next_hole.wrapping_add(1);
        let segment = &mut self.segments[index];
        segment.owed -= 1;
        segment.rest.push_back(Piece::Hole(hole));
        hole
    }

    /// The reply that was sent for elsewhere.
    pub(crate) fn fill(
        &mut self,
        seq: u32,
        hole: u32,
        bytes: &[u8],
        output: &mut Outgoing,
        pool: &mut BufferPool,
    ) {
        let index = self.index(seq);
        let Some(segment) = self.segments.get_mut(index) else { return };
        let mut pieces = segment.rest.iter_mut();
        let Some(piece) = pieces.find(|piece| **piece == Piece::Hole(hole)) else { return };
        *piece = Piece::Bytes(bytes.to_vec());
        self.held += bytes.len();
        self.outstanding -= 1;
        if index == 0 {
            self.advance(output, pool);
        }
    }

    /// Bytes of our own, behind the replies to all requests so far.
    #[inline]
    pub(crate) fn local(&mut self, bytes: &[u8], output: &mut Outgoing, pool: &mut BufferPool) {
        if self.outstanding == 0 && self.segments.is_empty() {
            output.push(bytes);
            return;
        }
        self.materialise();
        let answered = self.segments.back().is_some_and(|last| last.owed == 0);
        if !answered || self.source != Source::ONCE {
            self.segments.push_back(Segment::default());
            self.tail = self.tail.wrapping_add(1);
            self.source = Source::ONCE;
        }
        self.held += bytes.len();
        if let Some(last) = self.segments.back_mut() {
            last.append(bytes, pool);
        }
    }
}

#[cfg(test)]
mod tests;
