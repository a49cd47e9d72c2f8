//! The order of replies: a client gets them in the order of its requests, whichever link each of
//! them comes from.
//!
//! Called by: `clients`, for everything that a client is sent.
//! While all requests of a client go to one link (a [`Source`]), that link's own order is enough:
//! replies are counted, and written as they come. When a second link, or a reply that is made here,
//! joins in, each outstanding reply gets a place in a [`Spread`], which holds the replies that come
//! before their turn. A *way* is the queue of one source within a spread.
//! Bound: held replies count towards `limits.max_output_bytes`; there are at most as many places as
//! unanswered requests, and replies made here behind those.
//! Invariant: `outstanding` is the number of replies that have not come. Without a spread they all
//! come from `source`, and every reply that came is in the output already. With a spread,
//! [`Order::write`] moves the replies whose turn it is to the output, and drops the spread when
//! nothing is left in it.

mod spread;

use std::io::{self, Write};

use heatsink_upstream::outgoing::Outgoing;

use crate::downstream::connection::BufferPool;
use crate::downstream::order::spread::Filled;
pub(crate) use crate::downstream::order::spread::Spread;
use crate::downstream::shared_reply::Lent;

/// The link that replies come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source(pub(crate) u64);

impl Source {
    /// Ways that every spread has from the beginning.
    const HINTS: usize = 8;

    /// The way for this source, unless another source already uses that one.
    #[inline]
    fn hint(self) -> u32 {
        self.0 as u32 % Self::HINTS as u32
    }
}

/// The order of one client's replies.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The places of all outstanding replies, unless all of them come from `source`.
    spread: Option<Box<Spread>>,
    /// Without a spread: the link that all outstanding replies come from.
    source: Source,
    /// Requests that are not answered yet.
    outstanding: u32,
    /// Requests so far, and requests so far at the end of the current burst; both may wrap around.
    asked: u32,
    burst: u32,
    /// The number of the first place of the next spread. Numbers go on from one spread to the next, so
    /// that a late second answer to a request never lands in the place of another request.
    next_place: u32,
}

impl Order {
    /// Requests that are not answered yet.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Requests so far, answered or not; wraps around.
    pub(crate) fn asked(&self) -> u32 {
        self.asked
    }

    /// Bytes of replies that wait for their turn.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.spread.as_ref().map_or(0, |spread| spread.held_bytes())
    }

    /// Notes `count` requests that go to `source`. Returns the number of the way that their replies
    /// come.
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

    /// Appends a place whose reply is given by [`Self::fill`]. Returns the number of the place.
    pub(crate) fn reserve(&mut self, buffers: &mut BufferPool) -> u32 {
        let place = self.spread(buffers).reserve();
        self.outstanding += 1;
        self.asked = self.asked.wrapping_add(1);
        place
    }

    /// Ends the current burst: [`Self::is_within_burst`] waits for nothing more of it.
    pub(crate) fn end_burst(&mut self) {
        self.burst = self.asked.wrapping_sub(self.outstanding);
    }

    /// Whether replies of the current burst of requests are still to come. If not, the next burst
    /// begins: the requests that came meanwhile.
    #[inline]
    pub(crate) fn is_within_burst(&mut self) -> bool {
        let answered = self.asked.wrapping_sub(self.outstanding);
        if (self.burst.wrapping_sub(answered) as i32) > 0 {
            return true;
        }
        self.burst = self.asked;
        false
    }

    /// The spread, which is begun with all outstanding replies if there is none.
    fn spread(&mut self, buffers: &mut BufferPool) -> &mut Spread {
        let Self { spread, source, outstanding, next_place, .. } = self;
        spread.get_or_insert_with(|| {
            let mut spread = buffers.spreads.pop().unwrap_or_default();
            spread.begin(*source, *outstanding, *next_place);
            spread
        })
    }

    /// Moves the replies whose turn it is to the output, and drops the spread when nothing is left in it.
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

    /// Takes whole replies; `ends` says where each of them ends in `bytes`.
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

    /// Takes a piece of a reply that is not complete yet.
    pub(crate) fn part(&mut self, way: u32, bytes: &[u8], output: &mut Outgoing) {
        match &mut self.spread {
            None => output.push(bytes),
            Some(spread) => spread.part(way, bytes, output),
        }
    }

    /// Makes a hole of the next reply of a way: its request is sent elsewhere, and [`Self::fill`] gives
    /// the reply. Returns the number of its place.
    pub(crate) fn hole(&mut self, way: u32, buffers: &mut BufferPool) -> u32 {
        self.spread(buffers).hole(way)
    }

    /// The numbers of the places of all replies that are still to come on a way; none without a
    /// spread.
    pub(crate) fn places_of(&self, way: u32) -> impl Iterator<Item = u32> {
        self.spread.iter().flat_map(move |spread| spread.places_of(way))
    }

    /// Whether every reply before a place is in the output.
    pub(crate) fn is_next(&self, place: u32) -> bool {
        self.spread.as_ref().is_some_and(|spread| spread.is_next(place))
    }

    /// The next reply of a way is lost after a part of it came. True if some of that part is in the
    /// output: then no reply behind it is ever sent. Otherwise the part is forgotten, and the place
    /// waits for another reply.
    #[must_use]
    pub(crate) fn cut(&mut self, way: u32, buffers: &mut BufferPool) -> bool {
        let is_told = self.spread(buffers).cut(way);
        self.outstanding -= u32::from(is_told);
        is_told
    }

    /// Whether the next place is that of a reply that was cut short, so that nothing more is ever sent.
    pub(crate) fn is_cut(&self) -> bool {
        self.spread.as_ref().is_some_and(|spread| spread.is_cut())
    }

    /// Gives the reply of a place that was reserved, or is a hole.
    pub(crate) fn fill(&mut self, place: u32, bytes: &[u8]) {
        self.fill_with(place, || Filled::Copied(bytes.to_vec()));
    }

    /// Like [`Self::fill`], with bytes that other clients are sent as well.
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

    /// Appends bytes that are made here, behind the replies to all requests so far.
    #[inline]
    pub(crate) fn local(&mut self, bytes: &[u8], output: &mut Outgoing, buffers: &mut BufferPool) {
        if self.outstanding == 0 && self.spread.is_none() {
            output.push(bytes);
        } else {
            self.spread(buffers).local(bytes);
        }
    }

    /// Like [`Self::local`], with bytes that other clients are sent as well.
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

    /// Bytes that wait for their turn. Those that several clients hold are divided by their number.
    pub(crate) fn share(&self) -> usize {
        self.spread.as_ref().map_or(0, |spread| spread.share())
    }
}

#[cfg(test)]
mod tests;
