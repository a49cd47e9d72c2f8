//! Scan: walking the keyspace or a collection in steps, without state between them.
//!
//! Called by: `table` (`SCAN`), and `hashes`, `sets`, `sorted_sets`.
//! Bound: a step looks at `COUNT` positions, or at a whole collection that is small.
//! Invariant: whatever is present from the first step to the last is returned. A cursor says
//! how many positions are left to visit, from the highest down: removal moves elements only
//! to lower positions, additions go to the top, so nothing unvisited is ever skipped.

use crate::args::{Args, is};
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::number;
use crate::reply::Reply;
use heatsink_resp::glob;

/// Collections up to this size are returned in one step.
pub(crate) const WHOLE_LEN: usize = 128;

/// A parsed request for one step.
pub(crate) struct Step<'a> {
    cursor: u64,
    count: usize,
    pattern: Option<&'a [u8]>,
    type_name: Option<&'a [u8]>,
}

/// Reads a cursor; it is checked before the key is looked at, options after.
pub(crate) fn cursor(arg: &[u8]) -> Result<u64, Failure> {
    let cursor = std::str::from_utf8(arg).ok().and_then(|text| text.parse().ok());
    cursor.ok_or(Failure::of("ERR invalid cursor"))
}

impl<'a> Step<'a> {
    /// Reads `[MATCH pattern] [COUNT n]`, and `[TYPE t]` where `typed`.
    pub(crate) fn parse(cursor: u64, args: Args<'a>, typed: bool) -> Result<Self, Failure> {
        let mut step = Self { cursor, count: 10, pattern: None, type_name: None };
        for option in args.chunks(2) {
            let [name, value] = *option else { return Err(Failure::SYNTAX) };
            if is(name, "count") {
                let count = number::integer(value).ok_or(Failure::NOT_AN_INTEGER)?;
                step.count =
                    usize::try_from(count).ok().filter(|n| *n > 0).ok_or(Failure::SYNTAX)?;
            } else if is(name, "match") {
                step.pattern = Some(value);
            } else if typed && is(name, "type") {
                step.type_name = Some(value);
            } else {
                return Err(Failure::SYNTAX);
            }
        }
        Ok(step)
    }

    fn wants(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }

    /// Positions to visit now, and the cursor to go on with.
    fn positions(&self, len: usize) -> (std::ops::Range<usize>, usize) {
        let left = if self.cursor == 0 { len } else { len.min(self.cursor as usize) };
        let next = left.saturating_sub(self.count);
        (next..left, next)
    }

    /// Writes one step over a collection whose items are one (`N` = 1) or two strings each.
    pub(crate) fn reply<const N: usize>(
        &self,
        len: usize,
        item_at: impl Fn(usize) -> Option<[Vec<u8>; N]>,
        reply: &mut Reply,
    ) {
        let (positions, next) = if len <= WHOLE_LEN { (0..len, 0) } else { self.positions(len) };
        let items: Vec<_> = positions.filter_map(item_at).filter(|i| self.wants(&i[0])).collect();
        reply.array(2);
        reply.bulk(next.to_string().as_bytes());
        reply.array(items.len() * N);
        for part in items.iter().flatten() {
            reply.bulk(part);
        }
    }

    /// The reply for a key that does not exist.
    pub(crate) fn nothing(reply: &mut Reply) {
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
    }
}

pub(crate) fn scan(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let step = Step::parse(cursor(args[1])?, &args[2..], true)?;
    let (positions, next) = step.positions(db.len());
    let found = positions.rev().filter_map(|position| db.at(position)).filter(|(key, entry)| {
        let typed = step.type_name.is_none_or(|name| is(name, entry.value.type_name()));
        typed && step.wants(key)
    });
    let keys: Vec<&[u8]> = found.map(|(key, _)| key.as_slice()).collect();
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.bulks(keys.iter());
    Ok(())
}
