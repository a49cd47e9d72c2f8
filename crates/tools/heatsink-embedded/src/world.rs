//! World: everything that outlives a request, and the running of one command in it.
//!
//! Called by: `engine` for each request, `transactions` for each queued one.
//! Invariant: what others are told (messages, invalidations) waits in `outbox` until the
//! request's own reply is complete: a client sees its reply before what it caused.

use foldhash::fast::RandomState;
use indexmap::IndexMap;

use crate::args::Args;
use crate::client::{Client, ConnId};
use crate::cluster::Membership;
use crate::db::Db;
use crate::failure::Outcome;
use crate::pubsub::{Note, PubSub};
use crate::table::{Command, Handler};
use crate::tracking::Tracking;
use crate::transactions::Watches;

/// Databases, as in Redis's default configuration.
pub(crate) const DB_COUNT: usize = 16;

/// Connections other than the one whose request runs; boxed, since each request takes its
/// own out and puts it back.
pub(crate) type Peers = IndexMap<ConnId, Box<Client>, RandomState>;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) dbs: Vec<Db>,
    pub(crate) peers: Peers,
    pub(crate) pubsub: PubSub,
    pub(crate) tracking: Tracking,
    pub(crate) watches: Watches,
    /// What to tell whom once the running request is answered.
    pub(crate) outbox: Vec<(ConnId, Note)>,
    /// Connections closed by `CLIENT KILL`, to be noticed by the engine.
    pub(crate) killed: Vec<ConnId>,
    pub(crate) stats: Stats,
    pub(crate) now_ms: u64,
    /// The cluster that the store is part of.
    pub(crate) cluster: Option<Membership>,
    is_observed: bool,
}

/// Counters for `INFO`.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) started_ms: u64,
    pub(crate) connections: u64,
    pub(crate) commands: u64,
    pub(crate) errors: u64,
    pub(crate) input_bytes: u64,
}

/// A running command of the connection level: everything at hand.
pub(crate) struct Call<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) client: &'a mut Client,
    pub(crate) args: Args<'a>,
}

impl World {
    pub(crate) fn new(seed: u64, now_ms: u64) -> Self {
        let mut world = Self {
            dbs: (0..DB_COUNT as u64).map(|at| Db::new(seed.wrapping_add(at))).collect(),
            peers: Peers::default(),
            pubsub: PubSub::default(),
            tracking: Tracking::new(seed),
            watches: Watches::default(),
            outbox: Vec::new(),
            killed: Vec::new(),
            stats: Stats { started_ms: now_ms, ..Stats::default() },
            now_ms: 0,
            cluster: None,
            is_observed: false,
        };
        world.set_time(now_ms);
        world
    }

    /// Sets the time that commands see from here on.
    pub(crate) fn set_time(&mut self, now_ms: u64) {
        let is_observed = self.tracking.is_active() || self.watches.is_active();
        if (now_ms, is_observed) == (self.now_ms, self.is_observed) {
            return;
        }
        (self.now_ms, self.is_observed) = (now_ms, is_observed);
        for db in &mut self.dbs {
            db.now_ms = now_ms;
            db.observed = is_observed;
        }
    }

    /// Runs a command that may run now, and writes its reply.
    pub(crate) fn run(&mut self, client: &mut Client, command: &'static Command, args: Args<'_>) {
        self.set_time(self.now_ms);
        self.stats.commands += 1;
        client.last_command = command.name;
        let outcome: Outcome = match command.handler {
            Handler::Data(handler) => handler(&mut self.dbs[client.db], args, &mut client.reply),
            Handler::Call(handler) => handler(&mut Call { world: self, client, args }),
        };
        if let Err(failure) = outcome {
            self.stats.errors += 1;
            client.reply.error(&failure);
        }
        self.spread_changes(Some(client.id));
        if command.is_read() {
            self.tracking.remember(client.id, command, args, &mut self.outbox);
        }
    }

    /// Tells watchers and trackers about keys that have changed.
    pub(crate) fn spread_changes(&mut self, writer: Option<ConnId>) {
        if !self.is_observed {
            return;
        }
        for (index, db) in self.dbs.iter_mut().enumerate() {
            for key in db.changes.drain(..) {
                self.watches.touch(index, &key);
                self.tracking.invalidate(&key, writer, &mut self.outbox);
            }
        }
    }
}
