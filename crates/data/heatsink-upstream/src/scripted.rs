//! Connections in memory, for an event loop that runs without sockets.
//!
//! Called by: the proxy's tests, which give a worker one end of each connection and play the other.
//! Behaves like a non-blocking socket: an empty one would block, a closed one ends behind what was
//! sent before, and one that is full takes a part, or nothing. What a socket's owner is told of by
//! events is told by a [`Watch`].
//! Bound: [`End::limit`] bytes are held in each direction; without it, all.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    wire: Wire,
}

/// The connection, as one of its ends sees it.
#[derive(Clone, Debug)]
struct Wire {
    directions: Arc<Mutex<[Direction; 2]>>,
    /// The direction that is read from at this end; the other one is written to.
    reads: usize,
}

/// What flows one way.
#[derive(Debug)]
struct Direction {
    bytes: VecDeque<u8>,
    /// How many bytes are held at most.
    most: usize,
    /// Nothing more is written.
    is_ended: bool,
    /// Nobody reads any more.
    is_unread: bool,
    /// Counts what a reader is woken for: bytes, and the end.
    arrivals: u64,
    /// Counts what a writer is woken for: room, and that nobody reads.
    departures: u64,
}

impl Default for Direction {
    fn default() -> Self {
        Self {
            bytes: VecDeque::new(),
            most: usize::MAX,
            is_ended: false,
            is_unread: false,
            arrivals: 0,
            departures: 1,
        }
    }
}

/// What has happened to one end since it was last asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, as the system tells them")]
pub struct Signs {
    /// Bytes have come, or the end.
    pub readable: bool,
    /// There is room again.
    pub writable: bool,
    /// The other side sends no more.
    pub read_closed: bool,
    /// The other side has gone.
    pub write_closed: bool,
}

/// Tells what happens to an end that somebody else owns.
#[derive(Debug)]
pub struct Watch {
    wire: Wire,
    arrivals: u64,
    departures: u64,
}

/// A connection: its two ends.
pub fn pair() -> (End, End) {
    let directions = Arc::new(Mutex::new([Direction::default(), Direction::default()]));
    let end = |reads| End { wire: Wire { directions: Arc::clone(&directions), reads } };
    (end(0), end(1))
}

impl Wire {
    fn directions(&self) -> MutexGuard<'_, [Direction; 2]> {
        self.directions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    /// What happens to this end from now on; it can be written to.
    pub fn watch(&self) -> Watch {
        Watch { wire: self.wire.clone(), arrivals: 0, departures: 0 }
    }

    /// The other end may write at most this many bytes that are not read here.
    pub fn limit(&self, bytes: usize) {
        let direction = &mut self.wire.directions()[self.wire.reads];
        direction.most = bytes;
        direction.departures += 1;
    }

    /// Writes no more.
    pub fn shut_write(&self) {
        let direction = &mut self.wire.directions()[1 - self.wire.reads];
        direction.is_ended = true;
        direction.arrivals += 1;
    }

    /// Takes all that has come.
    pub fn take_all(&mut self) -> Vec<u8> {
        let direction = &mut self.wire.directions()[self.wire.reads];
        direction.departures += u64::from(direction.bytes.len() >= direction.most);
        direction.bytes.drain(..).collect()
    }

    /// The other end writes no more, and all is read.
    pub fn has_ended(&self) -> bool {
        let direction = &self.wire.directions()[self.wire.reads];
        direction.is_ended && direction.bytes.is_empty()
    }

    /// Nothing is under way in either direction.
    pub fn is_idle(&self) -> bool {
        self.wire.directions().iter().all(|direction| direction.bytes.is_empty())
    }

    /// The other end has not read all that was written here.
    pub fn has_unread(&self) -> bool {
        !self.wire.directions()[1 - self.wire.reads].bytes.is_empty()
    }

    /// Writes all of it, however much.
    pub fn send(&mut self, bytes: &[u8]) {
        let direction = &mut self.wire.directions()[1 - self.wire.reads];
        direction.bytes.extend(bytes);
        direction.arrivals += 1;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut directions = self.wire.directions();
        let reads = self.wire.reads;
        directions[reads].is_unread = true;
        directions[reads].departures += 1;
        directions[1 - reads].is_ended = true;
        directions[1 - reads].arrivals += 1;
    }
}

impl Read for End {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let direction = &mut self.wire.directions()[self.wire.reads];
        if direction.bytes.is_empty() {
            return if direction.is_ended { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let was_full = direction.bytes.len() >= direction.most;
        let count = direction.bytes.read(buf)?;
        direction.departures += u64::from(was_full);
        Ok(count)
    }
}

impl Write for End {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let direction = &mut self.wire.directions()[1 - self.wire.reads];
        if direction.is_unread || direction.is_ended {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let count = buf.len().min(direction.most.saturating_sub(direction.bytes.len()));
        if count == 0 && !buf.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        direction.bytes.extend(&buf[..count]);
        direction.arrivals += 1;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Watch {
    /// The end is dropped: nothing happens to it any more.
    pub fn is_over(&self) -> bool {
        self.wire.directions()[self.wire.reads].is_unread
    }

    /// What has happened since the last time.
    pub fn signs(&mut self) -> Option<Signs> {
        let directions = self.wire.directions();
        let (read, written) = (&directions[self.wire.reads], &directions[1 - self.wire.reads]);
        let readable = read.arrivals > self.arrivals;
        let writable = written.departures > self.departures;
        self.arrivals = read.arrivals;
        self.departures = written.departures;
        (readable || writable).then_some(Signs {
            readable,
            writable,
            read_closed: read.is_ended,
            write_closed: written.is_unread,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_behaves_like_a_socket_that_does_not_block() {
        let (mut near, mut far) = pair();
        let mut watch = near.watch();
        let signs = |watch: &mut Watch| watch.signs().unwrap_or_default();
        assert!(signs(&mut watch).writable, "it is connected");
        assert_eq!(watch.signs(), None);
        let mut buf = [0; 2];
        assert_eq!(near.read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        far.send(b"abc");
        assert!(signs(&mut watch).readable);
        assert_eq!((near.read(&mut buf).unwrap(), buf), (2, *b"ab"));
        assert_eq!(near.read(&mut buf).unwrap(), 1);
        // Full, and then not.
        far.limit(3);
        watch.signs();
        assert_eq!(near.write(b"12345").unwrap(), 3);
        assert_eq!(near.write(b"45").unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(watch.signs(), None);
        assert_eq!(far.take_all(), b"123");
        assert!(signs(&mut watch).writable);
        // The end comes behind what was sent before it.
        far.send(b"z");
        drop(far);
        let last = signs(&mut watch);
        assert!(last.readable && last.read_closed && last.write_closed);
        assert_eq!(near.read(&mut buf).unwrap(), 1);
        assert_eq!(near.read(&mut buf).unwrap(), 0);
        assert_eq!(near.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
