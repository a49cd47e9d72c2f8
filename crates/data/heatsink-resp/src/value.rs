//! An owned reply, for the few that have to be looked into (`COMMAND`, `HELLO`, …).

use crate::number::{Line, header, parse};
use crate::reply::NotAReply;

/// A decoded reply. RESP3 types that matter to nobody here fold into the nearest one.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nil of either protocol.
    Nil,
    /// Simple strings.
    Status(Vec<u8>),
    /// Simple and bulk errors, with their code.
    Error(Vec<u8>),
    /// Numbers and booleans.
    Integer(i64),
    /// Bulk and verbatim strings, doubles and big numbers as their text.
    Bulk(Vec<u8>),
    /// Arrays, sets and pushes.
    Array(Vec<Value>),
    /// Maps, as pairs in the order sent.
    Map(Vec<(Value, Value)>),
}

/// Deepest nesting that is decoded; no server nests further than a handful.
const MAX_DEPTH: usize = 32;

impl Value {
    /// Decodes a whole reply as found by [`crate::reply::ReplyScan`].
    pub fn decode(frame: &[u8]) -> Result<Self, NotAReply> {
        let mut at = 0;
        decode(frame, &mut at, MAX_DEPTH)
    }

    /// The text of a string of any kind.
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Status(text) | Self::Bulk(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements, if there are any.
    pub fn array(&self) -> &[Value] {
        match self {
            Self::Array(elements) => elements,
            _ => &[],
        }
    }

    /// Looks a key up in a map, or in an array of alternating keys and values.
    pub fn get(&self, key: &[u8]) -> Option<&Value> {
        match self {
            Self::Map(pairs) => {
                pairs.iter().find(|(k, _)| k.text() == Some(key)).map(|(_, value)| value)
            }
            Self::Array(flat) => {
                flat.chunks_exact(2).find(|pair| pair[0].text() == Some(key)).map(|pair| &pair[1])
            }
            _ => None,
        }
    }
}

fn decode(frame: &[u8], at: &mut usize, depth: usize) -> Result<Value, NotAReply> {
    let kind = *frame.get(*at).ok_or(NotAReply)?;
    let depth = depth.checked_sub(1).ok_or(NotAReply)?;
    match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {
            let start = *at + 1;
            // A line ends at its LF, as the scan has it: a CR alone may stand within.
            let len = memchr::memchr(b'\n', &frame[start..]).ok_or(NotAReply)?;
            let text = frame[start..start + len].strip_suffix(b"\r").ok_or(NotAReply)?.to_vec();
            *at = start + len + 1;
            Ok(match kind {
                b'+' => Value::Status(text),
                b'-' => Value::Error(text),
                b':' => Value::Integer(parse(&text).ok_or(NotAReply)?),
                b'#' => Value::Integer(i64::from(text == b"t")),
                b'_' => Value::Nil,
                _ => Value::Bulk(text),
            })
        }
        b'$' | b'=' | b'!' => {
            let Line::Number(len, start) = header(frame, *at) else { return Err(NotAReply) };
            *at = start;
            if len < 0 {
                return Ok(Value::Nil);
            }
            let text = frame.get(start..start + len as usize).ok_or(NotAReply)?;
            *at = start + len as usize + 2;
            Ok(match kind {
                b'!' => Value::Error(text.to_vec()),
                b'=' => Value::Bulk(text.get(4..).unwrap_or_default().to_vec()),
                _ => Value::Bulk(text.to_vec()),
            })
        }
        b'*' | b'~' | b'>' | b'%' | b'|' => {
            let Line::Number(count, start) = header(frame, *at) else { return Err(NotAReply) };
            *at = start;
            match kind {
                _ if count < 0 => Ok(Value::Nil),
                b'%' | b'|' => {
                    let mut pairs = Vec::new();
                    for _ in 0..count {
                        let key = decode(frame, at, depth)?;
                        pairs.push((key, decode(frame, at, depth)?));
                    }
                    if kind == b'|' { decode(frame, at, depth) } else { Ok(Value::Map(pairs)) }
                }
                _ => (0..count)
                    .map(|_| decode(frame, at, depth))
                    .collect::<Result<_, _>>()
                    .map(Value::Array),
            }
        }
        _ => Err(NotAReply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_of_a_map() {
        let resp3 = Value::decode(b"%1\r\n$2\r\nid\r\n:7\r\n").unwrap();
        let resp2 = Value::decode(b"*2\r\n$2\r\nid\r\n:7\r\n").unwrap();
        assert_eq!(resp3.get(b"id"), Some(&Value::Integer(7)));
        assert_eq!(resp2.get(b"id"), Some(&Value::Integer(7)));
    }

    #[test]
    fn a_line_ends_where_the_scan_ends_it() {
        for (frame, value) in [
            (&b"-ERR a\rb\r\n"[..], Ok(Value::Error(b"ERR a\rb".to_vec()))),
            (b"+a\r\r\n", Ok(Value::Status(b"a\r".to_vec()))),
            (b":1\r2\r\n", Err(NotAReply)),
        ] {
            let scanned = crate::reply::ReplyScan::default().advance(frame);
            assert_eq!(scanned, Ok(crate::reply::Status::Complete(frame.len())));
            assert_eq!(Value::decode(frame), value, "{}", frame.escape_ascii());
        }
    }

    #[test]
    fn cut_off_and_deep_replies_are_refused() {
        assert_eq!(Value::decode(b"*2\r\n:1\r\n"), Err(NotAReply));
        assert_eq!(Value::decode(b"$5\r\nab\r\n"), Err(NotAReply));
        assert_eq!(Value::decode(&b"*1\r\n".repeat(100)), Err(NotAReply));
    }
}
