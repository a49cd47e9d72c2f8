//! Lists: an element is anywhere, with a stamp in front of it that says where in the list it is.
//!
//! Bound: a push takes at most [`stamp::PER_CALL`] elements. `LRANGE` and `LINDEX` read the whole
//! list: two processes that push to one shard may do so out of the order of their stamps, so no
//! part of a shard is known to be enough.

use heatsink_cluster::frame::{Aggregate, text};
use heatsink_cluster::join::Join;
use heatsink_resp::{encode, number};

use super::cut::Cut;
use super::request::{all, many, part};
use super::{Context, How, Plan, whole};
use crate::stamp;

/// What is wanted of a whole list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Range(Cut),
    Element(i64),
}

pub(super) fn plan(context: &Context<'_>, name: &[u8], args: &[&[u8]]) -> Option<Plan> {
    match (name, args) {
        (b"RPUSH", [_, _, elements @ ..]) => push(context, b"RPUSH", elements, stamp::right),
        (b"LPUSH", [_, _, elements @ ..]) => push(context, b"LPUSH", elements, stamp::left),
        (b"LLEN", [_, _]) => Some(all(context, b"LLEN", &[], How::Join(Join::Sum))),
        (b"LRANGE", [_, _, start, stop]) => {
            Some(read(context, Wanted::Range(Cut::parse(start, stop)?)))
        }
        (b"LINDEX", [_, _, index]) => Some(read(context, Wanted::Element(number::parse(index)?))),
        _ => whole::plan(context, name, args, b"LLEN"),
    }
}

fn read(context: &Context<'_>, wanted: Wanted) -> Plan {
    all(context, b"LRANGE", &[b"0", b"-1"], How::List(wanted))
}

/// All elements into one shard; the reply is the sum of the lengths.
fn push(
    context: &Context<'_>,
    command: &[u8],
    elements: &[&[u8]],
    stamp: fn(u64, usize, &[u8]) -> Option<Vec<u8>>,
) -> Option<Plan> {
    if elements.is_empty() || elements.len() as u64 > stamp::PER_CALL {
        return None;
    }
    let stamped = |(at, element): (usize, &&[u8])| stamp(context.stamp, at, element);
    let stamped: Vec<Vec<u8>> = elements.iter().enumerate().map(stamped).collect::<Option<_>>()?;
    let taker = context.turn % context.layout.len();
    let ask = |shard| {
        if shard == taker {
            part(context, shard, command, stamped.iter().map(Vec::as_slice))
        } else {
            part(context, shard, b"LLEN", [].into_iter())
        }
    };
    let parts = (0..context.layout.len()).map(ask).collect();
    Some(many(parts, How::Join(Join::Sum)))
}

pub(super) fn merge(context: &Context<'_>, wanted: Wanted, replies: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut elements = Vec::new();
    for reply in replies {
        for element in Aggregate::parse(reply)?.elements() {
            elements.push(text(element)?);
        }
    }
    if !stamp::sort(&mut elements) {
        return None;
    }
    let mut out = Vec::new();
    match wanted {
        Wanted::Range(cut) => {
            let range = cut.of(elements.len());
            encode::header(&mut out, b'*', range.len());
            let wanted = elements[range].iter();
            wanted.for_each(|element| encode::bulk(&mut out, stamp::without(element)));
        }
        Wanted::Element(index) => {
            let at = if index < 0 {
                index.saturating_add_unsigned(elements.len() as u64)
            } else {
                index
            };
            match usize::try_from(at).ok().and_then(|at| elements.get(at)) {
                Some(element) => encode::bulk(&mut out, stamp::without(element)),
                None if context.resp3 => out.extend_from_slice(b"_\r\n"),
                None => out.extend_from_slice(b"$-1\r\n"),
            }
        }
    }
    Some(out)
}
