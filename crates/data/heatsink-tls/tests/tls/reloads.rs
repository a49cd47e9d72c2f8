//! Certificates are replaced while connections are open.

use std::fs;

use heatsink_tls::ServerTls;

use crate::authority::{Authority, server_files};
use crate::pair::Pair;

#[test]
fn a_reload_serves_new_connections_and_keeps_old_ones() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let issued = old.issue("server", &["localhost"]);
    let server = ServerTls::load(server_files(&issued, None)).unwrap();
    let client = old.client();
    let mut early = Pair::new(&server, &client, "localhost");
    assert_eq!(early.exchange(), [Ok(()), Ok(())]);

    let replacement = new.issue("server", &["localhost"]);
    fs::copy(&replacement.certificate, &issued.certificate).unwrap();
    fs::copy(&replacement.key, &issued.key).unwrap();
    let clone = server.clone();
    clone.reload().unwrap();

    assert_eq!(early.exchange(), [Ok(()), Ok(())]);
    let mut late = Pair::new(&server, &new.client(), "localhost");
    assert_eq!(late.exchange(), [Ok(()), Ok(())]);
    // Not even by the session that the early connection left behind.
    let [_, by_client] = Pair::new(&server, &client, "localhost").exchange();
    assert!(by_client.unwrap_err().contains("not issued by a trusted authority"));

    fs::copy(new.ca(), old.ca()).unwrap();
    client.reload().unwrap();
    assert_eq!(Pair::new(&server, &client, "localhost").exchange(), [Ok(()), Ok(())]);
}

#[test]
fn a_reload_of_invalid_files_changes_nothing() {
    let authority = Authority::new("kept");
    let issued = authority.issue("server", &["localhost"]);
    let server = ServerTls::load(server_files(&issued, None)).unwrap();
    let client = authority.client();

    let other = authority.issue("other", &["localhost"]);
    fs::copy(&other.key, &issued.key).unwrap();
    let error = server.reload().unwrap_err().to_string();
    assert!(error.contains("server.key: the key does not belong to the certificate"), "{error}");
    assert_eq!(Pair::new(&server, &client, "localhost").exchange(), [Ok(()), Ok(())]);

    fs::write(authority.ca(), "").unwrap();
    let error = client.reload().unwrap_err().to_string();
    assert!(error.ends_with("ca.pem: no certificate in it"), "{error}");
    assert_eq!(Pair::new(&server, &client, "localhost").exchange(), [Ok(()), Ok(())]);
}

#[test]
fn a_client_that_a_removed_authority_vouched_for_does_not_resume() {
    let (ours, former) = (Authority::new("ours"), Authority::new("former"));
    let both = ours.path("clients.pem");
    let text = fs::read_to_string(ours.ca()).unwrap() + &fs::read_to_string(former.ca()).unwrap();
    fs::write(&both, text).unwrap();
    let issued = ours.issue("server", &["localhost"]);
    let server = ServerTls::load(server_files(&issued, Some(&both))).unwrap();
    let client = ours.client_with(&former.issue("client", &["client"]));
    assert_eq!(Pair::new(&server, &client, "localhost").exchange(), [Ok(()), Ok(())]);

    fs::copy(ours.ca(), &both).unwrap();
    server.reload().unwrap();
    let [by_server, _] = Pair::new(&server, &client, "localhost").exchange();
    assert!(by_server.unwrap_err().contains("not issued by a trusted authority"));
}
