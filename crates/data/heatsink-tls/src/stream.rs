//! A TLS connection as a non-blocking byte stream.
//!
//! Called by: the event loop, for downstream and upstream connections alike.
//! Bound: [`UNSENT_LIMIT_BYTES`] of records waiting for the socket, one record (16 KiB) of
//! decrypted bytes waiting for the caller, one partly received record.
//! Invariant: a read that is neither full nor at the end has drained the socket; a write
//! that is short has filled it. An edge-triggered loop loses wake-ups otherwise.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use rustls::Connection;

use crate::error::{TlsError, copy_of};

/// Bytes of encrypted records that a connection holds at most while the socket is full.
pub const UNSENT_LIMIT_BYTES: usize = 64 * 1024;

/// Rooms smaller than twice this are filled through the buffer of rustls, which reads that
/// much at a time.
const OWN_READ_MIN_BYTES: usize = 4096;

/// A TLS connection over the non-blocking socket `S`. See the crate's front page for how an
/// event loop drives it.
#[derive(Debug)]
pub struct TlsStream<S> {
    connection: Connection,
    socket: S,
    /// Why nothing more will be received. Decrypted bytes may still be waiting.
    read_end: Option<End>,
    /// The socket took no more bytes. Apart from `read_end`: the alert with which the peer
    /// explains why it went away is still to be read.
    write_failure: Option<io::Error>,
    received_any: bool,
    closing: bool,
}

#[derive(Debug)]
enum End {
    Eof,
    HandshakeEof,
    Tls(rustls::Error),
    Socket(io::Error),
}

enum Received {
    /// So many decrypted bytes were placed; more may be waiting.
    Bytes(usize),
    Nothing,
}

impl<S: Read + Write> TlsStream<S> {
    pub(crate) fn new(mut connection: Connection, socket: S) -> Self {
        connection.set_buffer_limit(Some(UNSENT_LIMIT_BYTES));
        Self {
            connection,
            socket,
            read_end: None,
            write_failure: None,
            received_any: false,
            closing: false,
        }
    }

    /// Whether the handshake is still under way; `write` says `WouldBlock` until it is over.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether records wait for the socket to become writable: call `flush` then.
    pub fn wants_write(&self) -> bool {
        self.write_failure.is_none() && self.connection.wants_write()
    }

    /// Whether nothing more will be received: reads hand over what was decrypted before and
    /// then report the end or the failure, without another event from the socket.
    pub fn has_ended(&self) -> bool {
        self.read_end.is_some()
    }

    /// Queues the alert that tells the peer that nothing more will be written; `flush` sends
    /// it. Later writes fail.
    pub fn close_notify(&mut self) {
        if !self.closing {
            self.closing = true;
            self.connection.send_close_notify();
        }
    }

    /// The socket.
    pub fn get_ref(&self) -> &S {
        &self.socket
    }

    /// The socket, for registration with an event loop. Bytes read from or written to it
    /// directly break the connection.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.socket
    }

    /// Hands waiting records to the socket until none is left (`Ok`) or it is full.
    fn send_pending(&mut self) -> io::Result<()> {
        if let Some(failure) = &self.write_failure {
            return Err(copy_of(failure));
        }
        while self.connection.wants_write() {
            let failure = match self.connection.write_tls(&mut self.socket) {
                Ok(0) => ErrorKind::WriteZero.into(),
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(error),
                Err(error) => error,
            };
            return Err(copy_of(self.write_failure.insert(failure)));
        }
        Ok(())
    }

    /// Takes decrypted bytes that are waiting.
    fn take_plaintext(&mut self, room: &mut [u8]) -> usize {
        // The ways in which this says that nothing is there (would block, end) are told
        // apart by `read_end`.
        self.connection.reader().read(room).unwrap_or(0)
    }

    /// Decrypts what has been received; keeps the failure and queues its alert if it is
    /// not valid.
    fn process(&mut self) {
        self.received_any = true;
        match self.connection.process_new_packets() {
            Ok(state) if state.peer_has_closed() => self.read_end = Some(End::Eof),
            Ok(_) => {}
            Err(error) => self.read_end = Some(End::Tls(error)),
        }
    }

    /// Receives once from the socket. `room` is empty of plaintext and all plaintext has
    /// been taken.
    fn receive(&mut self, room: &mut [u8]) -> Received {
        let half = room.len() / 2;
        if half < OWN_READ_MIN_BYTES {
            let outcome = self.connection.read_tls(&mut self.socket);
            return match self.received(outcome) {
                Some(_) => {
                    self.process();
                    Received::Bytes(0)
                }
                None => Received::Nothing,
            };
        }
        // The far half of the caller's own room takes the encrypted bytes, so that large
        // replies do not cost a system call per 4 KiB, and no memory per connection. What
        // they decrypt to is shorter, save for a record whose beginning was received
        // earlier: at most 16 KiB stay behind in rustls, which is what it may hold and
        // still take the next bytes.
        let (front, back) = room.split_at_mut(room.len() - half);
        let outcome = self.socket.read(back);
        let Some(received) = self.received(outcome) else {
            return Received::Nothing;
        };
        let mut encrypted = &back[..received];
        let mut filled = 0;
        while !encrypted.is_empty() && self.read_end.is_none() {
            match self.connection.read_tls(&mut encrypted) {
                Ok(_) => self.process(),
                Err(error) => self.read_end = Some(End::Socket(error)),
            }
            filled += self.take_plaintext(&mut front[filled..]);
        }
        Received::Bytes(filled)
    }

    /// Sorts the outcome of a read from the socket: the bytes, or none because of its end or
    /// because it is drained.
    fn received(&mut self, outcome: io::Result<usize>) -> Option<usize> {
        match outcome {
            Ok(0) => {
                // A probe of the port that says nothing is no failed handshake.
                let probe = !self.received_any && matches!(self.connection, Connection::Server(_));
                let broken_off = self.connection.is_handshaking() && !probe;
                self.read_end = Some(if broken_off { End::HandshakeEof } else { End::Eof });
                None
            }
            Ok(received) => Some(received),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) if error.kind() == ErrorKind::Interrupted => Some(0),
            Err(error) => {
                self.read_end = Some(End::Socket(error));
                None
            }
        }
    }

    /// Accepts application data through `encrypt` until it takes no more or the socket is
    /// full. `encrypt` is told how many of the `total` bytes were accepted so far.
    fn accept(
        &mut self,
        total: usize,
        mut encrypt: impl FnMut(&mut rustls::Writer<'_>, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if total == 0 {
            return Ok(0);
        }
        if let Some(End::Tls(error)) = &self.read_end {
            let failure = TlsError(error.clone());
            let _ = self.send_pending(); // the alert, if there is one
            return Err(failure.into());
        }
        if self.closing {
            return Err(io::Error::new(ErrorKind::BrokenPipe, "TLS: written after close_notify"));
        }
        // Nothing is accepted while earlier records wait: the socket is full, and the bytes
        // are no better off here than with the caller, who has a limit for them.
        self.send_pending()?;
        if self.connection.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut accepted = 0;
        while accepted < total {
            let taken = encrypt(&mut self.connection.writer(), accepted)?;
            accepted += taken;
            // A failure is kept, and reported by the next call: these bytes count as written.
            if self.send_pending().is_err() || taken == 0 {
                break;
            }
        }
        if accepted == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(accepted) }
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    /// Decrypts into `buf` until it is full or the socket is drained, and sends what the
    /// handshake has to say.
    ///
    /// `Ok(0)` is the end of the stream, announced by the peer or not: Redis clients close
    /// without a word. Before the handshake is complete, an end is an error.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let mut filled = self.take_plaintext(buf);
        while filled < buf.len() && self.read_end.is_none() {
            match self.receive(&mut buf[filled..]) {
                Received::Bytes(placed) => filled += placed,
                Received::Nothing => break,
            }
            filled += self.take_plaintext(&mut buf[filled..]);
        }
        // Full or broken: kept for the writing side, reading goes on.
        let _ = self.send_pending();
        if filled > 0 {
            return Ok(filled);
        }
        match &self.read_end {
            None => Err(ErrorKind::WouldBlock.into()),
            Some(End::Eof) => Ok(0),
            Some(End::HandshakeEof) => Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "TLS: the peer closed the connection during the handshake",
            )),
            Some(End::Tls(error)) => Err(TlsError(error.clone()).into()),
            Some(End::Socket(error)) => Err(copy_of(error)),
        }
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    /// Encrypts and sends until the socket is full. Accepted bytes may still wait here
    /// afterwards: see [`TlsStream::wants_write`].
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.accept(buf.len(), |writer, accepted| writer.write(&buf[accepted..]))
    }

    /// Like `write`; the pieces share records.
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let total = bufs.iter().map(|buf| buf.len()).sum();
        let (mut index, mut index_at) = (0, 0);
        self.accept(total, |writer, accepted| {
            while accepted >= index_at + bufs[index].len() {
                index_at += bufs[index].len();
                index += 1;
            }
            match accepted - index_at {
                0 => writer.write_vectored(&bufs[index..]),
                offset => writer.write(&bufs[index][offset..]),
            }
        })
    }

    /// `Ok` when nothing waits any more, `WouldBlock` when the socket is full.
    fn flush(&mut self) -> io::Result<()> {
        self.send_pending()
    }
}

#[cfg(test)]
mod tests;
