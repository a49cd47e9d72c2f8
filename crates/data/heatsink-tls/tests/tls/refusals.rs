//! Handshakes that must fail, and what both sides say about it.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use heatsink_tls::{ClientFiles, ClientTls, ServerTls, TlsError, TlsStream};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::authority::{Authority, server_files};
use crate::pair::{Pair, sockets};

fn assert_refused(pair: &mut Pair, by_server: &str, by_client: &str) {
    let [server, client] = pair.exchange().map(|outcome| outcome.expect_err("refused"));
    assert!(server.contains(by_server), "server: {server}");
    assert!(client.contains(by_client), "client: {client}");
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let mut pair = Pair::new(&theirs.server(), &ours.client(), "localhost");
    assert_refused(
        &mut pair,
        "refused by the peer: certificate not issued by an authority it trusts",
        "certificate not issued by a trusted authority",
    );
}

#[test]
fn an_expired_certificate_is_refused() {
    let authority = Authority::new("expired");
    let issued = authority.issue_until("server", &["localhost"], 2002);
    let server = ServerTls::load(server_files(&issued, None)).unwrap();
    let mut pair = Pair::new(&server, &authority.client(), "localhost");
    assert_refused(
        &mut pair,
        "refused by the peer: certificate expired",
        "TLS: certificate expired",
    );
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new("names");
    let mut pair = Pair::new(&authority.server(), &authority.client(), "redis.internal");
    assert_refused(
        &mut pair,
        "refused by the peer",
        "issued for another name: wanted redis.internal",
    );
    let mut pair = Pair::new(&authority.server(), &authority.client(), "127.0.0.2");
    assert_refused(&mut pair, "refused by the peer", "issued for another name: wanted 127.0.0.2");
}

#[test]
fn names_addresses_and_an_override_are_verified() {
    let authority = Authority::new("names");
    for host in ["localhost", "127.0.0.1"] {
        let mut pair = Pair::new(&authority.server(), &authority.client(), host);
        assert_eq!(pair.exchange(), [Ok(()), Ok(())], "{host}");
    }
    let client = ClientTls::load(ClientFiles {
        ca: Some(authority.ca()),
        server_name: Some("localhost".into()),
        ..ClientFiles::default()
    })
    .unwrap();
    let mut pair = Pair::new(&authority.server(), &client, "redis.internal");
    assert_eq!(pair.exchange(), [Ok(()), Ok(())]);

    let (_server, socket) = sockets(None);
    let error = authority.client().connect(socket, "no host").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn an_ipv6_address_is_verified_with_and_without_brackets() {
    let authority = Authority::new("ipv6");
    let issued = authority.issue("server", &["::1"]);
    let server = ServerTls::load(server_files(&issued, None)).unwrap();
    for host in ["::1", "[::1]"] {
        let mut pair = Pair::new(&server, &authority.client(), host);
        assert_eq!(pair.exchange(), [Ok(()), Ok(())], "{host}");
    }
}

#[test]
fn a_client_without_the_required_certificate_is_refused() {
    let authority = Authority::new("mutual");
    let issued = authority.issue("server", &["localhost"]);
    let server = ServerTls::load(server_files(&issued, Some(&authority.ca()))).unwrap();
    let mut pair = Pair::new(&server, &authority.client(), "localhost");
    assert_refused(
        &mut pair,
        "client certificate required, none presented",
        "refused by the peer: client certificate required",
    );

    let client = authority.client_with(&authority.issue("client", &["client"]));
    assert_eq!(Pair::new(&server, &client, "localhost").exchange(), [Ok(()), Ok(())]);
}

#[test]
fn a_client_certificate_must_be_current_and_of_the_right_authority() {
    let (authority, stranger) = (Authority::new("mutual"), Authority::new("stranger"));
    let issued = authority.issue("server", &["localhost"]);
    let server = ServerTls::load(server_files(&issued, Some(&authority.ca()))).unwrap();

    let client = authority.client_with(&stranger.issue("client", &["client"]));
    let mut pair = Pair::new(&server, &client, "localhost");
    assert_refused(
        &mut pair,
        "not issued by a trusted authority",
        "refused by the peer: certificate",
    );

    let client = authority.client_with(&authority.issue_until("client", &["client"], 2002));
    let mut pair = Pair::new(&server, &client, "localhost");
    assert_refused(&mut pair, "certificate expired", "refused by the peer: certificate expired");
}

#[test]
fn an_optional_client_certificate_is_optional() {
    let authority = Authority::new("optional");
    let issued = authority.issue("server", &["localhost"]);
    let mut files = server_files(&issued, Some(&authority.ca()));
    files.require_client_certificate = false;
    let server = ServerTls::load(files).unwrap();
    let bare = Pair::new(&server, &authority.client(), "localhost").exchange();
    assert_eq!(bare, [Ok(()), Ok(())]);

    let stranger = Authority::new("stranger");
    let client = authority.client_with(&stranger.issue("client", &["client"]));
    let mut pair = Pair::new(&server, &client, "localhost");
    assert_refused(&mut pair, "not issued by a trusted authority", "refused by the peer");
}

/// Reads until something other than `WouldBlock` comes.
fn outcome(stream: &mut TlsStream<TcpStream>) -> std::io::Result<usize> {
    let mut poll = Poll::new().unwrap();
    poll.registry().register(stream.get_mut(), Token(0), Interest::READABLE).unwrap();
    let mut events = Events::with_capacity(1);
    loop {
        match stream.read(&mut [0; 100]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => return other,
        }
        poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
        assert!(!events.is_empty(), "nothing came");
    }
}

#[test]
fn plain_text_is_answered_with_an_alert() {
    let authority = Authority::new("garbage");
    for garbage in [&b"*1\r\n$4\r\nPING\r\n"[..], b"PING\r\n", &[0; 4000], &[0xff; 4000]] {
        let (server, mut client) = sockets(None);
        let mut server = authority.server().accept(server).unwrap();
        client.write_all(garbage).unwrap();
        let error = outcome(&mut server).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("the peer does not speak TLS"), "{error}");
        assert!(error.get_ref().unwrap().is::<TlsError>());
        let again = server.read(&mut [0; 10]).unwrap_err().to_string();
        assert_eq!(again, error.to_string(), "a failed stream stays failed");
        assert!(server.write(b"x").is_err());

        server.get_ref().shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let mut poll = Poll::new().unwrap();
        poll.registry().register(&mut client, Token(0), Interest::READABLE).unwrap();
        let mut events = Events::with_capacity(1);
        while let Err(error) = client.read_to_end(&mut answer) {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            poll.poll(&mut events, None).unwrap();
        }
        assert_eq!(answer.first(), Some(&0x15), "an alert record");
    }
}

#[test]
fn a_server_that_answers_in_plain_text_is_recognised() {
    let authority = Authority::new("plain");
    let (mut server, client) = sockets(None);
    let mut client = authority.client().connect(client, "localhost").unwrap();
    server.write_all(b"-ERR unknown command\r\n").unwrap();
    let error = outcome(&mut client).unwrap_err();
    assert_eq!(error.to_string(), "TLS: the peer does not speak TLS");
}

#[test]
fn random_bytes_never_get_through() {
    let authority = Authority::new("random");
    let server = authority.server();
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..300 {
        let (accepted, mut client) = sockets(None);
        let mut stream = server.accept(accepted).unwrap();
        // Half of them begin like a handshake record.
        let mut bytes: Vec<u8> = (0..random.usize(1..3000)).map(|_| random.u8(..)).collect();
        if random.bool() && bytes.len() > 3 {
            bytes[..3].copy_from_slice(&[0x16, 0x03, 0x01]);
        }
        client.write_all(&bytes).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        outcome(&mut stream).expect_err("neither bytes nor an orderly end");
    }
}

#[test]
fn an_end_within_the_handshake_is_an_error_but_a_silent_probe_is_not() {
    let authority = Authority::new("eof");

    let (server, client) = sockets(None);
    let mut server = authority.server().accept(server).unwrap();
    drop(client);
    assert_eq!(outcome(&mut server).unwrap(), 0);

    // The first half of a real first message.
    let (mut tap, client) = sockets(None);
    authority.client().connect(client, "localhost").unwrap().flush().unwrap();
    let mut hello = vec![0; 4096];
    let len = tap.read(&mut hello).unwrap();
    let (server, mut client) = sockets(None);
    let mut server = authority.server().accept(server).unwrap();
    client.write_all(&hello[..len / 2]).unwrap();
    drop(client);
    let error = outcome(&mut server).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("during the handshake"), "{error}");

    let (server, client) = sockets(None);
    let mut client = authority.client().connect(client, "localhost").unwrap();
    drop(server);
    let error = outcome(&mut client).unwrap_err();
    assert!(error.to_string().contains("during the handshake"), "{error}");
}
