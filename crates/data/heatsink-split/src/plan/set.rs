//! Sets: a member is in the shard of its hash.

use heatsink_cluster::join::Join;

use super::request::{Members, all};
use super::{Context, How, Plan, whole};

pub(super) fn plan(context: &Context<'_>, name: &[u8], args: &[&[u8]]) -> Option<Plan> {
    let members = Members { args, first: 2, step: 1, at: 0 };
    match (name, args.len()) {
        (b"SADD", 3..) => members.joined(context, Join::Sum),
        // A set that becomes empty forgets its time to live.
        (b"SREM", 3..) if !context.layout.expires => members.joined(context, Join::Sum),
        (b"SISMEMBER", 3) => Some(Plan::One(context.layout.shard_of(args[2]))),
        (b"SMISMEMBER", 3..) => members.in_order(context),
        (b"SCARD", 2) => Some(all(context, b"SCARD", &[], How::Join(Join::Sum))),
        (b"SMEMBERS", 2) => Some(all(context, b"SMEMBERS", &[], How::Join(Join::Concat))),
        _ => whole::plan(context, name, args, b"SCARD"),
    }
}
