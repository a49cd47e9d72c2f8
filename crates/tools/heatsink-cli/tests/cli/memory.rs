//! Memory of the real process: what passes through, waits or idles must not pile up in it.
//!
//! Bound: each test states its own. Figures are of the kernel (`/proc`), with two workers so
//! that they do not depend on the machine's cores.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use heatsink_testkit::{Process, RawClient, RedisServer, Reply, encode, eventually};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{PATIENCE, Place};

const MIB: u64 = 1 << 20;

/// A proxy in front of a server of its own, with an address to connect to.
struct Proxy {
    process: Process,
    address: String,
    server: RedisServer,
    _place: Place,
}

impl Proxy {
    fn start() -> Self {
        let place = Place::empty();
        let server = RedisServer::start();
        let listen = ["serve", "--listen", "127.0.0.1:0", "--workers", "2"];
        let process = place.heatsink(&listen).args(["--upstream", &server.url()]).spawn();
        let ready = process.wait_for_line(" ready: ", PATIENCE);
        let (_, rest) = ready.split_once("redis://").expect("an address");
        let address = rest.split_once(' ').expect("an address").0.to_owned();
        let proxy = Self { process, address, server, _place: place };
        // Both workers have dialled and learned the commands before anything is measured.
        for _ in 0..4 {
            assert_eq!(proxy.client().command(&["PING"]), Reply::Simple("PONG".into()));
        }
        proxy
    }

    fn client(&self) -> RawClient {
        RawClient::connect(&*self.address)
    }

    fn rss_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The most that was ever resident.
    fn peak_rss_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    /// A figure of `/proc/PID/status`, which is exact where `/proc/PID/stat` lags behind by
    /// some pages for each core.
    fn status_bytes(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.pid());
        let status = std::fs::read_to_string(path).expect("the proxy runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        let kib = line.trim().strip_suffix(" kB").expect("in KiB");
        kib.parse::<u64>().expect("a number") * 1024
    }
}

const VALUE_BYTES: usize = 128 << 20;
const BLOCK_BYTES: usize = 1 << 20;

#[test]
fn a_large_value_is_written_without_being_held() {
    const MOST: u64 = 8 * MIB;
    let proxy = Proxy::start();
    let start = proxy.peak_rss_bytes();
    let mut writer = proxy.client();
    writer.set_timeout(PATIENCE);
    writer.send_raw(b"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n");
    writer.send_raw(format!("${VALUE_BYTES}\r\n").as_bytes());
    let mut block = vec![b'x'; BLOCK_BYTES];
    for number in 0..VALUE_BYTES / BLOCK_BYTES {
        block[..8].copy_from_slice(&number.to_be_bytes());
        writer.send_raw(&block);
    }
    writer.send_raw(b"\r\n");
    assert_eq!(writer.read_reply(), Reply::ok());
    let grown = proxy.peak_rss_bytes() - start;
    assert!(grown < MOST, "grown by {grown} bytes");
    let mut direct = proxy.server.client();
    assert_eq!(direct.command(&["STRLEN", "big"]).integer(), VALUE_BYTES as i64);
    for number in 0..VALUE_BYTES / BLOCK_BYTES {
        let at = number * BLOCK_BYTES;
        let stamp = direct.command(&["GETRANGE", "big", &at.to_string(), &(at + 7).to_string()]);
        assert_eq!(stamp, Reply::bulk(number.to_be_bytes()), "block {number}");
    }
}

/// Puts a value of `len` bytes, all zero, on the server under `key`.
fn put(proxy: &Proxy, key: &str, len: usize) {
    let last = (len - 1).to_string();
    let reply = proxy.server.client().command(&["SETRANGE", key, &last, "\0"]);
    assert_eq!(reply.integer(), len as i64);
}

/// Reads a value of `len` bytes, keeping none of it; returns the most that `measure` gave.
fn read_value(client: &RawClient, len: usize, measure: impl Fn() -> u64) -> u64 {
    let mut stream = client.stream();
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut header = format!("${len}\r\n").into_bytes();
    let expected = header.clone();
    stream.read_exact(&mut header).expect("a header");
    assert_eq!(header, expected);
    let mut piece = vec![0; BLOCK_BYTES];
    let mut most = 0;
    for _ in 0..len / BLOCK_BYTES {
        stream.read_exact(&mut piece).expect("a piece of the value");
        most = most.max(measure());
    }
    let mut end = [0; 2];
    stream.read_exact(&mut end).expect("the end");
    assert_eq!(&end, b"\r\n");
    most
}

/// A client that reads as fast as it can, on the shared pipeline.
#[test]
fn a_large_value_is_read_without_being_held() {
    const MOST: u64 = 40 * MIB;
    let proxy = Proxy::start();
    put(&proxy, "big", VALUE_BYTES);
    let start = proxy.peak_rss_bytes();
    for reader in 0..4 {
        let mut client = proxy.client();
        client.send(&["GET", "big"]);
        read_value(&client, VALUE_BYTES, || 0);
        let grown = proxy.peak_rss_bytes() - start;
        assert!(grown < MOST, "grown by {grown} bytes for reader {reader}");
    }
}

/// A client that once lagged behind is served by a connection of its own, and from then on
/// the server waits for it: nothing piles up, however slowly it reads.
#[test]
fn the_server_waits_for_a_client_that_has_lagged() {
    const FIRST_BYTES: usize = 32 << 20;
    const LAG: u64 = 16 * MIB;
    const MOST: u64 = 8 * MIB;
    let proxy = Proxy::start();
    put(&proxy, "first", FIRST_BYTES);
    put(&proxy, "big", VALUE_BYTES);
    let start = proxy.rss_bytes();
    let grown = || proxy.rss_bytes().saturating_sub(start);
    let mut client = proxy.client();
    client.send(&["GET", "first"]);
    eventually(PATIENCE, || grown() > LAG);
    read_value(&client, FIRST_BYTES, || 0);
    client.send(&["GET", "big"]);
    // As long as nobody reads, what the server keeps for its clients comes to rest.
    let mut kept_before = 0;
    let mut same = 0;
    eventually(PATIENCE, || {
        let kept = proxy.server.info_u64("memory", "mem_clients_normal");
        same = if kept == kept_before { same + 1 } else { 0 };
        kept_before = kept;
        same >= 20 && proxy.server.calls("get") == 2
    });
    let most = read_value(&client, VALUE_BYTES, grown).max(grown());
    assert!(most < MOST, "grown by {most} bytes");
}

/// Lets this program open as many descriptors as the system allows it.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to maximum");
}

#[test]
fn an_idle_connection_costs_little() {
    const CONNECTIONS: usize = 1000;
    const MOST_EACH: u64 = 4096;
    raise_descriptor_limit();
    let proxy = Proxy::start();
    let connect = || {
        let mut client = proxy.client();
        assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".into()));
        client
    };
    // The first ones use what the start left free in the heap.
    let first: Vec<RawClient> = (0..CONNECTIONS).map(|_| connect()).collect();
    let start = proxy.rss_bytes();
    let then: Vec<RawClient> = (0..CONNECTIONS).map(|_| connect()).collect();
    let each = proxy.rss_bytes().saturating_sub(start) / CONNECTIONS as u64;
    println!("{each} bytes each");
    assert!(each <= MOST_EACH, "{each} bytes each");
    drop((first, then));
}

/// A client that sends numbered requests as fast as they are taken and checks the replies.
struct Flood {
    stream: TcpStream,
    number: usize,
    /// Length of what is echoed.
    text_bytes: usize,
    /// Requests begun, and the rest of the last one.
    begun: usize,
    unsent: Vec<u8>,
    answered: usize,
    received: Vec<u8>,
}

impl Flood {
    fn new(proxy: &Proxy, number: usize) -> Self {
        let stream = TcpStream::connect(&*proxy.address).expect("the proxy listens");
        stream.set_nonblocking(true).expect("a socket");
        // Some send much, some send many.
        let text_bytes = if number.is_multiple_of(2) { 100 } else { 4000 };
        Self {
            stream,
            number,
            text_bytes,
            begun: 0,
            unsent: Vec::new(),
            answered: 0,
            received: Vec::new(),
        }
    }

    fn text(&self, request: usize) -> Vec<u8> {
        let mut text = format!("{:03}:{request:010}:", self.number).into_bytes();
        text.resize(self.text_bytes, b'x');
        text
    }

    /// Sends what the socket takes of what was begun; true if it took all.
    fn send_rest(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("client {}: {error}", self.number),
            }
        }
        true
    }

    /// Sends until the socket takes no more, or `until`; true if anything was begun.
    fn send_more(&mut self, until: Instant) -> bool {
        let before = self.begun;
        while self.send_rest() && Instant::now() < until {
            for _ in 0..64 {
                let request = encode(&[b"ECHO".to_vec(), self.text(self.begun)]);
                self.unsent.extend(request);
                self.begun += 1;
            }
        }
        self.begun > before
    }

    /// Takes what has come; true once everything was answered.
    fn receive(&mut self) -> bool {
        let sent = self.send_rest();
        let mut piece = vec![0; 64 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => panic!("client {}: closed after {} replies", self.number, self.answered),
                Ok(count) => self.received.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("client {}: {error}", self.number),
            }
        }
        let mut taken = 0;
        loop {
            let text = self.text(self.answered);
            let mut reply = format!("${}\r\n", text.len()).into_bytes();
            reply.extend(text);
            reply.extend(b"\r\n");
            let Some(next) = self.received.get(taken..taken + reply.len()) else { break };
            assert!(next == reply, "client {}: {}", self.number, next.escape_ascii());
            taken += reply.len();
            self.answered += 1;
        }
        self.received.drain(..taken);
        sent && self.answered == self.begun
    }
}

#[test]
fn a_paused_server_does_not_fill_the_proxy() {
    const CLIENTS: usize = 50;
    const MOST_PAUSED: u64 = 16 * MIB;
    const MOST: u64 = 64 * MIB;
    const REFUSING: Duration = Duration::from_millis(200);
    let mut proxy = Proxy::start();
    let start = proxy.rss_bytes();
    proxy.server.pause();
    let mut floods: Vec<Flood> = (0..CLIENTS).map(|number| Flood::new(&proxy, number)).collect();
    // Sockets hold a few MiB each; when they are full and nothing more is taken, it is over.
    let mut taken_last = Instant::now();
    let mut paused = 0;
    while taken_last.elapsed() < REFUSING {
        let slice = Instant::now() + REFUSING / 4;
        if floods.iter_mut().fold(false, |any, flood| flood.send_more(slice) | any) {
            taken_last = Instant::now();
        }
        paused = proxy.rss_bytes().saturating_sub(start);
        assert!(paused < MOST_PAUSED, "grown by {paused} bytes while the server is paused");
    }
    proxy.server.resume();
    eventually(PATIENCE, || floods.iter_mut().fold(true, |all, flood| flood.receive() & all));
    let grown = proxy.peak_rss_bytes() - start;
    let requests: usize = floods.iter().map(|flood| flood.begun).sum();
    println!("{requests} requests: grown by {paused} bytes paused, {grown} at most");
    assert!(grown < MOST, "grown by {grown} bytes, {paused} of them while paused");
}
