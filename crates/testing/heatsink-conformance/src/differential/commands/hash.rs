//! Hashes.
//!
//! Called by: `commands::any`. Bound: about 50 different fields. Invariant: as `commands`; the
//! servers keep hashes in insertion order (see `settings`), so replies are exact.

use super::{Command, args, exact};
use crate::differential::words::{Pool, Words};

pub(super) fn next(w: &mut Words) -> Command {
    let key = w.key(Pool::Hash);
    match w.below(20) {
        0..=4 => {
            let mut list = args!["HSET", key];
            for _ in 0..=w.below(4) {
                list.extend(args![w.member(), w.value()]);
            }
            Command::exact(list)
        }
        5 => exact!["HMSET", key, w.member(), w.value()],
        6 => exact!["HSETNX", key, w.member(), w.value()],
        7 => exact!["HGET", key, w.member()],
        8 => exact!["HMGET", key, w.members(4)],
        9 | 10 => exact!["HGETALL", key],
        11 => exact!["HKEYS", key],
        12 => exact!["HVALS", key],
        13 => exact!["HDEL", key, w.members(4)],
        14 => exact!["HLEN", key],
        15 => exact!["HEXISTS", key, w.member()],
        16 => exact!["HINCRBY", key, w.member(), w.integer()],
        17 => exact!["HINCRBYFLOAT", key, w.member(), w.float()],
        18 => exact!["HSTRLEN", key, w.member()],
        _ => exact!["HSCAN", key, "0", "MATCH", w.pick(&["*", "m*"]), "COUNT", "100000"].rigid(),
    }
}
