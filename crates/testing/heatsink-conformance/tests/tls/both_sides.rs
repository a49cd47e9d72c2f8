//! Everything works over TLS: towards the server, towards clients, and both at once.

use heatsink_conformance::Heatsink;
use heatsink_testkit::{Certificates, ClientAuth, RawClient, RedisServer};
use heatsink_tls::ServerTls;

use crate::commands::all_work;
use crate::support::{
    Listening, NAME, listen_too, pong, server_files, showing, tls_addr, trusting, upstream,
};

#[test]
fn towards_the_server() {
    let certificates = Certificates::generate();
    let server = RedisServer::builder().tls(&certificates).start();
    let upstream = upstream(server.port(), trusting(certificates.ca()));
    let heatsink = Heatsink::before(upstream, |config| config.workers = 2);
    all_work(&|| heatsink.client());
}

#[test]
fn towards_clients() {
    let listening = Listening::new();
    all_work(&|| listening.client());
    // Beside it, without TLS, the same data.
    let mut plain = listening.heatsink.client();
    plain.command(&["SET", "k", "v"]);
    assert_eq!(listening.client().command(&["GET", "k"]).text(), "v");
}

#[test]
fn on_both_sides_with_certificates_on_both() {
    let certificates = Certificates::generate();
    let server =
        RedisServer::builder().tls(&certificates).tls_auth_clients(ClientAuth::Required).start();
    let mut files = server_files(certificates.server());
    files.client_ca = Some(certificates.ca().into());
    files.require_client_certificate = true;
    let tls = ServerTls::load(files).expect("valid files");
    let client_files = showing(certificates.ca(), certificates.client());
    let heatsink = Heatsink::before(upstream(server.port(), client_files), |config| {
        config.workers = 2;
        listen_too(config, tls);
    });
    let connect = || {
        let identity = Some(certificates.client());
        RawClient::connect_tls(tls_addr(&heatsink), certificates.ca(), identity, NAME)
    };
    all_work(&connect);
    // Lost connections are opened again, with the certificate.
    let mut client = connect();
    assert!(server.client().command(&["CLIENT", "KILL", "TYPE", "normal"]).integer() > 0);
    heatsink_testkit::eventually(std::time::Duration::from_secs(5), || {
        client.command(&["PING"]) == pong()
    });
}

#[test]
fn towards_a_server_that_speaks_the_older_version() {
    let certificates = Certificates::generate();
    let server = RedisServer::builder().tls(&certificates).arg("tls-protocols", "TLSv1.2").start();
    let upstream = upstream(server.port(), trusting(certificates.ca()));
    let heatsink = Heatsink::before(upstream, |_| {});
    all_work(&|| heatsink.client());
}
