//! Decimal numbers as the protocol writes them: no sign but `-`, no leading zero, no blanks.

/// A header line's number and where the next line starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The number, and the offset behind the line's CRLF.
    Number(i64, usize),
    /// The line is not complete yet.
    Incomplete,
    /// Not a number, or not ended by CRLF.
    Invalid,
}

/// Longest text of an `i64`.
const MAX_DIGITS: usize = 20;

/// Reads the number of a header line whose type byte stands at `at`.
#[inline]
pub(crate) fn header(buf: &[u8], at: usize) -> Line {
    // One and two digits cover nearly every header of real traffic.
    let rest = &buf[(at + 1).min(buf.len())..];
    if let [a @ b'0'..=b'9', b'\r', b'\n', ..] = rest {
        return Line::Number(i64::from(a - b'0'), at + 4);
    }
    if let [a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] = rest {
        return Line::Number(i64::from(a - b'0') * 10 + i64::from(b - b'0'), at + 5);
    }
    general(rest, at + 1)
}

fn general(rest: &[u8], start: usize) -> Line {
    let Some(end) = rest.iter().take(MAX_DIGITS + 1).position(|&b| b == b'\r') else {
        return if rest.len() > MAX_DIGITS { Line::Invalid } else { Line::Incomplete };
    };
    match rest.get(end + 1) {
        None => return Line::Incomplete,
        Some(b'\n') => {}
        Some(_) => return Line::Invalid,
    }
    match parse(&rest[..end]) {
        Some(number) => Line::Number(number, start + end + 2),
        None => Line::Invalid,
    }
}

/// Parses a whole text as a number, as strictly as a server does.
pub fn parse(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] => return (!negative).then_some(0),
        [] | [b'0', ..] => return None,
        _ => {}
    }
    let mut value: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // Accumulated below zero, where the range is one larger.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_strict() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("10", Some(10)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1a", None),
        ] {
            assert_eq!(parse(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn header_lines() {
        assert_eq!(header(b"$5\r\n", 0), Line::Number(5, 4));
        assert_eq!(header(b"xx*12\r\nab", 2), Line::Number(12, 7));
        assert_eq!(header(b"$512\r\n", 0), Line::Number(512, 6));
        assert_eq!(header(b"$-1\r\n", 0), Line::Number(-1, 5));
        for end in 1..6 {
            assert_eq!(header(&b"$512\r\n"[..end], 0), Line::Incomplete, "{end}");
        }
        assert_eq!(header(b"$5\rx", 0), Line::Invalid);
        assert_eq!(header(b"$5x\r\n", 0), Line::Invalid);
        assert_eq!(header(b"$\r\n", 0), Line::Invalid);
        assert_eq!(header(&[b'1'; 40], 0), Line::Invalid);
    }
}
