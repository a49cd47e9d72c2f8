//! Strings, counters and bitmaps.
//!
//! Called by: `commands::any`. Bound: offsets of a few thousand. Invariant: as `commands`.

use super::{Command, args, exact};
use crate::differential::words::{Pool, Words};

pub(super) fn next(w: &mut Words) -> Command {
    match w.below(38) {
        0..=3 => exact!["SET", w.key(Pool::Text), w.value()],
        4..=7 => exact!["GET", w.key(Pool::Text)],
        8 => {
            let option = w.pick(&["NX", "XX", "GET", "KEEPTTL", "BAD"]);
            exact!["SET", w.key(Pool::Text), w.value(), option]
        }
        9 => exact!["SET", w.key(Pool::Text), w.value(), "EXAT", w.far_second()],
        10 => exact!["SET", w.key(Pool::Text), w.value(), "NX", "GET"],
        11 => exact!["SETNX", w.key(Pool::Text), w.value()],
        12 => exact!["GETSET", w.key(Pool::Text), w.value()],
        13 => exact!["GETDEL", w.key(Pool::Text)],
        14 => exact!["GETEX", w.key(Pool::Text), "PERSIST"],
        15 => exact!["APPEND", w.key(Pool::Text), w.member()],
        16 => exact!["STRLEN", w.key(Pool::Text)],
        17 => exact!["GETRANGE", w.key(Pool::Text), w.integer(), w.integer()],
        18 => exact!["SETRANGE", w.key(Pool::Text), w.small(), w.member()],
        19 => exact!["SUBSTR", w.key(Pool::Text), w.small(), w.small()],
        20 => exact!["MGET", w.keys(Pool::Text, 6)],
        21 => {
            let mut list = args!["MSET"];
            for _ in 0..=w.below(4) {
                list.extend(args![w.key(Pool::Text), w.value()]);
            }
            Command::exact(list)
        }
        22 => exact!["MSETNX", w.key(Pool::Text), w.value(), w.key(Pool::Text), w.value()],
        23 => exact!["INCR", w.key(Pool::Number)],
        24 => exact!["DECR", w.key(Pool::Number)],
        25 => exact!["INCRBY", w.key(Pool::Number), w.integer()],
        26 => exact!["DECRBY", w.key(Pool::Number), w.integer()],
        27 => exact!["INCRBYFLOAT", w.key(Pool::Number), w.float()],
        28 => exact!["LCS", w.key(Pool::Text), w.key(Pool::Text), w.pick(&["LEN", "IDX"])],
        29 => exact!["SETEX", w.key(Pool::Text), 100_000 + w.below(800_000), w.value()],
        _ => bits(w),
    }
}

fn bits(w: &mut Words) -> Command {
    let kind = w.pick(&["u8", "i16", "u63", "i64", "u64"]);
    match w.below(8) {
        0 => exact!["SETBIT", w.key(Pool::Bits), w.below(5000), w.below(3)],
        1 => exact!["GETBIT", w.key(Pool::Bits), w.integer()],
        2 => exact!["BITCOUNT", w.key(Pool::Bits)],
        3 => exact!["BITCOUNT", w.key(Pool::Bits), w.small(), w.small(), w.pick(&["BYTE", "BIT"])],
        4 => exact!["BITPOS", w.key(Pool::Bits), w.below(3), w.small()],
        5 => {
            let operation = w.pick(&["AND", "OR", "XOR", "NOT"]);
            exact!["BITOP", operation, w.key(Pool::Bits), w.keys(Pool::Bits, 3)]
        }
        6 => {
            let overflow = w.pick(&["WRAP", "SAT", "FAIL"]);
            exact![
                "BITFIELD",
                w.key(Pool::Bits),
                "SET",
                kind,
                w.below(100),
                w.small(),
                "OVERFLOW",
                overflow,
                "INCRBY",
                kind,
                format!("#{}", w.below(8)),
                w.integer()
            ]
        }
        _ => exact!["BITFIELD_RO", w.key(Pool::Bits), "GET", kind, w.below(200)],
    }
}
