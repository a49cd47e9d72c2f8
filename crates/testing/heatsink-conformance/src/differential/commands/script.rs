//! Scripts and functions that answer the same each time.
//!
//! Called by: `commands::any`. Bound: one library, a handful of scripts. Invariant: as
//! `commands`.

use super::{Command, exact};
use crate::differential::words::{Pool, Words};

const SCRIPTS: [&str; 14] = [
    "return 1",
    "redis.call('SELECT', 1); return redis.call('EXISTS', KEYS[1])",
    "return {1, 'two', {3, false, true}, nil, 5}",
    "return {KEYS[1], ARGV[1], #KEYS, #ARGV}",
    "return redis.call('SET', KEYS[1], ARGV[1])",
    "return redis.call('GET', KEYS[1])",
    "return redis.call('INCR', KEYS[1])",
    "return redis.pcall('LPUSH', KEYS[1], ARGV[1])",
    "return redis.error_reply('MINE no such luck')",
    "return redis.status_reply('FINE')",
    "return redis.call('NO-SUCH-COMMAND')",
    "this is not lua",
    "redis.setresp(3); return redis.call('HGETALL', KEYS[1])",
    "return {double=3.25}",
];

const LIBRARY: &str = "#!lua name=differential
redis.register_function('join', function(keys, args) return keys[1] .. args[1] end)";

pub(super) fn next(w: &mut Words) -> Command {
    // The first is the one that `EVALSHA` asks for, known only where it was run; a cluster
    // has no database for the second.
    let scripts = if w.clustered() { &SCRIPTS[2..] } else { &SCRIPTS[..] };
    let script = w.pick(scripts);
    let pool = w.pick(&[Pool::Text, Pool::Number, Pool::List, Pool::Hash]);
    match w.below(14) {
        0..=5 => exact!["EVAL", script, "1", w.key(pool), w.value()],
        6 => exact!["EVAL", script, w.key_count(), w.key(pool), w.value()],
        7 => exact!["EVAL_RO", script, "1", w.key(pool), w.value()],
        8 => exact!["SCRIPT", "LOAD", w.pick(&SCRIPTS)],
        9 => exact!["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
        10 => exact![
            "SCRIPT",
            "EXISTS",
            "e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
            "ffffffffffffffffffffffffffffffffffffffff"
        ],
        11 => exact!["SCRIPT", w.pick(&["FLUSH", "NONSENSE", "HELP", "KILL"])].rigid(),
        12 => exact!["FCALL", "join", "1", w.key(pool), w.value()],
        _ => match w.below(5) {
            0 => exact!["FUNCTION", "LOAD", "REPLACE", LIBRARY],
            1 => exact!["FUNCTION", "LOAD", LIBRARY],
            2 => exact!["FUNCTION", "DELETE", "differential"],
            3 => exact!["FUNCTION", "LIST"],
            _ => exact!["FCALL_RO", "join", "1", w.key(pool), w.value()],
        },
    }
}
