//! `HyperLogLog`: an element is in the shard of its register, so that a shard knows of itself
//! whether an element is new.

use heatsink_cluster::frame::{is_nil, text};
use heatsink_cluster::join::Join;
use heatsink_resp::encode;
use heatsink_resp::hyperloglog::Registers;

use super::request::{Members, all};
use super::{Context, How, Plan, whole};
use crate::registers;

pub(super) fn plan(context: &Context<'_>, name: &[u8], args: &[&[u8]]) -> Option<Plan> {
    match (name, args.len()) {
        // It exists, so nothing changes.
        (b"PFADD", 2) => Some(Plan::Answer(b":0\r\n".to_vec())),
        (b"PFADD", _) => {
            let elements = Members { args, first: 2, step: 1, at: 0 };
            let shard_of = |element: &[u8]| registers::shard_of(element, context.layout.len());
            elements.spread(context, shard_of, |_| Join::Or)
        }
        (b"PFCOUNT", 2) => Some(all(context, b"GET", &[], How::Estimate)),
        _ => whole::existing(context, name, args),
    }
}

/// The count of the registers of all shards.
pub(super) fn merge(replies: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut registers = Registers::default();
    for reply in replies.iter().filter(|reply| !is_nil(reply)) {
        registers.merge(&Registers::unpack(text(reply)?)?);
    }
    let mut out = Vec::new();
    encode::integer(&mut out, registers.estimate() as i64);
    Some(out)
}
