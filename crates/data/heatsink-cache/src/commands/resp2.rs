//! A reply in RESP3 written as RESP2.
//!
//! Bound: nesting of [`MAX_DEPTH`]; the output is at most a few bytes per element longer.
//! Invariant: what is not understood gives `None`, never a guess.

/// Deepest nesting that is converted; the commands of the table nest three deep.
const MAX_DEPTH: usize = 8;

/// Converts one whole reply. With `flat_pairs`, arrays within the outermost one are written
/// without a header of their own and must hold two elements each.
pub(super) fn convert(reply: &[u8], flat_pairs: bool) -> Option<Vec<u8>> {
    let mut reader = Converter { rest: reply, out: Vec::with_capacity(reply.len() + 16) };
    if flat_pairs {
        reader.pairs()?;
    } else {
        reader.value(MAX_DEPTH)?;
    }
    reader.rest.is_empty().then_some(reader.out)
}

struct Converter<'a> {
    rest: &'a [u8],
    out: Vec<u8>,
}

impl<'a> Converter<'a> {
    /// The type of the next value and the rest of its line.
    fn line(&mut self) -> Option<(u8, &'a [u8])> {
        let rest = self.rest;
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        self.rest = &rest[end + 2..];
        let (kind, text) = rest[..end].split_first()?;
        Some((*kind, text))
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let (kind, text) = self.line()?;
        match kind {
            b'+' | b'-' | b':' => self.write_line(kind, text),
            b'_' if text.is_empty() => self.write_line(b'$', b"-1"),
            b',' => self.write_bulk(text),
            b'$' => {
                let len = number(text)?;
                let bytes = self.rest.get(..len)?;
                self.rest = self.rest[len..].strip_prefix(b"\r\n")?;
                self.write_bulk(bytes);
            }
            b'*' | b'~' => self.elements(number(text)?, depth)?,
            b'%' => self.elements(number(text)?.checked_mul(2)?, depth)?,
            _ => return None,
        }
        Some(())
    }

    fn elements(&mut self, count: usize, depth: usize) -> Option<()> {
        self.write_line(b'*', count.to_string().as_bytes());
        (0..count).try_for_each(|_| self.value(depth))
    }

    /// An array of pairs as one flat array; an error stays one, and so does an empty array.
    fn pairs(&mut self) -> Option<()> {
        let (kind, text) = self.line()?;
        if kind == b'-' {
            self.write_line(kind, text);
            return Some(());
        }
        let count = (kind == b'*').then(|| number(text))??;
        self.write_line(b'*', count.checked_mul(2)?.to_string().as_bytes());
        (0..count).try_for_each(|_| {
            (self.line()? == (b'*', b"2")).then_some(())?;
            self.value(1)?;
            self.value(1)
        })
    }

    fn write_line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    fn write_bulk(&mut self, bytes: &[u8]) {
        self.write_line(b'$', bytes.len().to_string().as_bytes());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }
}

fn number(text: &[u8]) -> Option<usize> {
    str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::convert;

    #[test]
    fn each_type() {
        for (resp3, resp2) in [
            ("_\r\n", "$-1\r\n"),
            (":-7\r\n", ":-7\r\n"),
            ("+OK\r\n", "+OK\r\n"),
            ("-ERR x\r\n", "-ERR x\r\n"),
            ("$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
            (",1.5\r\n", "$3\r\n1.5\r\n"),
            ("~1\r\n$1\r\na\r\n", "*1\r\n$1\r\na\r\n"),
            ("%1\r\n$1\r\na\r\n_\r\n", "*2\r\n$1\r\na\r\n$-1\r\n"),
            ("*1\r\n*2\r\n:1\r\n,2\r\n", "*1\r\n*2\r\n:1\r\n$1\r\n2\r\n"),
        ] {
            assert_eq!(convert(resp3.as_bytes(), false).unwrap(), resp2.as_bytes());
        }
        assert_eq!(
            convert(b"*1\r\n*2\r\n$1\r\na\r\n,2\r\n", true).unwrap(),
            b"*2\r\n$1\r\na\r\n$1\r\n2\r\n"
        );
    }

    #[test]
    fn what_is_not_understood_is_not_guessed() {
        for reply in [
            "",
            ":1",
            "#t\r\n",
            "(1\r\n",
            "=5\r\ntxt:a\r\n",
            ">1\r\n:1\r\n",
            ":1\r\n:2\r\n",
            "$9\r\na\r\n",
        ] {
            assert_eq!(convert(reply.as_bytes(), false), None, "{reply:?}");
        }
        assert_eq!(convert(&b"*1\r\n".repeat(50), false), None);
        assert_eq!(convert(b"*1\r\n*3\r\n:1\r\n:1\r\n:1\r\n", true), None);
    }
}
