//! Shows that Heatsink looks like the Redis behind it.
//!
//! Called by: the tests of this crate, which send random commands ([`differential`]) and run
//! unmodified clients of several languages through a [`Rig`].
//! Bound: every wait has a deadline; every process and thread ends with its guard.
//! Invariant: whatever is demanded of Heatsink is demanded of a plain server first, so a
//! failure tells whose fault it is.

pub mod differential;
mod log;
mod relay;
mod rig;

pub use log::Log;
pub use relay::{Relay, Way};
pub use rig::{ClusterRig, Heatsink, Rig, RigBuilder, Servers};
