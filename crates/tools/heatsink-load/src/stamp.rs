//! What a value says of itself: its key, its version, and that it is whole.
//!
//! Called by: the engine, for every write and for every value read.
//! Invariant: a value in which any byte differs is recognised (CRC-32 over all of it), and so
//! is a whole value that belongs to another key.
//!
//! ```text
//! crc32 | run | version | floor | key length | key | filler
//!   4   |  4  |    8    |   8   |      2     |     |        bytes, big-endian
//! ```

/// Bytes before the key.
const HEAD_BYTES: usize = 26;
const FILLER: u8 = b'.';

/// What stands in a value beside its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The run that wrote it: a value of an earlier run is none of ours.
    pub run: u32,
    /// Counts the writes of the key.
    pub version: u64,
    /// All versions up to this one were acknowledged before this one was sent.
    pub floor: u64,
}

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Too short, or its checksum does not fit.
    Corrupted,
    /// Whole, but of this key.
    OtherKey(Vec<u8>),
}

/// The fewest bytes that a value of a key of this length takes.
pub fn least_bytes(key_bytes: usize) -> usize {
    HEAD_BYTES + key_bytes
}

/// Appends a value of `bytes` bytes, or of the fewest that it takes.
pub fn write(out: &mut Vec<u8>, key: &[u8], stamp: Stamp, bytes: usize) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&stamp.run.to_be_bytes());
    out.extend_from_slice(&stamp.version.to_be_bytes());
    out.extend_from_slice(&stamp.floor.to_be_bytes());
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(key);
    let end = start + bytes.max(least_bytes(key.len()));
    out.resize(end, FILLER);
    let sum = crc32fast::hash(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&sum.to_be_bytes());
}

/// Reads a value that should be of `key`.
pub fn read(value: &[u8], key: &[u8]) -> Result<Stamp, Damage> {
    let (sum, rest) = value.split_first_chunk::<4>().ok_or(Damage::Corrupted)?;
    if crc32fast::hash(rest) != u32::from_be_bytes(*sum) {
        return Err(Damage::Corrupted);
    }
    let (stamp, found) = parts(rest).ok_or(Damage::Corrupted)?;
    if found == key { Ok(stamp) } else { Err(Damage::OtherKey(found.to_vec())) }
}

fn parts(rest: &[u8]) -> Option<(Stamp, &[u8])> {
    let (run, rest) = rest.split_first_chunk::<4>()?;
    let (version, rest) = rest.split_first_chunk::<8>()?;
    let (floor, rest) = rest.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    let key = rest.get(..usize::from(u16::from_be_bytes(*len)))?;
    let stamp = Stamp {
        run: u32::from_be_bytes(*run),
        version: u64::from_be_bytes(*version),
        floor: u64::from_be_bytes(*floor),
    };
    Some((stamp, key))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAMP: Stamp = Stamp { run: 7, version: 300, floor: 299 };

    fn value(key: &[u8], bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, key, STAMP, bytes);
        out
    }

    #[test]
    fn sizes_are_kept_down_to_the_least() {
        assert_eq!(value(b"k", 100).len(), 100);
        assert_eq!(value(b"k", 3).len(), least_bytes(1));
        assert_eq!(read(&value(b"k", 3), b"k"), Ok(STAMP));
    }

    #[test]
    fn a_value_of_another_key_is_recognised() {
        let damage = read(&value(b"one", 100), b"two");
        assert_eq!(damage, Err(Damage::OtherKey(b"one".to_vec())));
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_noticed(
            key in prop::collection::vec(any::<u8>(), 0..40),
            at: prop::sample::Index,
            change in 1..=255_u8,
        ) {
            let mut bytes = value(&key, 80);
            prop_assert_eq!(read(&bytes, &key), Ok(STAMP));
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            prop_assert_eq!(read(&bytes, &key), Err(Damage::Corrupted));
            prop_assert_eq!(read(&bytes[..at], &key), Err(Damage::Corrupted));
        }
    }
}
