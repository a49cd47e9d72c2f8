//! Arguments of a command and how they are read.
//!
//! Called by: every handler. `args[0]` is the command's name.
//! Invariant: the command table has checked the count, so a handler may index up to its arity.

use crate::failure::Failure;
use crate::number;

/// A request: the command's name and what follows it.
pub(crate) type Args<'a> = &'a [&'a [u8]];

/// Whether an argument is this word, in any case.
pub(crate) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

pub(crate) fn int(arg: &[u8]) -> Result<i64, Failure> {
    number::integer(arg).ok_or(Failure::NOT_AN_INTEGER)
}

pub(crate) fn float(arg: &[u8]) -> Result<f64, Failure> {
    number::double(arg).ok_or(Failure::NOT_A_FLOAT)
}

/// A count that must not be negative.
pub(crate) fn positive(arg: &[u8]) -> Result<usize, Failure> {
    match number::integer(arg) {
        Some(value) => usize::try_from(value).map_err(|_| Failure::NOT_POSITIVE),
        None => Err(Failure::NOT_POSITIVE),
    }
}

/// Turns the inclusive, possibly negative `start` and `stop` of a range into positions;
/// nothing if the range is empty.
pub(crate) fn span(start: i64, stop: i64, len: usize) -> Option<(usize, usize)> {
    let len = len as i64;
    let start = if start < 0 { (start + len).max(0) } else { start };
    let stop = if stop < 0 { stop + len } else { stop.min(len - 1) };
    (start <= stop && start < len && stop >= 0).then_some((start as usize, stop as usize))
}
