//! What the data plane is told at start. Every value is already validated by the caller.

use std::net::SocketAddr;
use std::time::Duration;

use heatsink_upstream::address::Upstream;

/// Settings of one proxy.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to accept clients on; port 0 picks a free one.
    pub listen: SocketAddr,
    /// The Redis side.
    pub upstream: Upstream,
    /// Worker threads, at least one.
    pub workers: usize,
    /// Bounds on what a client may use.
    pub limits: Limits,
    /// Bounds on how long things may take.
    pub timeouts: Timeouts,
}

/// Bounds on what a client may use. Over a limit the client gets an error and is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open client connections, all workers together.
    pub max_clients: usize,
    /// Bytes of one request, all arguments together.
    pub max_request_bytes: u64,
    /// Bytes of one argument.
    pub max_bulk_bytes: u64,
    /// Arguments of one request.
    pub max_args: u64,
    /// Arguments of one request before authentication.
    pub unauthenticated_max_args: u64,
    /// Bytes of one request before authentication.
    pub unauthenticated_max_bytes: u64,
    /// Reply bytes a client has not read yet.
    pub max_output_bytes: u64,
    /// Close a client that was silent this long; `None` keeps it.
    pub idle: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_clients: 10_000,
            max_request_bytes: 1 << 30,
            max_bulk_bytes: 512 << 20,
            max_args: 1 << 20,
            unauthenticated_max_args: 10,
            unauthenticated_max_bytes: 16 << 10,
            max_output_bytes: 512 << 20,
            idle: None,
        }
    }
}

/// Bounds on how long the upstream may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Connect and handshake.
    pub connect: Duration,
    /// Requests wait for replies and the server sends nothing at all: the connection is
    /// given up. `None` waits for ever.
    pub silence: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(1), silence: Some(Duration::from_secs(10)) }
    }
}
