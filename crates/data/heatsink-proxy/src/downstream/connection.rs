//! A client's connection: its socket, the requests that are not taken yet, the replies that are not
//! sent yet, and what the client waits for.
//!
//! Owned by one worker. Bound: an idle client holds no buffer; input is held only while a
//! request is incomplete or has to wait, output up to `limits.max_output_bytes`.

use std::sync::Arc;
use std::time::Instant;

use heatsink_resp::request::RequestScan;
use heatsink_upstream::outgoing::Outgoing;

use crate::cluster::own_writes::Written;
use crate::cluster::transactions::Transaction;
use crate::downstream::directory::ClientRecord;
use crate::downstream::order::{Order, Spread};
use crate::hot;
use crate::observe::QueuedKeys;
use crate::runtime::socket::Socket;
use crate::session::dedicated::Dedicated;
use crate::session::switch::Session;

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
    pub(crate) record: Arc<ClientRecord>,
    /// The shared pipeline this client uses.
    pub(crate) pool: usize,
    /// Bytes received and not yet acted on.
    pub(crate) input: Vec<u8>,
    /// How many bytes are held for `input`, as last counted.
    pub(crate) input_counted: usize,
    pub(crate) scan: RequestScan,
    /// The request that is coming in is held until it is complete, however large it is.
    pub(crate) held: bool,
    pub(crate) output: Outgoing,
    /// Unread bytes that are held for this client alone, as of the last write to it.
    pub(crate) counted: usize,
    /// When the client last took bytes, if it has not taken all of them.
    pub(crate) took_at: Instant,
    /// What it waits for on shared pipelines.
    pub(crate) order: Order,
    /// If its requests go along second shared links: the generation of the youngest link when that was
    /// decided; see [`crate::upstream::pools`].
    pub(crate) around: Option<u32>,
    /// The map of the cluster by which its outstanding requests were sent.
    pub(crate) epoch: u32,
    /// Its requests that are to be tried again; no later one overtakes them.
    pub(crate) retrying: u32,
    /// Its last request may have to be tried again: no other is taken until all are answered.
    pub(crate) alone: bool,
    /// Its requests that connections were opened for, because they may block for ever.
    pub(crate) apart: u32,
    /// A transaction on a cluster, whose node may not be known yet.
    pub(crate) transaction: Option<Box<Transaction>>,
    /// Keys it has written and must not read from a replica.
    pub(crate) written: Written,
    /// A dedicated connection, while its state needs one.
    pub(crate) dedicated: Option<Box<Dedicated>>,
    /// What mitigations remember of it.
    pub(crate) hot: hot::ClientState,
    /// Since when its next request waits for a value that is moved, and how many requests it had sent
    /// upstream by then: if it has sent more since, that wait is over, and another request waits now.
    pub(crate) held_since: Option<(Instant, u32)>,
    /// The keys that the transaction under way names, which are counted when it is executed.
    pub(crate) queued_keys: Option<Box<QueuedKeys>>,
    /// A change of user, database or protocol, or another command that is answered here
    /// once the server has agreed.
    pub(crate) session: Option<Box<Session>>,
    /// A transaction, or a `WATCH`, that was lost with its connection.
    pub(crate) lost: Lost,
    /// The socket may have more to read.
    pub(crate) readable: bool,
    /// Nothing is read or taken from the client until what it waits for has happened.
    pub(crate) stopped: bool,
    /// In the list of clients to be flushed.
    pub(crate) dirty: bool,
    /// In the list of clients to be flushed a little later.
    pub(crate) deferred: Option<Deferral>,
    /// Its replies have gathered for long enough: they are flushed, complete or not.
    pub(crate) overdue: bool,
    /// The client has shut its side; what it sent before may still be unread.
    pub(crate) hung_up: bool,
    /// Everything the client will ever send has been read.
    pub(crate) eof: bool,
    /// Its connection is broken: what it sent is still carried out, and the replies are dropped.
    pub(crate) gone: bool,
    pub(crate) closing: Closing,
    /// Whether it is told them at all.
    pub(crate) replies: Replies,
    /// Reads its replies so slowly that it gets a dedicated connection, where only the server has to wait
    /// for it, and no other client.
    pub(crate) bulky: bool,
    /// Its pool waited for it to read, in vain: from now on its replies are held instead.
    pub(crate) lags: bool,
    /// It has logged in, where logins are checked here.
    pub(crate) is_known: bool,
    /// It moves data for this process: its requests are passed on unchanged.
    pub(crate) within: bool,
}

/// Until when replies gather at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deferral {
    pub(crate) until: Instant,
    /// The turn in which it began.
    pub(crate) turn: u32,
}

/// How far a connection is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// No more requests are taken; the connection ends once all that is owed is sent.
    AfterReplies,
    /// Everything is sent and our side is shut. What the client still sends is thrown away until it has
    /// read the last reply: closing the socket with unread input would reset it, and lose that reply.
    Lingering {
        until: Instant,
    },
}

/// What `CLIENT REPLY` has said. The server answers as ever, since a silent server could not be told
/// from a slow one; the replies are left out on their way to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// The reply to the next request is left out.
    SkipNext,
    /// The reply to the last request is left out; no other request is taken before it has come.
    Skipping,
}

/// What a client must be told about the upstream connection it lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Nothing,
    /// Keys were watched: the next transaction must fail, since a change of them may have gone unseen.
    Watch,
    /// A transaction was being queued: it must fail, and nothing of it may run outside it.
    Transaction,
    /// Watched keys have moved to another node: the next transaction fails as if they had
    /// been written to.
    Moved,
    /// Watched keys have moved to another node, and commands are being queued since.
    MovedTransaction,
}

impl Client {
    /// Reads of hot keys on the shared link, or of the shards of a counter, may be unanswered: a reply
    /// that is given elsewhere must not be older than theirs.
    pub(crate) fn has_passed_reads(&mut self) -> bool {
        self.hot.passed_reads &= self.order.outstanding() > 0;
        self.hot.passed_reads
    }

    pub(crate) fn new(
        socket: Socket,
        generation: u32,
        record: Arc<ClientRecord>,
        pool: usize,
        now: Instant,
    ) -> Self {
        Self {
            socket,
            generation,
            record,
            pool,
            input: Vec::new(),
            input_counted: 0,
            scan: RequestScan::default(),
            held: false,
            output: Outgoing::default(),
            counted: 0,
            took_at: now,
            order: Order::default(),
            around: None,
            epoch: 0,
            retrying: 0,
            alone: false,
            apart: 0,
            transaction: None,
            written: Written::default(),
            dedicated: None,
            hot: hot::ClientState::default(),
            held_since: None,
            queued_keys: None,
            session: None,
            lost: Lost::Nothing,
            readable: true,
            stopped: false,
            dirty: false,
            deferred: None,
            overdue: false,
            hung_up: false,
            eof: false,
            gone: false,
            closing: Closing::No,
            replies: Replies::On,
            bulky: false,
            lags: false,
            is_known: true,
            within: false,
        }
    }

    /// More replies are to come, which may be sent together with those that are there.
    #[inline]
    pub(crate) fn gathers_replies(&mut self) -> bool {
        self.order.is_within_burst()
            && !self.overdue
            && self.output.len() + self.order.held_bytes() < GATHER_BYTES
            && self.closing == Closing::No
            && self.dedicated.is_none()
    }

    /// Bytes that it has not read, including replies that wait for their turn.
    #[inline]
    pub(crate) fn unread(&self) -> usize {
        self.output.len() + self.order.held_bytes()
    }

    /// Commands are queued until `EXEC`, or would be if it were not lost already.
    pub(crate) fn is_queueing(&self) -> bool {
        self.transaction.is_some()
            || matches!(self.lost, Lost::Transaction | Lost::MovedTransaction)
            || self.dedicated.as_ref().is_some_and(|dedicated| dedicated.will_queue())
    }

    /// It exchanges names of keys with the server that nobody here sees, or is about to.
    pub(crate) fn hides_keys(&self) -> bool {
        matches!(self.session.as_deref(), Some(Session::Redirected(_)))
            || self.dedicated.as_ref().is_some_and(|dedicated| dedicated.hides_keys())
    }

    /// A server owes it an answer on one of its own connections, and not one that may take for ever.
    pub(crate) fn awaits_prompt_answer_on(&self, link: usize) -> bool {
        self.dedicated
            .as_ref()
            .is_some_and(|dedicated| dedicated.awaits_prompt_answer() && dedicated.is_asked(link))
    }

    /// Every request so far has been answered.
    pub(crate) fn is_drained(&self) -> bool {
        self.order.outstanding() == 0
            && self.session.is_none()
            && self.dedicated.as_ref().is_none_or(|dedicated| dedicated.is_drained())
    }
}

/// Buffers that wait for the next client that needs one.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    free: Vec<Vec<u8>>,
    /// Spreads, for clients whose replies come from several links.
    #[expect(clippy::vec_box, reason = "handed on as they are, from client to client")]
    pub(crate) spreads: Vec<Box<Spread>>,
}

/// A client with more output than this is written to at once.
const GATHER_BYTES: usize = 16 << 10;
/// Buffers up to this size are used again.
const POOLED_BYTES: usize = 64 << 10;
/// At most this many are kept.
const POOLED_COUNT: usize = 256;
/// This many spreads are kept.
const SPREAD_COUNT: usize = 512;

impl BufferPool {
    /// Gives `output` a buffer if it has none.
    #[inline]
    pub(crate) fn lend(&mut self, output: &mut Outgoing) {
        if output.is_unbacked()
            && let Some(buffer) = self.free.pop()
        {
            output.adopt(buffer);
        }
    }

    /// Takes back a spread that holds nothing.
    #[inline]
    pub(crate) fn give_spread(&mut self, mut spread: Box<Spread>) {
        if self.spreads.len() < SPREAD_COUNT {
            spread.trim();
            self.spreads.push(spread);
        }
    }

    /// Takes the buffer of an output back once it is empty.
    #[inline]
    pub(crate) fn reclaim(&mut self, output: &mut Outgoing) {
        if let Some(buffer) = output.release()
            && buffer.capacity() <= POOLED_BYTES
            && self.free.len() < POOLED_COUNT
        {
            self.free.push(buffer);
        }
    }
}
