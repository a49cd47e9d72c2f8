//! Lists, without the blocking commands.
//!
//! Called by: `table`.

use crate::args::{Args, int, is, positive, span};
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::reply::Reply;
use crate::value::{Bytes, List};

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

impl End {
    fn parse(arg: &[u8]) -> Result<Self, Failure> {
        if is(arg, "left") {
            Ok(Self::Left)
        } else if is(arg, "right") {
            Ok(Self::Right)
        } else {
            Err(Failure::SYNTAX)
        }
    }

    fn push(self, list: &mut List, element: Bytes) {
        match self {
            Self::Left => list.push_front(element),
            Self::Right => list.push_back(element),
        }
    }

    fn pop(self, list: &mut List) -> Option<Bytes> {
        match self {
            Self::Left => list.pop_front(),
            Self::Right => list.pop_back(),
        }
    }
}

fn push(db: &mut Db, args: Args<'_>, reply: &mut Reply, end: End, only_existing: bool) -> Outcome {
    if only_existing && db.read::<List>(args[1])?.is_none() {
        reply.int(0);
        return Ok(());
    }
    let list = db.upsert::<List>(args[1])?;
    for element in &args[2..] {
        end.push(list, element.to_vec());
    }
    reply.len(list.len());
    db.changed(args[1]);
    Ok(())
}

pub(crate) fn lpush(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    push(db, args, reply, End::Left, false)
}

pub(crate) fn rpush(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    push(db, args, reply, End::Right, false)
}

pub(crate) fn lpushx(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    push(db, args, reply, End::Left, true)
}

pub(crate) fn rpushx(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    push(db, args, reply, End::Right, true)
}

fn pop(db: &mut Db, args: Args<'_>, reply: &mut Reply, end: End, name: &str) -> Outcome {
    if args.len() > 3 {
        return Err(Failure::arity(name));
    }
    let count = args.get(2).map(|arg| positive(arg)).transpose()?;
    let Some(list) = db.write::<List>(args[1])? else {
        match count {
            Some(_) => reply.null_array(),
            None => reply.null(),
        }
        return Ok(());
    };
    let wanted = count.unwrap_or(1).min(list.len());
    if count.is_some() {
        reply.array(wanted);
    }
    for element in (0..wanted).filter_map(|_| end.pop(list)) {
        reply.bulk(&element);
    }
    if wanted > 0 {
        db.changed(args[1]);
    }
    Ok(())
}

pub(crate) fn lpop(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    pop(db, args, reply, End::Left, "lpop")
}

pub(crate) fn rpop(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    pop(db, args, reply, End::Right, "rpop")
}

fn transfer(db: &mut Db, keys: (&[u8], &[u8]), ends: (End, End), reply: &mut Reply) -> Outcome {
    let (from, to) = keys;
    if db.read::<List>(from)?.is_none() {
        reply.null();
        return Ok(());
    }
    db.read::<List>(to)?;
    let Some(element) = db.write::<List>(from)?.and_then(|list| ends.0.pop(list)) else {
        reply.null();
        return Ok(());
    };
    reply.bulk(&element);
    // The target first: where both are the same key, it may be empty just now.
    ends.1.push(db.upsert::<List>(to)?, element);
    db.changed(to);
    db.changed(from);
    Ok(())
}

pub(crate) fn lmove(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let ends = (End::parse(args[3])?, End::parse(args[4])?);
    transfer(db, (args[1], args[2]), ends, reply)
}

pub(crate) fn rpoplpush(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    transfer(db, (args[1], args[2]), (End::Right, End::Left), reply)
}

pub(crate) fn llen(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    reply.len(db.read::<List>(args[1])?.map_or(0, List::len));
    Ok(())
}

/// A position counted from the end where negative.
fn position(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index + len as i64 } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

pub(crate) fn lindex(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let Some(list) = db.read::<List>(args[1])? else {
        reply.null();
        return Ok(());
    };
    let element = position(int(args[2])?, list.len()).and_then(|at| list.get(at));
    reply.bulk_or_null(element.map(Vec::as_slice));
    Ok(())
}

pub(crate) fn lset(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let list = db.write::<List>(args[1])?.ok_or(Failure::NO_SUCH_KEY)?;
    let at = position(int(args[2])?, list.len()).ok_or(Failure::INDEX)?;
    list[at] = args[3].to_vec();
    db.changed(args[1]);
    reply.ok();
    Ok(())
}

pub(crate) fn lrange(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let (start, stop) = (int(args[2])?, int(args[3])?);
    let list = db.read::<List>(args[1])?;
    match list.and_then(|list| Some((list, span(start, stop, list.len())?))) {
        Some((list, (start, stop))) => reply.bulks(list.range(start..=stop)),
        None => reply.array(0),
    }
    Ok(())
}

pub(crate) fn ltrim(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let (start, stop) = (int(args[2])?, int(args[3])?);
    if let Some(list) = db.write::<List>(args[1])? {
        match span(start, stop, list.len()) {
            Some((start, stop)) => {
                list.truncate(stop + 1);
                list.drain(..start);
            }
            None => list.clear(),
        }
        db.changed(args[1]);
    }
    reply.ok();
    Ok(())
}

pub(crate) fn lrem(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let count = int(args[2])?;
    let Some(list) = db.write::<List>(args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let limit = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let mut removed = 0;
    let mut stays = |element: &Bytes| {
        let goes = removed < limit && element.as_slice() == args[3];
        removed += usize::from(goes);
        !goes
    };
    if count >= 0 {
        list.retain(&mut stays);
    } else {
        list.make_contiguous().reverse();
        list.retain(&mut stays);
        list.make_contiguous().reverse();
    }
    if removed > 0 {
        db.changed(args[1]);
    }
    reply.len(removed);
    Ok(())
}

pub(crate) fn linsert(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let after = match args[2] {
        word if is(word, "before") => 0,
        word if is(word, "after") => 1,
        _ => return Err(Failure::SYNTAX),
    };
    let Some(list) = db.write::<List>(args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let Some(pivot) = list.iter().position(|element| element.as_slice() == args[3]) else {
        reply.int(-1);
        return Ok(());
    };
    list.insert(pivot + after, args[4].to_vec());
    reply.len(list.len());
    db.changed(args[1]);
    Ok(())
}
