//! Sorted sets by range of ranks or of scores.
//!
//! Called by: `table`.
//! Invariant: a range is always kept as (lowest, highest), whatever order it was given in.

use crate::args::{Args, int, is, span};
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::number;
use crate::reply::Reply;
use crate::sorted_set::{Pair, SortedSet};
use crate::table;
use crate::value::Bytes;

/// One end of a range of scores.
#[derive(Clone, Copy)]
struct ScoreEnd {
    score: f64,
    exclusive: bool,
}

impl ScoreEnd {
    fn parse(arg: &[u8]) -> Result<Self, Failure> {
        let exclusive = arg.first() == Some(&b'(');
        let score = match &arg[usize::from(exclusive)..] {
            // As in Redis, where no number at all reads as zero here.
            b"" => Some(0.0),
            text => number::double(text),
        };
        let score = score.ok_or(Failure::of("ERR min or max is not a float"))?;
        Ok(Self { score, exclusive })
    }
}

#[derive(Clone, Copy)]
enum Range {
    Rank(i64, i64),
    Score(ScoreEnd, ScoreEnd),
}

/// What the range is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
}

impl Range {
    /// Reads a range given as (lowest, highest).
    fn parse(by: By, low: &[u8], high: &[u8]) -> Result<Self, Failure> {
        Ok(match by {
            By::Rank => Self::Rank(int(low)?, int(high)?),
            By::Score => Self::Score(ScoreEnd::parse(low)?, ScoreEnd::parse(high)?),
        })
    }

    /// The pairs inside, lowest first. Ranks count from the other end if `reversed`.
    fn pairs<'s>(&self, sorted: &'s SortedSet, reversed: bool) -> Vec<Pair<'s>> {
        match *self {
            Self::Rank(start, stop) => {
                let Some((start, stop)) = span(start, stop, sorted.len()) else {
                    return Vec::new();
                };
                if reversed {
                    let mut pairs: Vec<_> =
                        sorted.iter().rev().skip(start).take(stop - start + 1).collect();
                    pairs.reverse();
                    pairs
                } else {
                    sorted.iter().skip(start).take(stop - start + 1).collect()
                }
            }
            Self::Score(low, high) => {
                let inside = |score: f64| {
                    if high.exclusive { score < high.score } else { score <= high.score }
                };
                let from = sorted.iter_from(low.score);
                from.skip_while(|(_, score)| low.exclusive && *score <= low.score)
                    .take_while(|(_, score)| inside(*score))
                    .collect()
            }
        }
    }
}

/// A whole range request.
struct Request {
    range: Range,
    reversed: bool,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

impl Request {
    /// Reads `start stop [options]`. `by` and `reversed` are set by the older commands and
    /// left to options by `ZRANGE`.
    fn parse(args: Args<'_>, by: Option<By>, reversed: Option<bool>) -> Result<Self, Failure> {
        let (mut chosen_by, mut chosen_reversed) = (by, reversed);
        let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
        let mut limited = false;
        let mut rest = args[2..].iter();
        while let Some(arg) = rest.next() {
            if is(arg, "withscores") {
                with_scores = true;
            } else if is(arg, "limit") && rest.len() >= 2 {
                offset = int(rest.next().ok_or(Failure::SYNTAX)?)?;
                limit = int(rest.next().ok_or(Failure::SYNTAX)?)?;
                limited = true;
            } else if chosen_reversed.is_none() && is(arg, "rev") {
                chosen_reversed = Some(true);
            } else if chosen_by.is_none() && is(arg, "bylex") {
                return Err(table::refusal("zrange bylex"));
            } else if chosen_by.is_none() && is(arg, "byscore") {
                chosen_by = Some(By::Score);
            } else {
                return Err(Failure::SYNTAX);
            }
        }
        let by = chosen_by.unwrap_or(By::Rank);
        let reversed = chosen_reversed.unwrap_or(false);
        if limited && limit != -1 && by == By::Rank {
            return Err(Failure::of(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE \
                 or BYLEX",
            ));
        }
        let swapped = reversed && by != By::Rank;
        let (low, high) = if swapped { (args[1], args[0]) } else { (args[0], args[1]) };
        Ok(Self { range: Range::parse(by, low, high)?, reversed, with_scores, offset, limit })
    }

    /// The pairs asked for, in the order asked for.
    fn pairs<'s>(&self, sorted: &'s SortedSet) -> Vec<Pair<'s>> {
        let mut pairs = self.range.pairs(sorted, self.reversed);
        if self.reversed {
            pairs.reverse();
        }
        let Ok(offset) = usize::try_from(self.offset) else { return Vec::new() };
        pairs.drain(..offset.min(pairs.len()));
        if let Ok(limit) = usize::try_from(self.limit) {
            pairs.truncate(limit);
        }
        pairs
    }
}

fn show(
    db: &mut Db,
    args: Args<'_>,
    reply: &mut Reply,
    by: Option<By>,
    reversed: Option<bool>,
) -> Outcome {
    let request = Request::parse(&args[2..], by, reversed)?;
    let sorted = db.read::<SortedSet>(args[1])?;
    let pairs = sorted.map_or_else(Vec::new, |sorted| request.pairs(sorted));
    write_pairs(&pairs, request.with_scores, reply)
}

/// Writes members, with their scores if wanted: nested in RESP3, flat in RESP2.
pub(crate) fn write_pairs(pairs: &[Pair<'_>], with_scores: bool, reply: &mut Reply) -> Outcome {
    if !with_scores {
        reply.bulks(pairs.iter().map(|(member, _)| member));
        return Ok(());
    }
    let nested = reply.is_resp3();
    reply.array(if nested { pairs.len() } else { pairs.len() * 2 });
    for (member, score) in pairs {
        if nested {
            reply.array(2);
        }
        reply.bulk(member);
        reply.double(*score);
    }
    Ok(())
}

pub(crate) fn zrange(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    show(db, args, reply, None, None)
}

pub(crate) fn zrevrange(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    show(db, args, reply, Some(By::Rank), Some(true))
}

pub(crate) fn zrangebyscore(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    show(db, args, reply, Some(By::Score), Some(false))
}

pub(crate) fn zrevrangebyscore(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    show(db, args, reply, Some(By::Score), Some(true))
}

fn count(db: &mut Db, args: Args<'_>, reply: &mut Reply, by: By) -> Outcome {
    let range = Range::parse(by, args[2], args[3])?;
    let sorted = db.read::<SortedSet>(args[1])?;
    reply.len(sorted.map_or(0, |sorted| range.pairs(sorted, false).len()));
    Ok(())
}

pub(crate) fn zcount(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    count(db, args, reply, By::Score)
}

fn remove(db: &mut Db, args: Args<'_>, reply: &mut Reply, by: By) -> Outcome {
    let range = Range::parse(by, args[2], args[3])?;
    let Some(sorted) = db.write::<SortedSet>(args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let doomed: Vec<Bytes> =
        range.pairs(sorted, false).iter().map(|(member, _)| member.to_vec()).collect();
    for member in &doomed {
        sorted.remove(member);
    }
    if !doomed.is_empty() {
        db.changed(args[1]);
    }
    reply.len(doomed.len());
    Ok(())
}

pub(crate) fn zremrangebyrank(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    remove(db, args, reply, By::Rank)
}

pub(crate) fn zremrangebyscore(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    remove(db, args, reply, By::Score)
}
