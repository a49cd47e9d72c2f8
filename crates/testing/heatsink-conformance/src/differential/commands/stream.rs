//! Streams and consumer groups.
//!
//! Called by: `commands::any`. Bound: `XTRIM` and `MAXLEN` keep streams short. Invariant: as
//! `commands`; ids are never the server's clock, and no reply shows an idle time.

use super::{Command, args, exact};
use crate::differential::words::{Pool, Words};

pub(super) fn next(w: &mut Words) -> Command {
    let key = w.key(Pool::Stream);
    let group = w.pick(&["g1", "g2"]);
    let consumer = w.pick(&["alice", "bob"]);
    match w.below(30) {
        0..=4 => exact!["XADD", key, w.stream_id(), w.member(), w.value()].rigid(),
        5 => exact!["XADD", key, "MAXLEN", "=", w.below(20), w.stream_id(), "f", "v"].rigid(),
        6 => exact!["XADD", key, "NOMKSTREAM", w.stream_id(), "f", "v", "f2", w.value()].rigid(),
        7 => exact!["XLEN", key],
        8 | 9 => exact!["XRANGE", key, "-", "+"],
        10 => exact!["XRANGE", key, w.stream_id(), "+", "COUNT", w.small()],
        11 => exact!["XREVRANGE", key, "+", w.stream_id()],
        12 => exact!["XDEL", key, w.stream_id(), w.stream_id()],
        13 => exact!["XTRIM", key, "MAXLEN", w.below(20)],
        14 => exact!["XTRIM", key, "MINID", "~", w.below(2000)],
        15 => exact!["XREAD", "COUNT", w.below(5), "STREAMS", key, w.stream_id()],
        16 => exact!["XREAD", "STREAMS", key, w.key(Pool::Stream), "0", w.stream_id()],
        17 => exact!["XGROUP", "CREATE", key, group, w.pick(&["0", "$", "5-1"]), "MKSTREAM"],
        18 => exact!["XGROUP", "CREATE", key, group, "0"],
        19 => exact!["XGROUP", w.pick(&["DESTROY", "NONSENSE"]), key, group],
        20 => {
            let what = w.pick(&["CREATECONSUMER", "DELCONSUMER"]);
            exact!["XGROUP", what, key, group, consumer]
        }
        21 | 22 => {
            exact!["XREADGROUP", "GROUP", group, consumer, "COUNT", "3", "STREAMS", key, ">"]
        }
        23 => exact!["XREADGROUP", "GROUP", group, consumer, "STREAMS", key, w.stream_id()],
        24 => exact!["XACK", key, group, w.stream_id(), w.stream_id()],
        25 => exact!["XPENDING", key, group].rigid(),
        26 => exact!["XCLAIM", key, group, consumer, "0", w.stream_id(), "FORCE", "JUSTID"],
        27 => exact!["XAUTOCLAIM", key, group, consumer, "0", "0", "COUNT", "5"],
        28 => {
            let list = args!["XINFO", w.pick(&["STREAM", "GROUPS", "NONSENSE"]), key];
            Command::exact(list).rigid()
        }
        _ => exact!["XSETID", key, w.stream_id()],
    }
}
