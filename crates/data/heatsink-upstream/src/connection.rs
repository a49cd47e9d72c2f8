//! A connection that was begun: what a dialer makes, and a link is built over.
//!
//! Called by: whoever owns an event loop, which registers it before it becomes a [`crate::link::Link`].

use std::io;
use std::net::SocketAddr;

use mio::event::Source;
use mio::{Interest, Registry, Token};

use crate::stream::Stream;

/// A connection that was begun.
#[derive(Debug)]
pub struct Connection {
    pub(crate) stream: Stream,
    pub(crate) address: Option<SocketAddr>,
}

#[cfg(any(test, feature = "scripted"))]
impl Connection {
    /// One in memory, whose other end is a script.
    pub fn scripted(end: crate::scripted::End) -> Self {
        Self { stream: Stream::Scripted(crate::watched::Watched::new(end)), address: None }
    }
}

impl Source for Connection {
    fn register(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        self.stream.register(registry, token, what)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        self.stream.reregister(registry, token, what)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.stream.deregister(registry)
    }
}
