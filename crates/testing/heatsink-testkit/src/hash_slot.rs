//! Which slot of a cluster a key belongs to, and a key for every slot.
//!
//! Called by: `redis_cluster`, and tests that want a key in a certain place.
//! Bound: a table of 16384 numbers, made at the first use.
//! Invariant: written apart from the product's own computation on purpose, so that a mistake
//! there is not repeated here and hidden; a test compares it with `CLUSTER KEYSLOT`.

use std::sync::OnceLock;

/// How many slots a cluster has.
pub const SLOTS: u16 = 16384;

/// The slot of `key`: of what is between the first `{` and the next `}`, unless that is
/// nothing, and else of all of it.
pub fn key_slot(key: impl AsRef<[u8]>) -> u16 {
    let key = key.as_ref();
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let len = rest.iter().position(|byte| *byte == b'}')?;
        (len > 0).then_some(&rest[..len])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// A key of `slot`, always the same: a hash tag and nothing else, so that what is appended
/// stays in the slot.
#[track_caller]
pub fn key_for_slot(slot: u16) -> String {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    assert!(slot < SLOTS, "no slot {slot}");
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![None; usize::from(SLOTS)];
        let mut missing = tags.len();
        for tag in 0_u32.. {
            let place = &mut tags[usize::from(key_slot(tag.to_string()))];
            if place.replace(place.unwrap_or(tag)).is_none() {
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        tags.into_iter().flatten().collect()
    });
    format!("{{{}}}", tags[usize::from(slot)])
}

/// The CRC that XMODEM uses: polynomial 0x1021, starting at 0, bits as they come.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let carry = crc & 0x8000 != 0;
            (crc << 1) ^ if carry { 0x1021 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn only_a_tag_that_is_not_empty_counts() {
        assert_eq!(key_slot("{user}.a"), key_slot("user"));
        assert_eq!(key_slot("x{user}y{other}"), key_slot("user"));
        assert_eq!(key_slot("{}a"), crc16(b"{}a") % SLOTS);
        assert_eq!(key_slot("{a"), crc16(b"{a") % SLOTS);
        assert_eq!(key_slot("{{a}b}"), key_slot("{a"));
    }

    #[test]
    fn every_slot_has_a_key() {
        for slot in 0..SLOTS {
            assert_eq!(key_slot(key_for_slot(slot) + "more"), slot);
        }
    }
}
