//! Strings: reading, writing and parts of them.
//!
//! Called by: `table`.
//! Bound: a string is at most `STRING_BYTES_MAX` long.

use crate::args::{Args, int, is};
use crate::commands::expiry::deadline_of;
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::reply::Reply;
use crate::value::{Bytes, Value};

/// Longest string, as in Redis's `proto-max-bulk-len`.
pub(crate) const STRING_BYTES_MAX: usize = 512 * 1024 * 1024;

/// What `SET` and `GETEX` were told about the deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ttl {
    Unsaid,
    Keep,
    Persist,
    At(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    IfMissing,
    IfPresent,
}

struct SetOptions<'a> {
    condition: Condition,
    returns_old: bool,
    ttl: Ttl,
    /// Unit and argument of a deadline, read last: a syntax error goes before a bad number.
    expire: Option<(&'a [u8], &'a [u8])>,
}

/// Reads the options of `SET` (`is_set`) or `GETEX`.
fn options(args: Args<'_>, is_set: bool) -> Result<SetOptions<'_>, Failure> {
    let mut parsed = SetOptions {
        condition: Condition::Always,
        returns_old: false,
        ttl: Ttl::Unsaid,
        expire: None,
    };
    let mut rest = args.iter();
    while let Some(&arg) = rest.next() {
        let free = parsed.ttl == Ttl::Unsaid && parsed.expire.is_none();
        if is_set && is(arg, "nx") && parsed.condition != Condition::IfPresent {
            parsed.condition = Condition::IfMissing;
        } else if is_set && is(arg, "xx") && parsed.condition != Condition::IfMissing {
            parsed.condition = Condition::IfPresent;
        } else if is_set && is(arg, "get") {
            parsed.returns_old = true;
        } else if is_set && is(arg, "keepttl") && parsed.expire.is_none() {
            parsed.ttl = Ttl::Keep;
        } else if !is_set && is(arg, "persist") && parsed.expire.is_none() {
            parsed.ttl = Ttl::Persist;
        } else if free && ["ex", "px", "exat", "pxat"].iter().any(|unit| is(arg, unit)) {
            parsed.expire = Some((arg, rest.next().ok_or(Failure::SYNTAX)?));
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    Ok(parsed)
}

fn ttl_of(options: &SetOptions<'_>, now_ms: u64, command: &str) -> Result<Ttl, Failure> {
    let Some((unit, arg)) = options.expire else { return Ok(options.ttl) };
    let value = int(arg)?;
    let in_seconds = unit[0].eq_ignore_ascii_case(&b'e');
    let absolute = unit.len() == 4;
    match deadline_of(value, in_seconds, (!absolute).then_some(now_ms)) {
        Some(deadline_ms) if value > 0 => Ok(Ttl::At(deadline_ms as u64)),
        _ => Err(Failure::new(format!("ERR invalid expire time in '{command}' command"))),
    }
}

fn apply_ttl(db: &mut Db, key: &[u8], ttl: Ttl) {
    match ttl {
        Ttl::Keep | Ttl::Unsaid => {}
        Ttl::Persist => db.set_deadline(key, None),
        Ttl::At(deadline_ms) => db.set_deadline(key, Some(deadline_ms)),
    }
}

pub(crate) fn set(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let (key, value) = (args[1], args[2]);
    let options = options(&args[3..], true)?;
    let ttl = ttl_of(&options, db.now_ms, "set")?;
    if options.returns_old {
        reply.bulk_or_null(db.read::<Bytes>(key)?.map(Vec::as_slice));
    }
    let held_back = match options.condition {
        Condition::Always => false,
        Condition::IfMissing => db.contains(key),
        Condition::IfPresent => !db.contains(key),
    };
    if held_back {
        if !options.returns_old {
            reply.null();
        }
        return Ok(());
    }
    let kept = if ttl == Ttl::Keep { db.find(key).and_then(|e| e.deadline_ms) } else { None };
    db.store(key, Value::String(value.to_vec()));
    if kept.is_some() {
        db.set_deadline(key, kept);
    }
    apply_ttl(db, key, ttl);
    if !options.returns_old {
        reply.ok();
    }
    Ok(())
}

pub(crate) fn setnx(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let missing = !db.contains(args[1]);
    if missing {
        db.store(args[1], Value::String(args[2].to_vec()));
    }
    reply.flag(missing);
    Ok(())
}

pub(crate) fn setex(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    set_for(db, args, reply, b"ex", "setex")
}

pub(crate) fn psetex(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    set_for(db, args, reply, b"px", "psetex")
}

fn set_for(db: &mut Db, args: Args<'_>, reply: &mut Reply, unit: &[u8], name: &str) -> Outcome {
    let options = SetOptions {
        condition: Condition::Always,
        returns_old: false,
        ttl: Ttl::Unsaid,
        expire: Some((unit, args[2])),
    };
    let ttl = ttl_of(&options, db.now_ms, name)?;
    db.store(args[1], Value::String(args[3].to_vec()));
    apply_ttl(db, args[1], ttl);
    reply.ok();
    Ok(())
}

pub(crate) fn get(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.bulk_or_null(db.read::<Bytes>(args[1])?.map(Vec::as_slice));
    Ok(())
}

pub(crate) fn getex(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let key = args[1];
    let options = options(&args[2..], false)?;
    let now_ms = db.now_ms;
    let Some(value) = db.read::<Bytes>(key)? else {
        reply.null();
        return Ok(());
    };
    let ttl = ttl_of(&options, now_ms, "getex")?;
    reply.bulk(value);
    match ttl {
        Ttl::At(deadline_ms) if deadline_ms <= now_ms => {
            db.delete(key);
        }
        Ttl::At(_) => {
            apply_ttl(db, key, ttl);
            db.changed(key);
        }
        Ttl::Persist if db.find(key).is_some_and(|e| e.deadline_ms.is_some()) => {
            apply_ttl(db, key, ttl);
            db.changed(key);
        }
        _ => {}
    }
    Ok(())
}

pub(crate) fn getdel(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    get(db, args, reply)?;
    db.delete(args[1]);
    Ok(())
}

pub(crate) fn getset(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    get(db, args, reply)?;
    db.store(args[1], Value::String(args[2].to_vec()));
    Ok(())
}

pub(crate) fn mget(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.array(args.len() - 1);
    for key in &args[1..] {
        reply.bulk_or_null(db.read::<Bytes>(key).ok().flatten().map(Vec::as_slice));
    }
    Ok(())
}

fn set_all(db: &mut Db, pairs: Args<'_>) {
    for pair in pairs.chunks_exact(2) {
        db.store(pair[0], Value::String(pair[1].to_vec()));
    }
}

pub(crate) fn mset(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity("mset"));
    }
    set_all(db, &args[1..]);
    reply.ok();
    Ok(())
}

pub(crate) fn msetnx(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity("msetnx"));
    }
    let free = !args[1..].chunks_exact(2).any(|pair| db.contains(pair[0]));
    if free {
        set_all(db, &args[1..]);
    }
    reply.flag(free);
    Ok(())
}

pub(crate) fn append(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let value = db.upsert::<Bytes>(args[1])?;
    if value.len() + args[2].len() > STRING_BYTES_MAX {
        return Err(Failure::TOO_LONG);
    }
    value.extend_from_slice(args[2]);
    reply.len(value.len());
    db.changed(args[1]);
    Ok(())
}

pub(crate) fn strlen(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.len(db.read::<Bytes>(args[1])?.map_or(0, Vec::len));
    Ok(())
}

pub(crate) fn getrange(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let (start, end) = (int(args[2])?, int(args[3])?);
    let empty = Bytes::new();
    let value = db.read::<Bytes>(args[1])?.unwrap_or(&empty);
    let is_backwards = start < 0 && end < 0 && start > end;
    reply.bulk(match clipped(start, end, value.len()) {
        Some((start, end)) if !is_backwards => &value[start..=end],
        _ => b"",
    });
    Ok(())
}

/// An inclusive range in which an end before the beginning means the first position.
pub(crate) fn clipped(start: i64, end: i64, len: usize) -> Option<(usize, usize)> {
    if len == 0 {
        return None;
    }
    let len = len as i64;
    let from_end = |at: i64| if at < 0 { (at + len).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    (start <= end).then_some((start as usize, end as usize))
}

pub(crate) fn setrange(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let (key, patch) = (args[1], args[3]);
    let offset =
        usize::try_from(int(args[2])?).map_err(|_| Failure::of("ERR offset is out of range"))?;
    if patch.is_empty() {
        reply.len(db.read::<Bytes>(key)?.map_or(0, Vec::len));
        return Ok(());
    }
    db.read::<Bytes>(key)?;
    let end = offset.saturating_add(patch.len());
    if end > STRING_BYTES_MAX {
        return Err(Failure::TOO_LONG);
    }
    let value = db.upsert::<Bytes>(key)?;
    value.resize(value.len().max(end), 0);
    value[offset..end].copy_from_slice(patch);
    reply.len(value.len());
    db.changed(key);
    Ok(())
}
