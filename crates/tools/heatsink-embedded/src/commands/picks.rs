//! Picks: random elements of a collection.
//!
//! Called by: `SRANDMEMBER`.
//! Bound: at most `PICKS_MAX` elements in one reply, so that `-9223372036854775807` is an
//! error and not the end of memory.

use crate::args::Args;
use crate::failure::Failure;
use crate::number;

/// Most picks with repetition in one reply.
const PICKS_MAX: u64 = 1 << 24;

/// A parsed `count`.
pub(crate) struct Request {
    count: i64,
}

impl Request {
    /// Reads what follows the key; nothing there asks for a single element.
    pub(crate) fn parse(args: Args<'_>) -> Result<Option<Self>, Failure> {
        let Some((count, rest)) = args.split_first() else { return Ok(None) };
        let count = number::integer(count).ok_or(Failure::NOT_AN_INTEGER)?;
        if count < -i64::MAX {
            return Err(Failure::new(format!(
                "ERR value is out of range, value must between {} and {}",
                -i64::MAX,
                i64::MAX
            )));
        }
        if !rest.is_empty() {
            return Err(Failure::SYNTAX);
        }
        if count < 0 && count.unsigned_abs() > PICKS_MAX {
            return Err(Failure::of("ERR value is out of range"));
        }
        Ok(Some(Self { count }))
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
