//! Tracking: which connection read which key, so that it can be told when the key changes.
//!
//! Called by: `world` after each command, `engine` when it delivers; `connection` has the
//! commands.
//! Bound: `TRACKED_KEYS_MAX` keys; beyond it a random one is dropped and its readers told.
//! Invariant: an entry is used once: whoever is told has to read again to be told again.
//! Misses are remembered like hits. With NOLOOP an own write says nothing to its writer, yet
//! uses the entry up for everybody, as in Redis.

use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};

use crate::args::Args;
use crate::client::{Client, ConnId};
use crate::pubsub::Note;
use crate::reply::Proto;
use crate::table::Command;
use crate::value::{Bytes, Map};

/// Where a connection with the older protocol hears about changed keys.
pub(crate) const INVALIDATION_CHANNEL: &[u8] = b"__redis__:invalidate";
/// Keys remembered at once, as in Redis's default configuration.
const TRACKED_KEYS_MAX: usize = 1_000_000;

/// From this many readers of a key on, those that no longer track are looked for.
const READERS_CHECKED: usize = 1024;

/// Which reads are tracked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every read.
    All,
    /// Reads that follow `CLIENT CACHING YES`.
    OptIn,
    /// Reads that do not follow `CLIENT CACHING NO`.
    OptOut,
    /// None: every change under one of the prefixes is told.
    Broadcast(Vec<Bytes>),
}

/// How one connection tracks.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    pub(crate) scope: Scope,
    pub(crate) redirect: Option<ConnId>,
    pub(crate) no_loop: bool,
    /// `CLIENT CACHING` was said, for the next command or transaction.
    pub(crate) is_marked: bool,
    /// The connection redirected to is gone, and that was noticed.
    pub(crate) is_broken: bool,
}

#[derive(Debug)]
pub(crate) struct Tracking {
    trackers: IndexMap<ConnId, Tracker, RandomState>,
    readers: Map<IndexSet<ConnId, RandomState>>,
    rng: fastrand::Rng,
    /// Keys remembered at once.
    pub(crate) keys_max: usize,
}

impl Tracking {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            trackers: IndexMap::default(),
            readers: Map::default(),
            rng: fastrand::Rng::with_seed(seed),
            keys_max: TRACKED_KEYS_MAX,
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        !self.trackers.is_empty() || !self.readers.is_empty()
    }

    /// Connections that track, and keys remembered, for `INFO`.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.trackers.len(), self.readers.len())
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<&Tracker> {
        self.trackers.get(&conn)
    }

    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Tracker> {
        self.trackers.get_mut(&conn)
    }

    pub(crate) fn enable(&mut self, conn: ConnId, tracker: Tracker) {
        self.trackers.insert(conn, tracker);
    }

    /// Stops tracking for a connection. Keys it read are forgotten only as they change: if it
    /// tracks again before, it is told about them, as in Redis.
    pub(crate) fn disable(&mut self, conn: ConnId) {
        self.trackers.swap_remove(&conn);
    }

    /// Notes down the keys that a reading command named.
    pub(crate) fn remember(
        &mut self,
        conn: ConnId,
        command: &Command,
        args: Args<'_>,
        outbox: &mut Vec<(ConnId, Note)>,
    ) {
        let Some(tracker) = self.trackers.get(&conn) else { return };
        let is_tracked = match tracker.scope {
            Scope::All => true,
            Scope::OptIn => tracker.is_marked,
            Scope::OptOut => !tracker.is_marked,
            Scope::Broadcast(_) => false,
        };
        if !is_tracked {
            return;
        }
        for key in command.keys(args) {
            match self.readers.get_mut(key) {
                Some(readers) => {
                    // Seldom enough to cost nothing, often enough to bound those long gone.
                    if readers.len() >= READERS_CHECKED && readers.len().is_power_of_two() {
                        readers.retain(|reader| self.trackers.contains_key(reader));
                    }
                    readers.insert(conn);
                }
                None => {
                    self.readers.insert(key.to_vec(), [conn].into_iter().collect());
                }
            }
        }
        while self.readers.len() > self.keys_max {
            let at = self.rng.usize(..self.readers.len());
            if let Some((key, readers)) = self.readers.swap_remove_index(at) {
                self.tell(&readers, &key, None, outbox);
            }
        }
    }

    /// `CLIENT CACHING` holds for one command, or for a transaction as a whole.
    pub(crate) fn after_command(&mut self, client: &Client, command: &Command) {
        if client.queue.is_none()
            && !command.name.starts_with("client|")
            && let Some(tracker) = self.trackers.get_mut(&client.id)
        {
            tracker.is_marked = false;
        }
    }

    fn tell(
        &self,
        readers: &IndexSet<ConnId, RandomState>,
        key: &[u8],
        writer: Option<ConnId>,
        outbox: &mut Vec<(ConnId, Note)>,
    ) {
        let key: Arc<[u8]> = key.into();
        for reader in readers {
            let Some(tracker) = self.trackers.get(reader) else { continue };
            let silent = tracker.no_loop && Some(*reader) == writer;
            if !silent && !matches!(tracker.scope, Scope::Broadcast(_)) {
                outbox.push((*reader, Note::Invalidate(Arc::clone(&key))));
            }
        }
    }

    /// A key changed.
    pub(crate) fn invalidate(
        &mut self,
        key: &[u8],
        writer: Option<ConnId>,
        outbox: &mut Vec<(ConnId, Note)>,
    ) {
        for (conn, tracker) in &self.trackers {
            let Scope::Broadcast(prefixes) = &tracker.scope else { continue };
            let silent = tracker.no_loop && Some(*conn) == writer;
            if !silent && prefixes.iter().any(|prefix| key.starts_with(prefix)) {
                outbox.push((*conn, Note::Invalidate(key.into())));
            }
        }
        if let Some(readers) = self.readers.swap_remove(key) {
            self.tell(&readers, key, writer, outbox);
        }
    }

    /// A database was emptied: every tracking connection is told to forget all.
    pub(crate) fn invalidate_all(&mut self, outbox: &mut Vec<(ConnId, Note)>) {
        let mut conns: Vec<ConnId> = self.trackers.keys().copied().collect();
        conns.sort_unstable();
        outbox.extend(conns.into_iter().map(|conn| (conn, Note::InvalidateAll)));
        self.readers.clear();
    }

    /// Finds out who hears about a changed key: the connection itself or the one it named.
    pub(crate) fn route(
        &mut self,
        conn: ConnId,
        note: Note,
        proto_of: impl Fn(ConnId) -> Option<Proto>,
    ) -> Option<(ConnId, Note)> {
        let key = match &note {
            Note::Invalidate(key) => Some(Arc::clone(key)),
            Note::InvalidateAll => None,
            _ => return Some((conn, note)),
        };
        let tracker = self.trackers.get_mut(&conn)?;
        let Some(target) = tracker.redirect else { return Some((conn, note)) };
        match proto_of(target) {
            Some(Proto::Resp3) => Some((target, note)),
            Some(Proto::Resp2) => Some((target, Note::Redirected(key))),
            None => {
                tracker.is_broken = true;
                Some((conn, Note::RedirectBroken(target)))
            }
        }
    }
}
