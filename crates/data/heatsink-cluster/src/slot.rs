//! The slot of a key: CRC16 of the key, or of its hash tag.
//!
//! Called by: routing, for every request; `split`, for every key of one.

use heatsink_resp::command::Command;

/// Number of slots of a cluster.
pub const COUNT: usize = 16384;

/// The slot of a key. If it holds a `{` with a `}` behind it and something between them,
/// only what is between the first `{` and the next `}` counts.
#[inline]
pub fn of_key(key: &[u8]) -> u16 {
    crc16(tag(key)) & (COUNT as u16 - 1)
}

/// Where the keys of a request lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// It names no key.
    None,
    /// All of them in one slot.
    One(u16),
    /// In at least two slots.
    Many,
}

/// Finds the slots of a request's keys, sharded channels included.
#[inline]
pub fn of_request<'a>(
    command: &Command,
    arg_count: usize,
    arg: impl Fn(usize) -> &'a [u8] + Copy,
) -> Slots {
    if let Some(at) = command.single_key_index() {
        return if at < arg_count { Slots::One(of_key(arg(at))) } else { Slots::None };
    }
    let mut slots = Slots::None;
    command.for_each_key(arg_count, arg, |at| {
        slots = match slots {
            Slots::None => Slots::One(of_key(arg(at))),
            Slots::One(slot) if slot == of_key(arg(at)) => slots,
            Slots::One(_) | Slots::Many => Slots::Many,
        };
    });
    slots
}

#[inline]
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    let inner = &key[open + 1..];
    match memchr::memchr(b'}', inner) {
        None | Some(0) => key,
        Some(close) => &inner[..close],
    }
}

/// CRC16 with polynomial 0x1021 and a register that starts at 0 (XMODEM).
#[inline]
fn crc16(bytes: &[u8]) -> u16 {
    let (blocks, rest) = bytes.as_chunks::<8>();
    let mut crc = 0u16;
    // Lookups that do not wait for each other take a fraction of the time of those that do.
    for [a, b, c, d, e, f, g, h] in blocks {
        let [high, low] = crc.to_be_bytes();
        let behind = TABLES[5][usize::from(*c)]
            ^ TABLES[4][usize::from(*d)]
            ^ TABLES[3][usize::from(*e)]
            ^ TABLES[2][usize::from(*f)]
            ^ TABLES[1][usize::from(*g)]
            ^ TABLES[0][usize::from(*h)];
        crc = behind ^ TABLES[7][usize::from(a ^ high)] ^ TABLES[6][usize::from(b ^ low)];
    }
    for byte in rest {
        let [high, _] = crc.to_be_bytes();
        crc = (crc << 8) ^ TABLES[0][usize::from(high ^ byte)];
    }
    crc
}

/// What a byte leaves in the register with this many zero bytes behind it.
static TABLES: [[u16; 256]; 8] = tables();

const fn tables() -> [[u16; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut zeros = 0;
        while zeros < 8 {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
                bit += 1;
            }
            tables[zeros][byte] = crc;
            zeros += 1;
        }
        byte += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use heatsink_resp::command::CommandTable;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_check_value_of_the_polynomial() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }

    /// As a Redis 7 answers `CLUSTER KEYSLOT`.
    #[test]
    fn slots_that_a_server_gives() {
        for (key, slot) in [
            (&b""[..], 0),
            (b"foo", 12182),
            (b"123456789", 12739),
            (b"{a}{b}", 15495),
            (b"a", 15495),
            (b"b", 3300),
            (b"x{a}y", 15495),
            (b"{}x", 10595),
            (b"foo{}{bar}", 8363),
            (b"foo{{bar}}zap", 4015),
            (b"{bar", 4015),
            (b"a}b{", 6027),
            (b"\xff\x00\xfe", 434),
        ] {
            assert_eq!(of_key(key), slot, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn slots_of_whole_requests() {
        let table = CommandTable::default();
        let slots = |request: &str| {
            let args: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
            let command = table.lookup(args[0], args.get(1).copied()).unwrap();
            of_request(command, args.len(), |at| args[at])
        };
        assert_eq!(slots("GET a"), Slots::One(15495));
        assert_eq!(slots("GET"), Slots::None);
        assert_eq!(slots("PING"), Slots::None);
        assert_eq!(slots("SPUBLISH a x"), Slots::One(15495));
        assert_eq!(slots("PUBLISH a x"), Slots::None);
        assert_eq!(slots("MGET a {a}1 x{a}"), Slots::One(15495));
        assert_eq!(slots("MGET a b a"), Slots::Many);
        assert_eq!(slots("EVAL s 2 a {a} b"), Slots::One(15495));
        assert_eq!(slots("EVAL s 0 b"), Slots::None);
    }

    proptest! {
        #[test]
        fn four_bytes_at_a_time_are_a_bit_at_a_time(bytes: Vec<u8>) {
            let slow = bytes.iter().fold(0u16, |crc, byte| {
                (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
                    (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
                })
            });
            prop_assert_eq!(crc16(&bytes), slow);
        }

        #[test]
        fn a_tag_decides(before in "[^{}]*", tag in "[^{}]+", after: String) {
            let tagged = format!("{before}{{{tag}}}{after}");
            prop_assert_eq!(of_key(tagged.as_bytes()), of_key(tag.as_bytes()));
        }
    }
}
