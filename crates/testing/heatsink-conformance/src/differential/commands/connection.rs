//! The connection itself, as far as one reply goes: names, databases, echoes.
//!
//! Called by: `commands::any`. Bound: databases 0 to 3. Invariant: as `commands`.

use super::{Command, args, exact};
use crate::differential::words::{Pool, Words};

pub(super) fn next(w: &mut Words) -> Command {
    match w.below(20) {
        0..=3 if w.clustered() && !w.spread() => exact!["ECHO", w.value()],
        0..=2 if w.clustered() => exact!["SELECT", "0"],
        3 if w.clustered() => exact!["SELECT", w.pick(&["x", "", "1.0"])],
        9 | 19 if w.clustered() => exact!["ACL", "WHOAMI"],
        15..=17 if w.spread() => exact!["PING"],
        0..=2 => exact!["SELECT", w.below(4)],
        3 => exact!["SELECT", w.pick(&["99", "-1", "x", "", "1.0"])],
        4 => exact!["PING"],
        5 => exact!["PING", w.value()].rigid(),
        6 => exact!["ECHO", w.value()],
        7 => exact!["CLIENT", "GETNAME"],
        8 => exact!["CLIENT", "SETNAME", w.pick(&["one", "two", "", "with space", "new\nline"])],
        9 => exact!["CLIENT", "NO-EVICT", w.pick(&["ON", "OFF", "MAYBE"])],
        10 => exact!["CLIENT", w.pick(&["GETREDIR", "TRACKINGINFO", "NONSENSE", "HELP"])].rigid(),
        11 => exact!["CLIENT", "KILL", "ID", "999999999"].rigid(),
        12 => exact!["CLIENT", "UNBLOCK", "999999999"].rigid(),
        13 => exact!["CLIENT"],
        14 => exact!["CLIENT", "CACHING", w.pick(&["YES", "NO"])].rigid(),
        15 => exact!["WATCH", w.any_key(), w.any_key()],
        16 => exact!["WATCH", w.key(Pool::Text)],
        17 => exact!["UNWATCH"],
        18 => exact!["ACL", "WHOAMI"],
        _ => {
            let list = args!["AUTH", w.pick(&["nobody", "default"]), "wrong", "words"];
            Command::exact(list).rigid()
        }
    }
}
