//! Where a reply ends.
//!
//! Called by: upstream links, for every reply that passes.
//! Bound: a line (status, error, number) of at most [`MAX_LINE_BYTES`]; nesting costs
//! nothing, since only the number of elements still to come is kept.

use std::fmt;

use crate::number::{Line, header};

/// Longest status, error, number or header line.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Longest string; far above what any server sends, far below where offsets overflow.
const MAX_STRING_BYTES: i64 = 1 << 40;

/// What a scan found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A whole reply of that many bytes.
    Complete(usize),
    /// More bytes are needed.
    Incomplete,
}

/// Bytes that are no reply; the connection they came on is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAReply;

impl fmt::Display for NotAReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server sent something that is not RESP")
    }
}

impl std::error::Error for NotAReply {}

/// How far one reply has been scanned. Offsets count from the reply's first byte that is
/// still in the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyScan {
    /// Where the next header starts; beyond the buffer's end inside a long string.
    next: usize,
    /// Elements whose header was not seen yet.
    elements_left: u64,
    started: bool,
}

impl ReplyScan {
    /// Scans on from where the last call stopped.
    #[inline]
    pub fn advance(&mut self, buf: &[u8]) -> Result<Status, NotAReply> {
        if !self.started {
            *self = Self { next: 0, elements_left: 1, started: true };
        }
        while self.elements_left > 0 {
            let Some(&kind) = buf.get(self.next) else { return Ok(Status::Incomplete) };
            match kind {
                b'$' | b'=' | b'!' => match header(buf, self.next) {
                    Line::Number(-1, next) => self.next = next,
                    Line::Number(len, next) if (0..=MAX_STRING_BYTES).contains(&len) => {
                        self.next = next + len as usize + 2;
                    }
                    Line::Incomplete => return Ok(Status::Incomplete),
                    Line::Number(..) | Line::Invalid => return Err(NotAReply),
                },
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {
                    let line = &buf[self.next..buf.len().min(self.next + MAX_LINE_BYTES)];
                    match memchr::memchr(b'\n', line) {
                        Some(end) if line[end - 1] == b'\r' => self.next += end + 1,
                        Some(_) => return Err(NotAReply),
                        None if line.len() == MAX_LINE_BYTES => return Err(NotAReply),
                        None => return Ok(Status::Incomplete),
                    }
                }
                b'*' | b'~' | b'>' | b'%' | b'|' => match header(buf, self.next) {
                    Line::Number(-1, next) => self.next = next,
                    Line::Number(count, next) if count >= 0 => {
                        let elements = match kind {
                            b'%' => count as u64 * 2,
                            // An attribute stands before its reply and does not count as one.
                            b'|' => count as u64 * 2 + 1,
                            _ => count as u64,
                        };
                        self.elements_left =
                            self.elements_left.checked_add(elements).ok_or(NotAReply)?;
                        self.next = next;
                    }
                    Line::Incomplete => return Ok(Status::Incomplete),
                    Line::Number(..) | Line::Invalid => return Err(NotAReply),
                },
                _ => return Err(NotAReply),
            }
            self.elements_left -= 1;
        }
        // All headers are seen; the last string's body may still be on its way.
        if self.next > buf.len() {
            return Ok(Status::Incomplete);
        }
        let len = self.next;
        *self = Self::default();
        Ok(Status::Complete(len))
    }

    /// For a reply that is passed on before it is complete: after [`Status::Incomplete`],
    /// how many bytes of the buffer belong to it and may be passed on. They must then be
    /// dropped from the buffer: the next call starts behind them.
    pub fn pass(&mut self, buffered: usize) -> usize {
        let passed = self.next.min(buffered);
        self.next -= passed;
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: &[&[u8]] = &[
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-12\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$12\r\nhello\r\nworld\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n+x\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n#t\r\n",
        b"~2\r\n,1.5\r\n(123456789012345678901234567890\r\n",
        b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
        b"|1\r\n+ttl\r\n:3\r\n*1\r\n|1\r\n+a\r\n+b\r\n:5\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"!5\r\nERR x\r\n",
    ];

    #[test]
    fn every_type_split_at_every_byte() {
        for sample in SAMPLES {
            let mut scan = ReplyScan::default();
            for end in 0..sample.len() {
                assert_eq!(scan.advance(&sample[..end]), Ok(Status::Incomplete));
            }
            assert_eq!(scan.advance(sample), Ok(Status::Complete(sample.len())));
            let mut twice = sample.to_vec();
            twice.extend_from_slice(sample);
            assert_eq!(ReplyScan::default().advance(&twice), Ok(Status::Complete(sample.len())));
        }
    }

    #[test]
    fn passed_on_in_pieces_a_reply_ends_where_it_ends() {
        for sample in SAMPLES {
            for piece in 1..sample.len() {
                let mut scan = ReplyScan::default();
                let (mut buffer, mut passed) = (Vec::new(), Vec::new());
                let mut pieces = sample.chunks(piece);
                loop {
                    buffer.extend_from_slice(pieces.next().expect("ends with the sample"));
                    match scan.advance(&buffer).unwrap() {
                        Status::Complete(len) => {
                            passed.extend(buffer.drain(..len));
                            break;
                        }
                        Status::Incomplete => {
                            let count = scan.pass(buffer.len());
                            passed.extend(buffer.drain(..count));
                        }
                    }
                }
                assert_eq!(&passed, sample);
                assert!(buffer.is_empty());
            }
        }
    }

    #[test]
    fn what_is_not_a_reply() {
        for bytes in [&b"hello\r\n"[..], b"$x\r\n", b"+a\nb\r\n", b"*-2\r\n", b"$?\r\n", b"\0"] {
            assert_eq!(ReplyScan::default().advance(bytes), Err(NotAReply));
        }
    }
}
