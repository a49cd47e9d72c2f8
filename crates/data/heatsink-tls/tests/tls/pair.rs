//! A connected pair of TLS streams, driven by edge-triggered readiness.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use heatsink_tls::{ClientTls, ServerTls, TlsStream};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

const BUFFER_BYTES: usize = 100_000;
/// Long enough for a busy machine; reached only when a wake-up was lost.
const STALL: Duration = Duration::from_secs(20);

/// One side of a connection, with the state that an event loop keeps for it.
pub(crate) struct Peer {
    pub(crate) stream: TlsStream<TcpStream>,
    pub(crate) outgoing: VecDeque<u8>,
    pub(crate) incoming: Vec<u8>,
    /// How reading ended: at the end of the stream or with an error.
    pub(crate) end: Option<io::Result<()>>,
    pub(crate) write_error: Option<io::Error>,
    readable: bool,
    writable: bool,
    random: fastrand::Rng,
}

/// One side whose other side is somebody else's program.
pub(crate) struct Alone {
    pub(crate) peer: Peer,
    poll: Poll,
}

pub(crate) struct Pair {
    pub(crate) server: Peer,
    pub(crate) client: Peer,
    poll: Poll,
}

/// Two connected loopback sockets, non-blocking.
pub(crate) fn sockets(buffer_bytes: Option<usize>) -> (TcpStream, TcpStream) {
    let socket = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        if let Some(bytes) = buffer_bytes {
            socket.set_send_buffer_size(bytes).unwrap();
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        socket.set_tcp_nodelay(true).unwrap();
        socket
    };
    let listener = socket();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(1).unwrap();
    let client = socket();
    client.connect(&listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_tcp_nodelay(true).unwrap();
    let streams = [server, client].map(|socket| {
        socket.set_nonblocking(true).unwrap();
        TcpStream::from_std(socket.into())
    });
    streams.into()
}

impl Peer {
    fn new(stream: TlsStream<TcpStream>, seed: u64) -> Self {
        Self {
            stream,
            outgoing: VecDeque::new(),
            incoming: Vec::new(),
            end: None,
            write_error: None,
            readable: false,
            writable: false,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn register(&mut self, poll: &Poll, index: usize) {
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(self.stream.get_mut(), Token(index), both).unwrap();
    }

    fn wants_to_read(&self) -> bool {
        self.readable && self.end.is_none() && self.incoming.len() < BUFFER_BYTES
    }

    fn wants_to_write(&self) -> bool {
        let something = !self.outgoing.is_empty() || self.stream.wants_write();
        self.writable && self.write_error.is_none() && something
    }

    fn turn(&mut self) {
        while self.wants_to_write() {
            self.write_once();
        }
        while self.wants_to_read() {
            self.read_once();
        }
    }

    fn write_once(&mut self) {
        let offered = self.random.usize(0..=self.outgoing.len());
        let (first, second) = self.outgoing.as_slices();
        let first = &first[..first.len().min(offered)];
        let second = &second[..offered - first.len()];
        let (offered, outcome) = if offered == 0 {
            (0, self.stream.flush().map(|()| 0))
        } else if self.random.bool() {
            let slices = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(second)];
            (offered, self.stream.write_vectored(&slices))
        } else {
            (first.len(), self.stream.write(first))
        };
        match outcome {
            Ok(taken) => {
                self.writable = taken == offered;
                self.outgoing.drain(..taken);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
            Err(error) => self.write_error = Some(error),
        }
    }

    fn read_once(&mut self) {
        // Small, around what rustls reads at a time, and large.
        let limit = [16, 9_000, BUFFER_BYTES][self.random.usize(..3)];
        let mut buf = vec![0; self.random.usize(1..=limit)];
        let was_handshaking = self.stream.is_handshaking();
        match self.stream.read(&mut buf) {
            Ok(0) => self.end = Some(Ok(())),
            Ok(read) => {
                self.incoming.extend_from_slice(&buf[..read]);
                self.readable = read == buf.len() || self.stream.has_ended();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(error) => self.end = Some(Err(error)),
        }
        if was_handshaking && !self.stream.is_handshaking() {
            self.writable = true;
        }
    }

    /// After a failure, the side closes its socket as a proxy would.
    fn close_if_failed(&mut self) {
        if matches!(self.end, Some(Err(_))) {
            let _ = self.stream.get_ref().shutdown(std::net::Shutdown::Write);
        }
    }
}

/// Lets all go on that can, or waits for an event.
fn step(poll: &mut Poll, peers: &mut [&mut Peer]) {
    if peers.iter().any(|peer| peer.wants_to_read() || peer.wants_to_write()) {
        for peer in peers {
            peer.turn();
            peer.close_if_failed();
        }
        return;
    }
    let mut events = Events::with_capacity(8);
    poll.poll(&mut events, Some(STALL)).unwrap();
    assert!(!events.is_empty(), "a wake-up was lost");
    for event in &events {
        let peer = &mut *peers[event.token().0];
        peer.readable |= event.is_readable();
        peer.writable |= event.is_writable();
    }
}

impl Alone {
    pub(crate) fn new(stream: TlsStream<TcpStream>) -> Self {
        let mut peer = Peer::new(stream, fastrand::u64(..));
        let poll = Poll::new().unwrap();
        peer.register(&poll, 0);
        Self { peer, poll }
    }

    /// Runs until `done` says so.
    pub(crate) fn run(&mut self, mut done: impl FnMut(&mut Peer) -> bool) {
        while !done(&mut self.peer) {
            step(&mut self.poll, &mut [&mut self.peer]);
        }
    }
}

impl Pair {
    pub(crate) fn new(server: &ServerTls, client: &ClientTls, host: &str) -> Self {
        Self::with_buffers(server, client, host, None)
    }

    pub(crate) fn with_buffers(
        server: &ServerTls,
        client: &ClientTls,
        host: &str,
        buffer_bytes: Option<usize>,
    ) -> Self {
        let (server_socket, client_socket) = sockets(buffer_bytes);
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut server = Peer::new(server.accept(server_socket).unwrap(), seed);
        let mut client = Peer::new(client.connect(client_socket, host).unwrap(), !seed);
        let poll = Poll::new().unwrap();
        server.register(&poll, 0);
        client.register(&poll, 1);
        Self { server, client, poll }
    }

    /// Runs until `done` says so; `done` is asked after every turn and may move bytes.
    pub(crate) fn run(&mut self, mut done: impl FnMut(&mut Peer, &mut Peer) -> bool) {
        while !done(&mut self.server, &mut self.client) {
            step(&mut self.poll, &mut [&mut self.server, &mut self.client]);
        }
    }

    /// The client asks, the server answers. What each side received, or why it did not.
    pub(crate) fn exchange(&mut self) -> [Result<(), String>; 2] {
        self.client.outgoing.extend(b"ping");
        self.run(|server, client| {
            if server.incoming == b"ping" {
                server.incoming.clear();
                server.outgoing.extend(b"pong");
            }
            client.incoming == b"pong" || server.end.is_some() && client.end.is_some()
        });
        if self.client.incoming == b"pong" {
            self.client.incoming.clear();
            return [Ok(()), Ok(())];
        }
        [&mut self.server, &mut self.client].map(|peer| match peer.end.take() {
            Some(Err(error)) => Err(error.to_string()),
            _ => Err("closed".to_owned()),
        })
    }
}
