//! A shop before a small cluster, to see Heatsink at work: everything in one process.
//!
//! Three nodes of limited capacity, two proxies, a shop that asks for its items by a Zipf law.
//! After a while one item goes viral: at first Heatsink only watches, and the node that has the
//! item gets more than it can answer. Then mitigation is switched on. Later a counter becomes
//! hot. What was measured stands side by side in a [`Summary`] at the end, with what it shows.
//!
//! - [`options`]: what can be chosen.
//! - [`acts`]: what happens when.
//! - [`run`](fn@run): the play itself, shown to a [`View`].
//! - [`plain`], [`screen`]: the two views, lines and a live terminal.
//! - [`summary`]: before and after, and whether the claims hold.
//!
//! # What is promised
//!
//! - **Small**: about a dozen threads; 64 MiB of cache at most; requests are sent by the clock,
//!   and whoever waits for a second gives up.
//! - **Verified**: every reply is checked as `heatsink load` does; a wrong one fails the demo.
//! - **Honest**: the proxies, the detector, the registry and the admin API are those of
//!   `heatsink serve`, configured as by its defaults except for thresholds that fit the small
//!   load.

pub mod acts;
mod director;
pub mod options;
pub mod plain;
mod rig;
pub mod sample;
pub mod screen;
mod shop;
pub mod summary;

pub use director::{DemoError, run};
pub use options::Options;
pub use sample::{Scene, View, Wish};
pub use summary::Summary;
