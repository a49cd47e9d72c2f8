//! A client that sends any bytes and shows every byte it gets.
//!
//! Called by: tests that look at the protocol itself, and the kit's own readiness checks.
//! Bound: it buffers what the server sent and nobody has read yet; each wait ends after the
//! timeout (10 s unless set).
//! Invariant: a timeout loses nothing: bytes of an incomplete reply stay for the next call.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::certificates::Identity;
use crate::reply::Reply;
use crate::transport::Transport;
use crate::wire::{self, Stop};

const TIMEOUT: Duration = Duration::from_secs(10);
const CHUNK_BYTES: usize = 64 * 1024;

/// `args` as a client sends a command: an array of bulk strings.
pub fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A blocking connection.
#[derive(Debug)]
pub struct RawClient {
    transport: Transport,
    received: Vec<u8>,
    /// How many of the bytes received have been handed out; they go at the next read, so that
    /// many small replies in one buffer are not moved once each.
    taken: usize,
    timeout: Duration,
}

impl RawClient {
    /// Connects; panics when it cannot.
    #[track_caller]
    pub fn connect(addr: impl ToSocketAddrs) -> Self {
        match Self::try_connect(addr) {
            Ok(client) => client,
            Err(error) => panic!("cannot connect: {error}"),
        }
    }

    /// Connects.
    pub fn try_connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        Ok(Self::over(Transport::Plain(open_socket(addr)?)))
    }

    /// Over a connection that is there.
    pub fn over_stream(stream: TcpStream) -> Self {
        Self::over(Transport::Plain(stream))
    }

    /// Connects and shakes hands over TLS; panics when it cannot. The server must show a
    /// certificate for `server_name` signed by the authority in the file `ca`.
    #[track_caller]
    pub fn connect_tls(
        addr: impl ToSocketAddrs,
        ca: &Path,
        client: Option<&Identity>,
        server_name: &str,
    ) -> Self {
        match Self::try_connect_tls(addr, ca, client, server_name) {
            Ok(client) => client,
            Err(error) => panic!("cannot connect over TLS: {error}"),
        }
    }

    /// As [`connect_tls`](Self::connect_tls). A server that speaks TLS 1.3 refuses a client's
    /// certificate after the handshake has ended for the client: the error comes with the first
    /// read.
    pub fn try_connect_tls(
        addr: impl ToSocketAddrs,
        ca: &Path,
        client: Option<&Identity>,
        server_name: &str,
    ) -> io::Result<Self> {
        let socket = open_socket(addr)?;
        let transport = Transport::tls(socket, ca, client, server_name, TIMEOUT)?;
        Ok(Self::over(transport))
    }

    fn over(transport: Transport) -> Self {
        Self { transport, received: Vec::new(), taken: 0, timeout: TIMEOUT }
    }

    /// How long reads and writes wait from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.stream().set_write_timeout(Some(timeout)).expect("a timeout that is not zero");
    }

    /// This end's address, as the server lists it.
    pub fn local_addr(&self) -> SocketAddr {
        self.stream().local_addr().expect("a connected socket has an address")
    }

    /// The socket, for options that have no method here.
    pub fn stream(&self) -> &TcpStream {
        self.transport.socket()
    }

    /// The certificate that the server showed (DER), over TLS.
    pub fn peer_certificate(&self) -> Option<Vec<u8>> {
        self.transport.peer_certificate()
    }

    /// The version of TLS in use, such as `TLSv1_3`.
    pub fn tls_version(&self) -> Option<String> {
        self.transport.tls_version()
    }

    /// Sends `bytes` as they are.
    #[track_caller]
    pub fn send_raw(&mut self, bytes: &[u8]) {
        if let Err(error) = self.try_send_raw(bytes) {
            panic!("cannot send {} bytes: {error}", bytes.len());
        }
    }

    /// Sends `bytes` as they are, to a server that may be gone.
    pub fn try_send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.transport.send(bytes)
    }

    /// Sends one command without waiting for its reply.
    #[track_caller]
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.send_raw(&encode(args));
    }

    /// Sends one command and reads one reply.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.send(args);
        self.read_reply()
    }

    /// As [`command`](Self::command), with a server that may be gone.
    pub fn try_command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.try_send_raw(&encode(args))?;
        self.try_read_reply()
    }

    /// Reads one reply.
    #[track_caller]
    pub fn read_reply(&mut self) -> Reply {
        match self.try_read_reply() {
            Ok(reply) => reply,
            Err(error) => panic!("no reply: {error}; unread: {}", shortened(self.unread())),
        }
    }

    /// Reads one reply; `TimedOut` when none came in time, `UnexpectedEof` when the server
    /// closed, `InvalidData` when the bytes are no reply.
    pub fn try_read_reply(&mut self) -> io::Result<Reply> {
        let frame = self.frame_before(Instant::now() + self.timeout)?;
        wire::parse(&frame).map_err(invalid)
    }

    /// Reads the bytes of exactly one reply.
    #[track_caller]
    pub fn read_frame(&mut self) -> Vec<u8> {
        match self.frame_before(Instant::now() + self.timeout) {
            Ok(frame) => frame,
            Err(error) => panic!("no reply: {error}; unread: {}", shortened(self.unread())),
        }
    }

    /// Reads the bytes of exactly one reply; `None` when none was complete within `timeout`.
    pub fn try_read_frame(&mut self, timeout: Duration) -> io::Result<Option<Vec<u8>>> {
        match self.frame_before(Instant::now() + timeout) {
            Ok(frame) => Ok(Some(frame)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads `count` bytes, whatever they are.
    #[track_caller]
    pub fn read_exact_bytes(&mut self, count: usize) -> Vec<u8> {
        let deadline = Instant::now() + self.timeout;
        while self.unread().len() < count {
            if let Err(error) = self.fill(deadline) {
                panic!("{} of {count} bytes came, then: {error}", self.unread().len());
            }
        }
        self.take(count)
    }

    /// Reads until the server closes, and returns what came before.
    #[track_caller]
    pub fn read_to_close(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.fill(deadline) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    panic!("still open; unread: {}", shortened(self.unread()))
                }
                Err(_) => return self.take(self.unread().len()),
            }
        }
    }

    /// Waits until the server closes; panics when it sends something first.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        let rest = self.read_to_close();
        assert!(rest.is_empty(), "closed, but sent first: {}", rest.escape_ascii());
    }

    /// Tells the server that nothing more will be sent; replies can still be read.
    pub fn shutdown_write(&mut self) {
        self.transport.shutdown_write().expect("the connection is open");
    }

    fn unread(&self) -> &[u8] {
        &self.received[self.taken..]
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let bytes = self.unread()[..count].to_vec();
        self.taken += count;
        bytes
    }

    fn frame_before(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        loop {
            match wire::frame_len(self.unread()) {
                Ok(len) => return Ok(self.take(len)),
                Err(Stop::Need(total)) => {
                    while self.unread().len() < total {
                        self.fill(deadline)?;
                    }
                }
                Err(stop) => return Err(invalid(stop)),
            }
        }
    }

    fn fill(&mut self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        // A zero timeout would mean none: what is already there can still be read.
        self.stream().set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        self.received.drain(..std::mem::take(&mut self.taken));
        let len = self.received.len();
        self.received.resize(len + CHUNK_BYTES, 0);
        let result = self.transport.receive(&mut self.received[len..]);
        self.received.truncate(len + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed")),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "nothing came in time"))
            }
            Err(error) => Err(error),
        }
    }
}

fn open_socket(addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(addr)?;
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

fn invalid(stop: Stop) -> io::Error {
    let what = match stop {
        Stop::Malformed(what) => what,
        Stop::Need(_) => "a reply that ends too early".to_owned(),
    };
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The first bytes, readable, with the number of the rest.
fn shortened(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 200;
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    match bytes.len() - shown.len() {
        0 => shown.escape_ascii().to_string(),
        rest => format!("{} … and {rest} bytes more", shown.escape_ascii()),
    }
}
