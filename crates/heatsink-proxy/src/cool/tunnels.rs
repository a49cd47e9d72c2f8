//! Tunnels and keys whose values lie elsewhere.
//!
//! Called by: `own_link`, before a client gets a tunnel; `cool`, when keys are to be split.
//! Invariant: in a tunnel nobody sees which keys are asked for, so its client would find the
//! markers of split keys; and a server that tells of changes to keys would name their shards. No key is split while a tunnel is open: it waits until all are whole,
//! and a worker that has one does not say that it holds the writes of a key.
//!
//! On a cluster a tunnel serves nothing that names keys (`MONITOR` and the like).

use crate::connection::{Client, ClientKey};
use crate::intake::Flow;
use crate::splits::Splitting;
use crate::worker::Worker;

/// What the reason of an entry says.
const WHY: &str = "a client with a connection of its own (tracking, say)";

/// The key is about to be split.
fn freezes(splitting: &Splitting) -> bool {
    matches!(splitting, Splitting::Freezing { .. })
}

impl Worker {
    /// A client is to get a tunnel: it waits while there are keys whose values lie elsewhere.
    pub(crate) fn wait_for_tunnel(&mut self, key: ClientKey) -> Option<Flow> {
        self.want_all_whole().then(|| self.hold(key))
    }

    /// Has all keys made whole; false if they are.
    pub(crate) fn want_all_whole(&self) -> bool {
        let hot = &self.cooling.hot;
        if self.cluster.is_some() || !hot.has_moved() {
            return false;
        }
        for name in hot.moved().filter(|name| !hot.split(name).is_some_and(freezes)) {
            self.shared.desk.want_whole(name, WHY);
        }
        true
    }

    /// Whether a client has a tunnel that would lead to keys which are about to be split.
    pub(super) fn tunnels_to_frozen(&self) -> impl Fn(&Client) -> bool + use<> {
        let any = self.cluster.is_none() && self.cooling.hot.splits().any(|(_, how)| freezes(how));
        move |client| any && client.hides_keys()
    }
}
