//! Client: what the engine knows about one connection.
//!
//! Called by: `engine` and the connection-level handlers.
//! Bound: unparsed input by the request limits; output by `OUTPUT_BYTES_MAX`; a queued
//! transaction by `QUEUE_BYTES_MAX`.
//! Invariant: while one of its requests runs, a client is outside the map of its peers.

use std::ops::Range;

use heatsink_resp::request::RequestScan;

use crate::reply::{Proto, Reply};
use crate::table::Command;
use crate::value::{Bytes, Set};

/// A connection, in words of `CLIENT ID`: never given out twice by one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// Requests queued since `MULTI`.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) requests: Vec<(&'static Command, Vec<Bytes>)>,
    pub(crate) bytes: usize,
    /// A request could not be queued: `EXEC` will refuse.
    pub(crate) is_broken: bool,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ConnId,
    /// Start of a request whose end has not come yet.
    pub(crate) input: Vec<u8>,
    pub(crate) scan: RequestScan,
    /// Arguments of the request in `input` that are complete.
    pub(crate) spans: Vec<Range<usize>>,
    pub(crate) reply: Reply,
    pub(crate) db: usize,
    pub(crate) name: Bytes,
    pub(crate) queue: Option<Queue>,
    pub(crate) channels: Set,
    pub(crate) patterns: Set,
    pub(crate) last_command: &'static str,
    pub(crate) connected_ms: u64,
    pub(crate) active_ms: u64,
    /// To be closed once its output is written.
    pub(crate) is_closing: bool,
    /// To be closed at once, whatever was written: killed, or too far behind.
    pub(crate) is_dropped: bool,
    /// In the engine's list of connections with output.
    pub(crate) is_dirty: bool,
}

impl Client {
    pub(crate) fn new(id: ConnId, now_ms: u64) -> Self {
        Self {
            id,
            input: Vec::new(),
            scan: RequestScan::default(),
            spans: Vec::new(),
            reply: Reply::new(Proto::Resp2),
            db: 0,
            name: Bytes::new(),
            queue: None,
            channels: Set::default(),
            patterns: Set::default(),
            last_command: "NULL",
            connected_ms: now_ms,
            active_ms: now_ms,
            is_closing: false,
            is_dropped: false,
            is_dirty: false,
        }
    }

    /// Gives a connection up, with everything it has not read.
    pub(crate) fn drop_now(&mut self) {
        self.reply.out = Vec::new();
        self.queue = None;
        self.is_closing = true;
        self.is_dropped = true;
    }

    /// Subscriptions to channels and patterns, which share a count.
    pub(crate) fn subscription_count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Whether anything is subscribed to.
    pub(crate) fn is_subscriber(&self) -> bool {
        self.subscription_count() > 0
    }
}
