//! A non-blocking connection that carries requests one way and whole replies the other.
//!
//! Called by: the connections of `run`, of the demo and of the benchmark at an even pace.
//! Bound: replies up to the caller's limit; requests as many as the caller puts in.
//! Invariant: edge-triggered: [`Pipe::write`] and [`Pipe::read`] go on until the socket would block,
//! or until a read was short. After an error the pipe is of no use, and is dropped.

use std::io;

use heatsink_resp::reply::{ReplyScan, Status};
use mio::net::TcpStream;

use crate::socket::Socket;

const INBOX_BYTES: usize = 16 * 1024;

/// See the module.
#[derive(Debug)]
pub struct Pipe {
    socket: Socket,
    is_connected: bool,
    outbox: Vec<u8>,
    written: usize,
    inbox: Vec<u8>,
    taken: usize,
    filled: usize,
    scan: ReplyScan,
}

impl Pipe {
    /// Over a socket that is connected and registered.
    pub fn over(stream: TcpStream) -> Self {
        Self { is_connected: true, ..Self::new(Socket::Plain(stream)) }
    }

    /// Over a socket that is being connected.
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            socket,
            is_connected: false,
            outbox: Vec::new(),
            written: 0,
            inbox: vec![0; INBOX_BYTES],
            taken: 0,
            filled: 0,
            scan: ReplyScan::default(),
        }
    }

    /// Whether [`Pipe::connect`] has found the other side there.
    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Looks whether the other side is there, after an event; an error if it will never be.
    pub(crate) fn connect(&mut self) -> io::Result<bool> {
        if !self.is_connected {
            self.socket.take_error()?;
            self.is_connected = self.socket.is_connected();
        }
        Ok(self.is_connected)
    }

    /// Where requests are put; [`Pipe::write`] sends them.
    pub fn outbox(&mut self) -> &mut Vec<u8> {
        &mut self.outbox
    }

    /// Writes what waits, as far as the socket takes it.
    pub fn write(&mut self) -> io::Result<()> {
        loop {
            if self.written == self.outbox.len() {
                self.outbox.clear();
                self.written = 0;
                return self.socket.flush();
            }
            match self.socket.write(&self.outbox[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.socket.flush();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads what has come, and hands over each reply that is complete. One that is longer than
    /// `reply_limit` is an error.
    pub fn read(
        &mut self,
        reply_limit: usize,
        mut on_reply: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        loop {
            if self.filled == self.inbox.len() {
                self.make_room(reply_limit)?;
            }
            let room = self.inbox.len() - self.filled;
            let count = match self.socket.read(&mut self.inbox[self.filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let ended = self.socket.has_ended();
            self.filled += count;
            while let Some(len) = self.complete()? {
                let reply = &self.inbox[self.taken..self.taken + len];
                self.taken += len;
                on_reply(reply)?;
            }
            if self.taken == self.filled {
                (self.taken, self.filled) = (0, 0);
            }
            if ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // A short read has drained the socket; the next edge tells of more.
            if count < room {
                return Ok(());
            }
        }
    }

    /// The length of the next reply, if it is complete.
    fn complete(&mut self) -> io::Result<Option<usize>> {
        match self.scan.advance(&self.inbox[self.taken..self.filled]) {
            Ok(Status::Complete(len)) => Ok(Some(len)),
            Ok(Status::Incomplete) => Ok(None),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }

    /// Moves what is left to the front, or doubles the room for a reply that needs it.
    fn make_room(&mut self, reply_limit: usize) -> io::Result<()> {
        if self.taken > 0 {
            self.inbox.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        } else if self.inbox.len() > reply_limit {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply that is too long"));
        } else {
            self.inbox.resize(self.inbox.len() * 2, 0);
        }
        Ok(())
    }
}
