//! TLS as configured: listener, upstream, and certificates that are renewed.

use heatsink_testkit::{Certificates, ClientAuth, RawClient, RedisServer, Reply, eventually};

use crate::support::{Finished, PATIENCE, Place, start};

/// Where clients connect with TLS, from the ready line.
fn tls_address(ready: &str) -> &str {
    let (_, rest) = ready.split_once(" or rediss://").expect("an address");
    rest.split_once(' ').expect("an address").0
}

#[test]
fn both_sides_are_encrypted_and_renewed_certificates_are_used() {
    let certificates = Certificates::generate();
    let server =
        RedisServer::builder().tls(&certificates).tls_auth_clients(ClientAuth::Required).start();
    let (identity, client) = (certificates.server(), certificates.client());
    let place = Place::with_file(&format!(
        "log = \"info\"\nlisten = \"127.0.0.1:0\"\nupstream = \"rediss://{}\"\n\
         [tls]\nlisten = \"127.0.0.1:0\"\ncertificate = {:?}\nkey = {:?}\n\
         client_ca = {ca:?}\nrequire_client_certificate = true\n\
         [upstream_tls]\nca = {ca:?}\ncertificate = {:?}\nkey = {:?}\n",
        server.tls_addr(),
        identity.certificate(),
        identity.key(),
        client.certificate(),
        client.key(),
        ca = certificates.ca(),
    ));
    let (process, ready) = start(place.heatsink(&["serve", "--config", "heatsink.toml"]));
    let words = format!("(upstream {} with TLS, ", server.tls_addr());
    assert!(ready.contains(&words), "{ready}");
    let connect = || {
        let address = tls_address(&ready);
        RawClient::connect_tls(address, certificates.ca(), Some(client), "localhost")
    };
    let mut first = connect();
    assert_eq!(first.command(&["SET", "k", "v"]), Reply::ok());
    let old = identity.certificate_der();
    assert_eq!(first.peer_certificate(), Some(old.clone()));
    // One without a certificate of its own is not let in.
    let refused =
        RawClient::try_connect_tls(tls_address(&ready), certificates.ca(), None, "localhost")
            .and_then(|mut client| client.try_command(&["PING"]));
    assert!(refused.is_err(), "{refused:?}");

    certificates.renew_server();
    process.wait_for_line("configuration reloaded: certificates of tls", PATIENCE);
    let new = identity.certificate_der();
    assert_ne!(old, new);
    eventually(PATIENCE, || connect().peer_certificate() == Some(new.clone()));
    assert_eq!(first.command(&["GET", "k"]), Reply::bulk("v"));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let certificates = Certificates::generate();
    let place = Place::empty();
    let (certificate, key) = (certificates.server().certificate(), certificates.server().key());
    let other_key = certificates.client().key();
    let shown = |path: &std::path::Path| path.display().to_string();
    for (certificate, key, code, text) in [
        (certificate, "missing.key".as_ref(), 1, "tls.key: missing.key: no such file".to_owned()),
        (key, key, 3, format!("tls.certificate: {}: no certificate in it", shown(key))),
        (certificate, other_key, 3, format!("{}: ", shown(other_key))),
    ] {
        place.replace(
            "heatsink.toml",
            &format!(
                "[tls]\nlisten = \"127.0.0.1:0\"\ncertificate = {certificate:?}\nkey = {key:?}\n"
            ),
        );
        for command in ["check", "serve"] {
            let file = if command == "check" {
                &["heatsink.toml"][..]
            } else {
                &["--config", "heatsink.toml"]
            };
            let run = Finished::of(&mut place.heatsink(&[command]).args(file).spawn());
            assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""), "{run:?}");
            assert!(run.stderr.contains(&text), "{text}\n{run:?}");
            assert!(run.stderr.contains("heatsink.toml:"), "{run:?}");
        }
    }
}

#[test]
fn both_listeners_are_handed_over() {
    let certificates = Certificates::generate();
    let server = RedisServer::start();
    let place = Place::with_file(&format!(
        "handover = \"h.sock\"\nlisten = \"127.0.0.1:0\"\nupstream = \"{}\"\n\
         [tls]\nlisten = \"127.0.0.1:0\"\ncertificate = {:?}\nkey = {:?}\n",
        server.url(),
        certificates.server().certificate(),
        certificates.server().key(),
    ));
    let serve = || start(place.heatsink(&["serve", "--config", "heatsink.toml"]));
    let (mut old, ready) = serve();
    let connect =
        || RawClient::connect_tls(tls_address(&ready), certificates.ca(), None, "localhost");
    let mut before = connect();
    assert_eq!(before.command(&["PING"]), Reply::Simple("PONG".into()));
    let (_new, same) = serve();
    let clients = |ready: &str| ready.split_once(", admin").expect("both").0.to_owned();
    assert_eq!(clients(&ready), clients(&same));
    let mut after = connect();
    for client in [&mut before, &mut after] {
        assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".into()));
    }
    drop(before);
    assert_eq!(Finished::of(&mut old).code, Some(0));
    assert_eq!(after.command(&["PING"]), Reply::Simple("PONG".into()));
}
