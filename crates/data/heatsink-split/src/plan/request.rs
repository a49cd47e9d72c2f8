//! Requests for shards: a command under a shard's name, the same one for all shards, or its
//! members each to their shard.
//!
//! Called by: the plans of every type.
//! Invariant: members of one shard keep the order of the request.

use heatsink_cluster::join::Join;
use heatsink_resp::encode;

use super::{Context, How, Merge, Part, Plan};

/// A request of `name`, the shard's own name and `rest`.
pub(super) fn part<'r>(
    context: &Context<'_>,
    shard: usize,
    name: &[u8],
    rest: impl ExactSizeIterator<Item = &'r [u8]> + Clone,
) -> Part {
    let key = context.layout.name(shard, context.names);
    // A header is seldom longer than seven bytes, its string's end is two.
    let payload: usize = rest.clone().map(|arg| arg.len() + 9).sum();
    let mut bytes = Vec::with_capacity(payload + name.len() + key.len() + 32);
    encode::header(&mut bytes, b'*', rest.len() + 2);
    encode::bulk(&mut bytes, name);
    encode::bulk(&mut bytes, key);
    for arg in rest {
        encode::bulk(&mut bytes, arg);
    }
    Part { shard, bytes }
}

/// The same request for each shard.
pub(super) fn each(context: &Context<'_>, name: &[u8], rest: &[&[u8]]) -> Vec<Part> {
    let shards = 0..context.layout.len();
    shards.map(|shard| part(context, shard, name, rest.iter().copied())).collect()
}

/// The same request for each shard, and their replies merged.
pub(super) fn all(context: &Context<'_>, name: &[u8], rest: &[&[u8]], how: How) -> Plan {
    many(each(context, name, rest), how)
}

pub(super) fn many(parts: Vec<Part>, how: How) -> Plan {
    Plan::Many { parts, merge: Merge(how) }
}

/// A request about members, which belong to shards.
pub(super) struct Members<'a> {
    /// All of it.
    pub(super) args: &'a [&'a [u8]],
    /// Where the first member's arguments begin.
    pub(super) first: usize,
    /// How many arguments a member has.
    pub(super) step: usize,
    /// Which of them is the member itself.
    pub(super) at: usize,
}

impl Members<'_> {
    /// Each member to its shard, replies joined as said.
    pub(super) fn joined(&self, context: &Context<'_>, how: Join) -> Option<Plan> {
        self.spread(context, |member| context.layout.shard_of(member), |_| how)
    }

    /// Each member to its shard; replies have an element a member, in the order of the request.
    pub(super) fn in_order(&self, context: &Context<'_>) -> Option<Plan> {
        let shard_of = |member: &[u8]| context.layout.shard_of(member);
        self.spread(context, shard_of, |keys| {
            let total = keys.iter().map(Vec::len).sum();
            Join::ByKey { keys, total }
        })
    }

    /// Each member to the shard that `shard_of` says; `how` is told which members of the request
    /// each part has. `None` if the arguments are no whole members.
    pub(super) fn spread(
        &self,
        context: &Context<'_>,
        shard_of: impl Fn(&[u8]) -> usize,
        how: impl FnOnce(Vec<Vec<u32>>) -> Join,
    ) -> Option<Plan> {
        let rest = self.args.get(self.first..).filter(|rest| !rest.is_empty())?;
        if rest.len() % self.step != 0 {
            return None;
        }
        let shard_at = |group: &[&[u8]]| shard_of(group[self.at]);
        let mut groups = rest.chunks_exact(self.step);
        let only = shard_at(groups.next()?);
        if groups.all(|group| shard_at(group) == only) {
            return Some(Plan::One(only));
        }
        let mut members_of: Vec<Vec<u32>> = vec![Vec::new(); context.layout.len()];
        for (ordinal, group) in rest.chunks_exact(self.step).enumerate() {
            members_of[shard_at(group)].push(u32::try_from(ordinal).ok()?);
        }
        let mut parts = Vec::new();
        for (shard, members) in members_of.iter().enumerate() {
            if members.is_empty() {
                continue;
            }
            let mut own = self.args[2..self.first].to_vec();
            for ordinal in members {
                let start = *ordinal as usize * self.step;
                own.extend_from_slice(&rest[start..start + self.step]);
            }
            parts.push(part(context, shard, self.args[0], own.into_iter()));
        }
        members_of.retain(|members| !members.is_empty());
        Some(many(parts, How::Join(how(members_of))))
    }
}
