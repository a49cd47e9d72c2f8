//! A client's socket, plain or with TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};

use heatsink_tls::{ServerTls, TlsStream};
#[cfg(test)]
use heatsink_upstream::scripted::End;
use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// A client's socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(test)]
    Scripted(End),
}

impl Socket {
    /// Reads what has come as it is, encrypted or not, to be thrown away.
    pub(crate) fn read_raw(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buf),
            Self::Tls(stream) => stream.get_mut().read(buf),
            #[cfg(test)]
            Self::Scripted(end) => end.read(buf),
        }
    }

    /// The socket, if what is written to it goes out as it is.
    #[inline]
    pub(crate) fn plain(&mut self) -> Option<&mut TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(_) => None,
            #[cfg(test)]
            Self::Scripted(_) => None,
        }
    }

    /// The two sides have not agreed on how to encrypt yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.is_handshaking(),
            #[cfg(test)]
            Self::Scripted(_) => false,
        }
    }

    /// The end has been read, right behind what was last told; no event will tell of it.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.has_ended(),
            #[cfg(test)]
            Self::Scripted(_) => false,
        }
    }

    /// Something is encrypted and not yet sent.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.wants_write(),
            #[cfg(test)]
            Self::Scripted(_) => false,
        }
    }

    /// Nothing more will be sent.
    pub(crate) fn shut_write(&mut self) {
        let _ = match self {
            Self::Plain(stream) => stream.shutdown(Shutdown::Write),
            Self::Tls(stream) => {
                stream.close_notify();
                let _ = stream.flush();
                stream.get_mut().shutdown(Shutdown::Write)
            }
            #[cfg(test)]
            Self::Scripted(end) => {
                end.shut_write();
                Ok(())
            }
        };
    }
}

impl Source for Socket {
    fn register(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.register(registry, token, what),
            Self::Tls(stream) => stream.get_mut().register(registry, token, what),
            #[cfg(test)]
            Self::Scripted(_) => Ok(()),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.reregister(registry, token, what),
            Self::Tls(stream) => stream.get_mut().reregister(registry, token, what),
            #[cfg(test)]
            Self::Scripted(_) => Ok(()),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.deregister(registry),
            Self::Tls(stream) => stream.get_mut().deregister(registry),
            #[cfg(test)]
            Self::Scripted(_) => Ok(()),
        }
    }
}

impl Read for Socket {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buf),
            Self::Tls(stream) => stream.read(buf),
            #[cfg(test)]
            Self::Scripted(end) => end.read(buf),
        }
    }
}

impl Write for Socket {
    #[inline]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(buf),
            Self::Tls(stream) => stream.write(buf),
            #[cfg(test)]
            Self::Scripted(end) => end.write(buf),
        }
    }

    /// Sends what is encrypted already, as far as the socket takes it.
    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => match stream.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                result => result,
            },
            #[cfg(test)]
            Self::Scripted(_) => Ok(()),
        }
    }
}

/// A connection that was accepted, before a worker has it.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) socket: std::net::TcpStream,
    pub(crate) addr: SocketAddr,
    pub(crate) tls: Option<ServerTls>,
    /// Of this process: see [`crate::Handle::connect`].
    pub(crate) within: bool,
}

impl Accepted {
    /// Makes it ready for the event loop; the address that the client connected to with it.
    pub(crate) fn prepare(self) -> io::Result<(Socket, SocketAddr)> {
        self.socket.set_nonblocking(true)?;
        self.socket.set_nodelay(true)?;
        let local_addr = self.socket.local_addr()?;
        let stream = TcpStream::from_std(self.socket);
        let socket = match self.tls {
            Some(tls) => Socket::Tls(Box::new(tls.accept(stream)?)),
            None => Socket::Plain(stream),
        };
        Ok((socket, local_addr))
    }
}
