//! The way to the Redis side: addresses, connections, the handshake, and reply framing.
//!
//! Nothing here knows about clients. A [`link::Link`] is one upstream connection that
//! carries the requests of whoever the caller says, and hands each reply back with the
//! waiter that was queued with its request.

pub mod address;
pub mod client;
mod connection;
pub mod dialer;
pub mod error;
mod greeting;
pub mod link;
pub mod outgoing;
#[cfg(any(test, feature = "scripted"))]
pub mod scripted;
pub mod sentinel;
mod stream;
mod unanswered;
mod watched;

pub use connection::Connection;
pub use greeting::{Login, Protocol};
