//! Stamps in front of a list's elements: the order of stamps is the order of the list.
//!
//! Invariant: what is pushed at the right end has a stamp above zero and above all that were
//! there, what is pushed at the left end one below. A stamp is eight bytes that sort like the
//! number.

/// Most elements of one call, and of a list that is split: those take stamps up to this from 1 on.
pub const PER_CALL: u64 = 1 << 20;

const BYTES: usize = 8;

/// An element pushed at the right end, `at` elements of its call before it. `None` if there are
/// no more stamps.
pub(crate) fn right(first: u64, at: usize, element: &[u8]) -> Option<Vec<u8>> {
    Some(stamped(number(first, at)?, element))
}

/// Likewise at the left end.
pub(crate) fn left(first: u64, at: usize, element: &[u8]) -> Option<Vec<u8>> {
    Some(stamped(-number(first, at)?, element))
}

/// The element itself.
pub(crate) fn without(stamped: &[u8]) -> &[u8] {
    stamped.get(BYTES..).unwrap_or_default()
}

/// Puts elements into the order of their stamps; whether all have one.
pub(crate) fn sort(elements: &mut [&[u8]]) -> bool {
    if elements.iter().any(|element| element.len() < BYTES) {
        return false;
    }
    // Two processes may have pushed to one shard, so no shard is relied on to be in order; but
    // the runs that there are make this a merge.
    elements.sort_by_key(|element| element.first_chunk::<BYTES>());
    true
}

fn number(first: u64, at: usize) -> Option<i64> {
    i64::try_from(first.checked_add(at as u64)?).ok()
}

fn stamped(number: i64, element: &[u8]) -> Vec<u8> {
    let sortable = (number as u64) ^ (1 << 63);
    [&sortable.to_be_bytes()[..], element].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_sort_like_pushes() {
        let b = right(5, 0, b"b").expect("a stamp");
        let c = right(5, 300, b"c").expect("a stamp");
        let a = left(6, 1, b"a").expect("a stamp");
        let mut elements = [&c[..], &b, &a];
        assert!(sort(&mut elements));
        assert_eq!(elements.map(without), [b"a", b"b", b"c"]);
        assert!(!sort(&mut [&c, b"1234567"]));
        assert_eq!(right(u64::MAX, 1, b""), None);
        assert_eq!(right(i64::MAX as u64, 1, b""), None);
    }
}
