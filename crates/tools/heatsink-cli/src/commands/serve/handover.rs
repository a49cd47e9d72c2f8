//! Restart without a failed request: a new process takes over from the one that serves.
//!
//! ```text
//! old                                   new
//! serves; waits at PATH                 connects to PATH
//! sends its listening sockets ------->  binds PATH.pid, starts its proxy on them
//!                                       (both accept from here on)
//!                  <-----------------   ready
//! stops accepting; done ------------->  renames PATH.pid to PATH, prints its ready line
//! serves the connections it has         serves new ones
//! they have left, or time is up: exit 0
//! ```
//!
//! Called by: `serve`, if `handover` is set.
//! Bound: one successor at a time is dealt with; every wait has a limit.
//! Invariant: until it is told that the other is ready, the old process serves as if nothing
//! had happened; the listening sockets are never closed in between, so no connection that waits
//! to be accepted is lost. Both sides deal with processes of their own user only.

mod offer;
mod take;
mod wire;

pub(super) use offer::{Offer, Place};
pub(super) use take::{Predecessor, take};
pub(super) use wire::confirm;
