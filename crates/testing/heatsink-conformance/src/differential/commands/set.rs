//! Sets and `HyperLogLog`s.
//!
//! Called by: `commands::any`. Bound: about 45 different members. Invariant: as `commands`; a
//! set that holds other than integers answers in hash order, so such replies are compared
//! sorted, and commands that pick members are used only where they take all.

use super::{Command, args, exact};
use crate::differential::check::Check;
use crate::differential::words::{Pool, Words};

pub(super) fn next(w: &mut Words) -> Command {
    let key = w.key(Pool::Set);
    match w.below(26) {
        0..=4 => exact!["SADD", key, w.members(5)],
        5 => exact!["SREM", key, w.members(3)],
        6 => exact!["SISMEMBER", key, w.member()],
        7 => exact!["SMISMEMBER", key, w.members(3)],
        8 => exact!["SCARD", key],
        9 | 10 => unordered(args!["SMEMBERS", key]),
        11 => unordered(args!["SINTER", key, w.keys(Pool::Set, 2)]),
        12 => unordered(args!["SUNION", key, w.keys(Pool::Set, 2)]),
        13 => unordered(args!["SDIFF", key, w.keys(Pool::Set, 2)]),
        14 => {
            let name = w.pick(&["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"]);
            exact![name, key, w.keys(Pool::Set, 3)]
        }
        15 => exact!["SINTERCARD", "2", key, w.key(Pool::Set), "LIMIT", w.small()],
        16 => exact!["SINTERCARD", w.key_count(), key, w.key(Pool::Set)],
        17 => exact!["SMOVE", key, w.key(Pool::Set), w.member()],
        18 => unordered(args!["SPOP", key, "100000"]).rigid(),
        19 => exact!["SPOP", key, w.pick(&["0", "-1", "x"])].rigid(),
        20 => unordered(args!["SSCAN", key, "0", "COUNT", "100000"]).rigid(),
        21 => exact!["PFADD", w.key(Pool::Hll), w.members(8)],
        22 => exact!["PFADD", w.key(Pool::Hll), w.value()],
        23 => exact!["PFCOUNT", w.keys(Pool::Hll, 3)],
        24 => exact!["PFMERGE", w.key(Pool::Hll), w.keys(Pool::Hll, 2)],
        _ => exact!["GET", w.key(Pool::Hll)],
    }
}

fn unordered(list: Vec<Vec<u8>>) -> Command {
    Command::checked(list, Check::Unordered)
}
