//! What the two processes say to each other.
//!
//! Invariant: the first message carries the sockets and the name of this protocol; a process of
//! another version that does not know it is refused before anything has happened.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};
use rustix::process::geteuid;

/// The name of the protocol; a digit with the number of sockets follows.
const NAME: &[u8] = b"heatsink handover 1, sockets: ";
const READY: u8 = b'R';
const DONE: u8 = b'D';
/// Without and with TLS.
const SOCKETS_MAX: usize = 2;

/// The listening sockets of a proxy: without TLS, with TLS.
pub(super) type Sockets = (TcpListener, Option<TcpListener>);

/// Refuses a peer that runs as another user.
pub(super) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = sockopt::socket_peercred(stream)?;
    if peer.uid == geteuid() {
        return Ok(());
    }
    let text = format!("process {} belongs to another user", peer.pid.as_raw_nonzero());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

pub(super) fn send_sockets(stream: &UnixStream, sockets: &Sockets) -> io::Result<()> {
    let mut descriptors = vec![sockets.0.as_fd()];
    descriptors.extend(sockets.1.as_ref().map(AsFd::as_fd));
    let text = [NAME, descriptors.len().to_string().as_bytes()].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no space for the sockets"));
    }
    let sent = sendmsg(stream, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == text.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// `None` if the other side closed instead.
pub(super) fn receive_sockets(stream: &UnixStream) -> io::Result<Option<Sockets>> {
    let mut text = [0; NAME.len() + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let buffer = &mut [IoSliceMut::new(&mut text)];
    let received = recvmsg(stream, buffer, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let count = text.strip_prefix(NAME).and_then(|count| char::from(*count.first()?).to_digit(10));
    if count.is_none_or(|count| count as usize != descriptors.len()) {
        let text = "it speaks another version of this protocol";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut listeners = descriptors.into_iter().map(listener);
    let Some(plain) = listeners.next() else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it sent no socket"));
    };
    Ok(Some((plain?, listeners.next().transpose()?)))
}

/// Only a socket that listens is one.
fn listener(descriptor: OwnedFd) -> io::Result<TcpListener> {
    if !sockopt::socket_acceptconn(&descriptor)? {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it sent a socket of another kind"));
    }
    let listener = TcpListener::from(descriptor);
    listener.local_addr()?;
    Ok(listener)
}

/// The new process: it serves.
pub(super) fn say_ready(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(&[READY])
}

/// The old process: waits for [`say_ready`].
pub(super) fn hear_ready(stream: &UnixStream) -> io::Result<()> {
    hear(stream, READY)
}

/// The old process: it does not accept any more.
pub(in super::super) fn confirm(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(&[DONE])
}

/// The new process: waits for [`confirm`].
pub(super) fn hear_done(stream: &UnixStream) -> io::Result<()> {
    hear(stream, DONE)
}

fn hear(mut stream: &UnixStream, expected: u8) -> io::Result<()> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    if byte == [expected] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("a pair of sockets")
    }

    fn listen() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").expect("a free port")
    }

    #[test]
    fn sockets_arrive_with_the_connections_that_wait() {
        for tls in [None, Some(listen())] {
            let (old, new) = pair();
            let sockets = (listen(), tls);
            let address = sockets.0.local_addr().expect("bound");
            let waiting = TcpStream::connect(address).expect("it listens");
            send_sockets(&old, &sockets).expect("sent");
            let (plain, tls) = receive_sockets(&new).expect("received").expect("not closed");
            assert_eq!(tls.is_some(), sockets.1.is_some());
            drop(sockets);
            let (_, peer) = plain.accept().expect("a connection");
            assert_eq!(peer, waiting.local_addr().expect("connected"));
        }
    }

    #[test]
    fn anything_but_listening_sockets_is_refused() {
        let (old, new) = pair();
        (&old).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n").expect("sent");
        assert_eq!(receive_sockets(&new).expect_err("no name").kind(), io::ErrorKind::InvalidData);
        let (old, new) = pair();
        let connected = TcpStream::connect(listen().local_addr().expect("bound")).expect("one");
        let disguised = TcpListener::from(OwnedFd::from(connected));
        send_sockets(&old, &(disguised, None)).expect("sent");
        let error = receive_sockets(&new).expect_err("not listening");
        assert_eq!(error.to_string(), "it sent a socket of another kind");
        let (old, new) = pair();
        drop(old);
        assert!(receive_sockets(&new).expect("an end").is_none());
    }

    #[test]
    fn a_process_of_the_same_user_is_a_good_peer() {
        check_peer(&pair().0).expect("it is this process");
    }
}
