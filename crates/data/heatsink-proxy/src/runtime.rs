//! The event loop, and everything that only it may do: sockets, timers, mailboxes, threads.
//!
//! | question | module |
//! |---|---|
//! | one turn of the loop | `worker`, `upkeep` (ticks), `flush` (writing) |
//! | where clients come from | `listener`, `socket` |
//! | what the workers of a process share | `shared` |
//! | what becomes of a request once it is decided | `dispatch`, `apply`, `forward` |
//! | what servers have answered | `replies` |
//! | what comes from outside: events, sockets, time; the seam for tests | `world`, `clock` |
//! | a worker that a test drives, without sockets | `scripted` |

pub(crate) mod apply;
pub(crate) mod bounds;
pub(crate) mod clock;
pub(crate) mod dispatch;
pub(crate) mod effects;
pub(crate) mod flush;
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
