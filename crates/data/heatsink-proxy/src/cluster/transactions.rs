//! Transactions on a cluster: `MULTI` names no key, so its node is known only later.
//!
//! `MULTI` is answered here; it is sent, on a dedicated connection of the client, with the first
//! command behind it, to that command's node. What was sent is kept: if the node turns out to
//! be another (the first commands name no key, or the slot moves), all of it is sent again
//! there, since nothing of it has been executed before `EXEC` has.
//! Bound: [`MAX_KEPT_BYTES`]; a longer transaction is not followed to another node. What is kept counts as
//! input of the client, for `limits.max_total_input_bytes`.

use crate::downstream::clients::Clients;
use crate::downstream::connection::{ClientKey, Lost};
use crate::downstream::request::Flow;

/// Commands of a transaction that are kept.
const MAX_KEPT_BYTES: usize = 64 << 20;
pub(crate) const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
/// What a server says to keys of different slots.
pub(crate) const CROSS_SLOT: &[u8] = b"-CROSSSLOT Keys in request don't hash to the same slot\r\n";

/// A transaction on a cluster.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// What was queued and answered.
    pub(crate) queued: Vec<u8>,
    pub(crate) count: usize,
    /// The request under way is to be queued.
    pub(crate) pending: bool,
    /// The slot of its keys, once it has named one.
    pub(crate) slot: Option<u16>,
    /// Too long to be kept.
    pub(crate) overflown: bool,
}

impl Transaction {
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        self.count += 1;
        if self.queued.len() + bytes.len() > MAX_KEPT_BYTES {
            self.forget();
        }
        if !self.overflown {
            self.queued.extend_from_slice(bytes);
        }
    }

    /// Frees what is kept; the transaction goes on, and is not followed to another node.
    pub(crate) fn forget(&mut self) {
        self.overflown = true;
        self.queued = Vec::new();
    }
}

impl Clients {
    /// `MULTI` outside of any state.
    pub(crate) fn begin_transaction(&mut self, key: ClientKey) -> Flow {
        let Some(client) = self.get(key) else { return Flow::Taken };
        if !client.is_drained() {
            return Flow::Wait;
        }
        client.transaction = Some(Box::default());
        client.record.facts().in_transaction = true;
        self.reply(key, b"+OK\r\n");
        Flow::Taken
    }

    /// The node cannot be reached: nothing of the transaction will be executed.
    pub(crate) fn transaction_unavailable(
        &mut self,
        key: ClientKey,
        why: &str,
        ends: bool,
    ) -> Flow {
        if let Some(client) = self.get(key) {
            client.transaction = None;
            client.lost = if ends { Lost::Nothing } else { Lost::Transaction };
        }
        self.error(key, why);
        Flow::Taken
    }
}
