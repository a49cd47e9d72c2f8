//! Bytes on their way to a socket that may not take them all at once.
//!
//! Called by: links for requests, unless they are kept (see `unanswered`), the proxy's
//! connections for replies.
//! Bound: none of its own; whoever pushes looks at [`Outgoing::len`] first.

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

/// Bytes waiting to be written, oldest first.
#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    /// Bytes not yet taken by the socket.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
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
        debug_assert!(self.is_empty() && buffer.is_empty());
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

    /// Forgets what was not sent: nobody is there to read it.
    pub fn discard(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES);
        self.sent = 0;
    }

    /// Writes until everything is sent or the socket takes no more.
    #[inline]
    pub fn flush(&mut self, to: &mut impl Write) -> io::Result<()> {
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
