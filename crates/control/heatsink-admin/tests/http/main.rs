//! The HTTP side over a control plane made for the test, driven by bytes on a socket.

mod access;
mod browser;
mod client;
mod deploy;
mod errors;
mod events;
mod exposition;
mod history;
mod hot_keys;
mod limits;
mod metrics;
mod openapi;
mod page;
mod privacy;
mod rig;
mod schema;
