//! The order of replies: each client gets them in the order of its requests, wherever they
//! come from.
//!
//! Called by: `clients`, for everything that a client is told.
//! A client whose requests all go one way is only counted for: what comes passes straight
//! through. As soon as a second way, or an answer of our own, joins in, each reply has a place
//! in a [`Spread`], and what comes early is held there.
//! Bound: what is held counts towards `limits.max_output_bytes`; the number of places is at
//! most that of unanswered requests and of answers behind them.
//! Invariant: `outstanding` is the number of replies that are still to come; without a spread,
//! all of them come from one source, the way of its hint, and everything that has come has been
//! passed on. With one, what has its turn is passed on when the client is about to be written to
//! ([`Order::write`]), which ends a spread that has nothing more to tell.

mod spread;

use std::io::{self, Write};

use heatsink_upstream::outgoing::Outgoing;

use crate::downstream::connection::BufferPool;
use crate::downstream::order::spread::Filled;
pub(crate) use crate::downstream::order::spread::Spread;
use crate::downstream::shared_reply::Lent;

/// Where replies come from: a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source(pub(crate) u64);

impl Source {
    /// How many ways a client has at least.
    const HINTS: usize = 8;

    /// The way that replies from there come, unless others came that way before.
    #[inline]
    fn hint(self) -> u32 {
        self.0 as u32 % Self::HINTS as u32
    }
}

/// The order of one client's replies.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The places of everything outstanding, unless all of it comes one way.
    spread: Option<Box<Spread>>,
    /// Where everything outstanding comes from, without a spread.
    source: Source,
    /// Requests that are not answered yet.
    outstanding: u32,
    /// Requests so far, and so far when the last burst began; both may wrap around.
    asked: u32,
    burst: u32,
    /// The number of the first place of the next spread. The numbers go on from one spread to the
    /// next, so that a reply that comes a second time, late, is never put into another's place.
    next_place: u32,
}

impl Order {
    /// Requests that are not answered yet.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Requests so far, answered or not; begins again at zero some time.
    pub(crate) fn asked(&self) -> u32 {
        self.asked
    }

    /// Bytes that wait for their turn.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.spread.as_ref().map_or(0, |spread| spread.held_bytes())
    }

    /// `count` requests go to `source`; the number of the way that their replies come.
    #[inline]
    pub(crate) fn expect(&mut self, source: Source, count: u32, buffers: &mut BufferPool) -> u32 {
        let way = match &mut self.spread {
            Some(spread) => spread.expect(source, count),
            None if self.outstanding == 0 || self.source == source => {
                self.source = source;
                source.hint()
            }
            None => self.spread(buffers).expect(source, count),
        };
        self.outstanding += count;
        self.asked = self.asked.wrapping_add(count);
        way
    }

    /// Notes requests that go to several sources. `sources` has each source with its number of requests;
    /// `route` names the source of each request, in the client's order, by its index in `sources`. The
    /// numbers of the ways that the replies come are appended to `ways`, one for each source.
    #[inline]
    pub(crate) fn expect_from(
        &mut self,
        sources: &[(Source, u32)],
        route: impl ExactSizeIterator<Item = u32>,
        buffers: &mut BufferPool,
        ways: &mut Vec<u32>,
    ) {
        if let [(source, count)] = *sources {
            ways.push(self.expect(source, count, buffers));
            return;
        }
        let count = route.len() as u32;
        self.spread(buffers).expect_from(sources, route, ways);
        self.outstanding += count;
        self.asked = self.asked.wrapping_add(count);
    }

    /// A reply will come by itself; the number of its place, for [`Self::fill`].
    pub(crate) fn reserve(&mut self, buffers: &mut BufferPool) -> u32 {
        let place = self.spread(buffers).reserve();
        self.outstanding += 1;
        self.asked = self.asked.wrapping_add(1);
        place
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

    /// The places of everything outstanding.
    fn spread(&mut self, buffers: &mut BufferPool) -> &mut Spread {
        let Self { spread, source, outstanding, next_place, .. } = self;
        spread.get_or_insert_with(|| {
            let mut spread = buffers.spreads.pop().unwrap_or_default();
            spread.begin(*source, *outstanding, *next_place);
            spread
        })
    }

    /// Passes on what has its turn.
    #[inline]
    pub(crate) fn advance(&mut self, output: &mut Outgoing, buffers: &mut BufferPool) {
        if let Some(spread) = &mut self.spread {
            spread.advance(output);
            if let Some(spread) = self.spread.take_if(|spread| spread.is_over()) {
                debug_assert_eq!(self.outstanding, 0);
                self.next_place = spread.next_place();
                buffers.give_spread(spread);
            }
        }
    }

    /// Moves replies whose turn it is to the output. Large ones are written to the client right away, as
    /// far as it takes them; `to` is its socket, if that can take several buffers at once.
    #[inline]
    pub(crate) fn write(
        &mut self,
        to: Option<&mut impl Write>,
        output: &mut Outgoing,
        buffers: &mut BufferPool,
    ) -> io::Result<()> {
        if let Some(spread) = &mut self.spread
            && let Some(to) = to
            && output.is_empty()
            && spread.is_heavy()
        {
            spread.write(to, output)?;
        }
        self.advance(output, buffers);
        Ok(())
    }

    /// Replies have come to their last byte; `ends` tells where each ends in `bytes`.
    #[inline]
    pub(crate) fn arrived(
        &mut self,
        way: u32,
        ends: &[usize],
        bytes: &[u8],
        output: &mut Outgoing,
    ) {
        self.outstanding -= ends.len() as u32;
        match &mut self.spread {
            None => output.push(bytes),
            Some(spread) => spread.arrived(way, ends, bytes),
        }
    }

    /// A piece of a reply has come that is not complete yet.
    pub(crate) fn part(&mut self, way: u32, bytes: &[u8], output: &mut Outgoing) {
        match &mut self.spread {
            None => output.push(bytes),
            Some(spread) => spread.part(way, bytes, output),
        }
    }

    /// The next reply of a way is sent for elsewhere; the number of its place, for
    /// [`Self::fill`].
    pub(crate) fn hole(&mut self, way: u32, buffers: &mut BufferPool) -> u32 {
        self.spread(buffers).hole(way)
    }

    /// The numbers of the places of all replies that are still to come a way; known only while
    /// replies have places.
    pub(crate) fn places_of(&self, way: u32) -> impl Iterator<Item = u32> {
        self.spread.iter().flat_map(move |spread| spread.places_of(way))
    }

    /// Everything before a place has been told.
    pub(crate) fn is_next(&self, place: u32) -> bool {
        self.spread.as_ref().is_some_and(|spread| spread.is_next(place))
    }

    /// Only a part of the next reply of a way has come, and no more will. True if that was told, at
    /// least in part: then nothing behind it is ever told, whatever way that comes. Otherwise it is
    /// forgotten, and the reply is still waited for.
    #[must_use]
    pub(crate) fn cut(&mut self, way: u32, buffers: &mut BufferPool) -> bool {
        let is_told = self.spread(buffers).cut(way);
        self.outstanding -= u32::from(is_told);
        is_told
    }

    /// Everything has been told that is before a reply that was cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.spread.as_ref().is_some_and(|spread| spread.is_cut())
    }

    /// The reply of a place that no way leads to.
    pub(crate) fn fill(&mut self, place: u32, bytes: &[u8]) {
        self.fill_with(place, || Filled::Copied(bytes.to_vec()));
    }

    /// The reply of a place that no way leads to, with bytes that other clients are sent as well.
    pub(crate) fn fill_lent(&mut self, place: u32, lent: Lent) {
        self.fill_with(place, || Filled::Lent(lent));
    }

    fn fill_with(&mut self, place: u32, reply: impl FnOnce() -> Filled) {
        if let Some(spread) = &mut self.spread
            && spread.fill(place, reply)
        {
            self.outstanding -= 1;
        }
    }

    /// Bytes of our own, behind the replies to all requests so far.
    #[inline]
    pub(crate) fn local(&mut self, bytes: &[u8], output: &mut Outgoing, buffers: &mut BufferPool) {
        if self.outstanding == 0 && self.spread.is_none() {
            output.push(bytes);
        } else {
            self.spread(buffers).local(bytes);
        }
    }

    /// A reply that is made here, with bytes that other clients are sent as well.
    pub(crate) fn local_lent(
        &mut self,
        lent: Lent,
        output: &mut Outgoing,
        buffers: &mut BufferPool,
    ) {
        if self.outstanding == 0 && self.spread.is_none() {
            output.push_block(Box::new(lent));
        } else {
            self.spread(buffers).local_lent(lent);
        }
    }

    /// Bytes that wait for their turn and are held for this client alone.
    #[inline]
    pub(crate) fn copied_bytes(&self) -> usize {
        self.spread.as_ref().map_or(0, |spread| spread.copied_bytes())
    }

    /// Bytes that wait for their turn, those held together with other clients divided by their number.
    pub(crate) fn share(&self) -> usize {
        self.spread.as_ref().map_or(0, |spread| spread.share())
    }
}

#[cfg(test)]
mod tests;
