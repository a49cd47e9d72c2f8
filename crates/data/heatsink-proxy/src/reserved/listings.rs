//! Replies that tell names of keys, or their number, without those that belong to the fleet.
//!
//! Called by: `intake` and `apply` with such requests, `scatter_gather` with what the servers say.
//! Bound: [`MAX_ROUNDS`] further questions for a random key; one further question for a slot in
//! which the fleet is known to have keys, for their number.
//! Invariant: what a client is told of its own keys is what the server says. Names that nobody
//! here knows of (tombstones of a split that is over, for ten minutes) are left out of lists, but
//! not of the number.
//!
//! Within `MULTI` and on a client's dedicated connection replies are the server's.

use heatsink_cluster::join::{self, Join};
use heatsink_resp::command::Command;
use heatsink_resp::encode;
use memchr::{memchr, memmem};

use crate::reserved::names::{self, PREFIX};

/// Keys that are asked for at once, when the first was one of the fleet's.
pub(crate) const ROUND: usize = 8;
/// So often. A client with one key among ten of the fleet's is told so all the same but once in
/// many millions; with more, sooner.
pub(crate) const MAX_ROUNDS: u32 = 24;

/// What becomes of such a reply.
#[derive(Debug)]
pub(crate) enum Telling {
    /// A list of names.
    List(Join),
    /// A cursor and a list of names; on a cluster, whose cursor it is, and of how many.
    Scan(Option<(usize, usize)>),
    /// Numbers of keys, of which the first so many are all and the others the fleet's.
    Count(usize),
    /// Keys by chance, and how often more may be asked for.
    Random(u32),
}

/// Whether a command tells of keys that it does not name.
#[inline]
pub(crate) fn tells_names(command: &Command) -> bool {
    command.keys.is_empty()
        && matches!(
            &*command.name,
            "keys" | "scan" | "dbsize" | "randomkey" | "pubsub|channels" | "pubsub|shardchannels"
        )
}

/// A reply without names of the fleet, if it has any.
pub(crate) fn without_dedicated(frame: &[u8], list_at: usize) -> Option<Vec<u8>> {
    memmem::find(frame, PREFIX)?;
    let list = frame.get(list_at..)?;
    let (kind, header) = (*list.first()?, memchr(b'\n', list)? + 1);
    if !matches!(kind, b'*' | b'~') {
        return None;
    }
    let (mut rest, mut kept, mut count) = (&list[header..], Vec::with_capacity(list.len()), 0);
    while !rest.is_empty() {
        let (name, len) = bulk(rest)?;
        if !names::is_reserved(name) {
            kept.extend_from_slice(&rest[..len]);
            count += 1;
        }
        rest = &rest[len..];
    }
    let mut told = frame[..list_at].to_vec();
    encode::header(&mut told, kind, count);
    told.extend_from_slice(&kept);
    Some(told)
}

/// The string that a frame begins with, and how long its frame is.
pub(crate) fn bulk(frame: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr(b'\n', frame)?;
    let length = frame[..end].strip_prefix(b"$")?.strip_suffix(b"\r")?;
    let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
    let start = end + 1;
    Some((frame.get(start..start + length)?, start + length + 2))
}

/// Where the list begins in the reply of `SCAN`.
pub(crate) fn list_of_scan(frame: &[u8]) -> Option<usize> {
    let header = memchr(b'\n', frame)? + 1;
    let (_, cursor) = bulk(&frame[header..])?;
    Some(header + cursor)
}

fn number(frame: &[u8]) -> Option<i64> {
    let digits = frame.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// All keys but the fleet's. Where those cannot be asked for, they count.
pub(crate) fn count(parts: &[Vec<u8>], nodes: usize) -> Vec<u8> {
    let (all, dedicated) = parts.split_at(nodes.min(parts.len()));
    let reply = join::join(&Join::Sum, all);
    let Some(all) = number(&reply) else { return reply };
    let dedicated: i64 = dedicated.iter().filter_map(|part| number(part)).sum();
    format!(":{}\r\n", (all - dedicated).max(0)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode::command(&mut bytes, names);
        bytes
    }

    #[test]
    fn names_of_the_fleet_are_left_out_of_lists() {
        let told = list(&["a", "heatsink:{default}:state", "heatsink", "heatsink:{a}:id:0", "b"]);
        assert_eq!(without_dedicated(&told, 0), Some(list(&["a", "heatsink", "b"])));
        assert_eq!(without_dedicated(&list(&["heatsink:{a}:x"]), 0), Some(b"*0\r\n".to_vec()));
        assert_eq!(without_dedicated(&list(&["a", "b"]), 0), None);
        assert_eq!(without_dedicated(b"-ERR heatsink:{\r\n", 0), None);
        let scanned = [b"*2\r\n$2\r\n17\r\n", &told[..]].concat();
        let at = list_of_scan(&scanned).expect("a list");
        let left = [b"*2\r\n$2\r\n17\r\n", &list(&["a", "heatsink", "b"])[..]].concat();
        assert_eq!(without_dedicated(&scanned, at), Some(left));
    }

    #[test]
    fn the_fleets_keys_do_not_count() {
        let parts =
            |texts: &[&str]| texts.iter().map(|t| t.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(count(&parts(&[":9\r\n", ":8\r\n"]), 1), b":1\r\n");
        assert_eq!(count(&parts(&[":9\r\n", ":1\r\n", ":2\r\n", "-NOPERM no\r\n"]), 2), b":8\r\n");
        assert_eq!(count(&parts(&["-NOAUTH no\r\n", ":2\r\n"]), 1), b"-NOAUTH no\r\n");
    }
}
