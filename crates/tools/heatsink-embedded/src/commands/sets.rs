//! Sets.
//!
//! Called by: `table`.

use crate::args::{Args, positive};
use crate::commands::picks::Request;
use crate::commands::scan::{self, Step};
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::reply::Reply;
use crate::value::{Bytes, Set, Value};

pub(crate) fn sadd(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let set = db.upsert::<Set>(args[1])?;
    let added = args[2..].iter().filter(|member| set.insert(member.to_vec())).count();
    if added > 0 {
        db.changed(args[1]);
    }
    reply.len(added);
    Ok(())
}

pub(crate) fn srem(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let removed = match db.write::<Set>(args[1])? {
        Some(set) => args[2..].iter().filter(|member| set.swap_remove(**member)).count(),
        None => 0,
    };
    if removed > 0 {
        db.changed(args[1]);
    }
    reply.len(removed);
    Ok(())
}

pub(crate) fn sismember(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.flag(db.read::<Set>(args[1])?.is_some_and(|set| set.contains(args[2])));
    Ok(())
}

pub(crate) fn smismember(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let set = db.read::<Set>(args[1])?;
    reply.array(args.len() - 2);
    for member in &args[2..] {
        reply.flag(set.is_some_and(|set| set.contains(*member)));
    }
    Ok(())
}

pub(crate) fn scard(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.len(db.read::<Set>(args[1])?.map_or(0, Set::len));
    Ok(())
}

fn write_set(members: &Set, reply: &mut Reply) {
    reply.set(members.len());
    for member in members {
        reply.bulk(member);
    }
}

pub(crate) fn smembers(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    match db.read::<Set>(args[1])? {
        Some(set) => write_set(set, reply),
        None => reply.set(0),
    }
    Ok(())
}

pub(crate) fn smove(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let (from, to, member) = (args[1], args[2], args[3]);
    let Some(source) = db.read::<Set>(from)? else {
        reply.int(0);
        return Ok(());
    };
    let present = source.contains(member);
    db.read::<Set>(to)?;
    if present && from != to {
        if let Some(source) = db.write::<Set>(from)? {
            source.swap_remove(member);
        }
        db.changed(from);
        if db.upsert::<Set>(to)?.insert(member.to_vec()) {
            db.changed(to);
        }
    }
    reply.flag(present);
    Ok(())
}

pub(crate) fn spop(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    if args.len() > 3 {
        return Err(Failure::SYNTAX);
    }
    let count = args.get(2).map(|arg| positive(arg)).transpose()?;
    let mut rng = db.rng.fork();
    let Some(set) = db.write::<Set>(args[1])? else {
        match count {
            Some(_) => reply.set(0),
            None => reply.null(),
        }
        return Ok(());
    };
    let wanted = count.unwrap_or(1).min(set.len());
    if count.is_some() {
        reply.set(wanted);
    }
    for _ in 0..wanted {
        if let Some(member) = set.swap_remove_index(rng.usize(..set.len())) {
            reply.bulk(&member);
        }
    }
    if wanted > 0 {
        db.changed(args[1]);
    }
    Ok(())
}

pub(crate) fn srandmember(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let request = Request::parse(&args[2..])?;
    let mut rng = db.rng.fork();
    let set = db.read::<Set>(args[1])?;
    match (set, request) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.array(0),
        (Some(set), None) => {
            let member = set.get_index(rng.usize(..set.len()));
            reply.bulk_or_null(member.map(Vec::as_slice));
        }
        (Some(set), Some(request)) => {
            let positions = request.positions(set.len(), &mut rng);
            let picked: Vec<_> = positions.iter().filter_map(|at| set.get_index(*at)).collect();
            reply.bulks(picked.iter());
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

fn combine(db: &mut Db, keys: Args<'_>, operation: Operation) -> Result<Set, Failure> {
    let mut result: Option<Set> = None;
    for key in keys {
        let empty = Set::default();
        let set = db.read::<Set>(key)?.unwrap_or(&empty);
        match &mut result {
            None => result = Some(set.clone()),
            Some(result) => match operation {
                Operation::Intersection => result.retain(|member| set.contains(member)),
                Operation::Difference => result.retain(|member| !set.contains(member)),
                Operation::Union => result.extend(set.iter().cloned()),
            },
        }
    }
    Ok(result.unwrap_or_default())
}

fn show(db: &mut Db, args: Args<'_>, reply: &mut Reply, operation: Operation) -> Outcome {
    write_set(&combine(db, &args[1..], operation)?, reply);
    Ok(())
}

fn keep(db: &mut Db, args: Args<'_>, reply: &mut Reply, operation: Operation) -> Outcome {
    let result = combine(db, &args[2..], operation)?;
    reply.len(result.len());
    if result.is_empty() {
        db.delete(args[1]);
    } else {
        db.store(args[1], Value::Set(result));
    }
    Ok(())
}

pub(crate) fn sinter(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    show(db, args, reply, Operation::Intersection)
}

pub(crate) fn sunion(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    show(db, args, reply, Operation::Union)
}

pub(crate) fn sdiff(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    show(db, args, reply, Operation::Difference)
}

pub(crate) fn sinterstore(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    keep(db, args, reply, Operation::Intersection)
}

pub(crate) fn sunionstore(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    keep(db, args, reply, Operation::Union)
}

pub(crate) fn sdiffstore(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    keep(db, args, reply, Operation::Difference)
}

pub(crate) fn sscan(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let cursor = scan::cursor(args[2])?;
    match db.read::<Set>(args[1])? {
        None => Step::nothing(reply),
        Some(set) => {
            let item_at = |at| set.get_index(at).map(|member: &Bytes| [member.clone()]);
            Step::parse(cursor, &args[3..], false)?.reply(set.len(), item_at, reply);
        }
    }
    Ok(())
}
