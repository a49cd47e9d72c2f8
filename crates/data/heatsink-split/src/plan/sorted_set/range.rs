//! Ranges of a sorted set: by index, by score or by name, either way round, with a limit.
//!
//! Bound: of each shard as much is asked as could be in the reply: of a range by index or with a
//! limit, what the shard has up to the reply's end. A range with one end counted from the left
//! and one from the right takes all of every shard.
//! Invariant: elements keep the bytes that the shards sent; scores are read only to compare.
//!
//! By name, all scores are taken to be the same, as servers do.

use std::cmp::Ordering;

use heatsink_cluster::frame::{Aggregate, text};
use heatsink_resp::{encode, number};

use super::super::cut::Cut;
use super::super::request::all;
use super::super::{Context, How, Plan};
use super::add;

/// What of the merged elements is answered, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plan) struct Range {
    /// Shards were asked for scores.
    scored: bool,
    /// Scores are answered.
    with_scores: bool,
    /// Largest first.
    reverse: bool,
    cut: Cut,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Index,
    Score,
    Name,
}

/// The options behind the two ends of a range.
struct Options {
    by: By,
    reverse: bool,
    with_scores: bool,
    limit: Option<(i64, i64)>,
}

pub(super) fn plan(context: &Context<'_>, name: &[u8], args: &[&[u8]]) -> Option<Plan> {
    // Whether `ZRANGE` may still be told by what, and which way round.
    let (by, reverse, open) = match name {
        b"ZRANGE" => (By::Index, false, true),
        b"ZREVRANGE" => (By::Index, true, false),
        b"ZRANGEBYSCORE" => (By::Score, false, false),
        b"ZREVRANGEBYSCORE" => (By::Score, true, false),
        b"ZRANGEBYLEX" => (By::Name, false, false),
        b"ZREVRANGEBYLEX" => (By::Name, true, false),
        _ => return None,
    };
    let [_, _, start, stop, options @ ..] = args else { return None };
    let options = parse(Options { by, reverse, with_scores: false, limit: None }, open, options)?;
    let scored = options.by != By::Name;
    let mut request: Vec<&[u8]> = Vec::with_capacity(8);
    let (cut, first, last);
    if options.by == By::Index {
        cut = Cut::parse(start, stop)?;
        (first, last) = match cut {
            Cut { start: 0.., stop: 0.. } => (0, cut.stop),
            Cut { start: ..0, stop: ..0 } => (cut.start, -1),
            _ => (0, -1),
        };
    } else {
        let (offset, count) = options.limit.unwrap_or((0, -1));
        // Servers answer nothing, whatever there is.
        if offset < 0 {
            return None;
        }
        let end = if count < 0 { None } else { Some(offset.saturating_add(count)) };
        // Of shards that were asked for nothing, -1 is nothing too.
        cut = Cut { start: offset, stop: end.map_or(-1, |end| end - 1) };
        (first, last) = (0, end.unwrap_or(-1));
    }
    let (first, last) = (first.to_string(), last.to_string());
    if options.by == By::Index {
        request.extend([first.as_bytes(), last.as_bytes()]);
    } else {
        request.extend([*start, *stop]);
    }
    if open {
        match options.by {
            By::Index => {}
            By::Score => request.push(b"BYSCORE"),
            By::Name => request.push(b"BYLEX"),
        }
        if options.reverse {
            request.push(b"REV");
        }
    }
    if options.by != By::Index && options.limit.is_some() {
        request.extend([&b"LIMIT"[..], first.as_bytes(), last.as_bytes()]);
    }
    if scored {
        request.push(b"WITHSCORES");
    }
    let Options { reverse, with_scores, .. } = options;
    let range = Range { scored, with_scores, reverse, cut };
    Some(all(context, name, &request, How::Range(range)))
}

fn parse(mut options: Options, open: bool, mut args: &[&[u8]]) -> Option<Options> {
    let (mut may_turn, mut may_choose) = (open, open);
    while let [option, rest @ ..] = args {
        args = rest;
        match option.to_ascii_uppercase().as_slice() {
            b"WITHSCORES" => options.with_scores = true,
            b"REV" if may_turn => (options.reverse, may_turn) = (true, false),
            b"BYSCORE" if may_choose => (options.by, may_choose) = (By::Score, false),
            b"BYLEX" if may_choose => (options.by, may_choose) = (By::Name, false),
            b"LIMIT" => {
                let [offset, count, rest @ ..] = args else { return None };
                options.limit = Some((number::parse(offset)?, number::parse(count)?));
                args = rest;
            }
            _ => return None,
        }
    }
    let refused = match options.by {
        By::Index => options.limit.is_some(),
        By::Score => false,
        By::Name => options.with_scores,
    };
    (!refused).then_some(options)
}

/// An element of a shard's reply, as it was sent.
struct Element<'a> {
    score: f64,
    name: &'a [u8],
    member: &'a [u8],
    score_frame: &'a [u8],
}

pub(in crate::plan) fn merge(
    context: &Context<'_>,
    range: Range,
    replies: &[Vec<u8>],
) -> Option<Vec<u8>> {
    let mut elements = Vec::new();
    for reply in replies {
        read(reply, range.scored, context.resp3, &mut elements)?;
    }
    // A sort that finds the shards' runs and merges them.
    elements.sort_by(|a, b| {
        let order =
            a.score.partial_cmp(&b.score).unwrap_or(Ordering::Equal).then(a.name.cmp(b.name));
        if range.reverse { order.reverse() } else { order }
    });
    let elements = &elements[range.cut.of(elements.len())];
    let mut out = Vec::new();
    let nested = range.with_scores && context.resp3;
    let flat_pairs = range.with_scores && !nested;
    encode::header(&mut out, b'*', elements.len() << u32::from(flat_pairs));
    for element in elements {
        if nested {
            encode::header(&mut out, b'*', 2);
        }
        out.extend_from_slice(element.member);
        if range.with_scores {
            out.extend_from_slice(element.score_frame);
        }
    }
    Some(out)
}

/// The elements of one shard: names, names and scores in turn, or pairs of them.
fn read<'a>(
    reply: &'a [u8],
    scored: bool,
    resp3: bool,
    elements: &mut Vec<Element<'a>>,
) -> Option<()> {
    let mut frames = Aggregate::parse(reply)?.elements();
    while let Some(frame) = frames.next() {
        let (member, score_frame) = match (scored, resp3) {
            (false, _) => (frame, &[][..]),
            (true, false) => (frame, frames.next()?),
            (true, true) => {
                let mut pair = Aggregate::parse(frame)?.elements();
                (pair.next()?, pair.next()?)
            }
        };
        let score = if scored { add::parse(score_text(score_frame)?)? } else { 0.0 };
        elements.push(Element { score, name: text(member)?, member, score_frame });
    }
    Some(())
}

/// The text of a score: a string in RESP2, a double in RESP3.
pub(super) fn score_text(frame: &[u8]) -> Option<&[u8]> {
    match frame {
        [b',', number @ .., b'\r', b'\n'] => Some(number),
        _ => text(frame),
    }
}
