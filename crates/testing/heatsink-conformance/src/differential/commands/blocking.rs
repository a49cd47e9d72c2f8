//! Blocking commands that find something at once or give up after 10 ms.
//!
//! Called by: `commands::any`. Bound: 10 ms a command. Invariant: as `commands`; never bent,
//! because a word in the place of the timeout might mean for ever.

use super::{Command, exact};
use crate::differential::words::{Pool, Words};

const TIMEOUT_SECONDS: &str = "0.01";
const TIMEOUT_MS: &str = "10";

pub(super) fn next(w: &mut Words) -> Command {
    let timeout = if w.chance(5) { w.pick(&["-1", "x", ""]) } else { TIMEOUT_SECONDS };
    let side = w.pick(&["LEFT", "RIGHT"]);
    let end = w.pick(&["MIN", "MAX"]);
    let command = match w.below(12) {
        0 | 1 => exact![w.pick(&["BLPOP", "BRPOP"]), w.keys(Pool::List, 3), timeout],
        2 => exact!["BLMOVE", w.key(Pool::List), w.key(Pool::List), side, "LEFT", timeout],
        3 => exact!["BRPOPLPUSH", w.key(Pool::List), w.key(Pool::List), timeout],
        4 => exact!["BLMPOP", timeout, "2", w.key(Pool::List), w.key(Pool::List), side],
        5 | 6 => exact![w.pick(&["BZPOPMIN", "BZPOPMAX"]), w.keys(Pool::Zset, 3), timeout],
        7 => exact!["BZMPOP", timeout, "1", w.key(Pool::Zset), end, "COUNT", "2"],
        8 => exact!["XREAD", "BLOCK", TIMEOUT_MS, "STREAMS", w.key(Pool::Stream), w.stream_id()],
        9 => exact!["XREAD", "BLOCK", TIMEOUT_MS, "STREAMS", w.key(Pool::Stream), "$"],
        10 => exact![
            "XREADGROUP",
            "GROUP",
            "g1",
            "alice",
            "BLOCK",
            TIMEOUT_MS,
            "STREAMS",
            w.key(Pool::Stream),
            ">"
        ],
        _ if w.clustered() => exact!["BLPOP", w.key(Pool::List), timeout],
        _ => exact!["WAIT", "0", TIMEOUT_MS],
    };
    command.rigid()
}
