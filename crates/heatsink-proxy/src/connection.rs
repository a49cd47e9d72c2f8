//! A client's connection: its socket, what it sent and was not yet acted on, what it has
//! not yet been sent, and what it waits for.
//!
//! Owned by one worker. Bound: an idle client holds no buffer; input is held only while a
//! request is incomplete or has to wait, output up to `limits.max_output_bytes`.

use std::sync::Arc;
use std::time::Instant;

use crate::cluster::transactions::Transaction;
use crate::directory::Card;
use crate::order::Order;
use crate::own::Own;
use crate::session::Session;
use crate::socket::Socket;
use crate::written::Written;
use heatsink_resp::request::RequestScan;
use heatsink_upstream::outgoing::Outgoing;

/// A client's place in its worker; the generation tells a later client in the same place
/// apart, so that a reply that comes too late is never given to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientKey {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ClientKey {
    /// Nobody: replies to it are dropped.
    pub(crate) const NOBODY: Self = Self { slot: u32::MAX, generation: 0 };
}

/// A client's connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one machine")]
pub(crate) struct Client {
    pub(crate) socket: Socket,
    pub(crate) generation: u32,
    pub(crate) card: Arc<Card>,
    /// The shared pipeline this client uses.
    pub(crate) lane: usize,
    /// Bytes received and not yet acted on.
    pub(crate) input: Vec<u8>,
    pub(crate) scan: RequestScan,
    /// The request under way is held until it is complete, however large.
    pub(crate) held: bool,
    pub(crate) output: Outgoing,
    /// What it waits for on shared pipelines.
    pub(crate) order: Order,
    /// The map of the cluster by which its outstanding requests were sent.
    pub(crate) epoch: u32,
    /// Requests of it that are tried again later; none overtakes them.
    pub(crate) retrying: u32,
    /// Requests of it that connections were opened for, which may wait for ever.
    pub(crate) apart: u32,
    /// A transaction on a cluster, whose node may not be known yet.
    pub(crate) transaction: Option<Box<Transaction>>,
    /// Keys it has written and must not read from a replica.
    pub(crate) written: Written,
    /// An upstream connection of its own, while its state needs one.
    pub(crate) own: Option<Box<Own>>,
    /// A change of user, database or protocol, or another command that is answered here
    /// once the server has agreed.
    pub(crate) session: Option<Box<Session>>,
    /// A transaction, or a `WATCH`, that was lost with its connection.
    pub(crate) lost: Lost,
    /// The socket may have more to read.
    pub(crate) readable: bool,
    /// Nothing is read or acted on until something else has happened.
    pub(crate) stopped: bool,
    /// In the list of clients to be flushed.
    pub(crate) dirty: bool,
    /// In the list of clients to be flushed a little later.
    pub(crate) deferred: bool,
    /// Its replies have gathered long enough.
    pub(crate) overdue: bool,
    /// The client has shut its side; what it sent before may still be unread.
    pub(crate) hung_up: bool,
    /// Everything the client will ever send has been read.
    pub(crate) eof: bool,
    pub(crate) closing: Closing,
    /// Reads its replies so slowly that it gets a connection of its own, where the server
    /// feels it and no other client does.
    pub(crate) bulky: bool,
    /// Was waited for in vain: its replies are held instead.
    pub(crate) lags: bool,
    /// Whoever checks passwords here knows who it is.
    pub(crate) is_known: bool,
}

/// How far a connection is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// No more requests are taken; it ends when what is owed has been sent.
    AfterReplies,
    /// Everything is sent and our side is shut. What the client still sends is thrown away
    /// until it has read our last words: closing with unread input would destroy them.
    Lingering {
        until: Instant,
    },
}

/// What a client must be told about the upstream connection it lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Nothing,
    /// Keys were watched: the next transaction must fail.
    Watch,
    /// A transaction was being queued: it must fail, and nothing of it may run outside it.
    Transaction,
    /// Watched keys have moved to another node: the next transaction fails as if they had
    /// been written to.
    Moved,
    /// The same, and commands are being queued.
    MovedTransaction,
}

impl Client {
    pub(crate) fn new(socket: Socket, generation: u32, card: Arc<Card>, lane: usize) -> Self {
        Self {
            socket,
            generation,
            card,
            lane,
            input: Vec::new(),
            scan: RequestScan::default(),
            held: false,
            output: Outgoing::default(),
            order: Order::default(),
            epoch: 0,
            retrying: 0,
            apart: 0,
            transaction: None,
            written: Written::default(),
            own: None,
            session: None,
            lost: Lost::Nothing,
            readable: true,
            stopped: false,
            dirty: false,
            deferred: false,
            overdue: false,
            hung_up: false,
            eof: false,
            closing: Closing::No,
            bulky: false,
            lags: false,
            is_known: true,
        }
    }

    /// More replies are on their way, which may leave together with those that are there.
    #[inline]
    pub(crate) fn gathers_replies(&mut self) -> bool {
        self.order.is_within_burst()
            && !self.overdue
            && self.output.len() < GATHER_BYTES
            && self.closing == Closing::No
            && self.own.is_none()
    }

    /// Every request so far has been answered.
    pub(crate) fn is_settled(&self) -> bool {
        self.order.outstanding() == 0
            && self.session.is_none()
            && self.own.as_ref().is_none_or(|own| own.is_settled())
    }
}

/// Buffers that wait for the next client that needs one.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    free: Vec<Vec<u8>>,
    /// Small ones, for replies that wait for their turn.
    small: Vec<Vec<u8>>,
}

/// More than this is sent at once.
const GATHER_BYTES: usize = 16 << 10;
/// Buffers up to this size are used again.
const POOLED_BYTES: usize = 64 << 10;
/// At most this many are kept.
const POOLED_COUNT: usize = 256;
/// A buffer up to this size is small, and …
const SMALL_BYTES: usize = 1 << 10;
/// … this many of them are kept.
const SMALL_COUNT: usize = 8192;

impl BufferPool {
    /// Gives `output` a buffer if it has none.
    #[inline]
    pub(crate) fn lend(&mut self, output: &mut Outgoing) {
        if output.is_unbacked()
            && let Some(buffer) = self.free.pop().or_else(|| self.small.pop())
        {
            output.adopt(buffer);
        }
    }

    /// An empty buffer, to begin with a small one.
    #[inline]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.small.pop().unwrap_or_else(|| Vec::with_capacity(SMALL_BYTES / 8))
    }

    /// Takes a buffer back; what is in it is forgotten.
    #[inline]
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        buffer.clear();
        if capacity <= SMALL_BYTES {
            if self.small.len() < SMALL_COUNT {
                self.small.push(buffer);
            }
        } else if capacity <= POOLED_BYTES && self.free.len() < POOLED_COUNT {
            self.free.push(buffer);
        }
    }

    /// Takes the buffer of an output back once it is empty.
    #[inline]
    pub(crate) fn reclaim(&mut self, output: &mut Outgoing) {
        if let Some(buffer) = output.release() {
            self.give(buffer);
        }
    }
}
