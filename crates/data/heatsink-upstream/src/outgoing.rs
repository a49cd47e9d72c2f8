//! Bytes on their way to a socket that may not take them all at once.
//!
//! Called by: links for requests, unless they are kept (see `unanswered`), the proxy's
//! connections for replies.
//! Small pieces are copied into one buffer. A large reply that goes to several clients is queued as
//! a [`Block`], which all of them share.
//! Bound: none of its own; whoever pushes looks at [`Outgoing::len`] first.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::{self, Write};
use std::ops::Range;

/// Buffers larger than this are given back once they have been sent.
const KEEP_BYTES: usize = 256 << 10;
/// What is copied in one piece of this length, if it is not longer.
const SHORT_BYTES: usize = 64;

/// Appends a part of `from`.
///
/// Most parts are short. Then a copy of fixed length, of which the end is cut off again, takes a
/// fraction of the time of a call that copies a few bytes.
#[expect(clippy::inline_always, reason = "a call is what it is to spare")]
#[inline(always)]
pub(crate) fn append(to: &mut Vec<u8>, from: &[u8], range: Range<usize>) {
    let end = to.len() + range.len();
    match from[range.start..].first_chunk::<SHORT_BYTES>() {
        Some(block) if range.len() <= SHORT_BYTES => {
            to.extend_from_slice(block);
            to.truncate(end);
        }
        _ => to.extend_from_slice(&from[range]),
    }
}

/// Bytes that are queued without being copied; dropped once they are sent.
pub trait Block: AsRef<[u8]> + Debug {
    /// What this holder of the bytes answers for: their number, divided by that of the holders.
    fn share(&self) -> usize;
}

/// Bytes waiting to be written, oldest first.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// What goes out before `bytes`, oldest first. Empty unless a block is queued.
    segments: VecDeque<Segment>,
    /// Bytes of the segments that are not sent yet.
    segment_bytes: usize,
    /// Those of them that are in blocks.
    block_bytes: usize,
    bytes: Vec<u8>,
    /// How many of `bytes` are sent.
    sent: usize,
}

/// A block, or the bytes that were copied between two of them.
#[derive(Debug)]
struct Segment {
    content: Content,
    sent: usize,
}

#[derive(Debug)]
enum Content {
    Copied(Vec<u8>),
    Block(Box<dyn Block>),
}

impl Segment {
    fn unsent(&self) -> &[u8] {
        match &self.content {
            Content::Copied(bytes) => &bytes[self.sent..],
            Content::Block(block) => &(**block).as_ref()[self.sent..],
        }
    }
}

impl Outgoing {
    /// Bytes not yet taken by the socket.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent + self.segment_bytes
    }

    /// How many of them were copied here: those of blocks are not counted.
    #[inline]
    pub fn copied_len(&self) -> usize {
        self.len() - self.block_bytes
    }

    /// The same, with its share of the blocks.
    pub fn share(&self) -> usize {
        let blocks = self.segments.iter().filter_map(|segment| match &segment.content {
            Content::Copied(_) => None,
            Content::Block(block) => Some(block.share()),
        });
        self.copied_len() + blocks.sum::<usize>()
    }

    /// True if everything was taken.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if there is no buffer behind it yet; [`Self::adopt`] can give it one.
    #[inline]
    pub fn is_unbacked(&self) -> bool {
        self.bytes.capacity() == 0
    }

    /// Uses `buffer` from now on.
    pub fn adopt(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.bytes.is_empty() && buffer.is_empty());
        self.bytes = buffer;
    }

    /// Gives the buffer away, if nothing is in it.
    pub fn release(&mut self) -> Option<Vec<u8>> {
        (self.bytes.is_empty() && !self.is_unbacked()).then(|| std::mem::take(&mut self.bytes))
    }

    /// Queues bytes.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Queues a part of `bytes`.
    #[inline]
    pub fn push_from(&mut self, bytes: &[u8], range: Range<usize>) {
        append(&mut self.bytes, bytes, range);
    }

    /// Takes out everything; nothing of it was sent.
    pub fn take(&mut self) -> Vec<u8> {
        debug_assert_eq!(self.sent, 0);
        std::mem::take(&mut self.bytes)
    }

    /// Forgets what was not sent: nobody is there to read it.
    pub fn discard(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES);
        self.sent = 0;
        self.segments = VecDeque::new();
        self.segment_bytes = 0;
        self.block_bytes = 0;
    }

    /// Queues a block behind everything so far.
    pub fn push_block(&mut self, block: Box<dyn Block>) {
        if self.bytes.len() > self.sent {
            let bytes = std::mem::take(&mut self.bytes);
            let sent = std::mem::take(&mut self.sent);
            self.segment_bytes += bytes.len() - sent;
            self.segments.push_back(Segment { content: Content::Copied(bytes), sent });
        }
        let len = (*block).as_ref().len();
        self.segment_bytes += len;
        self.block_bytes += len;
        self.segments.push_back(Segment { content: Content::Block(block), sent: 0 });
    }

    /// Writes segments until all are sent or the socket takes no more; true if all are.
    #[cold]
    fn flush_segments(&mut self, to: &mut impl Write) -> io::Result<bool> {
        while let Some(segment) = self.segments.front_mut() {
            let unsent = segment.unsent();
            if unsent.is_empty() {
                self.segments.pop_front();
                continue;
            }
            match to.write(unsent) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    segment.sent += count;
                    self.segment_bytes -= count;
                    if matches!(segment.content, Content::Block(_)) {
                        self.block_bytes -= count;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.segments = VecDeque::new();
        Ok(true)
    }

    /// Writes until everything is sent or the socket takes no more.
    #[inline]
    pub fn flush(&mut self, to: &mut impl Write) -> io::Result<()> {
        if !self.segments.is_empty() && !self.flush_segments(to)? {
            return Ok(());
        }
        while self.sent < self.bytes.len() {
            match to.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Moved only when half of it is gone, so each byte is moved once at most.
                    if self.sent > KEEP_BYTES && self.sent >= self.bytes.len() / 2 {
                        self.bytes.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        if self.bytes.capacity() > KEEP_BYTES {
            self.bytes = Vec::new();
        } else {
            self.bytes.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `room` bytes, then none.
    struct Narrow {
        room: usize,
        taken: Vec<u8>,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.room);
            self.room -= count;
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_byte_arrives_once_and_in_order() {
        let mut outgoing = Outgoing::default();
        let mut to = Narrow { room: 0, taken: Vec::new() };
        let mut expected = Vec::new();
        for round in 0..200_u32 {
            let piece: Vec<u8> = (0..9000_u32).flat_map(|i| (i * round).to_le_bytes()).collect();
            outgoing.push(&piece);
            expected.extend_from_slice(&piece);
            to.room = 20_000;
            outgoing.flush(&mut to).unwrap();
            assert_eq!(outgoing.len() + to.taken.len(), expected.len());
        }
        to.room = usize::MAX;
        outgoing.flush(&mut to).unwrap();
        assert!(outgoing.is_empty());
        assert!(to.taken == expected);
    }

    #[derive(Debug)]
    struct Shared(std::rc::Rc<[u8]>);

    impl AsRef<[u8]> for Shared {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Block for Shared {
        fn share(&self) -> usize {
            self.0.len() / std::rc::Rc::strong_count(&self.0)
        }
    }

    #[test]
    fn blocks_are_sent_in_their_turn_and_dropped_when_sent() {
        let block: std::rc::Rc<[u8]> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut outgoing = Outgoing::default();
        let mut expected = Vec::new();
        for round in 0..5_u8 {
            if round != 1 {
                // Nothing between the first block and the second.
                outgoing.push(&[round; 10]);
                expected.extend_from_slice(&[round; 10]);
            }
            outgoing.push_block(Box::new(Shared(std::rc::Rc::clone(&block))));
            expected.extend_from_slice(&block);
            assert_eq!(outgoing.len(), expected.len());
        }
        outgoing.push(b"end");
        expected.extend_from_slice(b"end");
        assert_eq!(outgoing.copied_len(), 43);
        // Five in here, and one outside.
        assert_eq!(outgoing.share(), 43 + 5 * (block.len() / 6));
        let mut to = Narrow { room: 0, taken: Vec::new() };
        while !outgoing.is_empty() {
            to.room = 77_777;
            outgoing.flush(&mut to).unwrap();
            assert_eq!(outgoing.len() + to.taken.len(), expected.len());
            if outgoing.is_unbacked() {
                outgoing.adopt(Vec::new());
            }
        }
        assert!(to.taken == expected);
        assert_eq!(outgoing.copied_len(), 0);
        assert_eq!(std::rc::Rc::strong_count(&block), 1);
    }

    #[test]
    fn an_emptied_buffer_can_be_handed_on() {
        let mut outgoing = Outgoing::default();
        assert!(outgoing.is_unbacked() && outgoing.release().is_none());
        outgoing.adopt(Vec::with_capacity(100));
        outgoing.push(b"x");
        assert!(outgoing.release().is_none());
        outgoing.flush(&mut Vec::new()).unwrap();
        assert_eq!(outgoing.release().map(|b| b.capacity()), Some(100));
        assert!(outgoing.is_unbacked());
    }
}
