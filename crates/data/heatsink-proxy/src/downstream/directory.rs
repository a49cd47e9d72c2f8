//! The clients of all workers, for `CLIENT LIST` and its kin.
//!
//! Called by: workers, when clients come, go or change; the `CLIENT` command.
//! Bound: one client record per client, so at most `limits.max_clients`.
//! The lock is taken on connect, disconnect and `CLIENT …` only; what changes with each
//! request is written to a client record that no other worker writes.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::downstream::connection::ClientKey;
use crate::upstream::nodes::NodeId;

/// What others may know of a client.
#[derive(Debug)]
pub(crate) struct ClientRecord {
    pub(crate) id: u64,
    pub(crate) addr: SocketAddr,
    pub(crate) local_addr: SocketAddr,
    pub(crate) since: Instant,
    /// The worker that owns it, and its place there.
    pub(crate) worker: usize,
    pub(crate) key: ClientKey,
    facts: Mutex<Facts>,
    /// Milliseconds from `since` to the last request, or to the end of a long wait.
    last_request_ms: AtomicU64,
    /// Name of the last command, sixteen bytes of it.
    last_command: [AtomicU64; 2],
    /// The server's id of the connection this client has for itself; 0 if it has none.
    upstream_id: AtomicI64,
    /// The node that this is the id at.
    upstream_node: AtomicU16,
}

/// What changes seldom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) name: Vec<u8>,
    pub(crate) user: Vec<u8>,
    pub(crate) db: u32,
    pub(crate) resp: u8,
    pub(crate) subscriber: bool,
    pub(crate) in_transaction: bool,
    /// It waits at a server for something that may take for ever.
    pub(crate) blocked: bool,
}

impl ClientRecord {
    pub(crate) fn new(
        id: u64,
        addr: SocketAddr,
        local_addr: SocketAddr,
        worker: usize,
        key: ClientKey,
        now: Instant,
    ) -> Self {
        let facts = Facts { user: b"default".to_vec(), resp: 2, ..Facts::default() };
        Self {
            id,
            addr,
            local_addr,
            since: now,
            worker,
            key,
            facts: Mutex::new(facts),
            last_request_ms: AtomicU64::new(0),
            last_command: [AtomicU64::new(0), AtomicU64::new(0)],
            upstream_id: AtomicI64::new(0),
            upstream_node: AtomicU16::new(0),
        }
    }

    pub(crate) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn upstream_id(&self) -> Option<i64> {
        Some(self.upstream_id.load(Relaxed)).filter(|id| *id != 0)
    }

    pub(crate) fn set_upstream_id(&self, id: Option<i64>) {
        self.upstream_id.store(id.unwrap_or(0), Relaxed);
    }

    pub(crate) fn upstream_node(&self) -> Option<NodeId> {
        self.upstream_id().map(|_| NodeId(self.upstream_node.load(Relaxed)))
    }

    pub(crate) fn set_upstream_node(&self, node: NodeId) {
        self.upstream_node.store(node.0, Relaxed);
    }

    /// Notes a request. Plain stores to a cache line that only this worker writes, so they cost next
    /// to nothing.
    #[inline]
    pub(crate) fn note_request(&self, command: &str, now: Instant) {
        let mut name = [0; 16];
        let len = command.len().min(16);
        name[..len].copy_from_slice(&command.as_bytes()[..len]);
        let (low, high) = name.split_at(8);
        self.last_command[0].store(u64::from_le_bytes(low.try_into().unwrap_or([0; 8])), Relaxed);
        self.last_command[1].store(u64::from_le_bytes(high.try_into().unwrap_or([0; 8])), Relaxed);
        self.note_activity(now);
    }

    /// Notes that the client is not idle at `now`.
    #[inline]
    pub(crate) fn note_activity(&self, now: Instant) {
        let age = now.saturating_duration_since(self.since).as_millis() as u64;
        self.last_request_ms.store(age, Relaxed);
    }

    /// How long the client has been silent.
    pub(crate) fn idle_ms(&self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.since).as_millis() as u64;
        age.saturating_sub(self.last_request_ms.load(Relaxed))
    }

    fn last_command(&self) -> String {
        let mut name = Vec::with_capacity(16);
        for half in &self.last_command {
            name.extend_from_slice(&half.load(Relaxed).to_le_bytes());
        }
        name.retain(|b| *b != 0);
        if name.is_empty() { "NULL".to_owned() } else { String::from_utf8_lossy(&name).into() }
    }

    /// One line of `CLIENT LIST`, in the server's own format.
    pub(crate) fn line(&self, now: Instant) -> String {
        let facts = self.facts().clone();
        let flags = match (facts.subscriber, facts.in_transaction, facts.blocked) {
            (_, _, true) => "b",
            (true, _, _) => "P",
            (_, true, _) => "x",
            _ => "N",
        };
        let mut line = String::new();
        let _ = writeln!(
            line,
            "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db={} sub={} \
             psub=0 ssub=0 multi={} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 \
             oll=0 omem=0 tot-mem=0 events=r cmd={} user={} redir=-1 resp={}",
            self.id,
            self.addr,
            self.local_addr,
            String::from_utf8_lossy(&facts.name),
            now.saturating_duration_since(self.since).as_secs(),
            self.idle_ms(now) / 1000,
            facts.db,
            u8::from(facts.subscriber),
            if facts.in_transaction { 0 } else { -1 },
            self.last_command(),
            String::from_utf8_lossy(&facts.user),
            facts.resp,
        );
        line
    }
}

/// All clients by id.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    records: Mutex<HashMap<u64, Arc<ClientRecord>>>,
    next_id: AtomicU64,
}

impl Directory {
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed) + 1
    }

    fn records(&self) -> MutexGuard<'_, HashMap<u64, Arc<ClientRecord>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, record: &Arc<ClientRecord>) {
        self.records().insert(record.id, Arc::clone(record));
    }

    pub(crate) fn remove(&self, id: u64) {
        self.records().remove(&id);
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<ClientRecord>> {
        self.records().get(&id).cloned()
    }

    /// Every client record, oldest client first.
    pub(crate) fn all(&self) -> Vec<Arc<ClientRecord>> {
        let mut all: Vec<_> = self.records().values().cloned().collect();
        all.sort_by_key(|record| record.id);
        all
    }
}
