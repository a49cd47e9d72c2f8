//! Real processes of a fleet and real servers: what operators see, and what clients do not
//! notice.

mod alone;
mod chaos;
mod degraded;
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
mod split;
#[path = "../cli/support.rs"]
mod support;
mod together;
mod topologies;
mod views;
