//! Reply: writes replies in the protocol that the connection speaks.
//!
//! Called by: every handler, with the type Redis gives the reply in RESP3; the older protocol
//! gets the nearest type it has.
//! Bound: once over `OUTPUT_BYTES_MAX` no more strings are taken, so that one request cannot
//! exceed it by more than one string; the engine then drops the output and the connection.
//! Invariant: what is written is always a whole number of frames once a handler returns.

use std::io::Write as _;

use crate::failure::Failure;
use crate::number;

/// Output that a connection may leave unread.
pub(crate) const OUTPUT_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The protocol version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proto {
    Resp2,
    Resp3,
}

/// Output of one connection.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) out: Vec<u8>,
    pub(crate) proto: Proto,
}

impl Reply {
    pub(crate) fn new(proto: Proto) -> Self {
        Self { out: Vec::new(), proto }
    }

    pub(crate) fn is_resp3(&self) -> bool {
        self.proto == Proto::Resp3
    }

    fn header(&mut self, kind: u8, count: usize) {
        self.out.push(kind);
        self.number(count as i64);
    }

    fn number(&mut self, value: i64) {
        if (0..10).contains(&value) {
            self.out.push(b'0' + value as u8);
        } else {
            write!(self.out, "{value}").expect("a vector takes all bytes");
        }
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn error(&mut self, failure: &Failure) {
        self.out.push(b'-');
        let clean =
            failure.text().iter().map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b });
        self.out.extend(clean);
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn int(&mut self, value: i64) {
        self.out.push(b':');
        self.number(value);
    }

    pub(crate) fn len(&mut self, count: usize) {
        self.int(count as i64);
    }

    pub(crate) fn flag(&mut self, value: bool) {
        self.int(i64::from(value));
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        if self.out.len() > OUTPUT_BYTES_MAX {
            return;
        }
        self.header(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Text for people: typed as such in RESP3.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if self.is_resp3() {
            self.header(b'=', text.len() + 4);
            self.out.extend_from_slice(b"txt:");
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    pub(crate) fn null(&mut self) {
        self.out.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    pub(crate) fn null_array(&mut self) {
        self.out.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    pub(crate) fn double(&mut self, value: f64) {
        let text = number::double_text(value);
        if self.is_resp3() {
            self.out.push(b',');
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    pub(crate) fn array(&mut self, count: usize) {
        self.header(b'*', count);
    }

    pub(crate) fn map(&mut self, pairs: usize) {
        if self.is_resp3() {
            self.header(b'%', pairs);
        } else {
            self.array(pairs * 2);
        }
    }

    pub(crate) fn set(&mut self, count: usize) {
        self.header(if self.is_resp3() { b'~' } else { b'*' }, count);
    }

    pub(crate) fn push(&mut self, count: usize) {
        self.header(if self.is_resp3() { b'>' } else { b'*' }, count);
    }

    /// An array of bulk strings.
    pub(crate) fn bulks<T: AsRef<[u8]>>(&mut self, items: impl ExactSizeIterator<Item = T>) {
        self.array(items.len());
        for item in items {
            self.bulk(item.as_ref());
        }
    }
}
