//! Certificates, TLS servers and the raw client over TLS, against a real `redis-server`.

use std::fs;
use std::io;

use heatsink_testkit::{Certificates, ClientAuth, Identity, RawClient, RedisServer, Reply};

const NAME: &str = "127.0.0.1";

fn ping(client: &mut RawClient) -> io::Result<Reply> {
    client.try_command(&["PING"])
}

/// Connects and sends a command: a refusal may come with either.
fn try_ping(
    server: &RedisServer,
    ca: &Certificates,
    client: Option<&Identity>,
) -> io::Result<Reply> {
    ping(&mut RawClient::try_connect_tls(server.tls_addr(), ca.ca(), client, NAME)?)
}

fn pong() -> Reply {
    Reply::Simple("PONG".into())
}

#[test]
fn a_server_that_speaks_only_tls() {
    let certificates = Certificates::generate();
    let mut server = RedisServer::builder().tls(&certificates).start();
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{}", server.tls_port()));
    assert_eq!(server.tls_addr(), server.addr());
    for name in ["127.0.0.1", "localhost", "::1"] {
        let addr = server.tls_addr();
        let mut client = RawClient::connect_tls(addr, certificates.ca(), None, name);
        assert_eq!(client.command(&["PING"]), pong());
        assert_eq!(client.tls_version().as_deref(), Some("TLSv1_3"));
        assert_eq!(client.peer_certificate(), Some(certificates.server().certificate_der()));
    }
    assert!(server.calls("ping") >= 3);
    let mut plain = RawClient::connect(server.addr());
    plain.send(&["PING"]);
    assert!(!plain.read_to_close().starts_with(b"+PONG"));
    server.restart();
    assert_eq!(server.client().command(&["PING"]), pong());
}

#[test]
fn a_plain_port_beside_and_an_older_version() {
    let certificates = Certificates::generate();
    let server = RedisServer::builder()
        .tls(&certificates)
        .plain_port_too()
        .arg("tls-protocols", "TLSv1.2")
        .start();
    assert_ne!(server.port(), server.tls_port());
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(server.client().command(&["SET", "k", "v"]), Reply::ok());
    assert_eq!(server.client().peer_certificate(), None);
    let mut client = RawClient::connect_tls(server.tls_addr(), certificates.ca(), None, NAME);
    assert_eq!(client.tls_version().as_deref(), Some("TLSv1_2"));
    assert_eq!(client.command(&["GET", "k"]), Reply::bulk("v"));
}

#[test]
fn large_values_and_a_closed_connection() {
    let certificates = Certificates::generate();
    let server = RedisServer::builder().tls(&certificates).start();
    let mut client = server.client();
    let value: Vec<u8> = (0..5_000_000_u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(client.command(&[&b"SET"[..], b"k", &value]), Reply::ok());
    assert_eq!(client.command(&["GET", "k"]).bytes(), Some(&*value));
    client.send(&["ECHO", "last"]);
    assert_eq!(client.read_frame(), b"$4\r\nlast\r\n");
    client.shutdown_write();
    client.expect_closed();
}

#[test]
fn a_client_refuses_what_it_cannot_trust() {
    let certificates = Certificates::generate();
    let server = RedisServer::builder().tls(&certificates).start();
    let refused = |ca, name| {
        RawClient::try_connect_tls(server.tls_addr(), ca, None, name).expect_err("refused")
    };
    let stranger = refused(certificates.other_ca(), NAME).to_string();
    assert!(stranger.contains("UnknownIssuer"), "{stranger}");
    let misnamed = refused(certificates.ca(), "redis.example").to_string();
    assert!(misnamed.contains("not valid for name"), "{misnamed}");

    let start_as = |identity| {
        let builder = RedisServer::builder().tls(&certificates).plain_port_too();
        builder.tls_identity(identity).start()
    };
    let expired = start_as(certificates.expired_server());
    let error = try_ping(&expired, &certificates, None).expect_err("refused").to_string();
    assert!(error.contains("expired"), "{error}");
    let stranger = start_as(certificates.other_server());
    let error = try_ping(&stranger, &certificates, None).expect_err("refused").to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[test]
fn a_server_asks_for_certificates_as_told() {
    let certificates = Certificates::generate();
    let (own, stranger) = (certificates.client(), certificates.other_client());
    let cases = [
        (ClientAuth::No, [true, true, true]),
        (ClientAuth::Optional, [true, true, false]),
        (ClientAuth::Required, [false, true, false]),
    ];
    for (auth_clients, accepted) in cases {
        let server =
            RedisServer::builder().tls(&certificates).tls_auth_clients(auth_clients).start();
        let shown = [None, Some(own), Some(stranger)];
        let answers = shown.map(|client| try_ping(&server, &certificates, client));
        let pongs = answers.each_ref().map(|answer| answer.as_ref().is_ok_and(|it| *it == pong()));
        assert_eq!(pongs, accepted, "{auth_clients:?}: {answers:?}");
    }
}

#[test]
fn a_renewed_certificate_is_another_one_in_the_same_files() {
    let certificates = Certificates::generate();
    let server = RedisServer::builder().tls(&certificates).start();
    let identity = certificates.server();
    let old = identity.certificate_der();
    let old_key = fs::read(identity.key()).expect("the key");
    assert_eq!(server.client().peer_certificate().as_ref(), Some(&old));
    certificates.renew_server();
    let new = identity.certificate_der();
    assert_ne!(old, new);
    assert_ne!(old_key, fs::read(identity.key()).expect("the key"));
    assert_eq!(server.client().peer_certificate(), Some(old), "not loaded yet");
    let path = |path: &std::path::Path| path.to_str().expect("plain characters").to_owned();
    let (certificate, key) = (path(identity.certificate()), path(identity.key()));
    let set = ["CONFIG", "SET", "tls-cert-file", &certificate, "tls-key-file", &key];
    assert_eq!(server.client().command(&set), Reply::ok());
    let mut client = server.client();
    assert_eq!(client.peer_certificate(), Some(new));
    assert_eq!(client.command(&["PING"]), pong());
}

#[test]
fn the_files_go_with_the_last_clone() {
    let certificates = Certificates::generate();
    let directory = certificates.directory().to_owned();
    let clone = certificates.clone();
    drop(certificates);
    assert!(clone.ca().exists() && clone.client().key().exists());
    drop(clone);
    assert!(!directory.exists());
}
