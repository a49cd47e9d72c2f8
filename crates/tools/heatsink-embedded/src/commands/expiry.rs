//! Expiry: deadlines of keys.
//!
//! Called by: `table`, and `strings` for the deadline options of `SET`.
//! Invariant: a deadline in the past deletes the key at once.

use crate::args::{Args, int, is};
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::reply::Reply;

/// The moment a duration or point in time stands for, in milliseconds; none if out of range.
pub(crate) fn deadline_of(value: i64, in_seconds: bool, base_ms: Option<u64>) -> Option<i64> {
    let value_ms = if in_seconds { value.checked_mul(1000)? } else { value };
    value_ms.checked_add(base_ms.unwrap_or(0) as i64)
}

/// The condition that `EXPIRE` and its kin may carry.
#[expect(clippy::struct_excessive_bools, reason = "one field a word of the request")]
#[derive(Default)]
struct Conditions {
    if_none: bool,
    if_any: bool,
    if_later: bool,
    if_sooner: bool,
}

fn conditions(args: Args<'_>) -> Result<Conditions, Failure> {
    let mut conditions = Conditions::default();
    for arg in args {
        if is(arg, "nx") {
            conditions.if_none = true;
        } else if is(arg, "xx") {
            conditions.if_any = true;
        } else if is(arg, "gt") {
            conditions.if_later = true;
        } else if is(arg, "lt") {
            conditions.if_sooner = true;
        } else {
            let name = String::from_utf8_lossy(arg);
            return Err(Failure::new(format!("ERR Unsupported option {name}")));
        }
    }
    let Conditions { if_none, if_any, if_later, if_sooner } = conditions;
    if if_none && (if_any || if_later || if_sooner) {
        return Err(Failure::of(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if if_later && if_sooner {
        return Err(Failure::of("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(conditions)
}

fn expire_with(
    db: &mut Db,
    args: Args<'_>,
    reply: &mut Reply,
    in_seconds: bool,
    base_ms: Option<u64>,
    name: &str,
) -> Outcome {
    let key = args[1];
    let conditions = conditions(&args[3..])?;
    let value = int(args[2])?;
    let deadline_ms = deadline_of(value, in_seconds, base_ms)
        .ok_or_else(|| Failure::new(format!("ERR invalid expire time in '{name}' command")))?;
    let Some(entry) = db.find(key) else {
        reply.int(0);
        return Ok(());
    };
    let current_ms = entry.deadline_ms.map(|ms| ms as i64);
    let refused = (conditions.if_none && current_ms.is_some())
        || (conditions.if_any && current_ms.is_none())
        || (conditions.if_later && current_ms.is_none_or(|current| deadline_ms <= current))
        || (conditions.if_sooner && current_ms.is_some_and(|current| deadline_ms >= current));
    if refused {
        reply.int(0);
        return Ok(());
    }
    if deadline_ms <= db.now_ms as i64 {
        db.delete(key);
    } else {
        db.set_deadline(key, Some(deadline_ms as u64));
        db.changed(key);
    }
    reply.int(1);
    Ok(())
}

pub(crate) fn expire(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let now_ms = db.now_ms;
    expire_with(db, args, reply, true, Some(now_ms), "expire")
}

pub(crate) fn pexpire(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let now_ms = db.now_ms;
    expire_with(db, args, reply, false, Some(now_ms), "pexpire")
}

pub(crate) fn expireat(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    expire_with(db, args, reply, true, None, "expireat")
}

pub(crate) fn pexpireat(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    expire_with(db, args, reply, false, None, "pexpireat")
}

/// Answers -2 without key, -1 without deadline, else what `describe` makes of the deadline.
fn describe(db: &mut Db, key: &[u8], reply: &mut Reply, describe: impl Fn(i64) -> i64) -> Outcome {
    reply.int(match db.find(key) {
        None => -2,
        Some(entry) => entry.deadline_ms.map_or(-1, |ms| describe(ms as i64)),
    });
    Ok(())
}

pub(crate) fn ttl(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let now_ms = db.now_ms as i64;
    describe(db, args[1], reply, |deadline_ms| {
        (deadline_ms - now_ms).max(0).saturating_add(500) / 1000
    })
}

pub(crate) fn pttl(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let now_ms = db.now_ms as i64;
    describe(db, args[1], reply, |deadline_ms| (deadline_ms - now_ms).max(0))
}

pub(crate) fn expiretime(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    describe(db, args[1], reply, |deadline_ms| deadline_ms.saturating_add(500) / 1000)
}

pub(crate) fn pexpiretime(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    describe(db, args[1], reply, |deadline_ms| deadline_ms)
}

pub(crate) fn persist(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let had_deadline = db.find(args[1]).is_some_and(|entry| entry.deadline_ms.is_some());
    if had_deadline {
        db.set_deadline(args[1], None);
        db.changed(args[1]);
    }
    reply.flag(had_deadline);
    Ok(())
}
