//! Keys whose values lie elsewhere, as far as that concerns requests on their way: which of them a
//! replica may be wrong about, and who waits until one of them is where it belongs.
//!
//! Called by: the room of hot keys, when other keys are hot; `route`, before a replica is asked;
//! whoever cannot go on before a value has been moved.
//! Bound: a key for each split or set of copies that ended within [`BEHIND`]. A client that waits sends
//! nothing more, and waits [`PATIENCE`] at most.
//!
//! ```text
//! 1. a key is split: its replica has the marker
//! 2. the replica falls behind
//! 3. the key is made whole
//! 4. a read that may go to the replica would find the marker
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

use crate::cluster::Routing;
use crate::cluster::effects::Notes;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Flow;
use crate::hot_keys::HotKeys;
use crate::splits::Splitting;

/// Replicas are taken to be behind by no more than this.
const BEHIND: Duration = Duration::from_secs(60);
/// How long a client waits for a value that is moved.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// What a client is told whose command nobody has executed.
pub(crate) const MOVING: &str =
    "TRYAGAIN heatsink: the value of this key is being moved; nothing was done";
/// What the reason of an entry says.
const DEDICATED: &str = "a client with a connection of its own (tracking, say)";

/// Keys whose values lie elsewhere, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct MovedValues {
    keys: Arc<HotKeys>,
    /// Keys whose values lay elsewhere lately, and until when; only where replicas are read from.
    recently: HashMap<Vec<u8>, Instant, RandomState>,
    /// Clients that wait until a key has been moved.
    pub(crate) held: Vec<ClientKey>,
}

impl MovedValues {
    /// Other keys are hot. `reads_replicas` tells whether anybody asks replicas.
    pub(crate) fn follow(&mut self, now: Instant, keys: &Arc<HotKeys>, reads_replicas: bool) {
        let old = std::mem::replace(&mut self.keys, Arc::clone(keys));
        if !reads_replicas {
            return;
        }
        self.recently.retain(|_, until| *until > now);
        for key in old.moved().filter(|key| !keys.is_moved(key)) {
            self.recently.insert(key.to_vec(), now + BEHIND);
        }
    }

    /// Whether a key is hot.
    pub(crate) fn is_hot(&self, name: &[u8]) -> bool {
        self.keys.get(name).is_some()
    }

    /// Whether a replica may have something else than the value at a key: the marker of a split
    /// that has ended, or less than a copy has shown.
    pub(crate) fn misleads_replicas(&self, name: &[u8], now: Instant) -> bool {
        self.keys.is_moved(name) || self.recently.get(name).is_some_and(|until| now < *until)
    }
}

/// The key is about to be split.
pub(crate) fn freezes(splitting: &Splitting) -> bool {
    matches!(splitting, Splitting::Freezing { .. })
}

impl<N: Notes> Routing<'_, N> {
    /// The client goes on when the value has been moved. If that takes too long, it is told so.
    pub(crate) fn hold(&mut self, key: ClientKey) -> Flow {
        let now = self.now;
        let Some(client) = self.clients.get(key) else { return Flow::Taken };
        let asked = client.order.asked();
        let held = client.held_since.filter(|(_, before)| *before == asked);
        let (since, _) = *client.held_since.insert(held.unwrap_or((now, asked)));
        if now.saturating_duration_since(since) > PATIENCE {
            client.held_since = None;
            self.clients.error(key, MOVING);
            return Flow::Taken;
        }
        self.room.moved.held.push(key);
        Flow::Wait
    }

    /// A client is to get such a connection: it waits while there are keys whose values lie elsewhere.
    pub(crate) fn wait_for_whole(&mut self, key: ClientKey) -> Option<Flow> {
        self.want_all_whole().then(|| self.hold(key))
    }

    /// Has all keys made whole; false if they are.
    pub(crate) fn want_all_whole(&self) -> bool {
        let hot = &self.room.moved.keys;
        if self.room.view.is_some() || !hot.has_moved() {
            return false;
        }
        for name in hot.moved().filter(|name| !hot.split(name).is_some_and(freezes)) {
            self.shared.split_mailbox.want_whole(name, DEDICATED);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot_keys::{Copies, Treatment};

    fn copied(key: &[u8]) -> Arc<HotKeys> {
        let hot: HotKeys = [(key.to_vec(), Treatment::EXACT)].into_iter().collect();
        let copies = Copies { names: vec![b"copy".to_vec()], read: true, life: BEHIND };
        Arc::new(hot.with_copies([(key.to_vec(), copies)]))
    }

    #[test]
    fn replicas_are_not_asked_of_a_key_for_a_while_after_its_value_lay_elsewhere() {
        let start = Instant::now();
        let mut moved = MovedValues::default();
        moved.follow(start, &copied(b"k"), true);
        assert!(moved.misleads_replicas(b"k", start) && !moved.misleads_replicas(b"l", start));
        moved.follow(start, &Arc::default(), true);
        let (before, later) = (start + BEHIND / 2, start + BEHIND);
        assert!(moved.misleads_replicas(b"k", before));
        assert!(!moved.misleads_replicas(b"k", later));
        // It is forgotten when other keys are hot after that.
        moved.follow(later, &copied(b"l"), true);
        assert!(moved.recently.is_empty());
    }

    #[test]
    fn nothing_is_remembered_where_nobody_asks_replicas() {
        let now = Instant::now();
        let mut moved = MovedValues::default();
        moved.follow(now, &copied(b"k"), false);
        moved.follow(now, &Arc::default(), false);
        assert!(moved.is_hot(b"k") == moved.misleads_replicas(b"k", now));
        assert!(moved.recently.is_empty());
    }
}
