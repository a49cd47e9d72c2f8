//! What a client's connection means: its login, database, protocol and name, and the dedicated
//! upstream connection that a transaction, a subscription or a blocking command needs.
//!
//! Owns: the clients that wait to try a login, and the connections that are to be pinned for other
//! clients. The state of one client's session is in the client's record. This room reaches clients and
//! servers by the [`Relay`], which knows nothing of it; it knows nothing of hot keys.
//!
//! Called by: the event loop only: with decisions about requests; with effects
//! ([`crate::relay::effects`]: the reply to a session will not come, a dedicated connection is lost); and
//! with links that are ready, or free.
//! Effects that it notes: a client is to be closed, or may have come to its end.
//! Bound: for each client one session, one dedicated connection and those beside it; the bounds of
//! `login_queue`.
//! Invariant: a client is in a pool only after a server has accepted its own credentials for it; every
//! request on a dedicated connection is sent in the name of its client.
//!
//! | question | module |
//! |---|---|
//! | `AUTH`, `HELLO`, `SELECT`: another user, protocol or database | `switch` |
//! | logins that are checked here, not by the server | `service_auth` |
//! | how many logins are tried at once, and after how many wrong ones | `login_queue`, `login_attempts` |
//! | a dedicated connection: what its replies mean, and when it is given back | `dedicated`, `dedicated_link` |
//! | `CLIENT`, `CLIENT TRACKING` | `client_command`, `client_tracking` |

#[cfg(test)]
mod alone;
pub(crate) mod client_command;
pub(crate) mod client_tracking;
pub(crate) mod counting;
pub(crate) mod dedicated;
pub(crate) mod dedicated_link;
pub(crate) mod login_attempts;
pub(crate) mod login_queue;
pub(crate) mod lost;
pub(crate) mod service_auth;
pub(crate) mod switch;

use crate::relay::Relay;
use client_tracking::Pin;
use login_queue::Logins;

/// Sessions that wait for a login, or for the connection of another client.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Who waits to try a login.
    pub(crate) logins: Logins,
    /// Connections that are to be pinned for other clients.
    pub(crate) pins: Vec<Pin>,
}

/// The room, with what it stands on.
pub(crate) struct Sessions<'a> {
    pub(crate) room: &'a mut Room,
    pub(crate) relay: &'a mut Relay,
}
