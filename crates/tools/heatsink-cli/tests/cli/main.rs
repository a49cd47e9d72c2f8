//! The real binary, as a user meets it: what it prints, where, and how it exits.

mod admin;
mod check;
mod demo;
mod embedded;
mod handover;
mod help;
mod load;
mod logs;
mod memory;
mod pushes;
mod reload;
mod scan;
mod serve;
mod support;
mod terminal;
mod tls;
mod upstreams;
mod users;
