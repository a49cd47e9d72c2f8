//! Linearizability in exact mode: what clients recorded can be explained by one plain server.
//!
//! Called by: `cargo test`, in a short form. `HEATSINK_LINEAR_HISTORIES` says how many histories
//! are recorded instead, `HEATSINK_LINEAR_SEED` which ones.
//! Bound: 200 operations a history; every wait has a deadline, every search a budget.
//! Invariant: a history that cannot be explained fails the test and is printed with its seed.
//!
//! [`model`] is the plain server, [`history`] what was recorded, [`search`] the question put to
//! the checker, [`workload`] what is asked, [`recorder`] who asks through which [`rig`],
//! [`faults`] what goes wrong meanwhile. [`exact`], [`cluster`] and [`order`] are about Heatsink,
//! [`planted`] and [`by_hand`] about the checker.

mod by_hand;
mod cluster;
mod exact;
mod faults;
mod fleet;
mod history;
mod model;
mod order;
mod planted;
mod recorder;
mod search;
mod workload;
