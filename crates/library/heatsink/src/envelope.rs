//! The bytes under a key of the shared tier.
//!
//! | bytes | what |
//! |---|---|
//! | `HS` | these are ours |
//! | 1 | layout, 1 |
//! | 1 | `L` a lease, `V` a value, `N` known to be absent |
//! | 16 | *version*: by chance, another for each writing |
//! | 8, 8, 8 | milliseconds from the writing: fresh, stale, on error |
//! | 4 | milliseconds that the load took |
//! | 1 | format of the value |
//! | rest | the value |
//!
//! A lease ends after the version. The key's own time to live in the store is that of the last
//! window, so the age of a value is that window less what is left of it: only the store's clock is
//! asked, and clocks of the processes do not matter.
//!
//! Called by: `fly::shared`.
//! Invariant: whatever the bytes, reading gives a value, a lease, or that they are foreign.

use std::time::Duration;

use heatsink_cache::stampede::freshness::Life;

use crate::clock::whole_ms;
use crate::record::Version;

const MARK: [u8; 3] = *b"HS\x01";
/// What tells one writing from another.
pub(crate) const HEAD: usize = 20;
const WHOLE_HEAD: usize = HEAD + 8 * 3 + 4 + 1;

/// What lies under a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opened<'a> {
    Lease(Version),
    Value { version: Version, life: Life, format: u8, bytes: &'a [u8] },
    Absent { version: Version, life: Life },
    Foreign,
}

pub(crate) fn head(kind: u8, version: Version) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..3].copy_from_slice(&MARK);
    head[3] = kind;
    head[4..].copy_from_slice(&version.0);
    head
}

pub(crate) fn lease(version: Version) -> [u8; HEAD] {
    head(b'L', version)
}

/// Of a value, or of "there is no such thing".
pub(crate) fn seal(version: Version, life: &Life, value: Option<(u8, &[u8])>) -> Vec<u8> {
    let (kind, format, bytes) = match value {
        Some((format, bytes)) => (b'V', format, bytes),
        None => (b'N', 0, &[][..]),
    };
    let mut out = Vec::with_capacity(WHOLE_HEAD + bytes.len());
    out.extend_from_slice(&head(kind, version));
    for window in [life.fresh_for, life.stale_for, life.error_for] {
        out.extend_from_slice(&whole_ms(window).to_be_bytes());
    }
    let cost = u32::try_from(life.cost.as_millis()).unwrap_or(u32::MAX);
    out.extend_from_slice(&cost.to_be_bytes());
    out.push(format);
    out.extend_from_slice(bytes);
    out
}

pub(crate) fn open(bytes: &[u8]) -> Opened<'_> {
    open_ours(bytes).unwrap_or(Opened::Foreign)
}

fn open_ours(bytes: &[u8]) -> Option<Opened<'_>> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let version = Version(*head.last_chunk()?);
    if head[..3] != MARK {
        return None;
    }
    if head[3] == b'L' {
        return rest.is_empty().then_some(Opened::Lease(version));
    }
    let (fresh, rest) = rest.split_first_chunk()?;
    let (stale, rest) = rest.split_first_chunk()?;
    let (error, rest) = rest.split_first_chunk()?;
    let (cost, rest) = rest.split_first_chunk()?;
    let (format, bytes) = rest.split_first()?;
    let ms = |bytes: &[u8; 8]| Duration::from_millis(u64::from_be_bytes(*bytes));
    let life = Life {
        fresh_for: ms(fresh),
        stale_for: ms(stale),
        error_for: ms(error),
        cost: Duration::from_millis(u64::from(u32::from_be_bytes(*cost))),
    };
    match head[3] {
        b'V' => Some(Opened::Value { version, life, format: *format, bytes }),
        b'N' if bytes.is_empty() => Some(Opened::Absent { version, life }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_and_nothing_else_does() {
        let ms = Duration::from_millis;
        let life = Life { fresh_for: ms(1), stale_for: ms(2), error_for: ms(3), cost: ms(4) };
        let version = Version(*b"0123456789abcdef");
        let value = seal(version, &life, Some((7, b"value")));
        assert_eq!(open(&value), Opened::Value { version, life, format: 7, bytes: b"value" });
        assert_eq!(open(&seal(version, &life, None)), Opened::Absent { version, life });
        assert_eq!(open(&lease(version)), Opened::Lease(version));
        // Any part of a value, and any other first bytes.
        for end in 0..WHOLE_HEAD {
            assert_eq!(open(&value[..end]), Opened::Foreign, "{end}");
        }
        for at in 0..4 {
            let mut other = value.clone();
            other[at] ^= 0x20;
            assert_eq!(open(&other), Opened::Foreign, "{at}");
        }
        assert_eq!(open(b"{\"json\":1}"), Opened::Foreign);
    }
}
