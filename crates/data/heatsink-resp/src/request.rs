//! Where a request ends and where its arguments stand.
//!
//! Called by: the proxy for each client, the embedded store for each connection.
//! Bound: [`Limits`]; a header line over 21 bytes is refused at once.
//! Invariant: what is accepted here is framed the same way by every server. The check is
//! stricter than Redis's own (which skips the two bytes behind a bulk string unread),
//! because requests of several clients share a pipeline and must never shift against it.

use std::fmt;
use std::ops::Range;

use crate::number::{Line, header};

/// Bounds on one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of arguments, the command's name included.
    pub max_args: u64,
    /// Bytes of one argument.
    pub max_bulk_bytes: u64,
    /// Bytes of the whole request as framed.
    pub max_request_bytes: u64,
    /// True for the small limits that hold before authentication; named in the error.
    pub unauthenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_args: 1 << 20,
            max_bulk_bytes: 512 << 20,
            max_request_bytes: 1 << 30,
            unauthenticated: false,
        }
    }
}

/// Longest inline request.
pub const MAX_INLINE_BYTES: usize = 64 << 10;

/// What a scan found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A request of `len` bytes; its arguments were reported.
    Complete {
        /// Bytes of the whole request.
        len: usize,
    },
    /// A line of `len` bytes in the telnet form; see [`crate::inline::split`].
    Inline {
        /// Bytes of the line with its end.
        len: usize,
    },
    /// `len` bytes that ask for nothing (`*0`, an empty line).
    Empty {
        /// Bytes to skip.
        len: usize,
    },
    /// More bytes are needed.
    Incomplete,
}

/// A request that no server would accept, or that is over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// `*` with something that is no number or over the limit.
    MultibulkLength,
    /// More arguments than allowed before authentication.
    UnauthenticatedMultibulkLength,
    /// `$` with something that is no number or over the limit.
    BulkLength,
    /// A longer argument than allowed before authentication.
    UnauthenticatedBulkLength,
    /// An argument does not start with `$`.
    ExpectedDollar(u8),
    /// No CRLF behind an argument.
    ExpectedCrlf,
    /// The whole request is over the limit.
    RequestTooBig,
    /// A line in the telnet form without an end.
    InlineTooBig,
    /// A line in the telnet form whose quotes do not close.
    UnbalancedQuotes,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::MultibulkLength => f.write_str("invalid multibulk length"),
            Self::UnauthenticatedMultibulkLength => f.write_str("unauthenticated multibulk length"),
            Self::BulkLength => f.write_str("invalid bulk length"),
            Self::UnauthenticatedBulkLength => f.write_str("unauthenticated bulk length"),
            Self::ExpectedDollar(got) => {
                let shown = if got.is_ascii_graphic() { char::from(*got) } else { '?' };
                write!(f, "expected '$', got '{shown}'")
            }
            Self::ExpectedCrlf => f.write_str("expected CRLF after bulk string"),
            Self::RequestTooBig => f.write_str("too big request"),
            Self::InlineTooBig => f.write_str("too big inline request"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// How far one request has been scanned; keep it beside the bytes of an incomplete one.
///
/// Offsets count from the first byte of the request that is still in the buffer. A caller
/// that passes bytes on before the request is complete uses [`RequestScan::pass`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestScan {
    /// Where the next header starts; beyond the buffer's end inside a long argument.
    next: usize,
    /// Arguments whose header was not seen yet.
    args_left: u64,
    /// Bytes forgotten, for the limit on the whole request.
    forgotten: u64,
    started: bool,
}

impl RequestScan {
    /// Scans on. `buf` starts where the request starts (less what was forgotten); each
    /// argument that ends within `buf` is reported once, over all calls.
    #[inline]
    pub fn advance(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        mut on_arg: impl FnMut(Range<usize>),
    ) -> Result<Status, ProtocolError> {
        if !self.started {
            match buf.first() {
                None => return Ok(Status::Incomplete),
                Some(b'*') => {}
                Some(_) => return inline_line(buf, limits),
            }
            match header(buf, 0) {
                Line::Incomplete => return Ok(Status::Incomplete),
                Line::Invalid => return Err(ProtocolError::MultibulkLength),
                Line::Number(count, next) if count <= 0 => return Ok(Status::Empty { len: next }),
                Line::Number(count, next) => {
                    if count as u64 > limits.max_args {
                        return Err(if limits.unauthenticated {
                            ProtocolError::UnauthenticatedMultibulkLength
                        } else {
                            ProtocolError::MultibulkLength
                        });
                    }
                    *self = Self { next, args_left: count as u64, forgotten: 0, started: true };
                }
            }
        }
        while self.args_left > 0 {
            if self.next >= buf.len() {
                return Ok(Status::Incomplete);
            }
            let (start, end) = match short_arg(buf, self.next) {
                Some((start, end)) if self.admits(start, end, limits) => (start, end),
                _ => match self.arg_header(buf, limits)? {
                    Some(arg) => arg,
                    None => return Ok(Status::Incomplete),
                },
            };
            match buf.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::ExpectedCrlf),
                None => return Ok(Status::Incomplete),
            }
            on_arg(start..end);
            self.next = end + 2;
            self.args_left -= 1;
        }
        let len = self.next;
        *self = Self::default();
        Ok(Status::Complete { len })
    }

    /// Scans on like [`Self::advance`] for a request whose bytes are passed on before it is
    /// complete, and returns how many bytes of `buf` may be passed on now. They must then be
    /// dropped from the buffer: the next call starts behind them.
    pub fn pass(&mut self, buf: &[u8], limits: &Limits) -> Result<(usize, bool), ProtocolError> {
        debug_assert!(self.started);
        // `next` stands behind a CRLF, that of the request's header or of an argument; at 0 it
        // was checked before it was passed on.
        while self.next <= buf.len() {
            if self.next > 0 && !buf[..self.next].ends_with(b"\r\n") {
                return Err(ProtocolError::ExpectedCrlf);
            }
            let passed = self.next;
            if self.args_left == 0 {
                *self = Self::default();
                return Ok((passed, true));
            }
            let header = if passed < buf.len() { self.arg_header(buf, limits)? } else { None };
            let Some((_, end)) = header else {
                self.forget(passed);
                return Ok((passed, false));
            };
            self.next = end + 2;
            self.args_left -= 1;
        }
        // The last two bytes of a body are held back until both are there and checked.
        let passed = buf.len().min(self.next - 2);
        self.forget(passed);
        Ok((passed, false))
    }

    /// Whether an argument is within the limits.
    #[inline]
    fn admits(&self, start: usize, end: usize, limits: &Limits) -> bool {
        (end - start) as u64 <= limits.max_bulk_bytes
            && self.forgotten + end as u64 + 2 <= limits.max_request_bytes
    }

    /// Reads the header at `next`, which is in `buf`: where the argument starts and ends.
    fn arg_header(
        &self,
        buf: &[u8],
        limits: &Limits,
    ) -> Result<Option<(usize, usize)>, ProtocolError> {
        let kind = buf[self.next];
        if kind != b'$' {
            return Err(ProtocolError::ExpectedDollar(kind));
        }
        let (len, start) = match header(buf, self.next) {
            Line::Incomplete => return Ok(None),
            Line::Number(len, start) if len >= 0 => (len as u64, start),
            Line::Number(..) | Line::Invalid => return Err(ProtocolError::BulkLength),
        };
        if len > limits.max_bulk_bytes {
            return Err(if limits.unauthenticated {
                ProtocolError::UnauthenticatedBulkLength
            } else {
                ProtocolError::BulkLength
            });
        }
        let end = start + len as usize;
        if self.forgotten + end as u64 + 2 > limits.max_request_bytes {
            return Err(ProtocolError::RequestTooBig);
        }
        Ok(Some((start, end)))
    }

    /// True once the header of a request was read and its end was not.
    pub fn is_within_request(&self) -> bool {
        self.started
    }

    /// The first `count` bytes of the request left the buffer.
    fn forget(&mut self, count: usize) {
        self.next -= count;
        self.forgotten += count as u64;
    }
}

/// Where an argument of less than a hundred bytes starts and ends whose header stands at `at`;
/// `None` if a closer look is needed.
#[expect(clippy::inline_always, reason = "what a call leaves in memory is read back too early")]
#[inline(always)]
fn short_arg(buf: &[u8], at: usize) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte - b'0');
    let (len, start) = match *buf[at..].first_chunk::<5>()? {
        [b'$', a @ b'0'..=b'9', b'\r', b'\n', _] => (digit(a), at + 4),
        [b'$', a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n'] => {
            (digit(a) * 10 + digit(b), at + 5)
        }
        _ => return None,
    };
    Some((start, start + len))
}

fn inline_line(buf: &[u8], limits: &Limits) -> Result<Status, ProtocolError> {
    let max = MAX_INLINE_BYTES.min(limits.max_request_bytes as usize);
    match memchr::memchr(b'\n', &buf[..buf.len().min(max)]) {
        Some(end) if buf[..end].iter().all(u8::is_ascii_whitespace) => {
            Ok(Status::Empty { len: end + 1 })
        }
        Some(end) => Ok(Status::Inline { len: end + 1 }),
        None if buf.len() >= max => Err(ProtocolError::InlineTooBig),
        None => Ok(Status::Incomplete),
    }
}

#[cfg(test)]
mod tests;
