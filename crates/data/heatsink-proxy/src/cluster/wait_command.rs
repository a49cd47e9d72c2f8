//! What tells a connection that it has written, so that `WAIT` on it speaks of what its client wrote on
//! others.
//!
//! Called by: `dedicated_link`, before a `WAIT` of one server; `scatter_gather`, before those of a cluster's
//! primaries. Bound: one request, and on newer servers one key a primary for [`LIFE_MS`].
//! Invariant: a `WAIT` whose connection could not be told is refused.
//!
//! `WAIT` waits for the writes of its own connection, and the client's went along a shared one:
//!
//! ```text
//! shared pipeline                 the client's dedicated connection
//! SET k 1: OK
//!                                 WAIT 1 0: nothing was written here, so 1 at once
//! the primary is lost, and k with it: no replica had it
//! ```
//!
//! Up to Redis 7.0 a connection is taken to have written all that was written when its last command was
//! carried out, whatever that is: a `PING` will do. Newer servers, Valkey among them, go by what the
//! connection itself wrote. There, it writes a key of the fleet's and removes it; should that fail, because
//! the key's slot has been moved, say, the key ends by itself.

use heatsink_resp::encode;
use heatsink_split::placement;

use crate::cluster::Routing;
use crate::cluster::effects::Notes;
use crate::reserved::names::PREFIX;
use crate::upstream::nodes::NodeId;

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// How long the key lives, in milliseconds.
const LIFE_MS: &[u8] = b"100";

/// What is sent before a `WAIT`.
#[derive(Debug)]
pub(crate) struct Writing {
    /// Tells the connection that it has written.
    pub(crate) request: Vec<u8>,
    /// Removes what was written.
    pub(crate) removal: Option<Vec<u8>>,
}

impl<N: Notes> Routing<'_, N> {
    /// What tells a connection to a node that it has written.
    pub(crate) fn writing_to(&self, node: NodeId) -> Writing {
        // They came with the same release.
        let must_write = self.table.lookup(b"WAITAOF", None).is_some();
        let tag = match &self.room.view {
            _ if !must_write => None,
            None => Some("0".to_owned()),
            // A node without slots has nothing of the client's either.
            Some(view) => (0..heatsink_cluster::slot::COUNT as u16)
                .find(|slot| view.routes.primary(*slot) == Some(node))
                .map(placement::tag_of_slot),
        };
        let Some(tag) = tag else { return Writing { request: PING.to_vec(), removal: None } };
        let name = [PREFIX, tag.as_bytes(), b"}:wait"].concat();
        let (mut request, mut removal) = (Vec::new(), Vec::new());
        encode::command(&mut request, &[&b"SET"[..], &name, b"", b"PX", LIFE_MS]);
        encode::command(&mut removal, &[&b"DEL"[..], &name]);
        Writing { request, removal: Some(removal) }
    }
}
