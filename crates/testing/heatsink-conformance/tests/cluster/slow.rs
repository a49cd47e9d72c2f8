//! A server that takes a large request slowly is well; one that takes nothing is not.
//!
//! Before a cluster a large request goes along the shared link, whole, and others wait behind it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::Heatsink;
use heatsink_testkit::{RedisCluster, Reply, eventually};

use crate::load::StopOnDrop;

const SOON: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_secs(1);
/// What a busy machine may take on top.
const SLACK: Duration = Duration::from_secs(2);
/// Much more than both sides' kernels hold, which is some 4 MiB.
const LARGE_BYTES: usize = 48 << 20;
/// The large request takes four times the silence; what the kernels hold, less than half of it.
const BYTES_PER_SECOND: usize = 12 << 20;
/// Who was kept from passing bytes on for so long goes on faster; who had none, for longer, not.
const CATCH_UP: Duration = Duration::from_millis(50);

/// A way to `server` that takes what it is given slowly.
struct Narrow {
    addr: SocketAddr,
}

impl Narrow {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        // Its threads end with the connections; this one with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let (mut from, mut to) = (twin(&client), twin(&server));
                thread::spawn(move || carry(&mut from, &mut to, BYTES_PER_SECOND));
                thread::spawn(move || carry(&mut &server, &mut &client, usize::MAX));
            }
        });
        Self { addr }
    }
}

fn twin(stream: &TcpStream) -> TcpStream {
    stream.set_nodelay(true).expect("a socket");
    stream.try_clone().expect("a second handle")
}

/// Passes on so many bytes a second at most, whenever there are any.
fn carry(from: &mut impl Read, to: &mut impl Write, bytes_per_second: usize) {
    let mut chunk = vec![0; 16 << 10];
    let mut next = Instant::now();
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        if to.write_all(&chunk[..count]).is_err() {
            return;
        }
        let now = Instant::now();
        if now.saturating_duration_since(next) > CATCH_UP {
            next = now;
        }
        next += Duration::from_secs_f64(count as f64 / bytes_per_second as f64);
        thread::sleep(next.saturating_duration_since(now));
    }
}

fn cluster() -> RedisCluster {
    RedisCluster::builder().primaries(1).replicas_per_primary(0).start()
}

fn before(url: &str) -> Heatsink {
    Heatsink::before_url(url, |config| {
        config.workers = 1;
        config.live.timeouts.silence = Some(SILENCE);
    })
}

#[test]
fn a_server_that_takes_a_large_request_slowly_is_not_given_up() {
    let cluster = cluster();
    let way = Narrow::before(cluster.node(0).addr());
    let port = way.addr.port().to_string();
    let announce = ["CONFIG", "SET", "cluster-announce-port", &port];
    assert_eq!(cluster.node(0).client().command(&announce), Reply::ok());
    let heatsink = before(&format!("redis+cluster://{}", way.addr));
    let (mut client, mut other) = (heatsink.client(), heatsink.client());
    client.set_timeout(SOON);
    other.set_timeout(SOON);
    eventually(SOON, || other.command(&["SET", "n", "1"]) == Reply::ok());
    let begun = Instant::now();
    client.send(&[&b"SET"[..], b"large", &vec![b'x'; LARGE_BYTES]]);
    let mut waited = Duration::ZERO;
    // Whoever asks meanwhile waits for it on the shared link, and is not told that it is lost.
    for n in 2.. {
        let asked = Instant::now();
        assert_eq!(other.command(&["INCR", "n"]), Reply::Integer(n));
        waited = waited.max(asked.elapsed());
        if waited > 2 * SILENCE {
            break;
        }
        assert!(begun.elapsed() < SOON, "nobody had to wait: {waited:?}");
    }
    assert_eq!(client.read_reply(), Reply::ok());
    assert!(begun.elapsed() > 3 * SILENCE, "taken in {:?}", begun.elapsed());
    let length = cluster.node(0).client().command(&["STRLEN", "large"]);
    assert_eq!(length, Reply::Integer(LARGE_BYTES as i64));
}

/// How long it takes until a server that stands still is given up, if `bytes` are asked of it
/// at once and something small all the time.
fn until_given_up(bytes: usize) -> Duration {
    let mut cluster = cluster();
    let heatsink = before(&cluster.seed_url());
    let (mut client, mut large) = (heatsink.client(), heatsink.client());
    client.set_timeout(SOON);
    large.set_timeout(SOON);
    eventually(SOON, || client.command(&["SET", "n", "1"]) == Reply::ok());
    cluster.pause(0);
    let stop = AtomicBool::new(false);
    let time = thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        // First: who comes when the server has been silent for a while goes around this connection.
        large.send(&[&b"SET"[..], b"large", &vec![b'x'; bytes]]);
        let handed_over = Instant::now();
        client.send(&["INCR", "n"]);
        let begun = Instant::now();
        scope.spawn(|| {
            let mut others = heatsink.client();
            while !stop.load(Ordering::Acquire) {
                others.send(&["INCR", "n"]);
                thread::sleep(SILENCE / 50);
            }
        });
        for waiting in [&mut client, &mut large] {
            let error = waiting.read_reply().error();
            assert!(error.contains("no answer in time"), "{error}");
        }
        assert!(begun.elapsed() >= SILENCE, "given up after {:?}", begun.elapsed());
        drop(stopping);
        handed_over.elapsed()
    });
    cluster.resume(0);
    eventually(SOON, || client.command(&["SET", "n", "1"]) == Reply::ok());
    time
}

/// 1. The server stands still; its kernel takes what there is room for.
/// 2. That is full, and so is ours: the socket refuses the rest. From now on nothing is taken.
/// 3. `SILENCE` later the link is given up, however many more have asked meanwhile.
#[test]
fn a_server_that_stands_still_is_given_up_once_nothing_more_fits() {
    let time = until_given_up(LARGE_BYTES);
    assert!(time < SILENCE + SLACK, "given up after {time:?}");
}

/// Its kernel takes all of it, and that counts for nothing.
#[test]
fn a_server_that_stands_still_is_given_up_though_all_of_it_fits() {
    let time = until_given_up(100);
    assert!(time < SILENCE + SLACK, "given up after {time:?}");
}
