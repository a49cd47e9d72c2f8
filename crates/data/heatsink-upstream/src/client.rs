//! A blocking connection to one server: requests out, replies in.
//!
//! Called by: the watch of Sentinels, and our own tools: `scan`, `load`, `demo`.
//! Bound: the timeout for connecting and for each reply; [`MAX_REPLY_BYTES`] of a reply, or what the
//! caller sets.
//! Invariant: an error never shows a password.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::time::{Duration, Instant};

use heatsink_resp::encode;
use heatsink_resp::reply::{ReplyScan, Status};
use heatsink_resp::value::Value;
use heatsink_tls::ClientTls;

use crate::address::{Credentials, ServerUrl};

/// The longest reply that is taken; `INFO` and `CLUSTER SLOTS` are far below.
pub const MAX_REPLY_BYTES: usize = 64 << 20;
const CHUNK_BYTES: usize = 64 * 1024;
/// What is kept of a line that is longer.
pub const LINE_HEAD_BYTES: usize = 1 << 20;

/// What went wrong with a server.
#[derive(Debug)]
pub enum ClientError {
    /// It cannot be reached, or went away.
    Io {
        /// The server, without credentials.
        server: String,
        /// What the system said.
        error: io::Error,
    },
    /// It answered with an error.
    Refused {
        /// The server, without credentials.
        server: String,
        /// Its words.
        reply: String,
    },
    /// What it sent is no reply, or none of the expected form.
    Garbled {
        /// The server, without credentials.
        server: String,
    },
    /// The URL asks for something that is not supported here.
    Unsupported(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { server, error } => write!(f, "{server}: {error}"),
            Self::Refused { server, reply } => write!(f, "{server}: {reply}"),
            Self::Garbled { server } => write!(f, "{server}: its reply cannot be understood"),
            Self::Unsupported(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ClientError {}

/// What a connection is read from and written to: a socket, or TLS over one.
pub trait ReadWrite: Read + Write + Send {}

impl<T: Read + Write + Send> ReadWrite for T {}

/// An open connection, authenticated and with its database selected.
pub struct Client {
    name: String,
    stream: Box<dyn ReadWrite>,
    /// The same socket, for its timeouts and its end.
    socket: TcpStream,
    timeout: Duration,
    reply_limit: usize,
    received: Vec<u8>,
    /// How many of the received bytes were handed out.
    taken: usize,
    scan: ReplyScan,
    /// The beginning of a line whose rest is being skipped.
    head: Option<Vec<u8>>,
    /// How many bytes of that line were skipped, its head included.
    skipped: usize,
}

/// A line as a server sends it, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// A longer one.
    Cut {
        /// Its first [`LINE_HEAD_BYTES`].
        head: Vec<u8>,
        /// All of it.
        line_bytes: usize,
    },
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.name).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects and introduces itself. `tls` is used where the URL says `rediss`.
    pub fn open(
        server: &ServerUrl,
        tls: Option<&ClientTls>,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let name = server.to_string();
        let failed = |error| ClientError::Io { server: name.clone(), error };
        let socket = connect(&server.host, server.port, timeout).map_err(failed)?;
        let control = socket.try_clone().map_err(failed)?;
        let stream: Box<dyn ReadWrite> = match (server.tls, tls) {
            (false, _) => Box::new(socket),
            (true, Some(tls)) => {
                Box::new(tls.connect_blocking(socket, &server.host).map_err(failed)?)
            }
            (true, None) => {
                return Err(ClientError::Unsupported(format!("{name}: no TLS is configured")));
            }
        };
        let mut client = Self::over(name, stream, control, timeout, MAX_REPLY_BYTES);
        if let Some(credentials) = &server.credentials {
            client.authenticate(credentials)?;
        }
        if server.db != 0 {
            client.select(server.db)?;
        }
        Ok(client)
    }

    /// A client of the server `name` over what is connected already. `socket` is the one below
    /// `stream`; a reply that is longer than `reply_limit` is [`ClientError::Garbled`].
    pub(crate) fn over(
        name: String,
        stream: Box<dyn ReadWrite>,
        socket: TcpStream,
        timeout: Duration,
        reply_limit: usize,
    ) -> Self {
        Self {
            name,
            stream,
            socket,
            timeout,
            reply_limit,
            received: Vec::new(),
            taken: 0,
            scan: ReplyScan::default(),
            head: None,
            skipped: 0,
        }
    }

    /// Says who we are.
    pub(crate) fn authenticate(&mut self, credentials: &Credentials) -> Result<(), ClientError> {
        let Credentials { user, password } = credentials;
        match user {
            Some(user) => self.call(&[&b"AUTH"[..], user, password]),
            None => self.call(&[&b"AUTH"[..], password]),
        }
        .map(drop)
    }

    /// The server, without credentials.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Changes the database.
    pub fn select(&mut self, db: u32) -> Result<(), ClientError> {
        self.call(&[&b"SELECT"[..], db.to_string().as_bytes()]).map(drop)
    }

    /// One request, one reply that is no error.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, ClientError> {
        match self.ask(args)? {
            Value::Error(text) => Err(ClientError::Refused {
                server: self.name.clone(),
                reply: String::from_utf8_lossy(&text).into_owned(),
            }),
            reply => Ok(reply),
        }
    }

    /// One request, one reply, which may be an error.
    pub fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, ClientError> {
        let mut bytes = Vec::new();
        encode::command(&mut bytes, args);
        self.send(&bytes)?;
        self.reply()
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).map_err(|e| self.failed(e))
    }

    /// The next reply, which has to come within the timeout.
    pub fn reply(&mut self) -> Result<Value, ClientError> {
        let silence = || io::Error::new(io::ErrorKind::TimedOut, "no reply in time");
        self.receive(self.timeout)?.ok_or_else(|| self.failed(silence()))
    }

    /// The next reply or message, if one is complete within `timeout`.
    pub(crate) fn receive(&mut self, timeout: Duration) -> Result<Option<Value>, ClientError> {
        let Some(frame) = self.frame(Instant::now() + timeout)? else { return Ok(None) };
        Value::decode(&self.received[frame]).map(Some).map_err(|_| self.garbled())
    }

    /// Where the next frame stands, if one is complete before `deadline`.
    fn frame(&mut self, deadline: Instant) -> Result<Option<Range<usize>>, ClientError> {
        loop {
            let status = self.scan.advance(&self.received[self.taken..]);
            match status.map_err(|_| self.garbled())? {
                Status::Complete(len) => {
                    let start = self.taken;
                    self.taken += len;
                    return Ok(Some(start..self.taken));
                }
                Status::Incomplete if self.received.len() - self.taken > self.reply_limit => {
                    return Err(self.garbled());
                }
                Status::Incomplete => {}
            }
            match self.fill(deadline) {
                Ok(0) => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => return Ok(None),
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// The next line, if one is complete before `deadline`. For what comes after `MONITOR`,
    /// where lines may be longer than any reply of that kind.
    pub fn line(&mut self, deadline: Instant) -> Result<Option<Line<'_>>, ClientError> {
        loop {
            let unread = &self.received[self.taken..];
            if let Some(len) = memchr::memchr(b'\n', unread) {
                let start = self.taken;
                self.taken += len + 1;
                if let Some(head) = self.head.take() {
                    return Ok(Some(Line::Cut { head, line_bytes: self.skipped + len }));
                }
                let line = &self.received[start..start + len];
                return Ok(Some(Line::Whole(line.strip_suffix(b"\r").unwrap_or(line))));
            }
            if self.head.is_some() {
                self.skipped += unread.len();
                self.taken = self.received.len();
            } else if unread.len() > LINE_HEAD_BYTES {
                self.head = Some(unread[..LINE_HEAD_BYTES].to_vec());
                self.skipped = unread.len();
                self.taken = self.received.len();
            }
            match self.fill(deadline) {
                Ok(0) => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => return Ok(None),
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Says `QUIT`, and reads what still comes until the server has closed. False if it has
    /// not within the timeout: then the connection is cut.
    pub fn quit(mut self) -> bool {
        let deadline = Instant::now() + self.timeout;
        let mut closed = self.send(b"*1\r\n$4\r\nQUIT\r\n").is_err();
        while !closed {
            self.taken = self.received.len();
            match self.fill(deadline) {
                Ok(0) => closed = true,
                Ok(_) => {}
                Err(error) if is_timeout(&error) => break,
                Err(_) => closed = true,
            }
        }
        let _ = self.socket.shutdown(Shutdown::Both);
        closed
    }

    fn fill(&mut self, deadline: Instant) -> io::Result<usize> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.received.drain(..std::mem::take(&mut self.taken));
        let len = self.received.len();
        self.received.resize(len + CHUNK_BYTES, 0);
        let result = loop {
            match self.stream.read(&mut self.received[len..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        self.received.truncate(len + *result.as_ref().unwrap_or(&0));
        result
    }

    fn failed(&self, error: io::Error) -> ClientError {
        ClientError::Io { server: self.name.clone(), error }
    }

    /// The error about a reply that is none of the expected form.
    pub fn garbled(&self) -> ClientError {
        ClientError::Garbled { server: self.name.clone() }
    }
}

/// Tries each address of a host in turn.
pub(crate) fn connect(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "host name not found");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                // Also for the handshake of TLS, which happens inside the first write.
                socket.set_read_timeout(Some(timeout))?;
                socket.set_write_timeout(Some(timeout))?;
                return Ok(socket);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Which of the two a passed timeout is depends on the system.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
