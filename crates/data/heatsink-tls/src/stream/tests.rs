//! What only the inside shows: whether a session was resumed, and the older protocol.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::version::TLS12;
use rustls::{ClientConfig, ClientConnection, Connection, HandshakeKind};

use super::TlsStream;
use crate::{ClientFiles, ClientTls, ServerFiles, ServerTls, pem};

/// Writes a certificate for `localhost` that is its own authority.
fn self_signed(directory: &Path) -> ServerFiles {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let files = ServerFiles {
        certificate: directory.join("server.pem"),
        key: directory.join("server.key"),
        client_ca: None,
        require_client_certificate: false,
    };
    fs::write(&files.certificate, params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    files
}

fn sockets() -> (UnixStream, UnixStream) {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (one, other)
}

/// A read that may find nothing: both sides take turns in one thread.
fn poll_read(stream: &mut TlsStream<UnixStream>) -> Result<Vec<u8>, String> {
    let mut buf = [0; 100];
    match stream.read(&mut buf) {
        Ok(read) => Ok(buf[..read].to_vec()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

/// Completes the handshake and lets one byte pass in each direction.
fn greet(server: &mut TlsStream<UnixStream>, client: &mut TlsStream<UnixStream>) {
    while server.is_handshaking() || client.is_handshaking() {
        poll_read(client).unwrap();
        poll_read(server).unwrap();
    }
    client.write_all(b"?").unwrap();
    assert_eq!(poll_read(server).unwrap(), b"?");
    server.write_all(b"!").unwrap();
    assert_eq!(poll_read(client).unwrap(), b"!");
}

#[test]
fn sessions_are_resumed_until_a_reload() {
    let directory = tempfile::tempdir().unwrap();
    let files = self_signed(directory.path());
    let ca = Some(files.certificate.clone());
    let client = ClientTls::load(ClientFiles { ca, ..ClientFiles::default() }).unwrap();
    let server = ServerTls::load(files).unwrap();
    let kind = || {
        let (one, other) = sockets();
        let mut accepted = server.accept(one).unwrap();
        let mut connected = client.connect(other, "localhost").unwrap();
        greet(&mut accepted, &mut connected);
        connected.connection.handshake_kind().unwrap()
    };
    assert_eq!(kind(), HandshakeKind::Full);
    assert_eq!(kind(), HandshakeKind::Resumed);
    server.reload().unwrap();
    assert_eq!(kind(), HandshakeKind::Full);
    assert_eq!(kind(), HandshakeKind::Resumed);
    client.reload().unwrap();
    assert_eq!(kind(), HandshakeKind::Full);
}

fn older_client(ca: &Path, socket: UnixStream) -> TlsStream<UnixStream> {
    let configuration = ClientConfig::builder_with_provider(pem::provider())
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(pem::authorities(ca).unwrap())
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(configuration), name).unwrap();
    TlsStream::new(Connection::Client(connection), socket)
}

#[test]
fn a_client_of_tls_1_2_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let files = self_signed(directory.path());
    let (one, other) = sockets();
    let mut server = ServerTls::load(files.clone()).unwrap().accept(one).unwrap();
    greet(&mut server, &mut older_client(&files.certificate, other));
}

#[test]
fn a_client_of_tls_1_2_without_the_required_certificate_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = self_signed(directory.path());
    files.client_ca = Some(files.certificate.clone());
    files.require_client_certificate = true;
    let (one, other) = sockets();
    let mut server = ServerTls::load(files.clone()).unwrap().accept(one).unwrap();
    let mut client = older_client(&files.certificate, other);
    let by_server = loop {
        poll_read(&mut client).unwrap();
        if let Err(text) = poll_read(&mut server) {
            break text;
        }
    };
    assert_eq!(by_server, "TLS: client certificate required, none presented");
    let by_client = poll_read(&mut client).unwrap_err();
    assert!(by_client.contains("client certificate required"), "{by_client}");
}
