//! Clients that have shut their side of the connection, or are gone.
//!
//! A Redis server carries out the requests that it has read from a client before it reads that the client
//! has left. Heatsink does so, too: requests that a client sent before it left are carried out in order,
//! and a client that has shut only its own side gets all replies. A client that leaves while it blocks on
//! a key is taken out of the queue for that key.
//!
//! Only the server knows whether a blocking command still waits:
//!
//! ```text
//! 1. SET, BLPOP and INCR come, and the end of the client's side
//! 2. BLPOP -> server, which pops an element, and says so; that is still on its way
//! 3. to close the connection now would lose the element
//! ```
//!
//! So Heatsink does to the server what the client did: it shuts its side of the connection behind the last
//! request. The server answers what it can, and closes the connection. A request that is unanswered then
//! was waiting, and has had no effect.
//!
//! What follows the blocking command may have to wait until that is answered, and may then need what the
//! connection remembers:
//!
//! ```text
//! 1. BLPOP, WATCH, CLIENT GETNAME, MULTI, INCR, EXEC come, and the end of the client's side
//! 2. BLPOP and WATCH -> server, which pops an element, and says so; that is still on its way
//! 3. to shut the connection now would lose the watch, and the transaction with it
//! ```
//!
//! So there the server is given [`PATIENCE`] to answer before the connection is shut.
//!
//! Called by: `intake` and the worker, whenever a client may have come to its end.
//! Bound: a server that neither answers nor closes is given up after `timeouts.silence_ms`, as
//! for any other answer that it owes. Within [`PATIENCE`], a client that has left may still be given an
//! element.

use std::time::Duration;

use crate::downstream::connection::{Client, ClientKey, Closing};
use crate::runtime::worker::Worker;
use crate::session::dedicated::Transaction;

/// How long a blocking command of a client that has left may take, if what follows needs its connection.
const PATIENCE: Duration = Duration::from_secs(1);

impl Worker {
    /// Ends a client that will send no more, once it has been answered.
    pub(crate) fn close_if_done(&mut self, key: ClientKey) {
        let Some(client) = self.relay.clients.get(key) else { return };
        if client.eof && matches!(client.closing, Closing::Lingering { .. }) {
            self.close_client(key);
            return;
        }
        // The client has left, and its next request waits. Only a blocking command before it can make it
        // wait for ever.
        let stuck = client.hung_up && client.stopped;
        if !(client.eof && !client.stopped || stuck) {
            return;
        }
        if client.apart > 0 {
            self.shut_apart(key);
            return;
        }
        if let Some(dedicated) = &mut client.dedicated {
            let waits = if !stuck {
                dedicated.is_blocking() || dedicated.uploading
            } else if dedicated.keeps_state() {
                let waits =
                    dedicated.begins_blocking() && dedicated.transaction != Transaction::Queueing;
                waits && dedicated.is_out_of_patience(self.relay.now, PATIENCE)
            } else {
                dedicated.is_blocking()
            };
            if waits {
                if !dedicated.shut {
                    dedicated.shut = true;
                    let link = dedicated.link;
                    self.shut_link(link);
                }
                return;
            }
        }
        if client.gone && client.eof && self.is_all_sent(key) {
            self.close_client(key);
            return;
        }
        let Some(client) = self.relay.clients.get(key) else { return };
        let told = client.output.is_empty() && client.order.held_bytes() == 0;
        let sent = told && (client.gone || !client.socket.wants_write());
        if client.is_drained() && sent && !client.stopped {
            self.close_client(key);
        }
    }

    /// Whether all requests of a client are sent to the server, and none will be sent again. On a cluster a
    /// request may yet be redirected.
    fn is_all_sent(&self, key: ClientKey) -> bool {
        let sent = |client: &Client| {
            !client.stopped
                && client.session.is_none()
                && client.dedicated.as_ref().is_none_or(|dedicated| dedicated.is_drained())
                && client.hot.changes == 0
        };
        self.relay.cluster.view.is_none() && self.relay.clients.get_ref(key).is_some_and(sent)
    }

    /// A client's connection is broken. The requests that it had sent are carried out all the same.
    pub(crate) fn client_gone(&mut self, key: ClientKey) {
        let Some(client) = self.relay.clients.get(key) else { return };
        if client.closing != Closing::No {
            // No more requests are taken from it.
            self.close_client(key);
            return;
        }
        let dedicated = client.dedicated.as_ref().filter(|dedicated| dedicated.begins_blocking());
        let link = dedicated.and_then(|dedicated| self.relay.upstream.links.get(dedicated.link));
        let unsent = link.is_some_and(|upstream| !upstream.link.is_ready());
        if unsent {
            // Nothing was sent on that connection, and an element that is popped there would be lost.
            self.close_client(key);
            return;
        }
        client.gone = true;
        client.hung_up = true;
        client.output.discard();
        if !client.eof {
            client.readable = true;
        }
        self.end_stall(key);
        self.read_client(key);
        self.close_if_done(key);
    }

    /// Shuts our side of the client's dedicated connections, so that servers learn that it has left.
    fn shut_apart(&mut self, key: ClientKey) {
        for link in self.relay.upstream.links_apart(key) {
            self.shut_link(link);
        }
    }

    fn shut_link(&mut self, link: usize) {
        let Some(upstream) = self.relay.upstream.links.get_mut(link) else { return };
        if upstream.link.is_shut() {
            return;
        }
        if let Err(error) = upstream.link.shut(self.relay.now) {
            self.relay.links().lose_link(link, &error);
            self.apply_effects();
        }
    }
}
