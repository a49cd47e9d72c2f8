//! Writes requests as arrays of bulk strings.

use std::io::Write;

/// Appends one request.
pub fn command<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    header(out, b'*', args.len());
    for arg in args {
        bulk(out, arg.as_ref());
    }
}

/// Appends a bulk string.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a header line: a type byte and a number.
pub fn header(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    let _ = write!(out, "{number}\r\n");
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_request_as_bytes() {
        let mut out = Vec::new();
        super::command(&mut out, &[&b"SET"[..], b"a", b""]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n");
    }
}
