//! A blocking connection to a sentinel or a server: requests out, replies in.
//!
//! Bound: the timeout for connecting and for each reply; `MAX_REPLY_BYTES` of a reply.
//! Invariant: it is shut down when the watch ends, whatever it waits for.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_resp::encode;
use heatsink_resp::reply::{ReplyScan, Status};
use heatsink_resp::value::Value;

use super::shared::{Registration, Shared};
use super::{Connector, ReadWrite, SocketName};
use crate::address::Credentials;
use crate::error::LinkError;

/// More than sentinels have to say about any number of each other.
const MAX_REPLY_BYTES: usize = 1 << 20;
const CHUNK_BYTES: usize = 16 * 1024;

/// How connections are made.
#[derive(Clone)]
pub(super) struct Dialing {
    /// For connecting and for every reply.
    pub(super) timeout: Duration,
    /// `None` for plain connections.
    pub(super) connector: Option<Connector>,
    pub(super) shared: Arc<Shared>,
}

/// An open connection.
pub(super) struct Line {
    stream: Box<dyn ReadWrite>,
    /// The same socket, for its timeouts.
    socket: TcpStream,
    timeout: Duration,
    received: Vec<u8>,
    scan: ReplyScan,
    _registration: Registration,
}

impl Dialing {
    /// Connects and, with `credentials`, authenticates.
    pub(super) fn open(
        &self,
        name: &SocketName,
        credentials: Option<&Credentials>,
    ) -> Result<Line, LinkError> {
        let socket = self.connect(name).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => LinkError::ConnectTimeout,
            _ => LinkError::Connect(error),
        })?;
        let registration = Shared::register(&self.shared, &socket).map_err(LinkError::Connect)?;
        let control = socket.try_clone().map_err(LinkError::Connect)?;
        let stream = match &self.connector {
            None => Box::new(socket),
            Some(connector) => connector(socket, &name.host).map_err(LinkError::Connect)?,
        };
        let mut line = Line {
            stream,
            socket: control,
            timeout: self.timeout,
            received: Vec::new(),
            scan: ReplyScan::default(),
            _registration: registration,
        };
        if let Some(Credentials { user, password }) = credentials {
            let reply = match user {
                Some(user) => line.call(&[&b"AUTH"[..], user, password])?,
                None => line.call(&[b"AUTH", password])?,
            };
            accepted(reply)?;
        }
        Ok(line)
    }

    fn connect(&self, name: &SocketName) -> io::Result<TcpStream> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "host name not found");
        for address in (name.host.as_str(), name.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.timeout) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(self.timeout))?;
                    socket.set_write_timeout(Some(self.timeout))?;
                    return Ok(socket);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

impl Line {
    /// One request, one reply.
    pub(super) fn call(&mut self, args: &[&[u8]]) -> Result<Value, LinkError> {
        self.send(&[args])?;
        self.reply()
    }

    /// Sends requests, all at once.
    pub(super) fn send(&mut self, requests: &[&[&[u8]]]) -> Result<(), LinkError> {
        let mut bytes = Vec::new();
        for args in requests {
            encode::command(&mut bytes, args);
        }
        self.stream.write_all(&bytes).and_then(|()| self.stream.flush()).map_err(failed)
    }

    /// The next reply, which has to come within the timeout.
    pub(super) fn reply(&mut self) -> Result<Value, LinkError> {
        self.receive(self.timeout)?.ok_or(LinkError::Silent)
    }

    /// The next reply, if one is complete within `timeout`.
    pub(super) fn receive(&mut self, timeout: Duration) -> Result<Option<Value>, LinkError> {
        let deadline = Instant::now() + timeout;
        loop {
            let status = self.scan.advance(&self.received).map_err(|_| LinkError::Garbled)?;
            if let Status::Complete(len) = status {
                let value = Value::decode(&self.received[..len]).map_err(|_| LinkError::Garbled)?;
                self.received.drain(..len);
                return Ok(Some(value));
            }
            if self.received.len() > MAX_REPLY_BYTES {
                return Err(LinkError::Garbled);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left)).map_err(LinkError::Io)?;
            match self.read() {
                Ok(0) => return Err(LinkError::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => match failed(error) {
                    LinkError::Silent => return Ok(None),
                    error => return Err(error),
                },
            }
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        let len = self.received.len();
        self.received.resize(len + CHUNK_BYTES, 0);
        let result = self.stream.read(&mut self.received[len..]);
        self.received.truncate(len + *result.as_ref().unwrap_or(&0));
        result
    }
}

/// A reply that is no error.
pub(super) fn accepted(reply: Value) -> Result<Value, LinkError> {
    match reply {
        Value::Error(text) => Err(LinkError::Refused(text)),
        reply => Ok(reply),
    }
}

fn failed(error: io::Error) -> LinkError {
    match error.kind() {
        // Which of the two a passed timeout is depends on the system.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => LinkError::Silent,
        io::ErrorKind::UnexpectedEof => LinkError::Closed,
        _ => LinkError::Io(error),
    }
}
