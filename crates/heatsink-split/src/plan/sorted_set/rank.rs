//! The rank of a member: how many members of all shards stand before it.
//!
//! ```text
//! 1  its shard:  ZSCORE                        nil: there is no such member
//! 2  its shard:  ZRANK                         how many of this shard stand before it
//!    the others: ZCOUNT -inf (score            how many have a lower score
//!                ZCOUNT score score            how many have the same
//!    backwards, all: ZCARD                     from the end is the size less what is before
//! 3… others with members of the same score: where it would stand among them, by halves
//! ```
//!
//! Bound: members of the same score are read 64 at a time, or one by one while there are more:
//! 2^20 of them in one shard take 15 rounds.

use heatsink_cluster::frame::{Aggregate, integer, is_nil, text};
use heatsink_resp::encode;

use super::super::request::{many, part};
use super::super::{Context, How, Merge, Merged, Part, Plan};
use super::range::score_text;

/// So many members are read at once rather than halved.
const BLOCK: i64 = 64;

/// Where the search for a rank stands.
#[derive(Debug, PartialEq)]
pub(in crate::plan) struct Rank {
    member: Vec<u8>,
    reverse: bool,
    step: Step,
}

#[derive(Debug, PartialEq)]
enum Step {
    /// The score was asked for.
    Score,
    /// The counts were.
    Counts,
    /// Members of the same score were, of the shards in `open`.
    Equals {
        /// How many are known to stand before it.
        before: i64,
        /// Members of all shards, if it is counted from the end.
        size: i64,
        open: Vec<Open>,
    },
}

/// A shard in which it stands at a rank that is not known yet.
#[derive(Debug, PartialEq)]
struct Open {
    shard: usize,
    low: i64,
    high: i64,
}

pub(super) fn plan(context: &Context<'_>, member: &[u8], reverse: bool) -> Plan {
    let own = context.layout.shard_of(member);
    let rank = Rank { member: member.to_vec(), reverse, step: Step::Score };
    many(vec![part(context, own, b"ZSCORE", [member].into_iter())], How::Rank(rank))
}

/// `None` if the replies do not fit.
pub(in crate::plan) fn merge(
    context: &Context<'_>,
    rank: Rank,
    replies: &[Vec<u8>],
) -> Option<Merged> {
    let Rank { member, reverse, step } = rank;
    let (before, size, open) = match step {
        Step::Score => {
            let reply = replies.first()?;
            if is_nil(reply) {
                return Some(Merged::Reply(reply.clone()));
            }
            let parts = counts(context, &member, score_text(reply)?, reverse);
            let rank = Rank { member, reverse, step: Step::Counts };
            return Some(Merged::More { parts, merge: Merge(How::Rank(rank)) });
        }
        Step::Counts => match counted(context, &member, reverse, replies)? {
            Some(counted) => counted,
            None => return Some(Merged::Reply(nil(context))),
        },
        Step::Equals { before, size, open } => narrowed(&member, before, size, open, replies)?,
    };
    if open.is_empty() {
        let mut out = Vec::new();
        // Members may have gone between the rounds.
        let rank = if reverse { size - 1 - before } else { before };
        encode::integer(&mut out, rank.max(0));
        return Some(Merged::Reply(out));
    }
    let ask = |open: &Open| {
        let (first, last) = open.asked();
        let (first, last) = (first.to_string(), last.to_string());
        part(context, open.shard, b"ZRANGE", [first.as_bytes(), last.as_bytes()].into_iter())
    };
    let parts = open.iter().map(ask).collect();
    let rank = Rank { member, reverse, step: Step::Equals { before, size, open } };
    Some(Merged::More { parts, merge: Merge(How::Rank(rank)) })
}

/// The requests of the second round.
fn counts(context: &Context<'_>, member: &[u8], score: &[u8], reverse: bool) -> Vec<Part> {
    let own = context.layout.shard_of(member);
    let below = [b"(", score].concat();
    let mut parts = Vec::new();
    for shard in 0..context.layout.len() {
        if shard == own {
            parts.push(part(context, shard, b"ZRANK", [member].into_iter()));
        } else {
            parts.push(part(context, shard, b"ZCOUNT", [b"-inf", &below[..]].into_iter()));
            parts.push(part(context, shard, b"ZCOUNT", [score, score].into_iter()));
        }
        if reverse {
            parts.push(part(context, shard, b"ZCARD", [].into_iter()));
        }
    }
    parts
}

/// What the second round tells: how many stand before it, the size, and where it has to be
/// looked for. The inner `None` if the member has gone meanwhile.
#[expect(clippy::type_complexity, reason = "the state of the search, for its one caller")]
fn counted(
    context: &Context<'_>,
    member: &[u8],
    reverse: bool,
    replies: &[Vec<u8>],
) -> Option<Option<(i64, i64, Vec<Open>)>> {
    let own = context.layout.shard_of(member);
    let mut replies = replies.iter();
    let (mut before, mut size, mut open) = (0, 0, Vec::new());
    for shard in 0..context.layout.len() {
        let first = replies.next()?;
        if shard == own && is_nil(first) {
            return Some(None);
        }
        let low = integer(first)?;
        if shard == own {
            before += low;
        } else {
            let high = low + integer(replies.next()?)?;
            close_or_keep(Open { shard, low, high }, &mut before, &mut open);
        }
        if reverse {
            size += integer(replies.next()?)?;
        }
    }
    Some(Some((before, size, open)))
}

/// What a round of members of the same score tells.
fn narrowed(
    member: &[u8],
    mut before: i64,
    size: i64,
    open: Vec<Open>,
    replies: &[Vec<u8>],
) -> Option<(i64, i64, Vec<Open>)> {
    let mut rest = Vec::new();
    if open.len() != replies.len() {
        return None;
    }
    for (Open { shard, low, high }, reply) in open.into_iter().zip(replies) {
        let (first, last) = Open { shard, low, high }.asked();
        let mut lower = 0;
        for element in Aggregate::parse(reply)?.elements() {
            lower += i64::from(text(element)? < member);
        }
        let (low, high) = match (first == last, lower > 0) {
            (false, _) => (low + lower, low + lower),
            (true, true) => (first + 1, high),
            (true, false) => (low, first),
        };
        close_or_keep(Open { shard, low, high }, &mut before, &mut rest);
    }
    Some((before, size, rest))
}

fn close_or_keep(shard: Open, before: &mut i64, open: &mut Vec<Open>) {
    if shard.low >= shard.high {
        *before += shard.low;
    } else {
        open.push(shard);
    }
}

impl Open {
    /// The ranks that are asked for next: all that are left, or the one in the middle.
    fn asked(&self) -> (i64, i64) {
        if self.high - self.low <= BLOCK {
            return (self.low, self.high - 1);
        }
        let middle = i64::midpoint(self.low, self.high);
        (middle, middle)
    }
}

fn nil(context: &Context<'_>) -> Vec<u8> {
    if context.resp3 { b"_\r\n".to_vec() } else { b"$-1\r\n".to_vec() }
}
