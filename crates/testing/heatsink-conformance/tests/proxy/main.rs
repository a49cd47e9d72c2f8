//! Heatsink from a client's side: state, users, limits, outages, disconnects, shutdown.

mod disconnects;
mod hidden;
mod leaving;
mod limits;
mod monitor;
mod outages;
mod reserved;
mod shutdown;
mod state;
mod subscriptions;
mod tracking;
mod users;
