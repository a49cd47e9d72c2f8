//! Real servers and a raw client: what the integration tests stand on.
//!
//! Called by: tests and the benchmark, never by the product.
//! Bound: every wait in here has a deadline, and every process started is ended when its
//! guard is dropped.
//! Invariant: a test sleeps nowhere but inside this crate; it waits for what it wants with
//! [`eventually`], [`Process::wait_for_line`] or a reply.
//!
//! Functions panic with what they saw instead of returning errors, because in a test that is
//! the wanted end; those whose name starts with `try_` return the error.
//!
//! ```
//! use heatsink_testkit::{RedisServer, Reply};
//!
//! let mut server = RedisServer::start();
//! assert_eq!(server.client().command(&["SET", "k", "v"]), Reply::ok());
//! server.restart(); // the same port, nothing kept
//! assert_eq!(server.client().command(&["GET", "k"]), Reply::Null);
//! ```

mod client;
mod output;
mod port;
mod proc_stats;
mod process;
mod redis_server;
mod reply;
mod wait;
mod wire;

pub use client::{RawClient, encode};
pub use port::free_port;
pub use proc_stats::{ProcStats, open_fds};
pub use process::{Process, ProcessBuilder};
pub use redis_server::{CommandStats, RedisServer, RedisServerBuilder};
pub use reply::Reply;
pub use wait::{Outcome, eventually, poll_until};
