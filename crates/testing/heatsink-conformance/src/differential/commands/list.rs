//! Lists.
//!
//! Called by: `commands::any`. Bound: `LTRIM` is as likely as it must be to keep lists short.
//! Invariant: as `commands`.

use super::{Command, args, exact};
use crate::differential::words::{Pool, Words};

pub(super) fn next(w: &mut Words) -> Command {
    let key = w.key(Pool::List);
    let side = w.pick(&["LEFT", "RIGHT"]);
    match w.below(24) {
        0..=2 => exact!["RPUSH", key, w.members(4)],
        3 | 4 => exact!["LPUSH", key, w.value(), w.value()],
        5 => exact![w.pick(&["LPUSHX", "RPUSHX"]), key, w.value()],
        6 => exact![w.pick(&["LPOP", "RPOP"]), key],
        7 => exact![w.pick(&["LPOP", "RPOP"]), key, w.small()],
        8..=10 => exact!["LRANGE", key, w.small(), w.small()],
        11 => exact!["LLEN", key],
        12 => exact!["LINDEX", key, w.integer()],
        13 => exact!["LSET", key, w.small(), w.value()],
        14 => exact!["LREM", key, w.small(), w.member()],
        15 => exact!["LINSERT", key, w.pick(&["BEFORE", "AFTER", "BY"]), w.member(), w.value()],
        16 | 17 => exact!["LTRIM", key, w.below(3), w.below(30)],
        18 => exact!["LPOS", key, w.member()],
        19 => exact!["LPOS", key, w.member(), "RANK", w.small(), "COUNT", w.small()],
        20 => exact!["RPOPLPUSH", key, w.key(Pool::List)],
        21 => exact!["LMOVE", key, w.key(Pool::List), side, w.pick(&["LEFT", "RIGHT"])],
        22 => exact!["LMPOP", "2", key, w.key(Pool::List), side, "COUNT", w.below(4)],
        _ => {
            let list = args!["LMPOP", w.key_count(), key, side];
            Command::exact(list)
        }
    }
}
