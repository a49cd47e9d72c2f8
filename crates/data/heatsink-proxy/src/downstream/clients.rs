//! The clients of one worker, and the stage that gives replies to them.
//!
//! Called by: links, with what the server sent; the other rooms, with replies that are made here.
//! Invariant: replies leave in the order of the requests, see [`crate::downstream::order`].

use std::collections::VecDeque;
use std::rc::Rc;

use heatsink_resp::request::{ProtocolError, RequestScan};
use heatsink_upstream::outgoing::Outgoing;
use slab::Slab;

use crate::downstream::connection::{BufferPool, Client, ClientKey, Closing, Deferral, Replies};
use crate::downstream::order::Order;
use crate::downstream::shared_reply::{Ledger, Lent, Reply};

/// A client with more unread output than this gets a dedicated connection.
pub(crate) const BULKY_BYTES: usize = 1 << 20;
/// Reading from a client stops at this many unanswered requests …
pub(crate) const MAX_OUTSTANDING: u32 = 8192;
/// … and goes on at this many.
const RESUME_OUTSTANDING: u32 = 2048;

/// The clients of one worker.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) slab: Slab<Client>,
    pub(crate) buffers: BufferPool,
    /// Clients to be flushed at the end of this turn.
    pub(crate) dirty: Vec<ClientKey>,
    /// Clients whose replies gather: each is flushed when its time is over, those that began first
    /// coming first, unless all of its replies have come by then.
    pub(crate) deferred: VecDeque<(ClientKey, Deferral)>,
    /// Turns of the event loop; may wrap around.
    pub(crate) turn: u32,
    /// Clients to be looked at again: what they waited for has happened.
    pub(crate) resume: Vec<ClientKey>,
    /// Clients to be read from again: their sockets may have more.
    pub(crate) eager: Vec<ClientKey>,
    /// Clients over the output limit, which are to be closed.
    pub(crate) overflown: Vec<ClientKey>,
    pub(crate) max_output_bytes: u64,
    /// Replies that several clients share.
    pub(crate) ledger: Rc<Ledger>,
    /// Bytes that are held for one client each; see [`Client::counted`].
    pub(crate) copied_bytes: usize,
    /// Bytes of requests that are not taken yet; see [`crate::downstream::input`].
    pub(crate) input_bytes: usize,
}

impl Clients {
    pub(crate) fn new(max_output_bytes: u64) -> Self {
        Self {
            slab: Slab::new(),
            buffers: BufferPool::default(),
            dirty: Vec::new(),
            deferred: VecDeque::new(),
            turn: 0,
            resume: Vec::new(),
            eager: Vec::new(),
            overflown: Vec::new(),
            max_output_bytes,
            ledger: Rc::default(),
            copied_bytes: 0,
            input_bytes: 0,
        }
    }

    /// The client of that key, unless it has gone.
    #[inline]
    pub(crate) fn get(&mut self, key: ClientKey) -> Option<&mut Client> {
        self.slab.get_mut(key.slot as usize).filter(|client| client.generation == key.generation)
    }

    /// The client of that key, unless it has gone, and the buffers that replies are held in.
    #[inline]
    pub(crate) fn get_with_buffers(
        &mut self,
        key: ClientKey,
    ) -> Option<(&mut Client, &mut BufferPool)> {
        let client = self.slab.get_mut(key.slot as usize)?;
        (client.generation == key.generation).then_some((client, &mut self.buffers))
    }

    /// The client of that key to look at, unless it has gone.
    #[inline]
    pub(crate) fn get_ref(&self, key: ClientKey) -> Option<&Client> {
        self.slab.get(key.slot as usize).filter(|client| client.generation == key.generation)
    }

    /// The key of the client in a slot.
    pub(crate) fn key(&self, slot: usize) -> Option<ClientKey> {
        let generation = self.slab.get(slot)?.generation;
        Some(ClientKey { slot: slot as u32, generation })
    }

    /// Gives a client bytes that are made here, behind the replies to its requests so far.
    #[inline]
    pub(crate) fn reply(&mut self, key: ClientKey, bytes: &[u8]) {
        self.tell(key, |order, output, buffers| order.local(bytes, output, buffers));
    }

    /// Gives a client whole replies from a link; `ends` says where each of them ends.
    #[inline]
    pub(crate) fn deliver(&mut self, key: ClientKey, way: u32, ends: &[usize], bytes: &[u8]) {
        self.tell(key, |order, output, _| order.arrived(way, ends, bytes, output));
    }

    /// Gives a client a piece of a reply from a link.
    pub(crate) fn deliver_part(&mut self, key: ClientKey, way: u32, bytes: &[u8]) {
        self.tell(key, |order, output, _| order.part(way, bytes, output));
    }

    /// Gives a client the reply of a place that was reserved, or is a hole.
    pub(crate) fn fill(&mut self, key: ClientKey, place: u32, bytes: &[u8]) {
        self.tell(key, |order, _, _| order.fill(place, bytes));
    }

    /// Like [`Self::fill`], with a reply that other clients may be given, too.
    pub(crate) fn fill_reply(&mut self, key: ClientKey, place: u32, reply: Reply<'_>) {
        match reply {
            Reply::Small(bytes) => self.fill(key, place, bytes),
            Reply::Large(bytes) => {
                let lent = Lent::new(bytes, &self.ledger);
                self.tell(key, |order, _, _| order.fill_lent(place, lent));
            }
        }
    }

    /// Gives a client a reply from the cache, behind the replies to its requests so far.
    #[inline]
    pub(crate) fn reply_cached(&mut self, key: ClientKey, reply: Reply<'_>) {
        match reply {
            Reply::Small(bytes) => self.reply(key, bytes),
            Reply::Large(bytes) => {
                let lent = Lent::new(bytes, &self.ledger);
                self.tell(key, |order, output, buffers| order.local_lent(lent, output, buffers));
            }
        }
    }

    /// Gives a client a message that it did not ask for. It is sent even if the client wants no replies.
    pub(crate) fn message(&mut self, key: ClientKey, bytes: &[u8]) {
        if self.get(key).is_none_or(|client| client.replies == Replies::On) {
            return self.reply(key, bytes);
        }
        // A message that is queued behind replies to be left out would be left out with them. No reply
        // to be sent is pending here: requests before `CLIENT REPLY` are answered when it is carried out.
        self.drop_left_out(key);
        let Some(client) = self.slab.get_mut(key.slot as usize) else { return };
        self.buffers.lend(&mut client.output);
        client.output.push(bytes);
        if !client.dirty {
            client.dirty = true;
            self.dirty.push(key);
        }
    }

    /// From now on replies are sent or left out as `CLIENT REPLY` says; all earlier requests are answered.
    pub(crate) fn set_replies(&mut self, key: ClientKey, replies: Replies) {
        self.drop_left_out(key);
        let Some((client, buffers)) = self.get_with_buffers(key) else { return };
        // Replies whose turn has come are still sent.
        client.order.advance(&mut client.output, buffers);
        client.replies = replies;
    }

    /// Drops the replies whose turn has come, if the client wants none.
    pub(crate) fn drop_left_out(&mut self, key: ClientKey) {
        let Some((client, buffers)) = self.get_with_buffers(key) else { return };
        if client.replies != Replies::On {
            client.order.advance(&mut Outgoing::default(), buffers);
        }
    }

    /// Has what was given to a client written at the end of this turn.
    #[inline]
    fn tell(
        &mut self,
        key: ClientKey,
        tell: impl FnOnce(&mut Order, &mut Outgoing, &mut BufferPool),
    ) {
        let Some(client) = self.slab.get_mut(key.slot as usize) else { return };
        if client.generation != key.generation {
            return;
        }
        self.buffers.lend(&mut client.output);
        let before = client.order.outstanding();
        let mut left_out = Outgoing::default();
        let output = if client.replies == Replies::On { &mut client.output } else { &mut left_out };
        tell(&mut client.order, output, &mut self.buffers);
        if !client.dirty {
            client.dirty = true;
            self.dirty.push(key);
        }
        let unread = client.output.len() + client.order.held_bytes();
        if unread > BULKY_BYTES && client.gone {
            client.output.discard();
        } else if unread > BULKY_BYTES {
            client.bulky = true;
            if unread as u64 > self.max_output_bytes {
                self.overflown.push(key);
            }
        }
        let after = client.order.outstanding();
        if client.stopped
            && after < before
            && (after == 0 || (before > RESUME_OUTSTANDING && after <= RESUME_OUTSTANDING))
        {
            self.resume.push(key);
        }
    }

    /// The reply that a client is getting from a link will never be complete. True if a part of it is
    /// in the client's output: then the client is closed behind that. Otherwise it waits for another reply.
    pub(crate) fn cut(&mut self, key: ClientKey, way: u32) -> bool {
        let Some((client, buffers)) = self.get_with_buffers(key) else { return false };
        let is_told = client.order.cut(way, buffers);
        if is_told {
            self.close_after_replies(key);
        }
        is_told
    }

    /// An error of Heatsink's own, in the form of a server's.
    pub(crate) fn error(&mut self, key: ClientKey, text: &str) {
        self.reply(key, &error_line(text));
    }

    /// Takes no more requests from a client, and closes it once all it is owed is sent.
    pub(crate) fn close_after_replies(&mut self, key: ClientKey) {
        let Some(client) = self.get(key) else { return };
        if client.closing == Closing::No {
            client.closing = Closing::AfterReplies;
            client.input = Vec::new();
            if let Some(transaction) = &mut client.transaction {
                transaction.forget();
            }
        }
        self.count_input(key);
        let Some(client) = self.get(key) else { return };
        if !client.dirty {
            client.dirty = true;
            self.dirty.push(key);
        }
    }

    /// Whether the reply to the last request that was taken is to be left out, because of
    /// `CLIENT REPLY`; `is_taken` says that a request was taken since.
    pub(crate) fn is_leaving_out(&mut self, key: ClientKey, is_taken: bool) -> bool {
        let Some(client) = self.get(key) else { return false };
        if client.replies == Replies::SkipNext && is_taken {
            client.replies = Replies::Skipping;
        }
        client.replies == Replies::Skipping
    }

    /// With `CLIENT REPLY SKIP`: sends replies again once the skipped request is answered. True if it is
    /// not answered yet.
    pub(crate) fn waits_for_left_out(&mut self, key: ClientKey) -> bool {
        let Some(client) = self.get(key) else { return false };
        if !client.is_drained() {
            return true;
        }
        self.drop_left_out(key);
        if let Some(client) = self.get(key) {
            client.replies = Replies::On;
        }
        false
    }

    pub(crate) fn stop(&mut self, key: ClientKey) {
        if let Some(client) = self.get(key) {
            client.stopped = true;
        }
    }

    /// Tells a client that its request breaks the protocol or a limit, and closes it.
    pub(crate) fn refuse(
        &mut self,
        key: ClientKey,
        error: ProtocolError,
        len: usize,
        at: usize,
    ) -> usize {
        let is_drained = self.get_ref(key).is_none_or(Client::is_drained);
        if !is_drained {
            // The error is sent once all earlier requests are answered.
            if let Some(client) = self.get(key) {
                client.scan = RequestScan::default();
                client.stopped = true;
            }
            return at;
        }
        tracing::info!(%error, "a client was closed");
        self.error(key, &format!("ERR {error}"));
        self.close_after_replies(key);
        len
    }
}

/// An error as it goes over the wire: one line, whatever was quoted in it.
pub(crate) fn error_line(text: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(text.len() + 3);
    line.push(b'-');
    line.extend(text.bytes().map(|b| if b == b'\r' || b == b'\n' { b' ' } else { b }));
    line.extend_from_slice(b"\r\n");
    line
}
