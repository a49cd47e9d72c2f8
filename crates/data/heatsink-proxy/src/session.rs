//! What a client's connection means: its login, database, protocol and name, and the dedicated
//! upstream connection that a transaction, a subscription or a blocking command needs.
//!
//! | question | module |
//! |---|---|
//! | `AUTH`, `HELLO`, `SELECT`: another user, protocol or database | `switch` |
//! | logins that are checked here, not by the server | `service_auth` |
//! | how many logins are tried at once, and after how many wrong ones | `login_queue`, `login_attempts` |
//! | a dedicated connection: what its replies mean, and when it is given back | `dedicated`, `dedicated_link` |
//! | `CLIENT`, `CLIENT TRACKING`, `MONITOR`, `WAIT` | `client_command`, `client_tracking`, `monitor`, `wait_command` |

pub(crate) mod client_command;
pub(crate) mod client_tracking;
pub(crate) mod counting;
pub(crate) mod dedicated;
pub(crate) mod dedicated_link;
pub(crate) mod login_attempts;
pub(crate) mod login_queue;
pub(crate) mod lost;
pub(crate) mod monitor;
pub(crate) mod service_auth;
pub(crate) mod switch;
pub(crate) mod wait_command;

use client_tracking::Pin;
use login_queue::Logins;

/// Sessions that wait for something that is not their own connection.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Who waits to try a login.
    pub(crate) logins: Logins,
    /// Connections that are to be pinned for other clients.
    pub(crate) pins: Vec<Pin>,
}
