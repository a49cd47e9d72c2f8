//! Picks: random elements of a collection.
//!
//! Called by: `HRANDFIELD`, `SRANDMEMBER`, `ZRANDMEMBER`, `SPOP`.
//! Bound: at most `PICKS_MAX` elements in one reply, so that `-9223372036854775807` is an
//! error and not the end of memory.

use crate::args::{Args, is};
use crate::failure::{Failure, Outcome};
use crate::number;
use crate::reply::Reply;

/// Most picks with repetition in one reply.
const PICKS_MAX: u64 = 1 << 24;

/// A parsed `count [WITHVALUES|WITHSCORES]`.
pub(crate) struct Request {
    count: i64,
    /// Whether the value or score is wanted beside the element.
    pub(crate) paired: bool,
}

impl Request {
    /// Reads what follows the key; nothing there asks for a single element.
    pub(crate) fn parse(args: Args<'_>, pair_word: Option<&str>) -> Result<Option<Self>, Failure> {
        let Some((count, rest)) = args.split_first() else { return Ok(None) };
        let count = number::integer(count).ok_or(Failure::NOT_AN_INTEGER)?;
        if count < -i64::MAX {
            return Err(Failure::new(format!(
                "ERR value is out of range, value must between {} and {}",
                -i64::MAX,
                i64::MAX
            )));
        }
        let paired = match (rest, pair_word) {
            ([], _) => false,
            ([word], Some(expected)) if is(word, expected) => true,
            _ => return Err(Failure::SYNTAX),
        };
        if count < 0 && count.unsigned_abs() > PICKS_MAX || paired && count > i64::MAX / 2 {
            return Err(Failure::of("ERR value is out of range"));
        }
        Ok(Some(Self { count, paired }))
    }

    /// Positions to return from a collection of `len`: distinct ones for a positive count,
    /// with repetition for a negative one.
    pub(crate) fn positions(&self, len: usize, rng: &mut fastrand::Rng) -> Vec<usize> {
        if len == 0 {
            return Vec::new();
        }
        match usize::try_from(self.count) {
            Ok(count) if count >= len => (0..len).collect(),
            Ok(count) => rng.choose_multiple(0..len, count),
            Err(_) => (0..self.count.unsigned_abs()).map(|_| rng.usize(..len)).collect(),
        }
    }
}

/// Writes pairs as Redis does: nested in RESP3, flat in RESP2.
pub(crate) fn pairs<T>(
    items: &[T],
    reply: &mut Reply,
    mut write: impl FnMut(&T, &mut Reply),
) -> Outcome {
    let nested = reply.is_resp3();
    reply.array(if nested { items.len() } else { items.len() * 2 });
    for item in items {
        if nested {
            reply.array(2);
        }
        write(item, reply);
    }
    Ok(())
}
