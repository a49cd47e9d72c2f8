//! Hashes: a field is in the shard of its hash.

use heatsink_cluster::join::Join;

use super::request::{Members, all};
use super::{Context, How, Plan, whole};

pub(super) fn plan(context: &Context<'_>, name: &[u8], args: &[&[u8]]) -> Option<Plan> {
    let fields = Members { args, first: 2, step: 1, at: 0 };
    let pairs = Members { args, first: 2, step: 2, at: 0 };
    match (name, args.len()) {
        (b"HSET", 4..) => pairs.joined(context, Join::Sum),
        (b"HMSET", 4..) => pairs.joined(context, Join::AllSucceeded),
        (b"HGET" | b"HEXISTS" | b"HSTRLEN", 3) | (b"HSETNX" | b"HINCRBY" | b"HINCRBYFLOAT", 4) => {
            Some(Plan::One(context.layout.shard_of(args[2])))
        }
        (b"HMGET", 3..) => fields.in_order(context),
        // A hash that becomes empty forgets its time to live.
        (b"HDEL", 3..) if !context.layout.expires => fields.joined(context, Join::Sum),
        (b"HLEN", 2) => Some(all(context, b"HLEN", &[], How::Join(Join::Sum))),
        (b"HGETALL" | b"HKEYS" | b"HVALS", 2) => {
            Some(all(context, name, &[], How::Join(Join::Concat)))
        }
        _ => whole::plan(context, name, args, b"HLEN"),
    }
}
