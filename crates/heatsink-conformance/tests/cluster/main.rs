//! A cluster behind Heatsink looks like one server.
//!
//! `HEATSINK_CLUSTER_SECONDS` makes the runs under load longer, `HEATSINK_CLUSTER_SEED`
//! repeats a random one; see also `differential`.

mod differential;
mod failover;
mod limits;
mod load;
mod moves;
mod one_server;
mod replica_reads;
mod state;
mod topology;
mod upstream_load;
mod users;
