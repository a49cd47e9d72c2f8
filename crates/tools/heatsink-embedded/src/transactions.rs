//! Transactions: `MULTI` to `EXEC`, and the keys watched for them.
//!
//! Called by: `table` (the commands), `engine` (queueing), `world` (touching watched keys).
//! Bound: a queue holds at most `QUEUE_BYTES_MAX` of arguments.
//! Invariant: a connection is in `broken` only while it watches something; `EXEC`, `DISCARD`
//! and `UNWATCH` end both.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::args::Args;
use crate::client::{Client, ConnId, Queue};
use crate::failure::{Failure, Outcome};
use crate::table::Command;
use crate::value::Bytes;
use crate::world::{Call, World};

/// Arguments that may wait in one transaction.
const QUEUE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Who watches which keys.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    by_key: HashMap<(usize, Bytes), Vec<ConnId>, RandomState>,
    by_conn: HashMap<ConnId, Vec<Watched>, RandomState>,
    broken: HashSet<ConnId, RandomState>,
}

#[derive(Debug)]
struct Watched {
    db: usize,
    key: Bytes,
    /// Past its deadline already when it was first watched: its removal is no news.
    was_past: bool,
}

impl Watches {
    pub(crate) fn is_active(&self) -> bool {
        !self.by_conn.is_empty()
    }

    fn add(&mut self, conn: ConnId, db: usize, key: &[u8], was_past: bool) {
        let watched = self.by_conn.entry(conn).or_default();
        if watched.iter().any(|w| w.db == db && w.key == key) {
            return;
        }
        watched.push(Watched { db, key: key.to_vec(), was_past });
        self.by_key.entry((db, key.to_vec())).or_default().push(conn);
    }

    /// Ends all watching of a connection.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.broken.remove(&conn);
        for watched in self.by_conn.remove(&conn).unwrap_or_default() {
            let slot = (watched.db, watched.key);
            if let Some(conns) = self.by_key.get_mut(&slot) {
                conns.retain(|other| *other != conn);
                if conns.is_empty() {
                    self.by_key.remove(&slot);
                }
            }
        }
    }

    /// A key changed: transactions of its watchers will fail.
    pub(crate) fn touch(&mut self, db: usize, key: &[u8]) {
        if self.by_key.is_empty() {
            return;
        }
        for conn in self.by_key.get(&(db, key.to_vec())).into_iter().flatten() {
            let watched = self.by_conn.get_mut(conn).into_iter().flatten();
            for watched in watched.filter(|w| w.db == db && w.key == key) {
                if !std::mem::take(&mut watched.was_past) {
                    self.broken.insert(*conn);
                }
            }
        }
    }

    /// The keys watched in a database, for commands that replace it as a whole.
    pub(crate) fn keys_of(&self, db: usize) -> Vec<Bytes> {
        let here = self.by_key.keys().filter(|(watched_db, _)| *watched_db == db);
        here.map(|(_, key)| key.clone()).collect()
    }
}

/// Puts a request into the queue of an open transaction.
pub(crate) fn enqueue(client: &mut Client, command: &'static Command, args: Args<'_>) {
    let Some(queue) = &mut client.queue else { return };
    let bytes: usize = args.iter().map(|arg| arg.len()).sum();
    if queue.bytes + bytes > QUEUE_BYTES_MAX {
        queue.is_broken = true;
        queue.requests.clear();
        client.reply.error(&Failure::of("ERR heatsink: too many bytes queued since MULTI"));
        return;
    }
    if !queue.is_broken {
        queue.bytes += bytes;
        queue.requests.push((command, args.iter().map(|arg| arg.to_vec()).collect()));
    }
    client.reply.simple("QUEUED");
}

/// An `EXEC` that could not even start ends the transaction anyway.
pub(crate) fn abort(world: &mut World, client: &mut Client, failure: &Failure) {
    client.queue = None;
    world.watches.forget(client.id);
    let text = failure.text();
    let reason = text.strip_prefix(b"ERR ").unwrap_or(text);
    let text = [b"EXECABORT Transaction discarded because of: ", reason].concat();
    client.reply.error(&Failure::new(text));
}

pub(crate) fn multi(call: &mut Call<'_>) -> Outcome {
    if call.client.queue.is_some() {
        return Err(Failure::of("ERR MULTI calls can not be nested"));
    }
    call.client.queue = Some(Queue::default());
    call.client.reply.ok();
    Ok(())
}

pub(crate) fn discard(call: &mut Call<'_>) -> Outcome {
    if call.client.queue.take().is_none() {
        return Err(Failure::of("ERR DISCARD without MULTI"));
    }
    call.world.watches.forget(call.client.id);
    call.client.reply.ok();
    Ok(())
}

pub(crate) fn exec(call: &mut Call<'_>) -> Outcome {
    let Some(queue) = call.client.queue.take() else {
        return Err(Failure::of("ERR EXEC without MULTI"));
    };
    let (world, client) = (&mut *call.world, &mut *call.client);
    let watched = world.watches.by_conn.get(&client.id).into_iter().flatten();
    let expired =
        watched.into_iter().any(|w| !w.was_past && world.dbs[w.db].is_past_deadline(&w.key));
    let is_stale = expired || world.watches.broken.contains(&client.id);
    world.watches.forget(client.id);
    if queue.is_broken {
        return Err(Failure::of("EXECABORT Transaction discarded because of previous errors."));
    }
    if is_stale {
        client.reply.null_array();
        return Ok(());
    }
    client.reply.array(queue.requests.len());
    for (command, args) in &queue.requests {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        world.run(client, command, &args);
    }
    Ok(())
}

pub(crate) fn watch(call: &mut Call<'_>) -> Outcome {
    if call.client.queue.is_some() {
        return Err(Failure::of("ERR WATCH inside MULTI is not allowed"));
    }
    let (conn, db) = (call.client.id, call.client.db);
    for key in &call.args[1..] {
        let was_past = call.world.dbs[db].is_past_deadline(key);
        call.world.watches.add(conn, db, key, was_past);
    }
    call.client.reply.ok();
    Ok(())
}

pub(crate) fn unwatch(call: &mut Call<'_>) -> Outcome {
    call.world.watches.forget(call.client.id);
    call.client.reply.ok();
    Ok(())
}
