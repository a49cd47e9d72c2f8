//! The other side is Redis, with another implementation of TLS.

use std::net::TcpListener;
use std::time::Duration;

use heatsink_testkit::{Certificates, ClientAuth, Process, RedisServer};
use heatsink_tls::{ClientFiles, ClientTls, ServerFiles, ServerTls};
use mio::net::TcpStream;

use crate::pair::Alone;

fn client_files(certificates: &Certificates) -> ClientFiles {
    ClientFiles {
        ca: Some(certificates.ca().to_owned()),
        certificate: Some(certificates.client().certificate().to_owned()),
        key: Some(certificates.client().key().to_owned()),
        server_name: None,
    }
}

/// The socket is still connecting when the stream is made of it.
fn connect(server: &RedisServer, files: ClientFiles) -> Alone {
    let socket = TcpStream::connect(server.tls_addr()).unwrap();
    let client = ClientTls::load(files).unwrap();
    Alone::new(client.connect(socket, "127.0.0.1").unwrap())
}

#[test]
fn a_server_with_client_certificates_stores_and_returns_large_values() {
    let certificates = Certificates::generate();
    let server =
        RedisServer::builder().tls(&certificates).tls_auth_clients(ClientAuth::Required).start();
    let mut client = connect(&server, client_files(&certificates));
    let value: Vec<u8> = (0..3_000_000).map(|_| fastrand::u8(..)).collect();
    client
        .peer
        .outgoing
        .extend(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).bytes());
    client.peer.outgoing.extend(&value);
    client.peer.outgoing.extend(b"\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n");
    let mut expected = format!("+OK\r\n${}\r\n", value.len()).into_bytes();
    expected.extend(&value);
    expected.extend(b"\r\n+PONG\r\n");
    let mut received = Vec::new();
    client.run(|peer| {
        received.append(&mut peer.incoming);
        assert!(peer.end.is_none() && peer.write_error.is_none(), "{:?}", peer.end);
        received.len() >= expected.len()
    });
    assert!(received == expected);
}

/// How the connection failed for a client with these files.
fn refusal(server: &RedisServer, files: ClientFiles) -> String {
    let mut client = connect(server, files);
    client.peer.outgoing.extend(b"PING\r\n");
    client.run(|peer| peer.end.is_some());
    assert!(client.peer.incoming.is_empty());
    client.peer.end.unwrap().expect_err("refused").to_string()
}

#[test]
fn what_a_server_refuses_is_said_clearly() {
    let certificates = Certificates::generate();
    let server =
        RedisServer::builder().tls(&certificates).tls_auth_clients(ClientAuth::Required).start();
    let good = client_files(&certificates);

    let bare = ClientFiles { certificate: None, key: None, ..good.clone() };
    assert_eq!(refusal(&server, bare), "TLS: refused by the peer: client certificate required");

    let other = certificates.other_client();
    let other = ClientFiles {
        certificate: Some(other.certificate().to_owned()),
        key: Some(other.key().to_owned()),
        ..good.clone()
    };
    let said = refusal(&server, other);
    assert_eq!(said, "TLS: refused by the peer: certificate not issued by an authority it trusts");

    let wrong_ca = ClientFiles { ca: Some(certificates.other_ca().to_owned()), ..good };
    assert_eq!(refusal(&server, wrong_ca), "TLS: certificate not issued by a trusted authority");
}

#[test]
fn redis_cli_is_served() {
    let certificates = Certificates::generate();
    let tls = ServerTls::load(ServerFiles {
        certificate: certificates.server().certificate().to_owned(),
        key: certificates.server().key().to_owned(),
        client_ca: Some(certificates.ca().to_owned()),
        require_client_certificate: true,
    })
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut cli = Process::builder("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert"])
        .arg(certificates.ca())
        .arg("--cert")
        .arg(certificates.client().certificate())
        .arg("--key")
        .arg(certificates.client().key())
        .arg("PING")
        .spawn();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut server = Alone::new(tls.accept(TcpStream::from_std(socket)).unwrap());
    server.run(|peer| {
        if peer.incoming.ends_with(b"PING\r\n") {
            peer.incoming.clear();
            peer.outgoing.extend(b"+PONG\r\n");
        }
        peer.end.is_some()
    });
    assert!(matches!(server.peer.end, Some(Ok(()))), "{:?}", server.peer.end);
    assert!(cli.wait_exit(Duration::from_secs(20)).success());
    assert_eq!(cli.stdout().trim(), "PONG");
}
