//! Sorted sets.
//!
//! Called by: `commands::any`. Bound: about 45 different members. Invariant: as `commands`; see
//! `settings` for what keeps lexicographical ranges the same on two servers.

use super::{Command, args, exact};
use crate::differential::check::Check;
use crate::differential::words::{Pool, Words};

pub(super) fn next(w: &mut Words) -> Command {
    let key = w.key(Pool::Zset);
    match w.below(36) {
        0..=3 => {
            let mut list = args!["ZADD", key];
            for _ in 0..=w.below(4) {
                list.extend(args![w.float(), w.member()]);
            }
            Command::exact(list)
        }
        4 => {
            let option = w.pick(&["NX", "XX", "GT", "LT", "CH", "INCR"]);
            exact!["ZADD", key, option, w.float(), w.member()]
        }
        5 => exact!["ZADD", key, "XX", "GT", "CH", w.small(), w.member(), w.small(), w.member()],
        6 if w.chance(50) => exact!["ZADD", w.lex_key(), "0", w.member(), "0", w.member()],
        6 => exact!["ZINCRBY", key, w.float(), w.member()],
        7 => exact!["ZREM", key, w.members(3)],
        8 => exact!["ZSCORE", key, w.member()],
        9 => exact!["ZMSCORE", key, w.members(4)],
        10 => exact!["ZCARD", key],
        11 => exact!["ZCOUNT", key, w.score_bound(), w.score_bound()],
        12 => exact!["ZLEXCOUNT", w.lex_key(), w.lex_bound(), w.lex_bound()],
        13 => exact![w.pick(&["ZRANK", "ZREVRANK"]), key, w.member()],
        14 => exact!["ZRANGE", key, w.small(), w.small()],
        15 => exact!["ZRANGE", key, w.small(), w.small(), "REV", "WITHSCORES"],
        16 => exact!["ZRANGE", key, w.score_bound(), w.score_bound(), "BYSCORE", "WITHSCORES"],
        17 => exact![
            "ZRANGE",
            w.lex_key(),
            w.lex_bound(),
            w.lex_bound(),
            "BYLEX",
            "LIMIT",
            w.below(3),
            w.small()
        ],
        18 => exact!["ZRANGESTORE", w.key(Pool::Zset), key, w.small(), w.small()],
        19 => exact!["ZRANGEBYSCORE", key, w.score_bound(), w.score_bound(), "WITHSCORES"],
        20 => exact!["ZREVRANGEBYSCORE", key, "+inf", "-inf", "LIMIT", w.below(4), w.small()],
        21 => exact!["ZREVRANGE", key, "0", "-1", "WITHSCORES"],
        22 => exact!["ZRANGEBYLEX", w.lex_key(), w.lex_bound(), w.lex_bound()],
        23 => exact!["ZREMRANGEBYSCORE", key, w.score_bound(), w.score_bound()],
        24 => exact!["ZREMRANGEBYRANK", key, w.small(), w.small()],
        25 => exact!["ZREMRANGEBYLEX", w.lex_key(), w.lex_bound(), w.lex_bound()],
        26 => exact![w.pick(&["ZPOPMIN", "ZPOPMAX"]), key],
        27 => exact![w.pick(&["ZPOPMIN", "ZPOPMAX"]), key, w.small()],
        28 => exact!["ZMPOP", "2", key, w.key(Pool::Zset), w.pick(&["MIN", "MAX"]), "COUNT", "2"],
        29 => {
            let name = w.pick(&["ZUNION", "ZINTER", "ZDIFF"]);
            exact![name, "2", key, w.key(Pool::Set), "WITHSCORES"]
        }
        30 => {
            let name = w.pick(&["ZUNIONSTORE", "ZINTERSTORE"]);
            let how = w.pick(&["SUM", "MIN", "MAX"]);
            let other = w.key(Pool::Zset);
            let weight = w.small();
            let target = w.key(Pool::Zset);
            exact![name, target, "2", key, other, "WEIGHTS", weight, "2.5", "AGGREGATE", how]
        }
        31 => exact!["ZDIFFSTORE", w.key(Pool::Zset), "2", key, w.key(Pool::Zset)],
        32 => exact!["ZINTERCARD", "2", key, w.key(Pool::Zset), "LIMIT", w.below(5)],
        33 => {
            Command::checked(args!["ZSCAN", key, "0", "COUNT", "100000"], Check::Unordered).rigid()
        }
        34 => exact!["ZUNION", w.integer(), key],
        _ => exact!["ZRANGE", key, "0", "-1", "WITHSCORES"],
    }
}
