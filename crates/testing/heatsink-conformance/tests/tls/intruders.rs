//! Whatever else may connect to the TLS port.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::{Certificates, RawClient, RedisServer, Reply, encode, eventually, open_fds};

use crate::support::{Listening, NAME, noise, pong};

const SOON: Duration = Duration::from_secs(10);

/// The first bytes that a client sends.
fn client_hello() -> Vec<u8> {
    let certificates = Certificates::generate();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("bound");
    let greeter = thread::spawn(move || {
        // Fails as nobody answers.
        RawClient::try_connect_tls(addr, certificates.ca(), None, NAME).is_err()
    });
    let (mut socket, _) = listener.accept().expect("the client");
    let mut hello = vec![0; 16 << 10];
    let len = socket.read(&mut hello).expect("its first words");
    hello.truncate(len);
    drop(socket);
    assert!(greeter.join().expect("no panic"));
    hello
}

/// Everything that comes until the other side closes.
fn rest(mut socket: &TcpStream) -> Vec<u8> {
    socket.set_read_timeout(Some(SOON)).expect("a timeout");
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}

#[test]
fn what_is_no_tls_is_told_so_and_closed() {
    let listening = Listening::new();
    let mut witness = listening.client();
    let garbage: [&[u8]; 5] = [
        b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &noise(5000),
        &[0; 100],
        // A record that is larger than any may be.
        &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
    ];
    for bytes in garbage {
        let mut socket = TcpStream::connect(listening.addr()).expect("connected");
        socket.write_all(bytes).expect("sent");
        let answer = rest(&socket);
        // An alert, or nothing; never a reply.
        let is_alert = answer.first() == Some(&0x15);
        assert!(answer.is_empty() || is_alert, "{}", answer.escape_ascii());
        assert_eq!(witness.command(&["PING"]), pong());
    }
    eventually(SOON, || listening.heatsink.proxy().client_count() == 1);
    assert_eq!(witness.command(&["EXISTS", "n"]), Reply::Integer(0), "no request was carried out");
}

#[test]
fn a_handshake_that_does_not_end_is_ended() {
    let listening = Listening::with(
        Certificates::generate(),
        RedisServer::start(),
        |_| {},
        |config| config.live.limits.max_clients = 4,
    );
    let hello = client_hello();
    let start = Instant::now();
    let silent = TcpStream::connect(listening.addr()).expect("connected");
    let mut halfway = TcpStream::connect(listening.addr()).expect("connected");
    halfway.write_all(&hello).expect("sent");
    let mut cut = TcpStream::connect(listening.addr()).expect("connected");
    cut.write_all(&hello[..hello.len() / 2]).expect("sent");
    // They count as clients meanwhile.
    eventually(SOON, || listening.heatsink.proxy().client_count() == 3);
    let mut last = listening.client();
    assert_eq!(last.command(&["PING"]), pong());
    assert!(listening.try_ping(None).is_err(), "one too many");
    for socket in [&silent, &halfway, &cut] {
        rest(socket);
    }
    let elapsed = start.elapsed();
    assert!(elapsed > Duration::from_secs(2) && elapsed < Duration::from_secs(9), "{elapsed:?}");
    println!("handshakes ended after {elapsed:?}");
    eventually(SOON, || listening.heatsink.proxy().client_count() == 1);
    assert_eq!(listening.client().command(&["PING"]), pong());
    assert_eq!(last.command(&["PING"]), pong());
}

#[test]
fn two_thousand_that_leave_anywhere() {
    let listening = Listening::with(
        Certificates::generate(),
        RedisServer::start(),
        |_| {},
        |config| config.workers = 2,
    );
    let hello = client_hello();
    let mut witness = listening.client();
    let mut plain = listening.heatsink.client();
    plain.command(&["SET", "own", "value"]);
    witness.command(&["PING"]);
    let descriptors = open_fds(std::process::id()).expect("own descriptors");
    let burst: Vec<u8> = [
        encode(&["SET", "theirs", "x"]),
        encode(&["GET", "theirs"]),
        encode(&["BLPOP", "none", "0"]),
    ]
    .concat();
    let mut rng = fastrand::Rng::with_seed(7);
    for n in 0..2000 {
        if n % 4 == 0 {
            let mut client = listening.client();
            let bytes = [burst.as_slice(), &burst].concat();
            client.send_raw(&bytes[..rng.usize(..bytes.len())]);
            if rng.bool() {
                client.shutdown_write();
            }
        } else {
            let mut socket = TcpStream::connect(listening.addr()).expect("connected");
            let mut bytes = hello[..rng.usize(..=hello.len())].to_vec();
            if !bytes.is_empty() && rng.bool() {
                let at = rng.usize(..bytes.len());
                bytes[at] ^= 1 << rng.u8(..8);
            }
            socket.write_all(&bytes).expect("sent");
        }
        if n % 20 == 0 {
            let text = n.to_string();
            assert_eq!(witness.command(&["ECHO", &text]), Reply::bulk(&text));
            assert_eq!(plain.command(&["GET", "own"]), Reply::bulk("value"));
        }
    }
    eventually(SOON, || listening.heatsink.proxy().client_count() == 2);
    eventually(SOON, || {
        // A few connections to the server are kept for the next that need one.
        open_fds(std::process::id()).is_ok_and(|count| count <= descriptors + 40)
    });
    assert_eq!(listening.client().command(&["GET", "own"]), Reply::bulk("value"));
    let blocked = || listening.server.info_u64("clients", "blocked_clients");
    eventually(SOON, || blocked() == 0);
}
