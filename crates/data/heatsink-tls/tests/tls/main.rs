//! Both sides of the TLS streams over real loopback sockets, in an edge-triggered loop that
//! follows the rules of the crate's front page and nothing more: a wake-up that gets lost
//! stalls the test.

mod authority;
mod echo;
mod files;
mod pair;
mod redis;
mod refusals;
mod reloads;
