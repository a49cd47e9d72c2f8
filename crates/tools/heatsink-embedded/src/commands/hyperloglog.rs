//! `HyperLogLog`: how many distinct elements, in 12 KiB.
//!
//! Called by: `table`.
//! Bound: 12 KiB per key, always stored densely.
//! Invariant: the value is a string, as in Redis; see [`heatsink_resp::hyperloglog`].

use heatsink_resp::hyperloglog::Registers;

use crate::args::Args;
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::reply::Reply;
use crate::value::{Bytes, Value};

fn load(db: &mut Db, key: &[u8]) -> Result<Option<Registers>, Failure> {
    const INVALID: Failure = Failure::of("WRONGTYPE Key is not a valid HyperLogLog string value.");
    let Some(stored) = db.read::<Bytes>(key)? else { return Ok(None) };
    Registers::unpack(stored).map(Some).ok_or(INVALID)
}

fn save(db: &mut Db, key: &[u8], registers: &Registers) -> Outcome {
    *db.upsert::<Bytes>(key)? = registers.pack();
    db.changed(key);
    Ok(())
}

pub(crate) fn pfadd(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let found = load(db, args[1])?;
    let mut changed = found.is_none();
    let mut registers = found.unwrap_or_else(Registers::default);
    for element in &args[2..] {
        changed |= registers.add(element);
    }
    if changed {
        save(db, args[1], &registers)?;
    }
    reply.flag(changed);
    Ok(())
}

pub(crate) fn pfcount(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let mut merged = Registers::default();
    for key in &args[1..] {
        if let Some(registers) = load(db, key)? {
            merged.merge(&registers);
        }
    }
    reply.int(merged.estimate() as i64);
    Ok(())
}

pub(crate) fn pfmerge(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let mut merged = Registers::default();
    for key in &args[1..] {
        if let Some(registers) = load(db, key)? {
            merged.merge(&registers);
        }
    }
    if db.contains(args[1]) {
        save(db, args[1], &merged)?;
    } else {
        db.store(args[1], Value::String(merged.pack()));
    }
    reply.ok();
    Ok(())
}
