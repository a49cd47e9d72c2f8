//! Sorted sets: adding, removing and looking up members.
//!
//! Called by: `table`. Ranges are in `sorted_ranges`, unions and the like in `sorted_algebra`.

use crate::args::{Args, float, positive};
use crate::commands::scan::{self, Step};
use crate::commands::sorted_ranges::write_pairs;
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::number;
use crate::reply::Reply;
use crate::sorted_set::SortedSet;
use crate::value::Bytes;

#[expect(clippy::struct_excessive_bools, reason = "one field a word of the request")]
#[derive(Default)]
struct AddOptions {
    only_new: bool,
    only_existing: bool,
    only_greater: bool,
    only_less: bool,
    counts_changed: bool,
    increments: bool,
}

impl AddOptions {
    /// Reads the options in front of the first score, and how many there are.
    fn parse(args: Args<'_>) -> (Self, usize) {
        let mut options = Self::default();
        for (at, arg) in args.iter().enumerate() {
            let option = match arg.to_ascii_lowercase().as_slice() {
                b"nx" => &mut options.only_new,
                b"xx" => &mut options.only_existing,
                b"gt" => &mut options.only_greater,
                b"lt" => &mut options.only_less,
                b"ch" => &mut options.counts_changed,
                b"incr" => &mut options.increments,
                _ => return (options, at),
            };
            *option = true;
        }
        (options, args.len())
    }

    fn check(&self, pairs: usize) -> Outcome {
        let Self { only_new, only_existing, only_greater, only_less, .. } = *self;
        if only_new && only_existing {
            return Err(Failure::of("ERR XX and NX options at the same time are not compatible"));
        }
        if only_greater && (only_new || only_less) || only_less && only_new {
            return Err(Failure::of(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.increments && pairs > 1 {
            return Err(Failure::of("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// The score a member gets: nothing if the options forbid the change.
    fn score(&self, current: Option<f64>, given: f64) -> Result<Option<f64>, Failure> {
        let Some(current) = current else {
            return Ok((!self.only_existing).then_some(given));
        };
        if self.only_new {
            return Ok(None);
        }
        let score = if self.increments { current + given } else { given };
        if score.is_nan() {
            return Err(Failure::of("ERR resulting score is not a number (NaN)"));
        }
        let refused = self.only_greater && score <= current || self.only_less && score >= current;
        Ok((!refused).then_some(score))
    }
}

/// A negative zero is stored as zero, as Redis does in its compact form.
pub(crate) fn stored_score(score: f64) -> f64 {
    score + 0.0
}

#[expect(clippy::float_cmp, reason = "a score that is set again is no change")]
fn add(
    db: &mut Db,
    key: &[u8],
    pairs: Args<'_>,
    options: &AddOptions,
    reply: &mut Reply,
) -> Outcome {
    let scores: Vec<f64> =
        pairs.chunks_exact(2).map(|pair| float(pair[0])).collect::<Result<_, _>>()?;
    let exists = db.read::<SortedSet>(key)?.is_some();
    let (mut added, mut updated, mut last) = (0, 0, None);
    if exists || !options.only_existing {
        let sorted = db.upsert::<SortedSet>(key)?;
        for (pair, given) in pairs.chunks_exact(2).zip(scores) {
            let current = sorted.score(pair[1]);
            last = options.score(current, given)?;
            let Some(score) = last else { continue };
            match current {
                None => added += 1,
                Some(current) if current != score => updated += 1,
                Some(_) => continue,
            }
            sorted.insert(pair[1], stored_score(score));
        }
        if added + updated > 0 {
            db.changed(key);
        }
    }
    match (options.increments, last) {
        (true, Some(score)) => reply.double(score),
        (true, None) => reply.null(),
        (false, _) if options.counts_changed => reply.int(added + updated),
        (false, _) => reply.int(added),
    }
    Ok(())
}

pub(crate) fn zadd(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let (options, used) = AddOptions::parse(&args[2..]);
    let pairs = &args[2 + used..];
    if pairs.is_empty() || pairs.len() % 2 == 1 {
        return Err(Failure::SYNTAX);
    }
    options.check(pairs.len() / 2)?;
    add(db, args[1], pairs, &options, reply)
}

pub(crate) fn zincrby(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let options = AddOptions { increments: true, ..AddOptions::default() };
    add(db, args[1], &args[2..], &options, reply)
}

pub(crate) fn zscore(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    match db.read::<SortedSet>(args[1])?.and_then(|sorted| sorted.score(args[2])) {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
    Ok(())
}

pub(crate) fn zmscore(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let sorted = db.read::<SortedSet>(args[1])?;
    reply.array(args.len() - 2);
    for member in &args[2..] {
        match sorted.and_then(|sorted| sorted.score(member)) {
            Some(score) => reply.double(score),
            None => reply.null(),
        }
    }
    Ok(())
}

pub(crate) fn zcard(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.len(db.read::<SortedSet>(args[1])?.map_or(0, SortedSet::len));
    Ok(())
}

pub(crate) fn zrank(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    match db.read::<SortedSet>(args[1])?.and_then(|sorted| sorted.rank(args[2])) {
        Some(rank) => reply.len(rank),
        None => reply.null(),
    }
    Ok(())
}

pub(crate) fn zrevrank(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let sorted = db.read::<SortedSet>(args[1])?;
    match sorted.and_then(|sorted| Some(sorted.len() - 1 - sorted.rank(args[2])?)) {
        Some(rank) => reply.len(rank),
        None => reply.null(),
    }
    Ok(())
}

pub(crate) fn zrem(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let removed = match db.write::<SortedSet>(args[1])? {
        Some(sorted) => args[2..].iter().filter(|member| sorted.remove(member).is_some()).count(),
        None => 0,
    };
    if removed > 0 {
        db.changed(args[1]);
    }
    reply.len(removed);
    Ok(())
}

#[derive(Clone, Copy)]
enum Side {
    Min,
    Max,
}

fn take(sorted: &mut SortedSet, side: Side, count: usize) -> Vec<(Bytes, f64)> {
    let owned = |(member, score): (&[u8], f64)| (member.to_vec(), score);
    let taken: Vec<_> = match side {
        Side::Min => sorted.iter().take(count).map(owned).collect(),
        Side::Max => sorted.iter().rev().take(count).map(owned).collect(),
    };
    for (member, _) in &taken {
        sorted.remove(member);
    }
    taken
}

fn pop(db: &mut Db, args: Args<'_>, reply: &mut Reply, side: Side) -> Outcome {
    if args.len() > 3 {
        return Err(Failure::SYNTAX);
    }
    let count = args.get(2).map(|arg| positive(arg)).transpose()?;
    let taken = match db.write::<SortedSet>(args[1])? {
        Some(sorted) => take(sorted, side, count.unwrap_or(1)),
        None => Vec::new(),
    };
    if !taken.is_empty() {
        db.changed(args[1]);
    }
    if count.is_some() {
        let pairs: Vec<_> =
            taken.iter().map(|(member, score)| (member.as_slice(), *score)).collect();
        return write_pairs(&pairs, true, reply);
    }
    reply.array(taken.len() * 2);
    for (member, score) in &taken {
        reply.bulk(member);
        reply.double(*score);
    }
    Ok(())
}

pub(crate) fn zpopmin(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    pop(db, args, reply, Side::Min)
}

pub(crate) fn zpopmax(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    pop(db, args, reply, Side::Max)
}

pub(crate) fn zscan(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let cursor = scan::cursor(args[2])?;
    match db.read::<SortedSet>(args[1])? {
        None => Step::nothing(reply),
        Some(sorted) => {
            let small: Vec<_> = sorted.iter().take(scan::WHOLE_LEN).collect();
            let item_at = |at| {
                // A small set is returned whole, in its order.
                let whole = sorted.len() <= scan::WHOLE_LEN;
                let (member, score) = if whole { *small.get(at)? } else { sorted.at(at)? };
                Some([member.to_vec(), number::double_text(score).into_bytes()])
            };
            Step::parse(cursor, &args[3..], false)?.reply(sorted.len(), item_at, reply);
        }
    }
    Ok(())
}
