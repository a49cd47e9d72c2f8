//! TLS for non-blocking sockets, on both sides of the proxy, without an event loop.
//!
//! - [`TlsStream`]: `Read` and `Write` over a non-blocking socket; the handshake happens
//!   inside those calls.
//! - [`ServerTls`]: certificates of a listener; accepts connections.
//! - [`ClientTls`]: trust and client certificate towards an upstream; opens connections.
//!
//! Promises: a short read means that the socket was drained, a short write that it is
//! full; a connection holds at most about 64 KiB of unsent records
//! ([`UNSENT_LIMIT_BYTES`]); certificates are always verified; a reload with invalid files
//! changes nothing. Connections that exist keep the configuration they started with.
//!
//! How an edge-triggered loop drives a [`TlsStream`]:
//!
//! 1. On any readiness call `read` until it is short or says `WouldBlock`; after a short
//!    read look at [`TlsStream::has_ended`], because the end was met and no further edge
//!    will announce it.
//! 2. After `read`, write again what is waiting: the read may have completed the handshake,
//!    before which `write` says `WouldBlock`, and no edge announces that either.
//! 3. After `write` and on writable readiness, call `flush` while
//!    [`TlsStream::wants_write`]; a client connection sends its first bytes there too.
//! 4. Bound the time while [`TlsStream::is_handshaking`]: a Redis that expects plain text
//!    neither answers nor closes when it is greeted with a handshake.
//!
//! ```no_run
//! use heatsink_tls::{ClientFiles, ClientTls};
//!
//! let tls = ClientTls::load(ClientFiles { ca: Some("ca.pem".into()), ..ClientFiles::default() })?;
//! let socket = std::net::TcpStream::connect("redis.internal:6379")?;
//! socket.set_nonblocking(true)?;
//! let stream = tls.connect(socket, "redis.internal")?;
//! assert!(stream.is_handshaking());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
mod error;
mod pem;
mod server;
mod stream;

pub use client::{ClientFiles, ClientTls};
pub use error::{FileProblem, TlsError, TlsFileError};
pub use server::{ServerFiles, ServerTls};
pub use stream::{TlsStream, UNSENT_LIMIT_BYTES};
