//! Counters: strings read as numbers.
//!
//! Called by: `table`.
//! Invariant: a counter keeps its deadline; an overflow changes nothing.

use crate::args::{Args, int};
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::number;
use crate::reply::Reply;
use crate::value::Bytes;

fn add(db: &mut Db, key: &[u8], increment: i64, reply: &mut Reply) -> Outcome {
    let value = match db.read::<Bytes>(key)? {
        Some(text) => int(text)?,
        None => 0,
    };
    let sum = value.checked_add(increment).ok_or(Failure::OVERFLOW)?;
    *db.upsert::<Bytes>(key)? = sum.to_string().into_bytes();
    db.changed(key);
    reply.int(sum);
    Ok(())
}

pub(crate) fn incr(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    add(db, args[1], 1, reply)
}

pub(crate) fn decr(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    add(db, args[1], -1, reply)
}

pub(crate) fn incrby(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    add(db, args[1], int(args[2])?, reply)
}

pub(crate) fn decrby(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let decrement = int(args[2])?;
    let increment = decrement.checked_neg().ok_or(Failure::of("ERR decrement would overflow"))?;
    add(db, args[1], increment, reply)
}

pub(crate) fn incrbyfloat(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let value = db.read::<Bytes>(args[1])?.map_or(b"0".as_slice(), Vec::as_slice);
    let sum = sum_text(value, args[2], Failure::NOT_A_FLOAT)?;
    *db.upsert::<Bytes>(args[1])? = sum.clone().into_bytes();
    db.changed(args[1]);
    reply.bulk(sum.as_bytes());
    Ok(())
}

/// The sum of a stored number and an increment, or why there is none.
pub(crate) fn sum_text(value: &[u8], increment: &[u8], bad: Failure) -> Result<String, Failure> {
    if number::double(value).is_none() {
        return Err(bad);
    }
    if number::double(increment).is_none() {
        return Err(Failure::NOT_A_FLOAT);
    }
    number::add_float_text(value, increment).ok_or(Failure::NAN_OR_INFINITY)
}
