//! Whether each server behind can be reached, since when, and what went wrong.
//!
//! Called by: `pools` with what becomes of connections; the control plane to show it.
//! One worker, the first, keeps a connection for clients that do not log in to each server that is
//! in use, and tries again each second while it has none: an outage is noticed, and its end, without
//! any client. A server that stands still without closing its connections is noticed when a request
//! to it is not answered in time.
//! Invariant: a server is down only if a connection to it could not be had: one that is merely lost
//! may have been closed for being idle. It is up again only once it has answered the first worker,
//! so that workers and users who fare differently do not turn it over and over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use heatsink_upstream::error::{ErrorKind, LinkError};

use crate::runtime::shared::Shared;
use crate::upstream::Links;
use crate::upstream::effects::{Effect, Note};
use crate::upstream::links::{Owner, Upstream};
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

/// One server, as seen from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamState {
    /// host:port.
    pub node: String,
    /// It can be reached.
    pub is_up: bool,
    /// Since when it can, or cannot.
    pub since: SystemTime,
    /// Why it cannot.
    pub error: Option<String>,
}

/// Whether one server can be reached.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Nothing until the first attempt has succeeded or failed.
    state: Mutex<Option<Known>>,
}

#[derive(Clone, Debug)]
struct Known {
    since: SystemTime,
    trouble: Option<(ErrorKind, String)>,
}

impl Health {
    /// It has answered.
    pub(crate) fn is_up(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(&*state, Some(Known { trouble: None, .. })) {
            *state = Some(Known { since: SystemTime::now(), trouble: None });
        }
    }

    /// A connection could not be had.
    pub(crate) fn is_down(&self, kind: ErrorKind, why: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let since = match &*state {
            Some(Known { since, trouble: Some(_) }) => *since,
            _ => SystemTime::now(),
        };
        *state = Some(Known { since, trouble: Some((kind, why)) });
    }

    fn known(&self) -> Option<Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What went wrong with connections to all servers, by kind, and how often one was had again.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    errors: [AtomicU64; ErrorKind::ALL.len()],
    reconnects: AtomicU64,
}

impl Troubles {
    fn count(&self, kind: ErrorKind) {
        self.errors[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often each kind has happened.
    pub(crate) fn errors(&self) -> Vec<(&'static str, u64)> {
        let counts = self.errors.iter().map(|count| count.load(Ordering::Relaxed));
        ErrorKind::ALL.iter().map(|kind| kind.name()).zip(counts).collect()
    }

    pub(crate) fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }
}

/// The state of each server that is in use and was tried.
pub(crate) fn states(shared: &Shared) -> Vec<UpstreamState> {
    let nodes = shared.nodes.all();
    let state = |id: NodeId| {
        let node = nodes.get(id.index())?;
        let known = node.health.known()?;
        Some(UpstreamState {
            node: node.dialer.endpoint().to_string(),
            is_up: known.trouble.is_none(),
            since: known.since,
            error: known.trouble.map(|(_, why)| why),
        })
    };
    shared.nodes_in_use().into_iter().filter_map(state).collect()
}

impl<N: Note<Effect>> Links<'_, N> {
    /// Whether this worker keeps the connections of this pool to tell who is up.
    fn is_watch(&self, pool: usize) -> bool {
        self.room.watches && pool == self.room.base_pool
    }

    /// A connection could not be had.
    pub(crate) fn note_unreachable(&mut self, pool: usize, node: NodeId, error: &LinkError) {
        let kind = error.kind();
        self.shared.troubles.count(kind);
        let is_down = match kind {
            ErrorKind::Replaced => false,
            // It is there, and may serve others.
            ErrorKind::Auth | ErrorKind::Loading | ErrorKind::MaxClients => self.is_watch(pool),
            _ => true,
        };
        if is_down {
            self.node(node).health.is_down(kind, error.to_string());
        }
    }

    /// A connection that was in use is lost.
    pub(crate) fn note_lost(&mut self, error: &LinkError) {
        self.shared.troubles.count(error.kind());
    }

    /// A connection is ready; `again` if it takes the place of one that was lost, or could not be
    /// had.
    pub(crate) fn note_reachable(&mut self, slot: usize, again: bool) {
        if again {
            self.shared.troubles.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        let Some(upstream) = self.room.links.get(slot) else { return };
        if upstream.owner == Owner::Pool && self.is_watch(upstream.pool) {
            // A server that is loading its data answers a greeting like any other.
            self.ask_health(slot);
        }
    }

    fn ask_health(&mut self, slot: usize) {
        let Upstream { pool, node, .. } = self.room.links[slot];
        *self.room.pools[pool].is_asked(node) = true;
        let ticket = Ticket::internal(Purpose::Health(node));
        self.room.push_to_link(self.now, slot, b"*1\r\n$4\r\nPING\r\n", ticket);
    }

    /// A server has answered whether it is there. Whatever it says but that it is loading, it is.
    pub(crate) fn learn_health(&mut self, node: NodeId, frame: &[u8]) {
        *self.room.pools[self.room.base_pool].is_asked(node) = false;
        if frame.starts_with(b"-LOADING") {
            let text = String::from_utf8_lossy(&frame[1..]).trim_end().to_owned();
            self.shared.troubles.count(ErrorKind::Loading);
            self.node(node).health.is_down(ErrorKind::Loading, text);
        } else {
            self.node(node).health.is_up();
        }
    }

    /// About once a second, on the first worker: servers that there is no connection to are tried
    /// again, and those that are down for some other reason are asked again.
    pub(crate) fn look_after_health(&mut self) {
        for node in self.shared.nodes_in_use() {
            match self.room.pools[self.room.base_pool].open_link(node) {
                None => drop(self.pool_link(self.room.base_pool, node)),
                Some(slot) => {
                    let is_down =
                        self.node(node).health.known().is_some_and(|known| known.trouble.is_some());
                    let is_asked = *self.room.pools[self.room.base_pool].is_asked(node);
                    if is_down && !is_asked && self.room.links[slot].link.is_ready() {
                        self.ask_health(slot);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_change() {
        let health = Health::default();
        assert!(health.known().is_none());
        health.is_down(ErrorKind::Refused, "a".to_owned());
        let first = health.known().unwrap();
        health.is_down(ErrorKind::Timeout, "b".to_owned());
        let then = health.known().unwrap();
        assert_eq!((then.since, then.trouble.unwrap().1.as_str()), (first.since, "b"));
        health.is_up();
        let up = health.known().unwrap();
        assert!(up.trouble.is_none() && up.since >= first.since);
        health.is_up();
        assert_eq!(health.known().unwrap().since, up.since);
    }
}
