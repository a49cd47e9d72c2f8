//! A second reading of replies, slow and plain, to hold the fast one against.

use heatsink_resp::value::Value;

/// Levels that [`Value::decode`] promises to follow.
const MAX_DEPTH: usize = 32;

/// A reply as this reading sees it.
#[derive(Debug, PartialEq)]
pub(crate) enum Reading {
    /// The value, and the bytes it took.
    Value(Value, usize),
    /// It has an end, but what stands in it makes no sense: a number that is none, or too
    /// many levels.
    Nonsense,
}

/// Reads the complete reply at the start of `data`.
pub(crate) fn read(data: &[u8]) -> Reading {
    let mut at = 0;
    match value(data, &mut at, MAX_DEPTH) {
        Some(value) => Reading::Value(value, at),
        None => Reading::Nonsense,
    }
}

fn value(data: &[u8], at: &mut usize, depth: usize) -> Option<Value> {
    if depth == 0 {
        return None;
    }
    let kind = *data.get(*at)?;
    let line = line(data, at)?;
    let number = std::str::from_utf8(line).ok().and_then(|line| line.parse::<i64>().ok());
    Some(match kind {
        b'+' => Value::Status(line.to_vec()),
        b'-' => Value::Error(line.to_vec()),
        b':' => Value::Integer(number.filter(|number| number.to_string().as_bytes() == line)?),
        b'#' => Value::Integer(i64::from(line == b"t")),
        b'_' => Value::Nil,
        b',' | b'(' => Value::Bulk(line.to_vec()),
        _ if number? < 0 => Value::Nil,
        b'$' => Value::Bulk(body(data, at, number?)?.to_vec()),
        b'!' => Value::Error(body(data, at, number?)?.to_vec()),
        b'=' => Value::Bulk(body(data, at, number?)?.iter().skip(4).copied().collect()),
        b'%' | b'|' => {
            let mut pairs = Vec::new();
            for _ in 0..number? {
                let key = value(data, at, depth - 1)?;
                pairs.push((key, value(data, at, depth - 1)?));
            }
            // An attribute is read and let go: the reply it belongs to follows.
            if kind == b'|' { value(data, at, depth - 1)? } else { Value::Map(pairs) }
        }
        _ => {
            let mut elements = Vec::new();
            for _ in 0..number? {
                elements.push(value(data, at, depth - 1)?);
            }
            Value::Array(elements)
        }
    })
}

/// The text between a type byte and the first CRLF that ends a line.
fn line<'a>(data: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = &data[*at + 1..];
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    *at += end + 2;
    rest[..end].strip_suffix(b"\r")
}

/// The body of a string and the two bytes behind it.
fn body<'a>(data: &'a [u8], at: &mut usize, len: i64) -> Option<&'a [u8]> {
    let len = usize::try_from(len).ok()?;
    let body = data.get(*at..)?.get(..len)?;
    *at += len + 2;
    Some(body)
}
