//! Load as fast as it is answered: each client has a burst of requests under way, and sends the next
//! one when all of it is answered.
//!
//! Called by: `harm`.
//! Bound: one thread, for the time that was asked for; one burst of a client is out at a time.
//! Invariant: a reply that is an error ends the run; what is out at the end is answered and not counted.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use heatsink_load::pipe::Pipe;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without any reply after which the peer is given up.
const PATIENCE: Duration = Duration::from_secs(10);
const REPLY_BYTES_MAX: usize = 16 << 20;

/// Appends a request.
pub(crate) type Next<'a> = dyn FnMut(&mut Vec<u8>) + 'a;

struct Client {
    pipe: Pipe,
    /// Replies that are to come.
    out: usize,
}

/// Connections to one peer.
pub(crate) struct Flood {
    poll: Poll,
    clients: Vec<Client>,
    /// Requests in a burst.
    depth: usize,
}

impl Flood {
    pub(crate) fn connect(addr: SocketAddr, clients: usize, depth: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let connect = |place| {
            let stream = std::net::TcpStream::connect_timeout(&addr, CONNECT_TIMEOUT)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(place), interest)?;
            Ok(Client { pipe: Pipe::over(stream), out: 0 })
        };
        let clients = (0..clients).map(connect).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { poll, clients, depth })
    }

    /// Sends what `next` appends for so long; how many requests were answered.
    pub(crate) fn play(&mut self, length: Duration, next: &mut Next<'_>) -> io::Result<u64> {
        let Self { poll, clients, depth } = self;
        let end = Instant::now() + length;
        let mut events = Events::with_capacity(1024);
        let mut answered = 0;
        for client in &mut *clients {
            client.send(*depth, next)?;
        }
        let mut out = clients.len();
        while out > 0 {
            match poll.poll(&mut events, Some(PATIENCE)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            if events.is_empty() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let goes_on = Instant::now() < end;
            for event in &events {
                let client = &mut clients[event.token().0];
                if client.out == 0 {
                    continue;
                }
                client.pipe.write()?;
                let count = client.receive()?;
                answered += if goes_on { count } else { 0 };
                if client.out == 0 && goes_on {
                    client.send(*depth, next)?;
                } else if client.out == 0 {
                    out -= 1;
                }
            }
        }
        Ok(answered)
    }
}

impl Client {
    fn send(&mut self, depth: usize, next: &mut Next<'_>) -> io::Result<()> {
        (0..depth).for_each(|_| next(self.pipe.outbox()));
        self.out = depth;
        self.pipe.write()
    }

    /// Takes the replies that have come, and counts them.
    fn receive(&mut self) -> io::Result<u64> {
        let Self { pipe, out } = self;
        let before = *out;
        pipe.read(REPLY_BYTES_MAX, |reply| {
            if reply.starts_with(b"-") {
                return Err(io::Error::other(String::from_utf8_lossy(reply).trim().to_owned()));
            }
            *out = out
                .checked_sub(1)
                .ok_or_else(|| io::Error::other("a reply that nobody asked for"))?;
            Ok(())
        })?;
        Ok((before - *out) as u64)
    }
}

#[cfg(test)]
mod tests {
    use heatsink_testkit::{RedisServer, encode};

    use super::*;

    #[test]
    fn all_that_is_sent_is_answered_and_nothing_is_counted_that_was_not_sent() {
        let redis = RedisServer::start();
        let mut flood = Flood::connect(redis.addr(), 5, 4).expect("connections");
        let mut made = 0;
        for _ in 0..2 {
            let before = made;
            let mut next = |to: &mut Vec<u8>| {
                made += 1;
                to.extend(encode(&["INCR", "n"]));
            };
            let answered = flood.play(Duration::from_millis(50), &mut next).expect("answers");
            assert!(answered > 0 && answered <= made - before, "{answered} of {made}");
            let counted: u64 =
                redis.client().command(&["GET", "n"]).text().parse().expect("a number");
            assert_eq!(counted, made, "nothing is out any more");
        }
    }

    #[test]
    fn an_error_ends_it() {
        let redis = RedisServer::start();
        let mut flood = Flood::connect(redis.addr(), 2, 1).expect("connections");
        let mut next = |to: &mut Vec<u8>| to.extend(encode(&["NOSUCH"]));
        let error = flood.play(Duration::from_secs(5), &mut next).expect_err("refused");
        assert!(error.to_string().contains("unknown command"), "{error}");
    }
}
