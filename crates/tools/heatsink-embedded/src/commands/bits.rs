//! Bits: strings as bit arrays, the first bit being the highest of the first byte.
//!
//! Called by: `table`.
//! Bound: a string is at most `STRING_BYTES_MAX` long, so offsets are below 2^32.

use crate::args::{Args, int, is};
use crate::commands::strings::{STRING_BYTES_MAX, clipped};
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::number;
use crate::reply::Reply;
use crate::value::{Bytes, Value};

fn offset_of(arg: &[u8]) -> Result<usize, Failure> {
    const BAD: Failure = Failure::of("ERR bit offset is not an integer or out of range");
    let offset = number::integer(arg).and_then(|n| usize::try_from(n).ok()).ok_or(BAD)?;
    if offset / 8 < STRING_BYTES_MAX { Ok(offset) } else { Err(BAD) }
}

fn bit_at(bytes: &[u8], offset: usize) -> bool {
    bytes.get(offset / 8).is_some_and(|byte| byte & (0x80 >> (offset % 8)) != 0)
}

pub(crate) fn setbit(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let offset = offset_of(args[2])?;
    let bit = match args[3] {
        b"0" => false,
        b"1" => true,
        _ => return Err(Failure::of("ERR bit is not an integer or out of range")),
    };
    let bytes = db.upsert::<Bytes>(args[1])?;
    let (len_before, before) = (bytes.len(), bit_at(bytes, offset));
    bytes.resize(len_before.max(offset / 8 + 1), 0);
    let is_change = before != bit || bytes.len() > len_before;
    reply.flag(before);
    let mask = 0x80 >> (offset % 8);
    if bit {
        bytes[offset / 8] |= mask;
    } else {
        bytes[offset / 8] &= !mask;
    }
    if is_change {
        db.changed(args[1]);
    }
    Ok(())
}

pub(crate) fn getbit(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let offset = offset_of(args[2])?;
    reply.flag(db.read::<Bytes>(args[1])?.is_some_and(|bytes| bit_at(bytes, offset)));
    Ok(())
}

/// Whether a range is in bits rather than bytes.
fn is_in_bits(unit: Option<&&[u8]>) -> Result<bool, Failure> {
    match unit {
        None => Ok(false),
        Some(unit) if is(unit, "byte") => Ok(false),
        Some(unit) if is(unit, "bit") => Ok(true),
        Some(_) => Err(Failure::SYNTAX),
    }
}

/// The bits that `start` and `end` mean, inclusive.
fn bit_span(start: i64, end: i64, in_bits: bool, len: usize) -> Option<(usize, usize)> {
    if in_bits {
        clipped(start, end, len * 8)
    } else {
        clipped(start, end, len).map(|(start, end)| (start * 8, end * 8 + 7))
    }
}

pub(crate) fn bitcount(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let Some(bytes) = db.read::<Bytes>(args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let (start, end, in_bits) = match args.len() {
        2 => (0, -1, false),
        4 | 5 => {
            let (start, end) = (int(args[2])?, int(args[3])?);
            if start < 0 && end < 0 && start > end {
                reply.int(0);
                return Ok(());
            }
            (start, end, is_in_bits(args.get(4))?)
        }
        _ => return Err(Failure::SYNTAX),
    };
    let Some((first, last)) = bit_span(start, end, in_bits, bytes.len()) else {
        reply.int(0);
        return Ok(());
    };
    let whole: u32 = bytes[first / 8..=last / 8].iter().map(|byte| byte.count_ones()).sum();
    let before = bytes[first / 8] & !(0xff >> (first % 8));
    let after = bytes[last / 8] & (0x7f >> (last % 8));
    reply.int(i64::from(whole - before.count_ones() - after.count_ones()));
    Ok(())
}

pub(crate) fn bitpos(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let bit = match int(args[2])? {
        0 => false,
        1 => true,
        _ => return Err(Failure::of("ERR The bit argument must be 1 or 0.")),
    };
    let Some(bytes) = db.read::<Bytes>(args[1])? else {
        reply.int(if bit { -1 } else { 0 });
        return Ok(());
    };
    if args.len() > 6 {
        return Err(Failure::SYNTAX);
    }
    let start = args.get(3).map_or(Ok(0), |arg| int(arg))?;
    let in_bits = is_in_bits(args.get(5))?;
    let end = args.get(4).map(|arg| int(arg)).transpose()?;
    let Some((first, last)) = bit_span(start, end.unwrap_or(-1), in_bits, bytes.len()) else {
        reply.int(-1);
        return Ok(());
    };
    let boring = if bit { 0x00 } else { 0xff };
    let mut at = first;
    while at <= last && bit_at(bytes, at) != bit {
        at += if at % 8 == 0 && bytes[at / 8] == boring { 8 } else { 1 };
    }
    // A string is followed by zeros without end, unless the caller said where it ends.
    let beyond = if !bit && end.is_none() { (bytes.len() * 8) as i64 } else { -1 };
    reply.int(if at <= last { at as i64 } else { beyond });
    Ok(())
}

pub(crate) fn bitop(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let operation = args[1].to_ascii_lowercase();
    let combine: fn(u8, u8) -> u8 = match operation.as_slice() {
        b"and" => |a, b| a & b,
        b"or" => |a, b| a | b,
        b"xor" => |a, b| a ^ b,
        b"not" if args.len() == 4 => |a, _| !a,
        b"not" => {
            return Err(Failure::of("ERR BITOP NOT must be called with a single source key."));
        }
        _ => return Err(Failure::SYNTAX),
    };
    let mut sources = Vec::with_capacity(args.len() - 3);
    for key in &args[3..] {
        sources.push(db.read::<Bytes>(key)?.cloned().unwrap_or_default());
    }
    let len = sources.iter().map(Vec::len).max().unwrap_or(0);
    let (first, others) = sources.split_first_mut().ok_or(Failure::SYNTAX)?;
    first.resize(len, 0);
    for (at, byte) in first.iter_mut().enumerate() {
        if operation == b"not" {
            *byte = combine(*byte, 0);
        }
        for other in others.iter() {
            *byte = combine(*byte, other.get(at).copied().unwrap_or(0));
        }
    }
    let result = std::mem::take(first);
    if result.is_empty() {
        db.delete(args[2]);
    } else {
        db.store(args[2], Value::String(result));
    }
    reply.len(len);
    Ok(())
}
