//! Files that cannot be used: the error names the file and what is wrong with it.

use std::fs;

use heatsink_tls::{ClientFiles, ClientTls, ServerFiles, ServerTls};

use crate::authority::{Authority, server_files};

fn server_error(files: ServerFiles) -> String {
    ServerTls::load(files).unwrap_err().to_string()
}

fn client_error(files: ClientFiles) -> String {
    ClientTls::load(files).unwrap_err().to_string()
}

#[test]
fn missing_files_are_named() {
    let authority = Authority::new("missing");
    let good = server_files(&authority.issue("server", &["localhost"]), Some(&authority.ca()));
    let nowhere = authority.path("nowhere.pem");
    let expected = format!("{}: no such file", nowhere.display());
    let broken = [
        ServerFiles { certificate: nowhere.clone(), ..good.clone() },
        ServerFiles { key: nowhere.clone(), ..good.clone() },
        ServerFiles { client_ca: Some(nowhere.clone()), ..good.clone() },
    ];
    for files in broken {
        assert_eq!(server_error(files), expected);
    }
    assert_eq!(client_error(ClientFiles { ca: Some(nowhere), ..ClientFiles::default() }), expected);
    ServerTls::load(good).unwrap();
}

#[test]
fn files_without_what_they_should_hold_are_named() {
    let authority = Authority::new("swapped");
    let good = server_files(&authority.issue("server", &["localhost"]), None);

    let swapped = ServerFiles { certificate: good.key.clone(), ..good.clone() };
    assert!(server_error(swapped).ends_with("server.key: no certificate in it"));
    let swapped = ServerFiles { key: good.certificate.clone(), ..good.clone() };
    assert!(server_error(swapped).ends_with("server.pem: no private key in it"));

    let key = fs::read_to_string(&good.key).unwrap();
    fs::write(&good.key, &key[..key.len() / 2]).unwrap();
    let error = server_error(good.clone());
    assert!(error.ends_with("server.key: not valid PEM: a section does not end"), "{error}");
    fs::write(&good.key, key).unwrap();

    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(&good.certificate, garbage).unwrap();
    let error = server_error(good);
    assert!(error.contains("server.pem: certificate not usable: "), "{error}");
}

#[test]
fn settings_that_need_each_other_are_named() {
    let authority = Authority::new("halves");
    let issued = authority.issue("client", &["client"]);
    let ca = Some(authority.ca());

    let half = ClientFiles {
        ca: ca.clone(),
        certificate: Some(issued.certificate.clone()),
        ..ClientFiles::default()
    };
    assert!(client_error(half).contains("client.pem: a client certificate needs its key"));
    let half =
        ClientFiles { ca: ca.clone(), key: Some(issued.key.clone()), ..ClientFiles::default() };
    assert!(client_error(half).contains("client.key: a key needs its client certificate"));
    let name = ClientFiles { ca, server_name: Some("no name".into()), ..ClientFiles::default() };
    assert_eq!(client_error(name), "no name: neither a host name nor an address");

    let mut files = server_files(&issued, None);
    files.require_client_certificate = true;
    assert!(server_error(files).contains("no client_ca is set"));
}
