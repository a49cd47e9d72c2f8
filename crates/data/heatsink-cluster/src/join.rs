//! The replies of several nodes as one.
//!
//! Called by: routing, once every node has answered a request that went to several.
//! Bound: the bytes of the replies; elements are moved as they are, none is decoded.
//! Invariant: the result is one complete frame in the protocol of the replies.

mod info;

use std::collections::HashSet;

use foldhash::fast::FixedState;
use heatsink_resp::command::{Command, RequestPolicy, ResponsePolicy};
use heatsink_resp::encode;

use crate::frame::{Aggregate, integer, is_error, is_nil};
use crate::split::Piece;

/// How replies become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// Arrays with one element a key, each to the place of its key.
    ByKey {
        /// Per reply, which keys of the request its elements are for.
        keys: Vec<Vec<u32>>,
        /// Number of keys of the request.
        total: usize,
    },
    /// The sum of the numbers, or of each place of the arrays. In arrays, what is no number
    /// is the first reply's (`PUBSUB NUMSUB`).
    Sum,
    /// The smallest, likewise.
    Min,
    /// The largest, likewise.
    Max,
    /// 1 where all are not 0, likewise.
    And,
    /// 1 where one is not 0, likewise.
    Or,
    /// The first reply if all succeeded.
    AllSucceeded,
    /// The first that is no error.
    OneSucceeded,
    /// All elements of arrays, sets or maps, one reply behind the other.
    Concat,
    /// Likewise, but of equal elements only the first.
    Union,
    /// The first reply.
    First,
    /// One of those that are not nil, by chance.
    RandomKey,
    /// So many elements of arrays, those first whose second element is largest (`SLOWLOG GET`).
    Newest(usize),
    /// `INFO` of one logical server: counters summed, the rest from the first reply.
    Info,
}

/// Replies of a kind that cannot be joined in the way asked for; no known server sends them.
const UNJOINABLE: &[u8] = b"-ERR the replies of the nodes do not fit together\r\n";

impl Join {
    /// How the replies to a command that went whole to several nodes become one.
    pub fn for_command(command: &Command) -> Self {
        match &*command.name {
            "info" => return Self::Info,
            "randomkey" => return Self::RandomKey,
            "config|resetstat" | "config|rewrite" => return Self::AllSucceeded,
            "pubsub|channels" | "pubsub|shardchannels" => return Self::Union,
            "pubsub|numsub" | "pubsub|shardnumsub" | "pubsub|numpat" => return Self::Sum,
            _ => {}
        }
        match command.response_policy {
            ResponsePolicy::Default if command.keys.is_empty() => Self::Concat,
            ResponsePolicy::Default | ResponsePolicy::Special => Self::First,
            ResponsePolicy::OneSucceeded => Self::OneSucceeded,
            ResponsePolicy::AllSucceeded => Self::AllSucceeded,
            ResponsePolicy::LogicalAnd => Self::And,
            ResponsePolicy::LogicalOr => Self::Or,
            ResponsePolicy::Min => Self::Min,
            ResponsePolicy::Max => Self::Max,
            ResponsePolicy::Sum => Self::Sum,
        }
    }

    /// How the replies to a command that was taken apart become one; replies stand in the
    /// order of the pieces.
    pub fn for_pieces(command: &Command, pieces: &[Piece]) -> Self {
        if command.response_policy != ResponsePolicy::Default {
            return Self::for_command(command);
        }
        let keys: Vec<_> = pieces.iter().map(|piece| piece.keys.clone()).collect();
        let total = keys.iter().map(Vec::len).sum();
        Self::ByKey { keys, total }
    }
}

/// Where a command goes for the cluster to look like one server: as its tips say, but for
/// those that tips do not cover (`PUBSUB`, which every node answers for its own clients, and
/// `CONFIG RESETSTAT`, as `INFO` sums up what all nodes count) and `MSETNX`, which several nodes cannot do as one.
pub fn request_policy(command: &Command) -> RequestPolicy {
    match &*command.name {
        "pubsub|channels"
        | "pubsub|shardchannels"
        | "pubsub|numsub"
        | "pubsub|shardnumsub"
        | "pubsub|numpat" => RequestPolicy::AllShards,
        "config|resetstat" | "config|rewrite" => RequestPolicy::AllNodes,
        "msetnx" => RequestPolicy::Default,
        _ => command.request_policy,
    }
}

/// Joins replies, each one complete frame. An error among them is the result, the first if
/// there are several; only [`Join::OneSucceeded`] prefers what is no error. No replies at all
/// give an error.
pub fn join<P: AsRef<[u8]>>(how: &Join, parts: &[P]) -> Vec<u8> {
    let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
    let Some(first) = parts.first() else { return UNJOINABLE.to_vec() };
    let error = parts.iter().find(|part| is_error(part));
    let joined = match (how, error) {
        (Join::OneSucceeded, _) => {
            let success = parts.iter().find(|part| !is_error(part));
            Some(success.unwrap_or(first).to_vec())
        }
        (_, Some(error)) => Some(error.to_vec()),
        (Join::AllSucceeded | Join::First, _) => Some(first.to_vec()),
        (Join::ByKey { keys, total }, _) => by_key(&parts, keys, *total),
        (Join::Sum, _) => numbers(&parts, i64::saturating_add),
        (Join::Min, _) => numbers(&parts, i64::min),
        (Join::Max, _) => numbers(&parts, i64::max),
        (Join::And, _) => numbers(&parts, |a, b| i64::from(a != 0 && b != 0)),
        (Join::Or, _) => numbers(&parts, |a, b| i64::from(a != 0 || b != 0)),
        (Join::Concat, _) => concat(&parts),
        (Join::Union, _) => union(&parts),
        (Join::Newest(count), _) => newest(&parts, *count),
        (Join::RandomKey, _) => Some(random(&parts)),
        (Join::Info, _) => info::join(&parts),
    };
    joined.unwrap_or_else(|| UNJOINABLE.to_vec())
}

fn by_key(parts: &[&[u8]], keys: &[Vec<u32>], total: usize) -> Option<Vec<u8>> {
    if parts.len() != keys.len() {
        return None;
    }
    let mut elements: Vec<&[u8]> = vec![&[]; total];
    for (part, keys) in parts.iter().zip(keys) {
        let part = Aggregate::parse(part).filter(|part| part.count == keys.len())?;
        let mut own = part.elements();
        for key in keys {
            *elements.get_mut(*key as usize)? = own.next()?;
        }
    }
    let bytes: usize = elements.iter().map(|element| element.len()).sum();
    let mut out = Vec::with_capacity(bytes + 16);
    encode::header(&mut out, b'*', total);
    for element in elements {
        if element.is_empty() {
            return None;
        }
        out.extend_from_slice(element);
    }
    Some(out)
}

fn numbers(parts: &[&[u8]], fold: impl Fn(i64, i64) -> i64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let Some(first) = Aggregate::parse(parts[0]) else {
        number(&mut out, parts.iter().map(|part| integer(part)), &fold)?;
        return Some(out);
    };
    let mut others = Vec::with_capacity(parts.len() - 1);
    for part in &parts[1..] {
        let other = Aggregate::parse(part);
        others.push(other.filter(|other| other.count == first.count)?.elements());
    }
    encode::header(&mut out, first.kind, first.count);
    for element in first.elements() {
        let place: Vec<&[u8]> = others.iter_mut().map(Iterator::next).collect::<Option<_>>()?;
        match integer(element) {
            None => out.extend_from_slice(element),
            number_here => {
                let numbers = std::iter::once(number_here).chain(place.into_iter().map(integer));
                number(&mut out, numbers, &fold)?;
            }
        }
    }
    Some(out)
}

fn number(
    out: &mut Vec<u8>,
    mut numbers: impl Iterator<Item = Option<i64>>,
    fold: &impl Fn(i64, i64) -> i64,
) -> Option<()> {
    let first = numbers.next()??;
    let folded = numbers.try_fold(first, |folded, number| Some(fold(folded, number?)))?;
    out.extend_from_slice(format!(":{folded}\r\n").as_bytes());
    Some(())
}

/// What is no aggregate is left to the first reply; `None` for aggregates of several kinds.
fn concat(parts: &[&[u8]]) -> Option<Vec<u8>> {
    let aggregates: Option<Vec<_>> = parts.iter().map(|part| Aggregate::parse(part)).collect();
    let Some(mut aggregates) = aggregates else { return Some(parts[0].to_vec()) };
    // One that holds nothing fits any kind: a nil array, say.
    aggregates.retain(|part| part.count > 0);
    let Some(first) = aggregates.first() else { return Some(parts[0].to_vec()) };
    if aggregates.iter().any(|part| part.kind != first.kind) {
        return None;
    }
    let bytes: usize = aggregates.iter().map(|part| part.body.len()).sum();
    let mut out = Vec::with_capacity(bytes + 16);
    encode::header(&mut out, first.kind, aggregates.iter().map(|part| part.count).sum());
    for part in aggregates {
        out.extend_from_slice(part.body);
    }
    Some(out)
}

fn union(parts: &[&[u8]]) -> Option<Vec<u8>> {
    let mut seen = HashSet::<&[u8], FixedState>::default();
    let mut body = Vec::new();
    let mut kind = b'*';
    for part in parts {
        let part = Aggregate::parse(part).filter(|part| part.kind != b'%')?;
        kind = part.kind;
        for element in part.elements() {
            if seen.insert(element) {
                body.extend_from_slice(element);
            }
        }
    }
    let mut out = Vec::with_capacity(body.len() + 16);
    encode::header(&mut out, kind, seen.len());
    out.extend_from_slice(&body);
    Some(out)
}

fn newest(parts: &[&[u8]], count: usize) -> Option<Vec<u8>> {
    let mut entries = Vec::new();
    for part in parts {
        for entry in Aggregate::parse(part)?.elements() {
            let time = Aggregate::parse(entry)?.elements().nth(1).and_then(integer)?;
            entries.push((time, entry));
        }
    }
    // Those of one node stay in their order.
    entries.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    entries.truncate(count);
    let mut out = Vec::new();
    encode::header(&mut out, b'*', entries.len());
    for (_, entry) in entries {
        out.extend_from_slice(entry);
    }
    Some(out)
}

fn random(parts: &[&[u8]]) -> Vec<u8> {
    let keys: Vec<_> = parts.iter().filter(|part| !is_nil(part)).collect();
    match keys.get(fastrand::usize(..keys.len().max(1))) {
        Some(key) => key.to_vec(),
        None => parts[0].to_vec(),
    }
}

#[cfg(test)]
mod tests;
