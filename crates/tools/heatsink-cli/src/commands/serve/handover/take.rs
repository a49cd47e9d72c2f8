//! The new side: asks whoever serves for its sockets.
//!
//! Called by: `serve`, before it binds anything.
//! Bound: [`PATIENCE`] for the sockets, and again for the confirmation.
//! Invariant: a socket is used only for the address that it is bound to.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use heatsink_proxy::config::Listen;

use super::wire;

const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts, if the one that served has just been succeeded by another.
const PAUSE: Duration = Duration::from_millis(20);

/// The process that serves, and what it gave.
#[derive(Debug)]
pub(in super::super) struct Predecessor {
    stream: UnixStream,
    plain: Option<TcpListener>,
    tls: Option<TcpListener>,
}

/// Asks at `path`; `None` if nobody serves there.
pub(in super::super) fn take(path: &Path) -> io::Result<Option<Predecessor>> {
    let until = Instant::now() + PATIENCE;
    loop {
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(error) if is_nobody(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        wire::check_peer(&stream)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        match wire::receive_sockets(&stream) {
            Ok(Some((plain, tls))) => {
                return Ok(Some(Predecessor { stream, plain: Some(plain), tls }));
            }
            // It ends, or has just been succeeded: another answer will come from the path.
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(silent()),
            Err(error) => return Err(error),
        }
        if Instant::now() >= until {
            return Err(silent());
        }
        thread::sleep(PAUSE);
    }
}

fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the process that listens there does not answer")
}

impl Predecessor {
    /// How to listen on `address` without TLS.
    pub(in super::super) fn plain(&mut self, address: SocketAddr) -> Listen {
        listen(&mut self.plain, address)
    }

    /// How to listen on `address` with TLS.
    pub(in super::super) fn tls(&mut self, address: SocketAddr) -> Listen {
        listen(&mut self.tls, address)
    }

    /// Says that this process serves, and waits until the other does not accept any more.
    pub(in super::super) fn relieve(self) -> io::Result<()> {
        wire::say_ready(&self.stream)?;
        wire::hear_done(&self.stream)
    }
}

/// The socket if it is the one that is wanted.
fn listen(socket: &mut Option<TcpListener>, wanted: SocketAddr) -> Listen {
    match socket.take() {
        Some(socket) if socket.local_addr().is_ok_and(|bound| is_same(bound, wanted)) => {
            Listen::Socket(socket)
        }
        _ => Listen::Address(wanted),
    }
}

/// Port 0 asks for any, and the one that clients know is best.
fn is_same(bound: SocketAddr, wanted: SocketAddr) -> bool {
    bound.ip() == wanted.ip() && (wanted.port() == 0 || bound.port() == wanted.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_not_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("h.sock");
        assert!(take(&path).expect("nobody").is_none());
        // A process that was killed leaves its socket behind.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
        assert!(path.exists() && take(&path).expect("nobody").is_none());
    }

    #[test]
    fn a_socket_is_used_for_its_own_address_only() {
        let bound: SocketAddr = "127.0.0.1:7000".parse().expect("valid");
        for (wanted, same) in [
            ("127.0.0.1:7000", true),
            ("127.0.0.1:0", true),
            ("127.0.0.1:7001", false),
            ("0.0.0.0:7000", false),
            ("[::1]:0", false),
        ] {
            assert_eq!(is_same(bound, wanted.parse().expect("valid")), same, "{wanted}");
        }
    }
}
