//! A non-blocking socket, plain or encrypted.
//!
//! Called by: connections of the engine. Edge-triggered: read and write until told that it
//! would block.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use heatsink_tls::{ClientTls, TlsStream};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

#[derive(Debug)]
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Begins to connect.
    pub(crate) fn open(
        address: SocketAddr,
        tls: Option<(&ClientTls, &str)>,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(match tls {
            None => Self::Plain(stream),
            Some((tls, host)) => Self::Tls(Box::new(tls.connect(stream, host)?)),
        })
    }

    /// The other side is there.
    pub(crate) fn is_connected(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.peer_addr().is_ok(),
            Self::Tls(stream) => stream.get_ref().peer_addr().is_ok(),
        }
    }

    /// The error that ended it, if there is one.
    pub(crate) fn take_error(&self) -> io::Result<()> {
        let error = match self {
            Self::Plain(stream) => stream.take_error()?,
            Self::Tls(stream) => stream.get_ref().take_error()?,
        };
        error.map_or(Ok(()), Err)
    }

    /// Whether a read that was short has met the end, which no event will announce.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.has_ended())
    }

    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(room),
            Self::Tls(stream) => stream.read(room),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    /// Sends what is encrypted already.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => match stream.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                result => result,
            },
        }
    }
}
