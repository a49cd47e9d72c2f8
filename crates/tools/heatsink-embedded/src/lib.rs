//! A small in-process Redis: the upstream for trying out, for tests without a server, and
//! for simulation.
//!
//! Promised: replies as Redis 7.0 gives them, in RESP2 and RESP3, for the common commands of strings,
//! counters, hashes, lists, sets, sorted sets, `HyperLogLog`, expiry, transactions, pub/sub and client
//! tracking. What Redis can do and this store cannot (streams, scripts, blocking commands, bits, geo,
//! unions of sorted sets, sharded pub/sub, persistence, users) is refused by name. Nothing outlives the
//! process.
//!
//! - [`Engine`]: the store itself: bytes in, bytes out, time and randomness passed in.
//! - [`Server`]: the engine on a thread of its own, behind the interface of an upstream.
//! - [`Cluster`]: several of them with the slots divided among them, on ports of this machine,
//!   each as fast as its [`Pace`] says.
//!
//! ```
//! use std::io::{Read, Write};
//! use heatsink_embedded::Server;
//!
//! let server = Server::start()?;
//! let mut connection = server.dialer().dial()?;
//! connection.write_all(b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n")?;
//! let mut reply = [0; 4];
//! connection.read_exact(&mut reply)?;
//! assert_eq!(&reply, b":1\r\n");
//! # Ok::<(), std::io::Error>(())
//! ```

#![expect(clippy::unnecessary_wraps, reason = "handlers share one signature, fallible or not")]

mod args;
mod client;
mod cluster;
mod commands;
mod db;
mod engine;
mod failure;
mod number;
mod pubsub;
mod reply;
mod server;
mod sorted_set;
mod table;
mod tracking;
mod transactions;
mod value;
mod world;

#[cfg(test)]
mod tests;

pub use client::ConnId;
pub use cluster::Membership;
pub use engine::Engine;
pub use server::{Cluster, Pace, Server};
