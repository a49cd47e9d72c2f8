//! What a client was in the middle of is over before its time: with its connection, or because it asked
//! for something that has no place there.
//!
//! Called by: whoever finds that out; `decide` says how a lost transaction goes on.
//! Invariant: nothing of a transaction is executed of which a part is lost.

use crate::downstream::clients::Clients;
use crate::downstream::connection::{ClientKey, Lost};
use crate::session::Sessions;
use crate::session::dedicated::Transaction;
use crate::session::dedicated::redirects::null;

/// How a lost transaction goes on towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostStep {
    /// `MULTI` after a lost `WATCH`: begins, and will fail.
    Begin,
    /// A command inside: refused.
    Refuse,
    /// `EXEC`: fails.
    Abort,
    /// `DISCARD`: ends.
    Forget,
    /// `UNWATCH`: there is nothing to keep, and nothing to fear.
    Unwatch,
    /// `MULTI` after watched keys have moved to another node.
    BeginMoved,
    /// A command behind it.
    Queue,
    /// `EXEC`: a watched key was touched.
    Touched,
}

impl Sessions<'_> {
    /// What a client was in the middle of is over, and a transaction will fail.
    pub(crate) fn end_dedicated_state(&mut self, key: ClientKey) {
        let Some(client) = self.relay.clients.get(key) else { return };
        if client.transaction.take().is_some() {
            client.lost = Lost::Transaction;
        }
        let Some(dedicated) = client.dedicated.take() else { return };
        client.record.set_upstream_id(None);
        match dedicated.transaction {
            Transaction::Queueing => client.lost = Lost::Transaction,
            Transaction::Watching => client.lost = Lost::Watch,
            Transaction::None => {}
        }
        if dedicated.is_subscriber() {
            // As when the connection is lost: what it was is gone.
            self.relay.clients.close_after_replies(key);
        }
        self.drop_dedicated_links(key, &dedicated);
    }

    /// Brings a lost transaction to its end without anything of it being executed.
    pub(crate) fn step_lost(&mut self, key: ClientKey, step: LostStep) {
        let Some(client) = self.relay.clients.get(key) else { return };
        match step {
            LostStep::BeginMoved => {
                client.lost = Lost::MovedTransaction;
                self.relay.clients.reply(key, b"+OK\r\n");
            }
            LostStep::Queue => self.relay.clients.reply(key, b"+QUEUED\r\n"),
            LostStep::Touched => {
                client.lost = Lost::Nothing;
                let pool = client.pool;
                let protocol = self.relay.upstream.pools[pool].login.protocol;
                self.relay.clients.reply(key, null(protocol == heatsink_upstream::Protocol::Resp3));
            }
            LostStep::Begin => {
                client.lost = Lost::Transaction;
                self.relay.clients.reply(key, b"+OK\r\n");
            }
            LostStep::Refuse => {
                // Which server that was is not known any more.
                let text = "ERR heatsink: upstream unavailable: \
                            the connection of this transaction was lost, nothing of it is executed";
                self.relay.clients.error(key, text);
            }
            LostStep::Abort => {
                client.lost = Lost::Nothing;
                let text = "EXECABORT Transaction discarded because of previous errors.";
                self.relay.clients.error(key, text);
            }
            LostStep::Forget | LostStep::Unwatch => {
                client.lost = Lost::Nothing;
                self.relay.clients.reply(key, b"+OK\r\n");
            }
        }
    }
}

impl Clients {
    pub(crate) fn is_queueing(&self, key: ClientKey) -> bool {
        let dedicated = self.get_ref(key).and_then(|client| client.dedicated.as_ref());
        dedicated.is_some_and(|dedicated| dedicated.transaction == Transaction::Queueing)
    }
}
