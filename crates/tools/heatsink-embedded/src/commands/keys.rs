//! Keys: commands that do not care what a key holds.
//!
//! Called by: `table`. Deadlines are in `expiry`, commands over several databases in
//! `databases`.

use crate::args::Args;
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::reply::Reply;
use heatsink_resp::glob;

/// Random positions tried before `RANDOMKEY` looks at keys in turn.
const RANDOM_TRIES: usize = 100;

pub(crate) fn del(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.len(args[1..].iter().filter(|key| db.delete(key)).count());
    Ok(())
}

pub(crate) fn exists(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.len(args[1..].iter().filter(|key| db.contains(key)).count());
    Ok(())
}

pub(crate) fn type_of(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.simple(db.find(args[1]).map_or("none", |entry| entry.value.type_name()));
    Ok(())
}

pub(crate) fn rename(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    rename_to(db, args)?;
    reply.ok();
    Ok(())
}

pub(crate) fn renamenx(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let taken = db.contains(args[2]);
    if !db.contains(args[1]) {
        return Err(Failure::NO_SUCH_KEY);
    }
    if !taken {
        rename_to(db, args)?;
    }
    reply.flag(!taken);
    Ok(())
}

fn rename_to(db: &mut Db, args: Args<'_>) -> Outcome {
    let (from, to) = (args[1], args[2]);
    if !db.contains(from) {
        return Err(Failure::NO_SUCH_KEY);
    }
    if from == to {
        return Ok(());
    }
    if let Some(entry) = db.take(from) {
        db.put(to, entry);
        db.changed(from);
        db.changed(to);
    }
    Ok(())
}

pub(crate) fn keys(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let live = db.live().map(|(key, _)| key);
    let found: Vec<_> = live.filter(|key| glob::matches(args[1], key)).collect();
    reply.bulks(found.into_iter());
    Ok(())
}

pub(crate) fn randomkey(db: &mut Db, _args: Args<'_>, reply: &mut Reply) -> Outcome {
    let mut rng = db.rng.fork();
    let len = db.len();
    let mut tried = (0..RANDOM_TRIES.min(len)).map(|_| rng.usize(..len));
    let found = tried.find_map(|at| db.at(at)).or_else(|| db.live().next());
    reply.bulk_or_null(found.map(|(key, _)| key.as_slice()));
    Ok(())
}

pub(crate) fn dbsize(db: &mut Db, _args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.len(db.len());
    Ok(())
}
