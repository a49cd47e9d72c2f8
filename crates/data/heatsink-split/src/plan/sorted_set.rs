//! Sorted sets: a member is in the shard of its hash; ranges are merged in the order of scores.

mod add;
pub(super) mod range;
pub(super) mod rank;

use heatsink_cluster::join::Join;

use super::request::{Members, all};
use super::{Context, How, Plan, whole};

pub(super) fn plan(context: &Context<'_>, name: &[u8], args: &[&[u8]]) -> Option<Plan> {
    let members = Members { args, first: 2, step: 1, at: 0 };
    let shard_of = |member: &[u8]| context.layout.shard_of(member);
    match (name, args.len()) {
        (b"ZADD", 4..) => add::plan(context, args),
        (b"ZSCORE", 3) => Some(Plan::One(shard_of(args[2]))),
        (b"ZINCRBY", 4) => Some(Plan::One(shard_of(args[3]))),
        (b"ZMSCORE", 3..) => members.in_order(context),
        // A sorted set that becomes empty forgets its time to live.
        (b"ZREM", 3..) if !context.layout.expires => members.joined(context, Join::Sum),
        (b"ZCARD", 2) | (b"ZCOUNT" | b"ZLEXCOUNT", 4) => {
            Some(all(context, name, &args[2..], How::Join(Join::Sum)))
        }
        (b"ZRANK", 3) => Some(rank::plan(context, args[2], false)),
        (b"ZREVRANK", 3) => Some(rank::plan(context, args[2], true)),
        _ => match range::plan(context, name, args) {
            None => whole::plan(context, name, args, b"ZCARD"),
            plan => plan,
        },
    }
}
