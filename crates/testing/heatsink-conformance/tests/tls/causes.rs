//! What clients are told when the server cannot be trusted, or does not speak TLS, and that it
//! ends when the reason does.

use std::fs;
use std::path::Path;
use std::time::Duration;

use heatsink_conformance::Heatsink;
use heatsink_testkit::{Certificates, ClientAuth, RawClient, RedisServer, Reply, eventually};
use heatsink_tls::ClientTls;

use crate::support::{showing, trusting, upstream};

const SOON: Duration = Duration::from_secs(10);

/// Every kind of command is answered with one line that says `cause`.
#[track_caller]
fn is_told(heatsink: &Heatsink, port: u16, cause: &str) -> RawClient {
    let mut client = heatsink.client();
    let start = format!("ERR heatsink: upstream 127.0.0.1:{port} unavailable: ");
    for command in [&["GET", "a"][..], &["BLPOP", "l", "0"], &["SUBSCRIBE", "x"], &["SELECT", "1"]]
    {
        let error = client.command(command).error();
        let told = error.strip_prefix(&start).unwrap_or_else(|| panic!("{command:?}: {error}"));
        assert!(told.contains(cause), "{command:?}: {error}");
        assert!(told.len() < 200, "{command:?}: {error}");
    }
    client
}

#[track_caller]
fn is_served(mut client: RawClient) {
    eventually(SOON, || client.command(&["SET", "a", "1"]) == Reply::ok());
}

fn set(server: &RedisServer, settings: &[(&str, &Path)]) {
    let mut command = vec!["CONFIG".to_owned(), "SET".to_owned()];
    for (name, value) in settings {
        command.extend([(*name).to_owned(), value.to_string_lossy().into_owned()]);
    }
    assert_eq!(server.client().command(&command), Reply::ok());
}

#[test]
fn an_authority_that_is_not_trusted() {
    let certificates = Certificates::generate();
    let server = RedisServer::builder().tls(&certificates).start();
    let trusted = certificates.directory().join("trusted.crt");
    fs::copy(certificates.other_ca(), &trusted).expect("a copy");
    let mut upstream = upstream(server.port(), trusting(&trusted));
    let tls = ClientTls::load(trusting(&trusted)).expect("valid files");
    upstream.tls = Some(tls.clone());
    let heatsink = Heatsink::before(upstream, |_| {});
    let cause = "certificate not issued by a trusted authority";
    let client = is_told(&heatsink, server.port(), cause);
    fs::copy(certificates.ca(), &trusted).expect("a copy");
    tls.reload().expect("valid files");
    is_served(client);
}

#[test]
fn a_certificate_that_has_expired() {
    let certificates = Certificates::generate();
    let expired = certificates.expired_server();
    let server =
        RedisServer::builder().tls(&certificates).plain_port_too().tls_identity(expired).start();
    let heatsink =
        Heatsink::before(upstream(server.tls_port(), trusting(certificates.ca())), |_| {});
    let client = is_told(&heatsink, server.tls_port(), "certificate expired");
    let fresh = certificates.server();
    set(&server, &[("tls-cert-file", fresh.certificate()), ("tls-key-file", fresh.key())]);
    is_served(client);
}

#[test]
fn a_certificate_for_another_name() {
    let certificates = Certificates::generate();
    let server = RedisServer::builder().tls(&certificates).start();
    let mut files = trusting(certificates.ca());
    files.server_name = Some("redis.example".into());
    let heatsink = Heatsink::before(upstream(server.port(), files), |_| {});
    let cause = "certificate issued for another name: wanted redis.example";
    is_told(&heatsink, server.port(), cause);
}

#[test]
fn a_client_certificate_that_is_missing_or_a_strangers() {
    let certificates = Certificates::generate();
    let ca = certificates.ca();
    let cases = [
        (trusting(ca), "client certificate required"),
        (showing(ca, certificates.other_client()), "refused by the peer: certificate not"),
    ];
    for version in ["TLSv1.3", "TLSv1.2"] {
        for (files, cause) in cases.clone() {
            let server = RedisServer::builder()
                .tls(&certificates)
                .plain_port_too()
                .tls_auth_clients(ClientAuth::Required)
                .arg("tls-protocols", version)
                .start();
            let heatsink = Heatsink::before(upstream(server.tls_port(), files), |_| {});
            let client = is_told(&heatsink, server.tls_port(), cause);
            let set = ["CONFIG", "SET", "tls-auth-clients", "no"];
            assert_eq!(server.client().command(&set), Reply::ok());
            is_served(client);
        }
    }
}

#[test]
fn a_server_that_speaks_no_tls() {
    let certificates = Certificates::generate();
    let mut server = RedisServer::start();
    let port = server.port();
    let heatsink = Heatsink::before(upstream(port, trusting(certificates.ca())), |config| {
        config.live.timeouts.connect = Duration::from_millis(300);
    });
    // It waits for the rest of what it takes for an inline command.
    let client = is_told(&heatsink, port, "TLS");
    server.stop();
    let _server = RedisServer::builder().tls(&certificates).port(port).start();
    is_served(client);
}

#[test]
fn a_server_that_speaks_only_tls() {
    let certificates = Certificates::generate();
    let mut server = RedisServer::builder().tls(&certificates).start();
    let port = server.port();
    let heatsink = Heatsink::before_url(&format!("redis://127.0.0.1:{port}"), |_| {});
    let client = is_told(&heatsink, port, "TLS");
    server.stop();
    let _server = RedisServer::builder().port(port).start();
    is_served(client);
}
