//! Databases: choosing, emptying, swapping, and keys that go from one to another.
//!
//! Called by: `table`.

use crate::args::{int, is};
use crate::failure::{Failure, Outcome};
use crate::number;
use crate::world::{Call, DB_COUNT, World};

const BAD_INDEX: Failure = Failure::of("ERR DB index is out of range");
const SAME: Failure = Failure::of("ERR source and destination objects are the same");

fn index(value: i64) -> Result<usize, Failure> {
    usize::try_from(value).ok().filter(|at| *at < DB_COUNT).ok_or(BAD_INDEX)
}

pub(crate) fn select(call: &mut Call<'_>) -> Outcome {
    let db = index(int(call.args[1])?)?;
    if db != 0 && call.world.cluster.is_some() {
        return Err(Failure::of("ERR SELECT is not allowed in cluster mode"));
    }
    call.client.db = db;
    call.client.reply.ok();
    Ok(())
}

/// A database is emptied or replaced: watchers of keys that were or will be there are told.
fn touch_all(world: &mut World, db: usize, other: Option<usize>) {
    for key in world.watches.keys_of(db) {
        let concerns = world.dbs[db].is_stored(&key)
            || other.is_some_and(|other| world.dbs[other].is_stored(&key));
        if concerns {
            world.watches.touch(db, &key);
        }
    }
}

fn flush(call: &mut Call<'_>, dbs: std::ops::Range<usize>) -> Outcome {
    match call.args {
        [_] => {}
        [_, mode] if is(mode, "async") || is(mode, "sync") => {}
        _ => return Err(Failure::SYNTAX),
    }
    for db in dbs {
        touch_all(call.world, db, None);
        call.world.dbs[db].clear();
    }
    call.world.tracking.invalidate_all(&mut call.world.outbox);
    call.client.reply.ok();
    Ok(())
}

pub(crate) fn flushdb(call: &mut Call<'_>) -> Outcome {
    let db = call.client.db;
    flush(call, db..db + 1)
}

pub(crate) fn flushall(call: &mut Call<'_>) -> Outcome {
    flush(call, 0..DB_COUNT)
}

pub(crate) fn swapdb(call: &mut Call<'_>) -> Outcome {
    let bad = |text| Failure::of(text);
    let first = number::integer(call.args[1]).ok_or(bad("ERR invalid first DB index"))?;
    let second = number::integer(call.args[2]).ok_or(bad("ERR invalid second DB index"))?;
    let (first, second) = (index(first)?, index(second)?);
    if first != second {
        touch_all(call.world, first, Some(second));
        touch_all(call.world, second, Some(first));
        // Trackers are not told: Redis 7.0 does not either, as it tracks names without numbers.
        call.world.dbs.swap(first, second);
    }
    call.client.reply.ok();
    Ok(())
}

pub(crate) fn move_key(call: &mut Call<'_>) -> Outcome {
    let (key, from) = (call.args[1], call.client.db);
    let to = index(int(call.args[2])?)?;
    if from == to {
        return Err(SAME);
    }
    let dbs = &mut call.world.dbs;
    let moves = dbs[from].contains(key) && !dbs[to].contains(key);
    if moves && let Some(entry) = dbs[from].take(key) {
        dbs[to].put(key, entry);
        dbs[from].changed(key);
        dbs[to].changed(key);
    }
    call.client.reply.flag(moves);
    Ok(())
}

pub(crate) fn copy(call: &mut Call<'_>) -> Outcome {
    let (source, target, from) = (call.args[1], call.args[2], call.client.db);
    let (mut to, mut replace) = (from, false);
    let mut options = call.args[3..].iter();
    while let Some(option) = options.next() {
        if is(option, "replace") {
            replace = true;
        } else if is(option, "db") {
            to = index(int(options.next().ok_or(Failure::SYNTAX)?)?)?;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    if from == to && source == target {
        return Err(SAME);
    }
    let dbs = &mut call.world.dbs;
    let entry = dbs[from].find(source).cloned();
    let Some(entry) = entry.filter(|_| replace || !dbs[to].contains(target)) else {
        call.client.reply.int(0);
        return Ok(());
    };
    dbs[to].put(target, entry);
    dbs[to].changed(target);
    call.client.reply.int(1);
    Ok(())
}
