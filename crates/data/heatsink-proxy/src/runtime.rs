//! The event loop: it owns the rooms, and decides which of them is called when. Only here are sockets,
//! timers, mailboxes and threads used.
//!
//! | question | module |
//! |---|---|
//! | one turn of the loop | `worker`, `upkeep` (ticks) |
//! | where clients come from | `listener`, `socket` |
//! | what the workers of a process share | `shared` |
//! | from a client's bytes to requests, and what is done with each | `intake`, `dispatch`, `apply` |
//! | transactions on a cluster, and replies that tell names of keys | `transactions`, `listings` |
//! | what servers have answered, and whose reply it is | `replies` |
//! | what a room below wants done above it | `effects` |
//! | clients that send no more | `leaving` |
//! | bounds on what all clients together have not read, or sent in part | `bounds` |
//! | what comes from outside: events, sockets, time; the seam for tests | `world`, `clock` |
//! | a worker that a test drives, without sockets | `scripted` |

pub(crate) mod apply;
pub(crate) mod bounds;
pub(crate) mod clock;
pub(crate) mod dispatch;
pub(crate) mod effects;
pub(crate) mod intake;
pub(crate) mod leaving;
pub(crate) mod listener;
pub(crate) mod listings;
pub(crate) mod replies;
#[cfg(test)]
pub(crate) mod scripted;
pub(crate) mod shared;
pub(crate) mod socket;
pub(crate) mod transactions;
pub(crate) mod upkeep;
pub(crate) mod worker;
pub(crate) mod world;
