//! Where a reply ends, and what it says.
//!
//! Called by: `client`.
//! Bound: nesting up to `DEPTH_MAX`.
//! Invariant: written apart from the product's own framing on purpose, so that a mistake there
//! is not repeated here and hidden.

use crate::reply::Reply;

const DEPTH_MAX: usize = 64;

/// Why no reply was read.
#[derive(Debug, PartialEq)]
pub(crate) enum Stop {
    /// The buffer must grow to at least this many bytes first.
    Need(usize),
    /// The bytes are no reply.
    Malformed(String),
}

/// The length of the reply at the start of `buffer`.
pub(crate) fn frame_len(buffer: &[u8]) -> Result<usize, Stop> {
    let mut cursor = Cursor { buffer, at: 0 };
    cursor.skip(0)?;
    Ok(cursor.at)
}

/// The reply that makes up the whole of `frame`.
pub(crate) fn parse(frame: &[u8]) -> Result<Reply, Stop> {
    let mut cursor = Cursor { buffer: frame, at: 0 };
    let reply = cursor.reply()?;
    if cursor.at == frame.len() { Ok(reply) } else { malformed("bytes after the reply") }
}

struct Cursor<'a> {
    buffer: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn skip(&mut self, depth: usize) -> Result<(), Stop> {
        if depth > DEPTH_MAX {
            return malformed("nested too deep");
        }
        let (mark, line) = self.line()?;
        let children = match mark {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => 0,
            b'$' | b'!' | b'=' => {
                if let Some(len) = length(line)? {
                    self.body(len)?;
                }
                0
            }
            b'*' | b'~' | b'>' => length(line)?.unwrap_or(0),
            b'%' => length(line)?.unwrap_or(0) * 2,
            // The reply that the attributes belong to is one more child.
            b'|' => length(line)?.unwrap_or(0) * 2 + 1,
            _ => return malformed(&format!("no type starts with {:?}", char::from(mark))),
        };
        for _ in 0..children {
            self.skip(depth + 1)?;
        }
        Ok(())
    }

    fn reply(&mut self) -> Result<Reply, Stop> {
        let (mark, line) = self.line()?;
        Ok(match mark {
            b'+' => Reply::Simple(lossy(line)),
            b'-' => Reply::Error(lossy(line)),
            b':' => Reply::Integer(number(line)?),
            b'_' => Reply::Null,
            b',' => Reply::Double(number(line)?),
            b'#' => match line {
                b"t" => Reply::Bool(true),
                b"f" => Reply::Bool(false),
                _ => return malformed("a boolean is t or f"),
            },
            b'(' => Reply::BigNumber(lossy(line)),
            b'$' => match length(line)? {
                Some(len) => Reply::Bulk(self.body(len)?.to_vec()),
                None => Reply::Null,
            },
            b'!' => Reply::BulkError(self.body(length(line)?.unwrap_or(0))?.to_vec()),
            b'=' => {
                let body = self.body(length(line)?.unwrap_or(0))?;
                match body.split_at_checked(4) {
                    Some((format, text)) if format[3] == b':' => {
                        Reply::Verbatim { format: lossy(&format[..3]), text: text.to_vec() }
                    }
                    _ => return malformed("verbatim text without a format"),
                }
            }
            b'*' => match length(line)? {
                Some(count) => Reply::Array(self.replies(count)?),
                None => Reply::Null,
            },
            b'~' => Reply::Set(self.replies(length(line)?.unwrap_or(0))?),
            b'>' => Reply::Push(self.replies(length(line)?.unwrap_or(0))?),
            b'%' => Reply::Map(self.pairs(length(line)?.unwrap_or(0))?),
            b'|' => Reply::Attribute {
                pairs: self.pairs(length(line)?.unwrap_or(0))?,
                reply: Box::new(self.reply()?),
            },
            _ => return malformed(&format!("no type starts with {:?}", char::from(mark))),
        })
    }

    fn replies(&mut self, count: usize) -> Result<Vec<Reply>, Stop> {
        (0..count).map(|_| self.reply()).collect()
    }

    fn pairs(&mut self, count: usize) -> Result<Vec<(Reply, Reply)>, Stop> {
        (0..count).map(|_| Ok((self.reply()?, self.reply()?))).collect()
    }

    /// The type's mark and the rest of its line.
    fn line(&mut self) -> Result<(u8, &'a [u8]), Stop> {
        let rest = &self.buffer[self.at..];
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
            return Err(Stop::Need(self.buffer.len() + 1));
        };
        self.at += end + 2;
        match rest[..end].split_first() {
            Some((mark, line)) => Ok((*mark, line)),
            None => malformed("an empty line"),
        }
    }

    fn body(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let end = self.at + len;
        if self.buffer.len() < end + 2 {
            return Err(Stop::Need(end + 2));
        }
        if &self.buffer[end..end + 2] != b"\r\n" {
            return malformed("a string is longer than it said");
        }
        let body = &self.buffer[self.at..end];
        self.at = end + 2;
        Ok(body)
    }
}

fn length(line: &[u8]) -> Result<Option<usize>, Stop> {
    match number::<i64>(line)? {
        -1 => Ok(None),
        len => match usize::try_from(len) {
            Ok(len) => Ok(Some(len)),
            Err(_) => malformed("a negative length"),
        },
    }
}

fn number<T: std::str::FromStr>(line: &[u8]) -> Result<T, Stop> {
    match std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()) {
        Some(value) => Ok(value),
        None => malformed(&format!("{:?} is no number", lossy(line))),
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn malformed<T>(what: &str) -> Result<T, Stop> {
    Err(Stop::Malformed(what.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NESTED: &[u8] =
        b"|1\r\n+ttl\r\n:5\r\n*3\r\n%1\r\n$1\r\nk\r\n,1.5\r\n~2\r\n#t\r\n_\r\n>1\r\n\
        =5\r\ntxt:x\r\n";

    #[test]
    fn every_type_nested() {
        assert_eq!(frame_len(NESTED), Ok(NESTED.len()));
        let reply = parse(NESTED).expect("valid");
        assert_eq!(reply.to_string(), r#"|{+ttl: :5} [{"k": ,1.5}, ~{#true, null}, >[=txt:"x"]]"#);
    }

    #[test]
    fn a_cut_reply_asks_for_more_and_never_for_too_much() {
        for cut in 0..NESTED.len() {
            match frame_len(&NESTED[..cut]) {
                Err(Stop::Need(total)) => assert!(total > cut && total <= NESTED.len(), "{cut}"),
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn only_the_first_of_several_is_measured() {
        assert_eq!(frame_len(b"$-1\r\n*-1\r\n"), Ok(5));
        assert_eq!(frame_len(b"*0\r\n+next\r\n"), Ok(4));
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [&b"?\r\n"[..], b"\r\n", b":x\r\n", b"$-2\r\n", b"$1\r\nabcd\r\n"] {
            let result = parse(bytes);
            assert!(matches!(result, Err(Stop::Malformed(_))), "{result:?}");
        }
    }
}
