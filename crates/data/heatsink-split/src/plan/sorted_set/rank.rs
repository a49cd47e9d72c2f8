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
#[derive(Clone, Debug, PartialEq)]
pub(in crate::plan) struct Rank {
    member: Vec<u8>,
    reverse: bool,
    step: Step,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// The score was asked for.
    Score,
    /// The counts were.
    Counts,
    /// Members of the same score were.
    Equals(Search),
}

/// What is known of the rank.
#[derive(Clone, Debug, Default, PartialEq)]
struct Search {
    /// So many stand before it in shards that are done.
    before: i64,
    /// Members of all shards, if it is counted from the end.
    size: i64,
    /// The other shards.
    open: Vec<Open>,
}

/// A shard in which it stands at a rank that is not known yet.
#[derive(Clone, Debug, PartialEq)]
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
    // There is no such member, or no longer.
    if let Some(nil) = replies.iter().find(|reply| is_nil(reply)) {
        return Some(Merged::Reply(nil.clone()));
    }
    let search = match step {
        Step::Score => {
            let parts = counts(context, &member, score_text(replies.first()?)?, reverse);
            let rank = Rank { member, reverse, step: Step::Counts };
            return Some(Merged::More { parts, merge: Merge(How::Rank(rank)) });
        }
        Step::Counts => counted(context, &member, reverse, replies)?,
        Step::Equals(search) => search.narrowed(&member, replies)?,
    };
    if search.open.is_empty() {
        let mut out = Vec::new();
        // Members may have gone between the rounds.
        let rank = if reverse {
            search.size.saturating_sub(search.before).saturating_sub(1)
        } else {
            search.before
        };
        encode::integer(&mut out, rank.max(0));
        return Some(Merged::Reply(out));
    }
    let ask = |open: &Open| {
        let (first, last) = open.asked();
        let (first, last) = (first.to_string(), last.to_string());
        part(context, open.shard, b"ZRANGE", [first.as_bytes(), last.as_bytes()].into_iter())
    };
    let parts = search.open.iter().map(ask).collect();
    let rank = Rank { member, reverse, step: Step::Equals(search) };
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

/// What the second round tells.
fn counted(
    context: &Context<'_>,
    member: &[u8],
    reverse: bool,
    replies: &[Vec<u8>],
) -> Option<Search> {
    let own = context.layout.shard_of(member);
    let mut numbers = replies.iter().map(|reply| integer(reply));
    let mut next = || numbers.next().flatten();
    let mut search = Search::default();
    for shard in 0..context.layout.len() {
        let low = next()?;
        let equal = if shard == own { 0 } else { next()? };
        search.note(Open { shard, low, high: low.saturating_add(equal) });
        if reverse {
            search.size = search.size.saturating_add(next()?);
        }
    }
    Some(search)
}

impl Search {
    /// What a round of members of the same score tells.
    fn narrowed(mut self, member: &[u8], replies: &[Vec<u8>]) -> Option<Self> {
        let open = std::mem::take(&mut self.open);
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
                (false, _) => (low.saturating_add(lower), low),
                (true, true) => (first + 1, high),
                (true, false) => (low, first),
            };
            self.note(Open { shard, low, high });
        }
        Some(self)
    }

    fn note(&mut self, shard: Open) {
        if shard.low >= shard.high {
            self.before = self.before.saturating_add(shard.low);
        } else {
            self.open.push(shard);
        }
    }
}

impl Open {
    /// The ranks that are asked for next: all that are left, or the one in the middle.
    fn asked(&self) -> (i64, i64) {
        if self.high.saturating_sub(self.low) <= BLOCK {
            return (self.low, self.high - 1);
        }
        let middle = i64::midpoint(self.low, self.high);
        (middle, middle)
    }
}
