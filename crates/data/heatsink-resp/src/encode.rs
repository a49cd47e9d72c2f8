//! Writes requests as arrays of bulk strings.

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

/// Appends a number as a reply.
pub fn integer(out: &mut Vec<u8>, number: i64) {
    out.push(b':');
    if number < 0 {
        out.push(b'-');
    }
    line(out, number.unsigned_abs());
}

/// Appends a header line: a type byte and a number.
pub fn header(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    line(out, number as u64);
}

fn line(out: &mut Vec<u8>, mut rest: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_request_as_bytes() {
        let mut out = Vec::new();
        super::command(&mut out, &[&b"SET"[..], b"a", b""]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n");
    }

    #[test]
    fn numbers_as_bytes() {
        for number in [0, 7, -7, 10, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            super::integer(&mut out, number);
            assert_eq!(out, format!(":{number}\r\n").into_bytes());
        }
    }
}
