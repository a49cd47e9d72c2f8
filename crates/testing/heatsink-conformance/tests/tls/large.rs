//! Large requests to a server that is slow to take them.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use heatsink_conformance::Heatsink;
use heatsink_proxy::config::Upstream;
use heatsink_testkit::{
    Certificates, ClientAuth, RawClient, RedisCluster, RedisServer, Reply, encode,
};
use heatsink_tls::ClientTls;

use crate::support::{noise, trusting, upstream};

/// For everything to be taken that will be.
const MOMENT: Duration = Duration::from_millis(50);
/// Less than the time after which the cluster's map is looked at again, which sends the rest of
/// what was forgotten, too.
const LONGEST: Duration = Duration::from_secs(2);
const CHUNK_BYTES: usize = 16 << 10;
/// More than sockets hold.
const MOST_BYTES: usize = 64 << 20;

/// A server, or a node, that can stand still.
trait Standing {
    fn addr(&self) -> SocketAddr;
    fn set_paused(&mut self, paused: bool);
}

impl Standing for RedisServer {
    fn addr(&self) -> SocketAddr {
        self.tls_addr()
    }

    fn set_paused(&mut self, paused: bool) {
        if paused { self.pause() } else { self.resume() }
    }
}

struct Node(RedisCluster, usize);

impl Standing for Node {
    fn addr(&self) -> SocketAddr {
        self.0.node(self.1).tls_addr()
    }

    fn set_paused(&mut self, paused: bool) {
        if paused { self.0.pause(self.1) } else { self.0.resume(self.1) }
    }
}

/// How much is taken of what is sent to somebody who does not read.
fn room(addr: SocketAddr) -> usize {
    let mut socket = TcpStream::connect(addr).expect("a server that listens");
    socket.set_nonblocking(true).expect("a socket that does not block");
    let mut taken = 0;
    while taken < MOST_BYTES
        && let Ok(count) = socket.write(&[0; CHUNK_BYTES])
    {
        taken += count;
    }
    taken
}

/// Values of many sizes: those that just fit, or just do not, into what the sockets hold and
/// what is encrypted before it is sent, and others.
fn sizes_bytes(room: usize) -> Vec<usize> {
    let near = (0..16).map(|n| (room + n * 12_000).saturating_sub(140_000));
    near.chain([CHUNK_BYTES, room / 2, 2 * room]).collect()
}

/// Sends `SET` and ends the server's rest when nothing more is taken of it.
fn set_at_rest(client: &mut RawClient, bytes: &[u8], resume: impl FnOnce()) -> Reply {
    let mut sending = client.stream().try_clone().expect("a second handle");
    thread::scope(|scope| {
        scope.spawn(move || sending.write_all(bytes).expect("all is taken in the end"));
        thread::sleep(MOMENT);
        resume();
        client.read_reply()
    })
}

/// Writes a value of each size while the server rests, on connections of its own.
#[track_caller]
fn check_sizes(start: impl Fn() -> Heatsink, key: &str, server: &mut impl Standing) {
    server.set_paused(true);
    let room = room(server.addr());
    server.set_paused(false);
    for size in sizes_bytes(room) {
        let heatsink = start();
        let mut client = heatsink.client();
        client.set_timeout(LONGEST);
        // A server that has been answering fast may be waited for.
        for _ in 0..60 {
            assert_eq!(client.command(&["SET", key, ""]), Reply::ok());
        }
        let bytes = encode(&[&b"SET"[..], key.as_bytes(), &noise(size as u32)]);
        server.set_paused(true);
        let reply = set_at_rest(&mut client, &bytes, || server.set_paused(false));
        assert_eq!(reply, Reply::ok(), "{size} bytes, room for {room}");
        let got = client.command(&["STRLEN", key]);
        assert_eq!(got.integer(), size as i64, "room for {room}");
    }
}

#[test]
fn a_large_value_to_a_server() {
    let certificates = Certificates::generate();
    let builder = RedisServer::builder().tls(&certificates);
    let mut server = builder.tls_auth_clients(ClientAuth::No).start();
    let port = server.tls_port();
    let start = || Heatsink::before(upstream(port, trusting(certificates.ca())), |_| {});
    check_sizes(start, "large", &mut server);
}

#[test]
fn a_large_value_to_a_node_of_a_cluster() {
    let certificates = Certificates::generate();
    let builder = RedisCluster::builder().replicas_per_primary(0).tls(&certificates);
    let cluster = builder.tls_auth_clients(ClientAuth::No).start();
    let (key, url) = (cluster.key_on(1, "large"), cluster.seed_url());
    let start = || {
        let tls = ClientTls::load(trusting(certificates.ca())).expect("valid files");
        let url = url.parse().expect("a URL");
        let upstream = Upstream::from_url(url, Some(tls)).expect("not the embedded store");
        Heatsink::before(upstream, |_| {})
    };
    check_sizes(start, &key, &mut Node(cluster, 1));
}
