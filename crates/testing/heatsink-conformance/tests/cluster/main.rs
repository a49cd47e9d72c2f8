//! A cluster behind Heatsink looks like one server.
//!
//! `HEATSINK_CLUSTER_SECONDS` makes the runs under load longer, `HEATSINK_CLUSTER_SEED`
//! repeats a random one; see also `differential`.

mod busy;
mod cut;
mod differential;
mod events;
mod failover;
mod half;
mod hostile;
mod limits;
mod load;
mod mixups;
mod moves;
mod one_server;
mod open;
mod order;
mod pauses;
mod recalled;
mod recalled_late;
mod redirects;
mod replica_reads;
mod retries;
mod sharded;
mod slow;
mod state;
mod still;
mod topology;
mod transactions;
mod upstream_load;
mod users;
mod witness;
