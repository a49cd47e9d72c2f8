//! A look at the outermost layer of a reply, whose elements stay the bytes that they are.
//!
//! Called by: `join` and `cursor`, and the merges of a split key, with frames that a scan has
//! found complete.
//! Invariant: bytes that are no such frame give `None` or fewer elements, never a panic.

use heatsink_resp::reply::{ReplyScan, Status};

/// An array, set, push or map, its elements not looked at.
#[derive(Clone, Copy, Debug)]
pub struct Aggregate<'a> {
    /// The type byte.
    pub kind: u8,
    /// What the header says: elements, or pairs of a map. 0 for a nil array.
    pub count: usize,
    /// All elements, one behind the other.
    pub body: &'a [u8],
}

impl<'a> Aggregate<'a> {
    /// The outermost layer, if it is one of these.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let kind = *frame.first()?;
        if !matches!(kind, b'*' | b'~' | b'>' | b'%') {
            return None;
        }
        let (number, body) = header(frame)?;
        Some(Self { kind, count: usize::try_from(number).unwrap_or(0), body })
    }

    /// The elements; keys and values of a map alternate.
    pub fn elements(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            let Ok(Status::Complete(len)) = ReplyScan::default().advance(rest) else { return None };
            let (element, behind) = rest.split_at(len);
            rest = behind;
            Some(element)
        })
    }
}

/// The number of a header line or of an integer, and what stands behind the line.
fn header(frame: &[u8]) -> Option<(i64, &[u8])> {
    let end = frame.iter().position(|byte| *byte == b'\r')?;
    let number = std::str::from_utf8(frame.get(1..end)?).ok()?.parse().ok()?;
    Some((number, frame.get(end + 2..)?))
}

/// An integer, or a boolean as 0 or 1.
pub fn integer(frame: &[u8]) -> Option<i64> {
    match frame {
        b"#t\r\n" => Some(1),
        b"#f\r\n" => Some(0),
        [b':', ..] => header(frame).map(|(number, _)| number),
        _ => None,
    }
}

/// A bulk string, or a verbatim string without its format.
pub fn text(frame: &[u8]) -> Option<&[u8]> {
    let prefix_bytes = match frame.first()? {
        b'$' => 0,
        b'=' => 4,
        _ => return None,
    };
    let (len, body) = header(frame)?;
    body.get(prefix_bytes..usize::try_from(len).ok()?)
}

/// An error of either protocol.
pub fn is_error(frame: &[u8]) -> bool {
    matches!(frame.first(), Some(b'-' | b'!'))
}

/// Nil of either protocol.
pub fn is_nil(frame: &[u8]) -> bool {
    matches!(frame, b"$-1\r\n" | b"*-1\r\n" | b"_\r\n")
}
