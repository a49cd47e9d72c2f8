//! The server of the model: keys are version numbers, links are queues.

use std::collections::VecDeque;

pub(super) const KEYS: usize = 2;
pub(super) const LINKS: usize = 2;

/// On a tracked link, to the server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Query {
    /// A read with or without opting in to tracking.
    Read {
        op: u64,
        key: usize,
        track: bool,
    },
    /// The time to live, right behind a read.
    Ttl {
        op: u64,
    },
    Ping,
}

/// On a tracked link, from the server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Frame {
    Value { op: u64, version: u64 },
    Ttl { op: u64 },
    Pong,
    Invalidate { key: usize },
    Flush,
}

/// On an ordinary link, to the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) op: u64,
    pub(super) key: usize,
    pub(super) is_write: bool,
    /// The proxy does not wait for it any more.
    pub(super) given_up: bool,
}

#[derive(Debug, Default)]
pub(super) struct TrackedLink {
    pub(super) queries: VecDeque<Query>,
    pub(super) frames: VecDeque<Frame>,
    tracks: [bool; KEYS],
    /// Frames sent by the server, over all connections of this link.
    pub(super) sent: u64,
    /// Frames that reached the proxy, or were lost with a connection.
    pub(super) arrived: u64,
}

impl TrackedLink {
    fn send(&mut self, frame: Frame) {
        self.frames.push_back(frame);
        self.sent += 1;
    }

    /// A new connection: nothing of the old one arrives any more.
    pub(super) fn reconnect(&mut self) {
        self.queries.clear();
        self.frames.clear();
        self.tracks = [false; KEYS];
        self.arrived = self.sent;
    }
}

#[derive(Debug, Default)]
pub(super) struct OrdinaryLink {
    pub(super) requests: VecDeque<Request>,
    pub(super) replies: VecDeque<(u64, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Server {
    versions: [u64; KEYS],
    /// For each version of a key: how many frames each link had been sent when the version
    /// was overwritten.
    overwritten_at: [Vec<[u64; LINKS]>; KEYS],
    pub(super) tracked: [TrackedLink; LINKS],
    pub(super) ordinary: [OrdinaryLink; LINKS],
    pub(super) drops_tracking_on_own_writes: bool,
    pub(super) late_applied: u64,
}

impl Server {
    /// Executes what is next on a tracked link.
    pub(super) fn execute_query(&mut self, link: usize) {
        let versions = self.versions;
        let link = &mut self.tracked[link];
        match link.queries.pop_front() {
            Some(Query::Read { op, key, track }) => {
                link.tracks[key] |= track;
                link.send(Frame::Value { op, version: versions[key] });
            }
            Some(Query::Ttl { op }) => link.send(Frame::Ttl { op }),
            Some(Query::Ping) => link.send(Frame::Pong),
            None => {}
        }
    }

    /// Executes what is next on an ordinary link.
    pub(super) fn execute_request(&mut self, link: usize) {
        let Some(request) = self.ordinary[link].requests.pop_front() else { return };
        if request.is_write {
            self.late_applied += u64::from(request.given_up);
            let silently = self.drops_tracking_on_own_writes;
            self.write(request.key, silently);
        }
        if !request.given_up {
            let version = self.versions[request.key];
            self.ordinary[link].replies.push_back((request.op, version));
        }
    }

    pub(super) fn foreign_write(&mut self, key: usize) {
        self.write(key, false);
    }

    fn write(&mut self, key: usize, silently: bool) {
        self.overwrite(key);
        self.untrack(key, silently);
    }

    pub(super) fn flush(&mut self) {
        for key in 0..KEYS {
            self.overwrite(key);
        }
        for link in &mut self.tracked {
            link.tracks = [false; KEYS];
            link.send(Frame::Flush);
        }
    }

    /// The server's tracking table is full: it forgets a key and says so.
    pub(super) fn evict_tracking(&mut self, key: usize) {
        self.untrack(key, false);
    }

    fn overwrite(&mut self, key: usize) {
        let sent = std::array::from_fn(|link| self.tracked[link].sent);
        self.overwritten_at[key].push(sent);
        self.versions[key] += 1;
    }

    fn untrack(&mut self, key: usize, silently: bool) {
        for link in &mut self.tracked {
            if std::mem::take(&mut link.tracks[key]) && !silently {
                link.send(Frame::Invalidate { key });
            }
        }
    }

    /// Whether something that the server sent after it had overwritten that version has
    /// arrived through the link.
    pub(super) fn is_known_to_be_old(&self, key: usize, version: u64, link: usize) -> bool {
        let at = self.overwritten_at[key].get(version as usize);
        at.is_some_and(|sent| self.tracked[link].arrived > sent[link])
    }
}
