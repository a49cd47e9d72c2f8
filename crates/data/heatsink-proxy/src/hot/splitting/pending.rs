//! What a client has asked and is not answered, and what must not pass it.
//!
//! Called by: `splitting`, `fast_path` and `copies`, before they send something and when they have;
//! `dispatch`, when it has.
//! Bound: a number and a bit of each client.
//! Invariant: what goes in several steps, or leaves later than it was taken, goes by the map of that
//! time. It does not come to a key, or a shard, before what its client sent there by an older map.

use heatsink_split::Layout;
use heatsink_split::layout::Kind;

use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Flow;

impl Clients {
    /// Counts a request that went to shards, if it was taken.
    pub(in crate::hot) fn note_taken(&mut self, key: ClientKey, flow: Flow) -> Flow {
        if flow == Flow::Taken {
            self.note_asked(key);
        }
        flow
    }

    /// Whether requests of the client are not answered yet.
    pub(in crate::hot) fn has_asked(&self, key: ClientKey) -> bool {
        self.get_ref(key).is_some_and(|client| client.order.outstanding() > 0)
    }

    /// A request about all of a key goes to its shards. Increments of a counter that the client sends
    /// behind it leave when those of others are answered, and would come to a shard before it:
    ///
    /// 1. GET counter: GET shard -> A (old map); INCR counter waits for others
    /// 2. new map: the shard is B's
    /// 3. INCRBY shard 1 -> B, executed
    /// 4. A: MOVED, GET shard -> B, executed last: it tells of the increment behind it
    ///
    /// So they are not taken before it is answered.
    pub(in crate::hot) fn note_read(&mut self, key: ClientKey, layout: &Layout) {
        if layout.kind == Kind::Counter
            && let Some(client) = self.get(key)
        {
            client.hot.passed_reads = true;
        }
    }

    /// What the client waited with goes on, on a connection of its own, say, where its requests are not
    /// counted: the next one that waits has not waited yet.
    pub(crate) fn end_hold(&mut self, key: ClientKey) {
        if let Some(client) = self.get(key) {
            client.held_since = None;
        }
    }

    /// A request of the client goes to shards, or to the marker: what it sent there before must not
    /// be sent again.
    pub(in crate::hot) fn note_asked(&mut self, key: ClientKey) {
        if let Some(client) = self.get(key) {
            client.held_since = None;
            client.hot.asked_shards = client.hot.asked_shards.wrapping_add(1);
        }
    }
}
