//! Keys of any type: expiry, copying, encoding, dumps, sorting.
//!
//! Called by: `commands::any`. Bound: expiries lie so far off that none is seen to pass.
//! Invariant: as `commands`; conditions on expiries (`GT`, `LT`) compare fixed moments only,
//! because two moments relative to now may fall into one millisecond on one side alone.

use super::{Command, args, exact};
use crate::differential::check::Check;
use crate::differential::words::{Pool, Words};

/// What is left of an expiry may differ by as much as a run can lag, in seconds.
const LAG_SECONDS: u64 = 60;

pub(super) fn next(w: &mut Words) -> Command {
    match w.below(36) {
        0..=3 => exact!["DEL", w.any_key(), w.any_key()],
        4 => exact!["UNLINK", w.any_key()],
        5 => exact!["EXISTS", w.any_key(), w.any_key(), w.any_key()],
        6 | 7 => exact!["TYPE", w.any_key()],
        8 | 9 => exact!["OBJECT", "ENCODING", w.any_key()],
        10 => {
            let what = w.pick(&["REFCOUNT", "FREQ", "NONSENSE", "HELP"]);
            exact!["OBJECT", what, w.any_key()].rigid()
        }
        11 => exact!["RENAME", w.any_key(), w.any_key()],
        12 => exact!["RENAMENX", w.any_key(), w.any_key()],
        13 => exact!["COPY", w.any_key(), w.any_key()],
        14 if !w.clustered() => {
            let list = args!["COPY", w.any_key(), w.any_key(), "DB", w.below(4), "REPLACE"];
            Command::exact(list)
        }
        14 => exact!["COPY", w.any_key(), w.any_key(), "DB", "0", "REPLACE"],
        15 if !w.clustered() => exact!["MOVE", w.any_key(), w.below(5)],
        16 => exact!["EXPIRE", w.any_key(), 100_000 + w.below(800_000)],
        17 => exact!["EXPIRE", w.any_key(), w.pick(&["0", "-1", "x", "9223372036854775807"])],
        18 => exact!["EXPIREAT", w.any_key(), w.far_second()],
        19 => {
            let condition = w.pick(&["NX", "XX", "GT", "LT", "BAD"]);
            exact!["PEXPIREAT", w.any_key(), w.far_second() * 1000, condition]
        }
        20 => exact!["PERSIST", w.any_key()],
        21 => {
            let name = w.pick(&["TTL", "EXPIRETIME"]);
            Command::checked(args![name, w.any_key()], Check::Near(LAG_SECONDS))
        }
        22 => {
            let name = w.pick(&["PTTL", "PEXPIRETIME"]);
            Command::checked(args![name, w.any_key()], Check::Near(LAG_SECONDS * 1000))
        }
        23 => exact!["TOUCH", w.any_key(), w.any_key()],
        24 | 25 => Command::checked(args!["DUMP", w.any_key()], Check::Dump),
        26 | 27 => restore(w),
        28 => unordered(args!["KEYS", w.pick(&["*", "text*", "*:[1-3]*", "nothing"])]),
        29 if !w.clustered() => {
            let kind = w.pick(&["string", "zset", "list", "set"]);
            unordered(args!["SCAN", "0", "COUNT", "100000", "TYPE", kind])
        }
        30 if !w.clustered() => {
            unordered(args!["SCAN", "0", "MATCH", w.pick(&["*:1", "hash*"]), "COUNT", "100000"])
        }
        15 | 29..=31 => exact!["DBSIZE"],
        _ => sort(w),
    }
}

fn unordered(list: Vec<Vec<u8>>) -> Command {
    Command::checked(list, Check::Unordered).rigid()
}

fn restore(w: &mut Words) -> Command {
    let payload = match (w.below(8), w.dumped.clone()) {
        (0, Some(mut payload)) if !payload.is_empty() => {
            payload[0] ^= 1;
            payload
        }
        (_, Some(payload)) => payload,
        (_, None) => w.value(),
    };
    let key = w.any_key();
    match w.below(4) {
        0 => exact!["RESTORE", key, "0", payload],
        1 => exact!["RESTORE", key, w.far_second() * 1000, payload, "REPLACE", "ABSTTL"],
        2 => exact!["RESTORE", key, "-1", payload],
        _ => exact!["RESTORE", key, "0", payload, "REPLACE"],
    }
}

fn sort(w: &mut Words) -> Command {
    let pool = w.pick(&[Pool::List, Pool::Set, Pool::Zset]);
    let key = w.key(pool);
    match w.below(5) {
        0 => exact!["SORT", key],
        1 => exact!["SORT", key, "ALPHA", w.pick(&["ASC", "DESC"])],
        2 => exact!["SORT", key, "ALPHA", "LIMIT", w.small(), w.small()],
        // Elements whose weights are equal come in the order in which a set holds them.
        3 if !w.clustered() => unordered(args![
            "SORT",
            key,
            "BY",
            "number:*",
            "GET",
            "#",
            "GET",
            "hash:*->m1",
            "ALPHA"
        ]),
        _ => exact!["SORT", key, "ALPHA", "STORE", w.key(Pool::List)],
    }
}
