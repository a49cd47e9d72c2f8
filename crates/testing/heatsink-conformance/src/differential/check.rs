//! When two replies count as the same.
//!
//! Called by: `runner`, for each pair of frames.
//! Bound: none of its own.
//! Invariant: only what the server itself makes different between two equal servers is
//! forgiven, and only for the commands that say so.

use std::ops::Range;

/// What `DUMP` answers begins with the type: a set in a hash table, streams of three ages.
const DUMPED_UNLIKE: [u8; 4] = [2, 15, 19, 21];

/// How a reply is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Byte for byte.
    Exact,
    /// The same elements at every level; their order follows the server's hash seed.
    Unordered,
    /// Integers this far apart at most: what is left of an expiry.
    Near(u64),
    /// `HELLO`: all but the connection's id, and whether there is a cluster.
    Hello,
    /// `DUMP`: a set's members come in hash order, a stream's consumers carry times.
    Dump,
}

impl Check {
    pub(super) fn same(self, one: &[u8], other: &[u8]) -> bool {
        if one == other {
            return true;
        }
        match self {
            Self::Exact => false,
            Self::Unordered => one.len() == other.len() && sorted(one) == sorted(other),
            Self::Near(bound) => match (integer(one), integer(other)) {
                (Some(one), Some(other)) => one > 0 && other > 0 && one.abs_diff(other) <= bound,
                _ => false,
            },
            Self::Hello => {
                let (one, other) = (of_standalone(one), of_standalone(other));
                let (Some(a), Some(b)) = (id_digits(&one), id_digits(&other)) else {
                    return false;
                };
                one[..a.start] == other[..b.start] && one[a.end..] == other[b.end..]
            }
            Self::Dump => {
                let kind = payload(one).first();
                kind == payload(other).first()
                    && kind.is_some_and(|kind| DUMPED_UNLIKE.contains(kind))
                    && one.len() == other.len()
            }
        }
    }
}

/// Every header and every leaf of a reply, sorted: equal for the same elements in any order.
fn sorted(frame: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = frame;
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let body = match rest[0] {
            b'$' | b'=' | b'!' => std::str::from_utf8(&rest[1..end - 1]).ok(),
            _ => None,
        };
        let body_len = body.and_then(|digits| digits.parse().ok()).map_or(0, |len: usize| len + 2);
        let (part, after) = rest.split_at(rest.len().min(end + 1 + body_len));
        parts.push(part);
        rest = after;
    }
    parts.sort_unstable();
    parts
}

/// What `HELLO` would say if there were no cluster.
fn of_standalone(frame: &[u8]) -> Vec<u8> {
    const MODE: &[u8] = b"$4\r\nmode\r\n$7\r\ncluster\r\n";
    let Some(at) = frame.windows(MODE.len()).position(|window| window == MODE) else {
        return frame.to_vec();
    };
    let standalone: &[u8] = b"$4\r\nmode\r\n$10\r\nstandalone\r\n";
    [&frame[..at], standalone, &frame[at + MODE.len()..]].concat()
}

fn integer(frame: &[u8]) -> Option<i64> {
    let digits = frame.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Where the digits of the connection's id are.
fn id_digits(frame: &[u8]) -> Option<Range<usize>> {
    const FIELD: &[u8] = b"$2\r\nid\r\n:";
    let start = frame.windows(FIELD.len()).position(|window| window == FIELD)? + FIELD.len();
    let len = frame[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(start..start + len)
}

/// What a bulk string holds; empty for anything else.
pub(super) fn payload(frame: &[u8]) -> &[u8] {
    if frame.first() != Some(&b'$') || frame.starts_with(b"$-1") {
        return &[];
    }
    let Some(end) = frame.iter().position(|&byte| byte == b'\n') else { return &[] };
    &frame[end + 1..frame.len() - 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_forgiven() {
        let (ab, ba) = (b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"*2\r\n$1\r\nb\r\n$1\r\na\r\n");
        assert!(!Check::Exact.same(ab, ba));
        assert!(Check::Unordered.same(ab, ba));
        assert!(!Check::Unordered.same(ab, b"*2\r\n$1\r\na\r\n$1\r\na\r\n"));
        assert!(Check::Near(2).same(b":7\r\n", b":9\r\n"));
        assert!(!Check::Near(2).same(b":7\r\n", b":10\r\n"));
        assert!(!Check::Near(2).same(b":-1\r\n", b":1\r\n"));
        let hello = |id: &str, role: &str| format!("*4\r\n$2\r\nid\r\n:{id}\r\n+{role}\r\n+x\r\n");
        assert!(Check::Hello.same(hello("5", "a").as_bytes(), hello("123", "a").as_bytes()));
        assert!(!Check::Hello.same(hello("5", "a").as_bytes(), hello("5", "b").as_bytes()));
        assert!(Check::Dump.same(b"$3\r\n\x02ab\r\n", b"$3\r\n\x02ba\r\n"));
        assert!(!Check::Dump.same(b"$3\r\n\x00ab\r\n", b"$3\r\n\x00ba\r\n"));
    }
}
