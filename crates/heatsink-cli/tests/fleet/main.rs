//! Real processes of a fleet and real servers: what operators see, and what clients do not
//! notice.

mod alone;
mod chaos;
mod degraded;
mod http;
mod live;
mod node;
mod operators;
mod splits;
#[path = "../cli/support.rs"]
mod support;
mod together;
mod topologies;
