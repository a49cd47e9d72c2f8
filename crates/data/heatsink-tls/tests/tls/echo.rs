//! Bytes arrive once and in order, whatever the sizes of buffers and pieces.

use std::io::{ErrorKind, Read, Write};

use heatsink_tls::UNSENT_LIMIT_BYTES;

use crate::authority::Authority;
use crate::pair::{Pair, sockets};

const SEED: u64 = 7;

fn echo(total_bytes: usize, buffer_bytes: Option<usize>) {
    let authority = Authority::new("echo");
    let mut pair =
        Pair::with_buffers(&authority.server(), &authority.client(), "localhost", buffer_bytes);
    let mut sent = fastrand::Rng::with_seed(SEED);
    let mut expected = fastrand::Rng::with_seed(SEED);
    let (mut made, mut checked) = (0, 0);
    pair.run(|server, client| {
        if server.outgoing.len() < 100_000 {
            server.outgoing.extend(server.incoming.drain(..));
        }
        while made < total_bytes && client.outgoing.len() < 100_000 {
            client.outgoing.push_back(sent.u8(..));
            made += 1;
        }
        for byte in client.incoming.drain(..) {
            assert_eq!(byte, expected.u8(..), "at {checked}");
            checked += 1;
        }
        assert!(server.end.is_none() && client.end.is_none(), "{:?} {:?}", server.end, client.end);
        checked >= total_bytes
    });
    assert_eq!(checked, total_bytes);

    pair.client.stream.close_notify();
    pair.run(|server, _| server.end.is_some());
    assert!(matches!(pair.server.end, Some(Ok(()))), "{:?}", pair.server.end);
    let late = pair.client.stream.write(b"late").unwrap_err();
    assert_eq!(late.kind(), ErrorKind::BrokenPipe);
}

#[test]
fn many_bytes_through_tiny_socket_buffers() {
    echo(16 << 20, Some(4096));
}

#[test]
fn many_bytes_through_ordinary_socket_buffers() {
    echo(64 << 20, None);
}

#[test]
fn a_peer_that_does_not_read_costs_a_bounded_buffer() {
    let authority = Authority::new("bounded");
    let mut pair =
        Pair::with_buffers(&authority.server(), &authority.client(), "localhost", Some(4096));
    assert_eq!(pair.exchange(), [Ok(()), Ok(())]);

    let piece = vec![b'x'; 1 << 20];
    let mut accepted = 0;
    let mut refusals = 0;
    while refusals < 100 {
        match pair.client.stream.write(&piece) {
            Ok(taken) => accepted += taken,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                refusals += 1;
            }
        }
    }
    assert!(pair.client.stream.wants_write());
    assert_eq!(pair.client.stream.flush().unwrap_err().kind(), ErrorKind::WouldBlock);
    // What both sockets hold is a small multiple of what they were asked for.
    assert!(accepted <= UNSENT_LIMIT_BYTES + 64 * 1024, "{accepted}");

    let mut received = 0;
    pair.run(|server, _| {
        received += server.incoming.drain(..).len();
        received >= accepted
    });
    assert_eq!(received, accepted);
    assert!(!pair.client.stream.wants_write());
}

#[test]
fn nothing_is_accepted_before_the_handshake_is_complete() {
    let authority = Authority::new("early");
    let (_server, client) = sockets(None);
    let mut client = authority.client().connect(client, "localhost").unwrap();
    assert!(client.wants_write(), "the client speaks first");
    assert_eq!(client.write(b"early").unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!client.wants_write(), "and has spoken");
    assert!(client.is_handshaking());
    assert_eq!(client.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn the_end_that_comes_with_the_last_bytes_is_not_lost() {
    let authority = Authority::new("end");
    let mut pair = Pair::new(&authority.server(), &authority.client(), "localhost");
    assert_eq!(pair.exchange(), [Ok(()), Ok(())]);

    // No close_notify: the way in which Redis clients leave.
    pair.client.stream.write_all(b"last words").unwrap();
    pair.client.stream.flush().unwrap();
    pair.client.stream.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
    pair.run(|server, _| server.end.is_some());
    assert_eq!(pair.server.incoming, b"last words");
    assert!(matches!(pair.server.end, Some(Ok(()))), "{:?}", pair.server.end);
    assert!(pair.server.stream.has_ended());
    assert_eq!(pair.server.stream.read(&mut [0; 10]).unwrap(), 0, "and stays ended");
}
