//! Databases: choosing and emptying.
//!
//! Called by: `table`.

use crate::args::{int, is};
use crate::failure::{Failure, Outcome};
use crate::world::{Call, DB_COUNT, World};

const BAD_INDEX: Failure = Failure::of("ERR DB index is out of range");

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

/// A database is emptied: watchers of keys that were there are told.
fn touch_all(world: &mut World, db: usize) {
    for key in world.watches.keys_of(db) {
        if world.dbs[db].is_stored(&key) {
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
        touch_all(call.world, db);
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
