//! Connection: the store's end of one socket pair, or of a connection from outside.
//!
//! Called by: the event loop in `server`.
//! Bound: `outgoing` holds what was taken from the engine at once; no more is taken before
//! that is written.
//! Invariant: readiness is edge triggered, so both directions go on until the kernel refuses.

use std::io::{ErrorKind, Read, Write};

use super::stream::Stream;

/// Output buffers larger than this are given back once written.
const KEPT_OUTPUT_BYTES: usize = 16 * 1024;

/// Buffers read from one connection before others have a turn.
const READS_PER_TURN: usize = 16;

/// How far reading or writing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Everything there is.
    Done,
    /// The kernel takes no more for now.
    Blocked,
    /// There may be more, but others have a turn first.
    Unfinished,
    /// The other end is gone.
    Closed,
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    outgoing: Vec<u8>,
    sent: usize,
    /// Of a store with a pace: replies that are still held back, and those that may go.
    pub(super) held_count: usize,
    pub(super) released: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, outgoing: Vec::new(), sent: 0, held_count: 0, released: Vec::new() }
    }

    pub(super) fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Reads what has come and passes it on. After a short read there is nothing left but,
    /// where the other end `is_closed`, the end itself.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        is_closed: bool,
        mut on_bytes: impl FnMut(&[u8]),
    ) -> Progress {
        for _ in 0..READS_PER_TURN {
            match self.stream.read(buffer) {
                Ok(0) => return Progress::Closed,
                Ok(count) => {
                    on_bytes(&buffer[..count]);
                    if count < buffer.len() && !is_closed {
                        return Progress::Done;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Done,
                Err(_) => return Progress::Closed,
            }
        }
        Progress::Unfinished
    }

    /// Writes what may go.
    pub(super) fn write_released(&mut self) -> Progress {
        let mut released = std::mem::take(&mut self.released);
        let progress = self.write(&mut released);
        self.released = released;
        progress
    }

    /// Writes what is left from before, then `output`, which is emptied as it is taken.
    pub(super) fn write(&mut self, output: &mut Vec<u8>) -> Progress {
        loop {
            if self.sent == self.outgoing.len() {
                self.outgoing.clear();
                self.outgoing.shrink_to(KEPT_OUTPUT_BYTES);
                self.sent = 0;
                if output.is_empty() {
                    return Progress::Done;
                }
                std::mem::swap(&mut self.outgoing, output);
            }
            match self.stream.write(&self.outgoing[self.sent..]) {
                Ok(0) => return Progress::Closed,
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Blocked,
                Err(_) => return Progress::Closed,
            }
        }
    }
}
