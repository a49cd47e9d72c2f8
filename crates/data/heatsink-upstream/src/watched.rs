//! A socket, and whether it takes again what it had refused.
//!
//! Called by: `stream`, for every socket to the upstream, under TLS too.
//! A socket that takes bytes says nothing about the server: its kernel has room for them, even if
//! the server hangs. A socket that was full and takes bytes again shows that the server has read some.
//! A server that hangs reads none: once the buffers of both sides are full, the socket
//! refuses all.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use mio::event::Source;
use mio::{Interest, Registry, Token};

/// A socket that is watched.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    socket: S,
    /// It refused the last bytes that it was given.
    is_full: bool,
    /// It was full and took bytes, since that was last asked.
    took_again: bool,
}

impl<S> Watched<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, is_full: false, took_again: false }
    }

    /// The socket.
    pub(crate) fn get_ref(&self) -> &S {
        &self.socket
    }

    /// It refused the last bytes that it was given.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether it was full and took bytes; told once.
    pub(crate) fn take_sign(&mut self) -> bool {
        std::mem::take(&mut self.took_again)
    }

    #[inline]
    fn note(&mut self, written: &io::Result<usize>) {
        match written {
            Ok(_) if self.is_full => {
                self.is_full = false;
                self.took_again = true;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_full = true,
            _ => {}
        }
    }
}

impl<S: Read> Read for Watched<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.read(buf)
    }
}

impl<S: Write> Write for Watched<S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.socket.write(buf);
        self.note(&written);
        written
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.socket.write_vectored(slices);
        self.note(&written);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl<S: Source> Source for Watched<S> {
    fn register(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        self.socket.register(registry, token, what)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, what: Interest) -> io::Result<()> {
        self.socket.reregister(registry, token, what)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.socket.deregister(registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outgoing::Outgoing;

    /// Has room for this many bytes.
    struct Room(usize);

    impl Write for Room {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0);
            self.0 -= count;
            if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_bytes_behind_a_refusal_are_a_sign() {
        let mut socket = Watched::new(Room(100));
        let mut outgoing = Outgoing::default();
        let mut send = |socket: &mut Watched<Room>, bytes: usize| {
            outgoing.push(&vec![b'x'; bytes]);
            outgoing.flush(socket).unwrap();
            (socket.is_full(), socket.take_sign())
        };
        // As many small requests as there is room for.
        for _ in 0..100 {
            assert_eq!(send(&mut socket, 1), (false, false));
        }
        // One that fills it.
        assert_eq!(send(&mut socket, 50), (true, false));
        assert_eq!(send(&mut socket, 1), (true, false));
        // Somebody reads.
        socket.socket.0 = 10;
        assert_eq!(send(&mut socket, 0), (true, true));
        assert_eq!(send(&mut socket, 1), (true, false));
        socket.socket.0 = 100;
        assert_eq!(send(&mut socket, 0), (false, true));
        // The rest of the room is no sign.
        assert_eq!(send(&mut socket, 1), (false, false));
    }
}
