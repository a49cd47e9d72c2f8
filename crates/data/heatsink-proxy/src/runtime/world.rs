//! What a worker needs of the operating system: events, sockets, sleep and time.
//!
//! Called by: the worker only; no other part of the data plane opens a socket or waits.
//! This is the seam at which a test takes the place of the operating system: see
//! [`crate::runtime::scripted`].

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use heatsink_upstream::Connection;
use heatsink_upstream::dialer::Dialer;
use heatsink_upstream::link::{Link, Waiter};
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};

use crate::runtime::clock::Clock;
#[cfg(test)]
use crate::runtime::scripted::Network;
use crate::runtime::socket::Socket;

/// Events that are taken from the operating system at once.
const EVENTS: usize = 1024;
const INTEREST: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// What an event is for: a client or a link, its slot and its generation. Within one batch of events a
/// slot can be closed and filled anew, and a later event of the batch is still for the old one.
pub(crate) fn token(slot: usize, generation: u32, is_link: bool) -> Token {
    Token((generation as usize) << 32 | slot << 1 | usize::from(is_link))
}

pub(crate) fn link_token(slot: usize, generation: u32) -> Token {
    token(slot, generation, true)
}

/// What has happened to a socket.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, as the system tells them")]
pub(crate) struct Ready {
    pub(crate) token: Token,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) read_closed: bool,
    pub(crate) write_closed: bool,
    pub(crate) error: bool,
}

impl From<&Event> for Ready {
    #[inline]
    fn from(event: &Event) -> Self {
        Self {
            token: event.token(),
            readable: event.is_readable(),
            writable: event.is_writable(),
            read_closed: event.is_read_closed(),
            write_closed: event.is_write_closed(),
            error: event.is_error(),
        }
    }
}

/// How a worker lets others run before it waits for events.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rest {
    Sleep(Duration),
    Yield,
}

/// The operating system, or what a test puts in its place.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) clock: Clock,
    sockets: Sockets,
}

#[derive(Debug)]
enum Sockets {
    System {
        poll: Poll,
        events: Events,
    },
    #[cfg(test)]
    Scripted(Network),
}

impl World {
    pub(crate) fn system(poll: Poll) -> Self {
        let events = Events::with_capacity(EVENTS);
        Self { clock: Clock::System, sockets: Sockets::System { poll, events } }
    }

    #[cfg(test)]
    pub(crate) fn scripted(clock: Clock, network: Network) -> Self {
        Self { clock, sockets: Sockets::Scripted(network) }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Waits for events, so long at most; in `ready` they replace what was there.
    pub(crate) fn wait(&mut self, ready: &mut Vec<Ready>, patience: Duration) -> io::Result<()> {
        ready.clear();
        match &mut self.sockets {
            Sockets::System { poll, events } => {
                match poll.poll(events, Some(patience)) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
                    waited => waited?,
                }
                ready.extend(events.iter().map(Ready::from));
            }
            #[cfg(test)]
            Sockets::Scripted(network) => network.signs(ready),
        }
        Ok(())
    }

    pub(crate) fn rest(&self, rest: Rest) {
        match (&self.sockets, rest) {
            (Sockets::System { .. }, Rest::Sleep(time)) => thread::sleep(time),
            (Sockets::System { .. }, Rest::Yield) => thread::yield_now(),
            #[cfg(test)]
            (Sockets::Scripted(_), _) => {}
        }
    }

    /// From now on events tell what happens to a client's socket.
    pub(crate) fn add_client(&mut self, socket: &mut Socket, token: Token) -> io::Result<()> {
        match &self.sockets {
            Sockets::System { poll, .. } => poll.registry().register(socket, token, INTEREST),
            #[cfg(test)]
            Sockets::Scripted(network) => {
                network.watch_client(socket, token);
                Ok(())
            }
        }
    }

    pub(crate) fn remove_client(&mut self, socket: &mut Socket) {
        match &self.sockets {
            Sockets::System { poll, .. } => drop(poll.registry().deregister(socket)),
            #[cfg(test)]
            Sockets::Scripted(_) => {}
        }
    }

    /// Begins to connect to a server; events for `token` tell how it goes on.
    pub(crate) fn connect(&mut self, dialer: &Dialer, token: Token) -> io::Result<Connection> {
        match &self.sockets {
            Sockets::System { poll, .. } => {
                let mut connection = dialer.open()?;
                poll.registry().register(&mut connection, token, INTEREST)?;
                Ok(connection)
            }
            #[cfg(test)]
            Sockets::Scripted(network) => network.connect(&dialer.endpoint(), token),
        }
    }

    pub(crate) fn remove_link<W: Waiter>(&mut self, link: &mut Link<W>) {
        match &self.sockets {
            Sockets::System { poll, .. } => drop(poll.registry().deregister(link.source())),
            #[cfg(test)]
            Sockets::Scripted(_) => {}
        }
    }
}
