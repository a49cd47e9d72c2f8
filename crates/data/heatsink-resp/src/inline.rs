//! The telnet form of a request: words on a line, quotes as in Redis.

use crate::request::ProtocolError;

/// Splits a line into its words: `"…"` with escapes (`\n \r \t \b \a \xHH`), `'…'` with
/// `\'` only, anything else up to the next blank. A closing quote must end its word.
pub fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let [first, after @ ..] = rest
            && is_space(*first)
        {
            rest = after;
        }
        // A line ends at its first NUL, as in the C string it is to a server.
        if matches!(rest, [] | [0, ..]) {
            return Ok(words);
        }
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after;
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn word(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), ProtocolError> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] | [0 | b' ' | b'\n' | b'\r' | b'\t', ..] => return Ok((word, rest)),
            [quote @ (b'"' | b'\''), after @ ..] => {
                rest = quoted(after, *quote, &mut word)?;
                match rest {
                    [] | [0, ..] => return Ok((word, rest)),
                    [next, ..] if is_space(*next) => return Ok((word, rest)),
                    _ => return Err(ProtocolError::UnbalancedQuotes),
                }
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

fn quoted<'a>(
    mut rest: &'a [u8],
    quote: u8,
    word: &mut Vec<u8>,
) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [] | [0, ..] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\\', b'\'', after @ ..] if quote == b'\'' => {
                word.push(b'\'');
                rest = after;
            }
            [b'\\', b'x', high, low, after @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |b: &u8| char::from(*b).to_digit(16).unwrap_or(0) as u8;
                word.push(digit(high) * 16 + digit(low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] if quote == b'"' && *escaped != 0 => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = after;
            }
            [byte, after @ ..] if *byte == quote => return Ok(after),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes() {
        let split = |line: &str| split(line.as_bytes()).unwrap();
        assert_eq!(split(" set  a b\r\n"), [&b"set"[..], b"a", b"b"]);
        assert_eq!(
            split(r#"set "a b" 'it\'s' "\x41\n\q""#),
            [&b"set"[..], b"a b", b"it's", b"A\nq"]
        );
        assert_eq!(split(r#"a"b c""#), [b"ab c"]);
        assert_eq!(split(r#"x "" ''"#), [&b"x"[..], b"", b""]);
        assert!(split(" \r\n").is_empty());
    }

    #[test]
    fn quotes_must_close_and_end_the_word() {
        for line in [r#"set "a"#, r"set 'a", r#"set "a"b"#, r#""\""#] {
            assert_eq!(split(line.as_bytes()), Err(ProtocolError::UnbalancedQuotes), "{line}");
        }
    }
}
