//! Transactions, watches and subscriptions that end early: with their connection, or because the client
//! sent a request that cannot be part of them.
//!
//! Called by: the event loop and the other modules of this room; `decide` says how a lost transaction
//! goes on.
//! Invariant: if a part of a transaction is lost, none of it is executed.

use crate::downstream::clients::Clients;
use crate::downstream::connection::{ClientKey, Lost};
use crate::session::Sessions;
use crate::session::dedicated::Transaction;
use crate::session::dedicated::redirects::null;

/// How a lost transaction goes on towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostStep {
    /// `MULTI` after a lost `WATCH`: begins a transaction that will fail.
    Begin,
    /// A command inside: refused.
    Refuse,
    /// `EXEC`: fails.
    Abort,
    /// `DISCARD`: ends.
    Forget,
    /// `UNWATCH`: no key is watched any more, so nothing has to fail.
    Unwatch,
    /// `MULTI` after watched keys have moved to another node.
    BeginMoved,
    /// A command behind it.
    Queue,
    /// `EXEC`: a watched key was touched.
    Touched,
}

impl Sessions<'_> {
    /// Ends the state of a client's dedicated connection; a transaction will fail.
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
            // As when the connection is lost, its state is lost.
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
