//! One line of `MONITOR`, taken apart exactly.
//!
//! Called by: the `MONITOR` session, for every command a server runs.
//! Bound: the buffers are reused; they grow to the longest line.
//! Invariant: what a server wrote comes out as the bytes that its client sent. A line of any
//! other form is refused, never guessed at.
//!
//! ```text
//! 1339518083.107412 [0 127.0.0.1:60866] "set" "a \"b\"" "\x00\n"
//! 1339518083.107413 [0 lua] "get" "a"
//! ```

/// Where a command came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A client, over TCP or a Unix socket.
    Client,
    /// A script: not a request of its own.
    Script,
}

/// A line whose arguments are being looked at.
#[derive(Debug, Default)]
pub struct MonitorLine {
    /// All arguments, one behind the other.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    db: u32,
    from_script: bool,
    /// About how many bytes of arguments stood behind a cut.
    beyond_bytes: usize,
}

/// The line has another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAMonitorLine;

impl MonitorLine {
    /// Reads a line, without the `+` before it and the line end behind it.
    pub fn read(&mut self, line: &[u8]) -> Result<(), NotAMonitorLine> {
        self.bytes.clear();
        self.ends.clear();
        self.beyond_bytes = 0;
        let rest = self.read_head(line).ok_or(NotAMonitorLine)?;
        self.read_args(rest).ok_or(NotAMonitorLine)
    }

    /// Reads the beginning of a line of `line_bytes` that was cut in its arguments: those
    /// before the cut, of which there must be one.
    pub fn read_head_of(&mut self, head: &[u8], line_bytes: usize) -> Result<(), NotAMonitorLine> {
        let result = self.read(head);
        let Some(end) = self.ends.last() else { return result };
        self.bytes.truncate(*end);
        self.beyond_bytes = line_bytes.saturating_sub(*end);
        Ok(())
    }

    /// Database the command ran in.
    pub fn db(&self) -> u32 {
        self.db
    }

    /// Who sent it.
    pub fn source(&self) -> Source {
        if self.from_script { Source::Script } else { Source::Client }
    }

    /// Number of arguments, the command's name included; never 0 after a line was read.
    pub fn arg_count(&self) -> usize {
        self.ends.len()
    }

    /// One argument.
    pub fn arg(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    /// Bytes of all arguments together; of a line that was cut, about.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.beyond_bytes
    }

    /// `<seconds>.<microseconds> [<db> <address>] `
    fn read_head<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let space = line.iter().position(|byte| *byte == b' ')?;
        let (time, rest) = line.split_at(space);
        if time.is_empty() || !time.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') {
            return None;
        }
        let rest = rest.strip_prefix(b" [")?;
        let space = rest.iter().position(|byte| *byte == b' ')?;
        self.db = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
        let rest = &rest[space + 1..];
        // A path of a Unix socket may hold a bracket: what ends the head is a bracket, a
        // space and a quotation mark.
        let end = rest.windows(3).position(|three| three == b"] \"")?;
        self.from_script = &rest[..end] == b"lua";
        Some(&rest[end + 2..])
    }

    fn read_args(&mut self, mut rest: &[u8]) -> Option<()> {
        loop {
            rest = self.read_quoted(rest.strip_prefix(b"\"")?)?;
            self.ends.push(self.bytes.len());
            if rest.is_empty() {
                return Some(());
            }
            rest = rest.strip_prefix(b" ")?;
        }
    }

    /// Reads up to and with the closing quotation mark.
    fn read_quoted<'a>(&mut self, mut rest: &'a [u8]) -> Option<&'a [u8]> {
        loop {
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
            self.bytes.extend_from_slice(&rest[..plain]);
            if rest[plain] == b'"' {
                return Some(&rest[plain + 1..]);
            }
            let (byte, len) = match rest.get(plain + 1)? {
                b'n' => (b'\n', 2),
                b'r' => (b'\r', 2),
                b't' => (b'\t', 2),
                b'a' => (0x07, 2),
                b'b' => (0x08, 2),
                b'x' => {
                    let digits = rest.get(plain + 2..plain + 4)?;
                    let text = std::str::from_utf8(digits).ok()?;
                    (u8::from_str_radix(text, 16).ok()?, 4)
                }
                escaped @ (b'"' | b'\\') => (*escaped, 2),
                _ => return None,
            };
            self.bytes.push(byte);
            rest = &rest[plain + len..];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn args(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut monitor = MonitorLine::default();
        monitor.read(line).ok()?;
        Some((0..monitor.arg_count()).map(|at| monitor.arg(at).to_vec()).collect())
    }

    #[test]
    fn heads_of_all_kinds() {
        let mut line = MonitorLine::default();
        line.read(br#"1339518083.107412 [3 127.0.0.1:60866] "ping""#).unwrap();
        assert_eq!((line.db(), line.source(), line.arg_count()), (3, Source::Client, 1));
        line.read(br#"1339518083.107412 [0 [::1]:60866] "get" "k""#).unwrap();
        assert_eq!((line.db(), line.source(), line.arg(1)), (0, Source::Client, &b"k"[..]));
        line.read(br#"1339518083.107412 [0 unix:/run/a] b/redis.sock] "get" "k""#).unwrap();
        assert_eq!((line.source(), line.arg(0)), (Source::Client, &b"get"[..]));
        line.read(br#"1339518083.107412 [12 lua] "get" "k""#).unwrap();
        assert_eq!((line.db(), line.source()), (12, Source::Script));
    }

    #[test]
    fn escapes_and_empty_arguments() {
        let line = br#"1.2 [0 127.0.0.1:1] "set" "" "a \"b\" \\ \n\r\t\a\b\x00\xff" " ] \" ""#;
        let expected: [&[u8]; 4] = [b"set", b"", b"a \"b\" \\ \n\r\t\x07\x08\x00\xff", b" ] \" "];
        assert_eq!(args(line).unwrap(), expected);
    }

    #[test]
    fn what_stands_before_a_cut_is_read() {
        let mut line = MonitorLine::default();
        line.read_head_of(br#"1.2 [0 127.0.0.1:1] "set" "key" "the \"beginn"#, 5_000).unwrap();
        assert_eq!((line.arg_count(), line.arg(1), line.bytes()), (2, &b"key"[..], 5_000));
        line.read_head_of(br#"1.2 [0 127.0.0.1:1] "set" "key" "half \x0"#, 5_000).unwrap();
        assert_eq!((line.arg_count(), line.arg(1)), (2, &b"key"[..]));
        assert!(line.read_head_of(br#"1.2 [0 127.0.0.1:1] "s"#, 5_000).is_err());
        line.read(br#"1.2 [0 127.0.0.1:1] "get" "key""#).unwrap();
        assert_eq!(line.bytes(), 6, "the next line starts anew");
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            &b"OK"[..],
            b"",
            br#"1.2 [x 127.0.0.1:1] "get""#,
            br#"1.2 [0 127.0.0.1:1] "get"#,
            br#"1.2 [0 127.0.0.1:1] "get" "#,
            br#"1.2 [0 127.0.0.1:1] "get" k"#,
            br#"1.2 [0 127.0.0.1:1] "get" "\q""#,
            br#"1.2 [0 127.0.0.1:1] "get" "\x0""#,
            br#"1.2 [0 127.0.0.1:1] "get" "\xg0""#,
            br#"time [0 127.0.0.1:1] "get""#,
        ] {
            assert_eq!(args(line), None, "{}", line.escape_ascii());
        }
    }

    /// As the server writes it (`sdscatrepr`).
    fn quoted(arg: &[u8], out: &mut Vec<u8>) {
        out.push(b'"');
        for byte in arg {
            match byte {
                b'\\' | b'"' => out.extend([b'\\', *byte]),
                b'\n' => out.extend(b"\\n"),
                b'\r' => out.extend(b"\\r"),
                b'\t' => out.extend(b"\\t"),
                0x07 => out.extend(b"\\a"),
                0x08 => out.extend(b"\\b"),
                b' '..=b'~' => out.push(*byte),
                _ => out.extend(format!("\\x{byte:02x}").bytes()),
            }
        }
        out.push(b'"');
    }

    proptest! {
        #[test]
        fn what_a_server_writes_comes_back(sent: Vec<Vec<u8>>, name in "[a-z]{1,8}") {
            let mut sent = sent;
            sent.insert(0, name.into_bytes());
            let mut line = b"1700000000.000001 [0 127.0.0.1:6379]".to_vec();
            for arg in &sent {
                line.push(b' ');
                quoted(arg, &mut line);
            }
            prop_assert_eq!(args(&line), Some(sent));
        }

        #[test]
        fn no_bytes_are_too_odd(bytes: Vec<u8>) {
            let _ = args(&bytes);
        }
    }
}
