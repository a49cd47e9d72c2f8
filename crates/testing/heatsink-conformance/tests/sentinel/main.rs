//! Heatsink before a primary that Sentinels watch over.

mod failover;
mod load;
mod start;
mod state;
mod turns;
