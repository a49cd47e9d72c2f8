//! The server, the command table, and commands that do not exist.
//!
//! Called by: `commands::any`. Bound: the whole data goes now and then, so that emptiness is
//! seen too. Invariant: as `commands`; nothing here shows a port, a pid or a time.

use super::{Command, args, exact};
use crate::differential::check::Check;
use crate::differential::words::{Pool, Words};

pub(super) fn next(w: &mut Words) -> Command {
    match w.below(26) {
        0..=2 => exact![w.pick(&["NOPE", "GETT", "x", "CLIENTS", "\r\n"]), w.value(), w.value()],
        3 => exact!["", w.value()],
        4 => Command::exact(vec![w.value()]).named(),
        5 => exact!["CONFIG", "GET", w.pick(&["maxmemory-policy", "appendonly", "nothing"])],
        6 => unordered(args!["CONFIG", "GET", "hash-max-*", "zset-max-*"]),
        7 => exact!["CONFIG", w.pick(&["NONSENSE", "HELP"])].rigid(),
        8 => exact!["CONFIG", "SET", "no-such-setting", w.member()].rigid(),
        9 => exact!["COMMAND", "COUNT"].rigid(),
        10 => exact!["COMMAND", "GETKEYS", "MSET", w.any_key(), "1", w.any_key(), "2"].rigid(),
        11 => exact!["COMMAND", "GETKEYS", "EVAL", "return 1", "2", "a", "b", "c"].rigid(),
        12 => exact!["COMMAND", "GETKEYS", w.pick(&["PING", "NOPE"])].rigid(),
        13 => exact!["COMMAND", "INFO", w.pick(&["GET", "mset", "nope", "XREAD"])].rigid(),
        14 => exact!["COMMAND", "DOCS", w.pick(&["get", "nope"])].rigid(),
        15 => unordered(args!["COMMAND", "LIST", "FILTERBY", "PATTERN", "z*"]),
        // What follows shows that there is a cluster.
        16..=18 | 21..=23 if w.clustered() => exact!["OBJECT"],
        16 => exact!["ROLE"],
        17 => exact!["CLUSTER", w.pick(&["INFO", "SLOTS", "NONSENSE"])],
        18 => exact![w.pick(&["READONLY", "READWRITE", "ASKING"])],
        19 => unordered(args!["ACL", "CAT", w.pick(&["string", "keyspace", "nope"])]),
        20 => exact!["ACL", w.pick(&["USERS", "NONSENSE"])].rigid(),
        21 => exact!["PUBSUB", "NUMPAT"],
        22 => unordered(args!["PUBSUB", w.pick(&["CHANNELS", "SHARDCHANNELS"])]),
        23 => exact!["PUBSUB", "NUMSUB", "news.a", "chat.b", w.key(Pool::Text)],
        24 if w.chance(30) => exact![w.pick(&["FLUSHDB", "FLUSHALL"]), "SYNC"],
        24 if !w.clustered() => exact!["SWAPDB", w.below(4), w.below(5)],
        _ => exact!["OBJECT"],
    }
}

fn unordered(list: Vec<Vec<u8>>) -> Command {
    Command::checked(list, Check::Unordered).rigid()
}

impl Command {
    /// A value in the place of a name; what happens to be the name of a command is none here.
    fn named(mut self) -> Self {
        self.args[0].push(b'?');
        self.rigid()
    }
}
