//! Moving what is one string: counters and `HyperLogLog`s. Every shard exists, whatever it holds.

use heatsink_cluster::frame::{is_nil, text};
use heatsink_resp::hyperloglog::Registers;
use heatsink_resp::number;

use super::{Unfit, request, shown};
use crate::layout::{Kind, Layout, Names};
use crate::plan;
use crate::registers;

/// What a string is, by its value: a counter, a `HyperLogLog`, or neither.
pub fn kind_of_string(value: &[u8]) -> Option<Kind> {
    if number::parse(value).is_some() {
        Some(Kind::Counter)
    } else {
        Registers::unpack(value).map(|_| Kind::HyperLogLog)
    }
}

pub(super) fn fill(layout: &Layout, whole: &[u8]) -> Result<Vec<Vec<u8>>, Unfit> {
    let value = string(whole)?.ok_or_else(|| Unfit("it does not exist".to_owned()))?;
    let set = |shard, value: &[u8]| request(&[b"SET", layout.name(shard, Names::Live), value]);
    let shards = 0..layout.len();
    if layout.kind == Kind::Counter {
        let number =
            number::parse(value).ok_or_else(|| Unfit("it is no whole number".to_owned()))?;
        if number.unsigned_abs() > plan::COUNTER_MAX {
            return Err(Unfit("it is too near the largest number".to_owned()));
        }
        return Ok(shards.map(|shard| set(shard, if shard == 0 { value } else { b"0" })).collect());
    }
    let all = unpacked(value)?;
    let own = |shard| all.only(registers::of_shard(shard, layout.len())).pack();
    Ok(shards.map(|shard| set(shard, &own(shard))).collect())
}

pub(super) fn build(kind: Kind, replies: &[Vec<u8>], to: &[u8]) -> Result<Vec<Vec<u8>>, Unfit> {
    let mut values = Vec::new();
    for reply in replies {
        values.extend(string(reply)?);
    }
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let whole = if kind == Kind::Counter {
        let mut sum = 0_i128;
        for value in values {
            let number = number::parse(value);
            sum += i128::from(number.ok_or_else(|| Unfit("a shard is no number".to_owned()))?);
        }
        let sum = i64::try_from(sum).map_err(|_| Unfit("the sum is too large".to_owned()))?;
        sum.to_string().into_bytes()
    } else {
        let mut all = Registers::default();
        for value in values {
            all.merge(&unpacked(value)?);
        }
        all.pack()
    };
    Ok(vec![request(&[b"SET", to, &whole])])
}

fn unpacked(value: &[u8]) -> Result<Registers, Unfit> {
    Registers::unpack(value).ok_or_else(|| Unfit("it is no HyperLogLog".to_owned()))
}

/// The string of a reply, if there is one.
pub(super) fn string(reply: &[u8]) -> Result<Option<&[u8]>, Unfit> {
    match text(reply) {
        Some(value) => Ok(Some(value)),
        None if is_nil(reply) => Ok(None),
        None => Err(Unfit(format!("the server answered {}", shown(reply)))),
    }
}
