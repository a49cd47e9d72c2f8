//! Requests on their way to a socket that are kept until they are answered, because they may
//! have to be sent again elsewhere.
//!
//! Called by: links to the nodes of a cluster.
//! They lie in blocks, none in two of them, so that none is ever moved: what is answered is
//! given up a block at a time.
//! Bound: none of its own; whoever pushes looks at [`Unanswered::len`] and
//! [`Unanswered::kept_bytes`] first. Beside what is kept, one block is garbage at most and
//! [`SPARE_BLOCKS`] are spare.
//! Invariant: only what was sent is forgotten; unless nothing is kept, the first block holds the
//! oldest request.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::ops::Range;

use crate::outgoing::append;

/// A block takes requests up to this size, or a single one that is larger.
const BLOCK_BYTES: usize = 32 << 10;
/// So many empty blocks wait for the next request.
const SPARE_BLOCKS: usize = 4;
/// So many blocks are written at once.
const SLICES: usize = 8;

/// Requests that are not answered, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    blocks: VecDeque<Vec<u8>>,
    /// The length of each request.
    lengths: VecDeque<u32>,
    /// How much of the first block is forgotten.
    forgotten: usize,
    /// The block that is sent next, and how much of it was sent.
    sending: usize,
    sent: usize,
    unsent_bytes: usize,
    kept_bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Unanswered {
    /// Bytes not yet taken by the socket.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.unsent_bytes
    }

    /// Bytes that are kept, sent or not.
    #[inline]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Queues a request.
    #[inline]
    pub(crate) fn push(&mut self, from: &[u8], request: Range<usize>) {
        let full = |block: &Vec<u8>| block.len() + request.len() > BLOCK_BYTES;
        if self.blocks.back().is_none_or(full) {
            self.blocks.push_back(self.spare.pop().unwrap_or_default());
        }
        let len = request.len();
        if let Some(block) = self.blocks.back_mut() {
            append(block, from, request);
        }
        self.lengths.push_back(len as u32);
        self.unsent_bytes += len;
        self.kept_bytes += len;
    }

    /// The oldest request.
    pub(crate) fn front(&self) -> &[u8] {
        self.iter().next().unwrap_or_default()
    }

    /// Every request, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut blocks = self.blocks.iter();
        let mut rest = blocks.next().map_or(&[][..], |block| &block[self.forgotten..]);
        self.lengths.iter().map(move |len| {
            while rest.is_empty() && *len > 0 {
                let Some(block) = blocks.next() else { break };
                rest = block;
            }
            let request;
            (request, rest) = rest.split_at(*len as usize);
            request
        })
    }

    /// Forgets the oldest requests, which were sent.
    #[inline]
    pub(crate) fn forget(&mut self, count: usize) {
        let count = count.min(self.lengths.len());
        let bytes: usize = self.lengths.drain(..count).map(|len| len as usize).sum();
        self.forgotten += bytes;
        self.kept_bytes -= bytes;
        while let Some(block) = self.blocks.front_mut()
            && self.forgotten >= block.len()
        {
            self.forgotten -= block.len();
            match self.sending.checked_sub(1) {
                Some(sending) => self.sending = sending,
                None => self.sent = 0,
            }
            if let Some(block) = self.blocks.pop_front() {
                self.give_up(block);
            }
        }
    }

    fn give_up(&mut self, mut block: Vec<u8>) {
        if block.capacity() <= 2 * BLOCK_BYTES && self.spare.len() < SPARE_BLOCKS {
            block.clear();
            self.spare.push(block);
        }
    }

    /// Writes until everything is sent or the socket takes no more.
    pub(crate) fn flush(&mut self, to: &mut impl Write) -> io::Result<()> {
        while self.unsent_bytes > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            let mut from = self.sent;
            for block in self.blocks.range(self.sending..).take(SLICES) {
                slices[count] = IoSlice::new(&block[from..]);
                count += 1;
                from = 0;
            }
            let written = match &slices[..count] {
                [only] => to.write(only),
                slices => to.write_vectored(slices),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.note_sent(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn note_sent(&mut self, mut count: usize) {
        self.unsent_bytes -= count;
        // The last block stays the one that is sent next: more may come into it.
        while self.sending + 1 < self.blocks.len() {
            let rest = self.blocks[self.sending].len() - self.sent;
            if count < rest {
                break;
            }
            count -= rest;
            self.sending += 1;
            self.sent = 0;
        }
        self.sent += count;
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
            self.write_vectored(&[IoSlice::new(bytes)])
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let before = self.room;
            for slice in slices {
                let count = slice.len().min(self.room);
                self.room -= count;
                self.taken.extend_from_slice(&slice[..count]);
            }
            if before == self.room {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(before - self.room)
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn request(number: usize, len: usize) -> Vec<u8> {
        (0..len).map(|at| (number * 31 + at) as u8).collect()
    }

    /// Requests of every size, sent in pieces of every size, answered at any time.
    #[test]
    fn every_request_is_sent_once_and_kept_until_it_is_forgotten() {
        for seed in 0..20_u64 {
            let mut random = numbers(seed);
            let mut requests = Unanswered::default();
            let mut to = Narrow { room: 0, taken: Vec::new() };
            let mut all = Vec::new();
            let mut kept: VecDeque<Vec<u8>> = VecDeque::new();
            for number in 0..2000 {
                let len = match random() % 40 {
                    0 => random() % (3 * BLOCK_BYTES),
                    1..10 => 1 + random() % 5000,
                    _ => 1 + random() % 60,
                };
                let request = request(number, len);
                requests.push(&request, 0..len);
                all.extend_from_slice(&request);
                kept.push_back(request);
                if random().is_multiple_of(3) {
                    to.room = random() % 20_000;
                    requests.flush(&mut to).unwrap();
                    assert_eq!(requests.len() + to.taken.len(), all.len());
                }
                while random() % 5 < 3 {
                    let kept_bytes: usize = kept.iter().map(Vec::len).sum();
                    let first = kept.front().map_or(0, Vec::len);
                    if kept.is_empty() || kept_bytes - first < requests.len() {
                        break;
                    }
                    assert!(requests.front() == kept[0]);
                    // Two at a time, if both were sent.
                    let second = kept.get(1).map_or(usize::MAX, Vec::len);
                    let both = kept_bytes - first >= requests.len().saturating_add(second);
                    let count = if both { 2 } else { 1 };
                    requests.forget(count);
                    kept.drain(..count);
                }
                let kept_bytes: usize = kept.iter().map(Vec::len).sum();
                assert_eq!(requests.kept_bytes(), kept_bytes);
                if number.is_multiple_of(50) {
                    assert!(requests.iter().eq(kept.iter().map(Vec::as_slice)));
                }
                let held: usize = requests.blocks.iter().map(Vec::len).sum();
                let first = requests.blocks.front().map_or(0, Vec::len);
                assert!(
                    held - requests.kept_bytes() <= first && requests.spare.len() <= SPARE_BLOCKS
                );
            }
            to.room = usize::MAX;
            requests.flush(&mut to).unwrap();
            assert!(to.taken == all && requests.len() == 0);
            requests.forget(kept.len());
            assert_eq!((requests.kept_bytes(), requests.blocks.len()), (0, 0));
        }
    }

    /// Numbers that are the same in every run.
    fn numbers(seed: u64) -> impl FnMut() -> usize {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) as usize
        }
    }

    #[test]
    fn a_large_request_does_not_leave_a_large_block() {
        let mut requests = Unanswered::default();
        requests.push(&vec![0; 1 << 20], 0..1 << 20);
        requests.push(b"xyz", 1..2);
        requests.flush(&mut Vec::new()).unwrap();
        requests.forget(2);
        assert!(requests.spare.iter().all(|block| block.capacity() <= 2 * BLOCK_BYTES));
    }
}
