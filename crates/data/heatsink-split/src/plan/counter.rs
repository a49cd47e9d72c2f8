//! Counters: a whole number is the sum of the numbers of its shards.
//!
//! Bound: an increment of more than 2^40 un-splits first, so a sum between ±2^62 stays far from
//! the limits of 64 bits for millions of increments, which leaves time to un-split.
//! Invariant: an increment is executed in exactly one shard. What it is answered is that shard's
//! new number and what the others say at about that time: two at once may be answered the same.

use heatsink_cluster::frame::{integer, is_nil, text};
use heatsink_resp::{encode, number};

use super::request::{all, many, part};
use super::{Context, How, Plan, whole};

/// Largest increment, either way.
const STEP_MAX: u64 = 1 << 40;
/// Largest value, either way, that may stay split.
pub(crate) const VALUE_MAX: u64 = 1 << 62;

/// In which shape a sum is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// As a string.
    Text,
    /// As a number.
    Number,
    /// The length of the string.
    Length,
}

pub(super) fn plan(context: &Context<'_>, name: &[u8], args: &[&[u8]]) -> Option<Plan> {
    let step = match (name, args) {
        (b"GET", [_, _]) => return Some(all(context, b"GET", &[], How::Counter(Shape::Text))),
        (b"STRLEN", [_, _]) => return Some(all(context, b"GET", &[], How::Counter(Shape::Length))),
        (b"INCR", [_, _]) => 1,
        (b"DECR", [_, _]) => -1,
        (b"INCRBY", [_, _, step]) => number::parse(step)?,
        (b"DECRBY", [_, _, step]) => number::parse(step)?.checked_neg()?,
        _ => return whole::existing(context, name, args),
    };
    if step.unsigned_abs() > STEP_MAX {
        return None;
    }
    let step = step.to_string();
    let taker = context.turn % context.layout.len();
    let ask = |shard| {
        if shard == taker {
            part(context, shard, b"INCRBY", [step.as_bytes()].into_iter())
        } else {
            part(context, shard, b"GET", [].into_iter())
        }
    };
    let parts = (0..context.layout.len()).map(ask).collect();
    Some(many(parts, How::Counter(Shape::Number)))
}

pub(super) fn merge(shape: Shape, replies: &[Vec<u8>]) -> Option<Vec<u8>> {
    let sum = sum(replies)?;
    let mut out = Vec::new();
    match shape {
        Shape::Text => encode::bulk(&mut out, sum.to_string().as_bytes()),
        Shape::Length => encode::integer(&mut out, sum.to_string().len() as i64),
        Shape::Number => out.extend_from_slice(format!(":{sum}\r\n").as_bytes()),
    }
    Some(out)
}

/// Whether the replies to the parts of a counter's plan add up to so much that the key has to be
/// made whole before a shard or the sum overflows.
pub fn is_near_overflow(replies: &[Vec<u8>]) -> bool {
    let large = |number: i128| number.unsigned_abs() > u128::from(VALUE_MAX);
    replies.iter().filter_map(|reply| value(reply)).any(large) || sum(replies).is_some_and(large)
}

/// The sum of what shards hold; one that is missing holds 0.
pub(super) fn sum(replies: &[Vec<u8>]) -> Option<i128> {
    replies.iter().try_fold(0, |sum, reply| Some(sum + value(reply)?))
}

fn value(reply: &[u8]) -> Option<i128> {
    if is_nil(reply) {
        return Some(0);
    }
    integer(reply).or_else(|| number::parse(text(reply)?)).map(i128::from)
}
