//! Hashes.
//!
//! Called by: `table`.

use crate::args::{Args, int};
use crate::commands::counters::sum_text;
use crate::commands::scan::{self, Step};
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::number;
use crate::reply::Reply;
use crate::value::{Hash, remove};

fn put(hash: &mut Hash, field: &[u8], value: &[u8]) -> bool {
    if let Some(slot) = hash.get_mut(field) {
        *slot = value.to_vec();
        return false;
    }
    hash.insert(field.to_vec(), value.to_vec());
    true
}

fn put_all(db: &mut Db, args: Args<'_>, name: &str) -> Result<usize, Failure> {
    if args.len() % 2 == 1 {
        return Err(Failure::arity(name));
    }
    let hash = db.upsert::<Hash>(args[1])?;
    let added = args[2..].chunks_exact(2).filter(|pair| put(hash, pair[0], pair[1])).count();
    db.changed(args[1]);
    Ok(added)
}

pub(crate) fn hset(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.len(put_all(db, args, "hset")?);
    Ok(())
}

pub(crate) fn hmset(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    put_all(db, args, "hmset")?;
    reply.ok();
    Ok(())
}

pub(crate) fn hsetnx(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let hash = db.upsert::<Hash>(args[1])?;
    let missing = !hash.contains_key(args[2]);
    if missing {
        put(hash, args[2], args[3]);
        db.changed(args[1]);
    }
    reply.flag(missing);
    Ok(())
}

pub(crate) fn hget(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let value = db.read::<Hash>(args[1])?.and_then(|hash| hash.get(args[2]));
    reply.bulk_or_null(value.map(Vec::as_slice));
    Ok(())
}

pub(crate) fn hmget(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let hash = db.read::<Hash>(args[1])?;
    reply.array(args.len() - 2);
    for field in &args[2..] {
        let value = hash.and_then(|hash| hash.get(*field));
        reply.bulk_or_null(value.map(Vec::as_slice));
    }
    Ok(())
}

pub(crate) fn hgetall(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let hash = db.read::<Hash>(args[1])?;
    reply.map(hash.map_or(0, Hash::len));
    for (field, value) in hash.into_iter().flatten() {
        reply.bulk(field);
        reply.bulk(value);
    }
    Ok(())
}

pub(crate) fn hkeys(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    match db.read::<Hash>(args[1])? {
        Some(hash) => reply.bulks(hash.keys()),
        None => reply.array(0),
    }
    Ok(())
}

pub(crate) fn hvals(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    match db.read::<Hash>(args[1])? {
        Some(hash) => reply.bulks(hash.values()),
        None => reply.array(0),
    }
    Ok(())
}

pub(crate) fn hlen(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.len(db.read::<Hash>(args[1])?.map_or(0, Hash::len));
    Ok(())
}

pub(crate) fn hstrlen(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let value = db.read::<Hash>(args[1])?.and_then(|hash| hash.get(args[2]));
    reply.len(value.map_or(0, Vec::len));
    Ok(())
}

pub(crate) fn hexists(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.flag(db.read::<Hash>(args[1])?.is_some_and(|hash| hash.contains_key(args[2])));
    Ok(())
}

pub(crate) fn hdel(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let removed = match db.write::<Hash>(args[1])? {
        Some(hash) => args[2..].iter().filter(|field| remove(hash, field).is_some()).count(),
        None => 0,
    };
    if removed > 0 {
        db.changed(args[1]);
    }
    reply.len(removed);
    Ok(())
}

pub(crate) fn hincrby(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let increment = int(args[3])?;
    let current = match db.read::<Hash>(args[1])?.and_then(|hash| hash.get(args[2])) {
        Some(text) => {
            number::integer(text).ok_or(Failure::of("ERR hash value is not an integer"))?
        }
        None => 0,
    };
    let sum = current.checked_add(increment).ok_or(Failure::OVERFLOW)?;
    put(db.upsert::<Hash>(args[1])?, args[2], sum.to_string().as_bytes());
    db.changed(args[1]);
    reply.int(sum);
    Ok(())
}

pub(crate) fn hincrbyfloat(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    match number::double(args[3]) {
        None => return Err(Failure::NOT_A_FLOAT),
        Some(increment) if increment.is_infinite() => {
            return Err(Failure::of("ERR value is NaN or Infinity"));
        }
        Some(_) => {}
    }
    let current = db.read::<Hash>(args[1])?.and_then(|hash| hash.get(args[2]));
    let current = current.map_or(b"0".as_slice(), Vec::as_slice);
    let sum = sum_text(current, args[3], Failure::of("ERR hash value is not a float"))?;
    put(db.upsert::<Hash>(args[1])?, args[2], sum.as_bytes());
    db.changed(args[1]);
    reply.bulk(sum.as_bytes());
    Ok(())
}

pub(crate) fn hscan(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let cursor = scan::cursor(args[2])?;
    match db.read::<Hash>(args[1])? {
        None => Step::nothing(reply),
        Some(hash) => Step::parse(cursor, &args[3..], false)?.reply(
            hash.len(),
            |at| hash.get_index(at).map(|(field, value)| [field.clone(), value.clone()]),
            reply,
        ),
    }
    Ok(())
}
