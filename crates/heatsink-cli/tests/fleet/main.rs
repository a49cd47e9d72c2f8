//! Real processes of a fleet and real servers: what operators see, and what clients do not
//! notice.

mod alone;
mod chaos;
mod conservation;
mod copies;
mod degraded;
mod drains;
mod figures;
mod forged;
mod hidden_keys;
mod http;
mod live;
mod node;
mod operators;
mod outages;
mod quiet;
mod shared_replies;
mod split_auto;
mod split_behind;
mod split_chaos;
mod split_ends;
mod split_failover;
mod split_kills;
mod split_load;
mod split_marker;
mod split_memory;
mod split_stats;
mod split_unseen;
mod split_upstreams;
mod split_waits;
mod splits;
#[path = "../cli/support.rs"]
mod support;
mod together;
mod topologies;
mod views;
