//! A non-blocking socket to the upstream, of any kind.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};

use heatsink_tls::TlsStream;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

#[cfg(any(test, feature = "scripted"))]
use crate::scripted::End;
use crate::watched::Watched;

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(Watched<TcpStream>),
    Tls(Box<TlsStream<Watched<TcpStream>>>),
    Unix(Watched<UnixStream>),
    #[cfg(any(test, feature = "scripted"))]
    Scripted(Watched<End>),
}

impl Stream {
    /// The error that ended a connection attempt, if there is one.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Tcp(stream) => stream.get_ref().take_error(),
            Self::Tls(stream) => stream.get_ref().get_ref().take_error(),
            Self::Unix(stream) => stream.get_ref().take_error(),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(_) => Ok(None),
        }
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.get_ref().local_addr().ok(),
            Self::Tls(stream) => stream.get_ref().get_ref().local_addr().ok(),
            Self::Unix(_) => None,
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(_) => None,
        }
    }

    /// The end has been read, right behind what was last told; no event will tell of it.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.has_ended(),
            _ => false,
        }
    }

    /// Encrypted, or to be.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The other side is there, and has not yet agreed on how to encrypt.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.is_handshaking()) && self.is_connected()
    }

    /// Something is encrypted and not yet sent.
    #[inline]
    pub(crate) fn wants_write(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.wants_write())
    }

    /// The socket refused the last bytes that it was given.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_full(),
            Self::Tls(stream) => stream.get_ref().is_full(),
            Self::Unix(stream) => stream.is_full(),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(stream) => stream.is_full(),
        }
    }

    /// Whether the socket was full and took bytes again; told once.
    pub(crate) fn take_sign(&mut self) -> bool {
        match self {
            Self::Tcp(stream) => stream.take_sign(),
            Self::Tls(stream) => stream.get_mut().take_sign(),
            Self::Unix(stream) => stream.take_sign(),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(stream) => stream.take_sign(),
        }
    }

    /// Nothing more will be sent. If that fails, the connection is lost, and reading will tell.
    pub(crate) fn shut_write(&mut self) {
        let _ = match self {
            Self::Tcp(stream) => stream.get_ref().shutdown(Shutdown::Write),
            Self::Tls(stream) => {
                stream.close_notify();
                let _ = stream.flush();
                stream.get_ref().get_ref().shutdown(Shutdown::Write)
            }
            Self::Unix(stream) => stream.get_ref().shutdown(Shutdown::Write),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(stream) => {
                stream.get_ref().shut_write();
                Ok(())
            }
        };
    }

    /// True once the other side is there.
    pub(crate) fn is_connected(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.get_ref().peer_addr().is_ok(),
            Self::Tls(stream) => stream.get_ref().get_ref().peer_addr().is_ok(),
            Self::Unix(_) => true,
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(_) => true,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buf),
            Self::Tls(stream) => stream.read(buf),
            Self::Unix(stream) => stream.read(buf),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buf),
            Self::Tls(stream) => stream.write(buf),
            Self::Unix(stream) => stream.write(buf),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(stream) => stream.write(buf),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(slices),
            Self::Tls(stream) => stream.write_vectored(slices),
            Self::Unix(stream) => stream.write_vectored(slices),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(stream) => stream.write_vectored(slices),
        }
    }

    /// Sends what is encrypted already, as far as the socket takes it.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => match stream.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                result => result,
            },
            _ => Ok(()),
        }
    }
}

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.register(registry, token, what),
            Self::Tls(stream) => stream.get_mut().register(registry, token, what),
            Self::Unix(stream) => stream.register(registry, token, what),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(_) => Ok(()),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.reregister(registry, token, what),
            Self::Tls(stream) => stream.get_mut().reregister(registry, token, what),
            Self::Unix(stream) => stream.reregister(registry, token, what),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(_) => Ok(()),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.deregister(registry),
            Self::Tls(stream) => stream.get_mut().deregister(registry),
            Self::Unix(stream) => stream.deregister(registry),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(_) => Ok(()),
        }
    }
}
