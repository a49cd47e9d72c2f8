//! The real binary, as a user meets it: what it prints, where, and how it exits.

mod check;
mod embedded;
mod handover;
mod help;
mod memory;
mod reload;
mod serve;
mod support;
mod tls;
mod upstreams;
mod users;
