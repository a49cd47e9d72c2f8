//! One upstream connection: requests out, replies back to whoever waits for them.
//!
//! Called by: the proxy's workers, each for the links it owns; nothing here is shared.
//! Bound: [`Link::backlog_bytes`] tells how much is unsent; the caller stops taking requests
//! from clients above its limit. A reply is held here until it is complete or larger than
//! [`STREAM_BYTES`]; from then on it is passed on as it comes.
//! Invariant: replies are matched to waiters in the order the requests were pushed.
//!
//! When a server that owes replies is silent: the module `silence`.

mod silence;
mod terms;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use heatsink_resp::reply::{ReplyScan, Status};
use mio::event::Source;

use crate::connection::Connection;
use crate::error::LinkError;
use crate::greeting::{Greeting, Login};
use crate::outgoing::Outgoing;
use crate::stream::Stream;
use crate::unanswered::Unanswered;
pub(crate) use terms::Run;
pub use terms::{Behind, Delivery, Framing, Received, Use, Waiter};

/// Replies above this size are passed on piece by piece instead of being held.
pub const STREAM_BYTES: usize = 64 << 10;

/// Requests gather only for a server that begins to answer faster than this when it has nothing
/// else to do.
const GATHER_TIME: Duration = Duration::from_micros(300);
/// … and only up to this many: beyond that there is nothing to be gained …
const GATHER_REQUESTS: usize = 16;
/// … or this many on a link to one of several nodes, which gets only a part of what comes …
const GATHER_SPREAD_REQUESTS: usize = 256;
/// … or up to this many bytes.
const GATHER_BYTES: usize = 16 << 10;

/// One upstream connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one machine")]
pub struct Link<W: Waiter> {
    stream: Stream,
    address: Option<SocketAddr>,
    connected: bool,
    /// Until the server has accepted it; requests are held back until then.
    greeting: Option<Greeting>,
    first_words: Outgoing,
    outgoing: Outgoing,
    framing: Framing,
    waiters: VecDeque<Run<W>>,
    waiting: usize,
    /// Replies that have come, all in all.
    told: u64,
    /// The requests that are not answered, sent or not, if they are kept; otherwise they are in
    /// `outgoing` until they are sent.
    kept: Option<Unanswered>,
    /// One for each request that is not answered, if they are marked.
    marks: Option<VecDeque<W::Mark>>,
    /// Bytes of the reply under way that were handed over already.
    passed: u64,
    /// Requests that were pushed since everything was last sent.
    unsent: usize,
    /// When requests were last sent while none was out, until the first reply.
    sent_at: Option<Instant>,
    /// How long the server takes to begin to answer: the least that was seen, which tells of
    /// the way to it. What it takes longer than that, requests wait for each other there; they
    /// may as well do so here.
    answer_time: Duration,
    /// Received bytes of a reply that is not complete.
    input: Vec<u8>,
    scan: ReplyScan,
    /// Where the replies end that are being handed over; empty otherwise.
    ends: Vec<usize>,
    /// Part of the frame under way was handed over already.
    within: bool,
    /// Every reply is handed over in one piece.
    holds: bool,
    /// When connecting began, the server was last heard, or an idle link got a request.
    since: Instant,
    /// The time after `since` in which the server took what the socket had refused.
    taking: Duration,
    /// When the socket was full for the first time, or once more after it took something.
    full_since: Option<Instant>,
    connection_id: Option<i64>,
    needs_auth: bool,
    held_back: bool,
    shut: Shut,
}

/// Whether this side of a connection is closed; the server may still answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shut {
    No,
    /// It is closed as soon as everything is sent.
    Wanted,
    Done,
}

impl<W: Waiter> Link<W> {
    /// A link over a connection that was begun, and is registered: events tell how it goes on.
    pub fn over(connection: Connection, login: &Login, purpose: Use, now: Instant) -> Self {
        let Connection { stream, address } = connection;
        let (greeting, bytes) = Greeting::new(login, purpose);
        let mut first_words = Outgoing::default();
        first_words.push(&bytes);
        Self {
            stream,
            address,
            connected: false,
            greeting: Some(greeting),
            first_words,
            outgoing: Outgoing::default(),
            framing: Framing::Replies,
            waiters: VecDeque::new(),
            waiting: 0,
            told: 0,
            kept: purpose.keeps_requests.then(Unanswered::default),
            marks: purpose.marks.then(VecDeque::new),
            passed: 0,
            unsent: 0,
            sent_at: None,
            answer_time: Duration::MAX,
            input: Vec::new(),
            scan: ReplyScan::default(),
            ends: Vec::new(),
            within: false,
            holds: false,
            since: now,
            taking: Duration::ZERO,
            full_since: None,
            connection_id: None,
            needs_auth: false,
            held_back: false,
            shut: Shut::No,
        }
    }

    /// True once requests go out.
    pub fn is_ready(&self) -> bool {
        self.greeting.is_none()
    }

    /// The server's own number for this connection, if it told.
    pub fn connection_id(&self) -> Option<i64> {
        self.connection_id
    }

    /// The server answered the greeting with `NOAUTH`.
    pub fn needs_auth(&self) -> bool {
        self.needs_auth
    }

    /// How replies are told apart from now on. Only changed while nobody waits.
    pub fn set_framing(&mut self, framing: Framing) {
        debug_assert!(self.waiters.is_empty());
        self.framing = framing;
    }

    /// Bytes of requests that are kept because they are not answered yet.
    #[inline]
    pub fn kept_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, Unanswered::kept_bytes)
    }

    /// The requests that are not answered yet with their waiters, oldest first, where they
    /// are kept.
    pub fn unanswered(&self) -> impl Iterator<Item = (W, &[u8])> {
        let all = self.kept.as_ref().map(|requests| Behind {
            waiters: &self.waiters,
            requests,
            skipped: 0,
        });
        all.into_iter().flat_map(|all| all.iter().collect::<Vec<_>>())
    }

    /// Whoever waits for a reply, oldest first.
    pub fn waiters(&self) -> impl Iterator<Item = W> {
        self.waiters.iter().map(|run| run.waiter)
    }

    /// From now on every reply is handed over in one piece.
    pub fn hold_replies(&mut self) {
        self.holds = true;
    }

    /// Bytes that were pushed and not yet taken by the socket.
    #[inline]
    pub fn backlog_bytes(&self) -> usize {
        self.kept.as_ref().map_or_else(|| self.outgoing.len(), Unanswered::len)
    }

    /// Whose reply is being passed on piece by piece and has not ended yet.
    pub fn partly_told(&self) -> Option<W> {
        self.waiters.front().filter(|_| self.within).map(|run| run.waiter)
    }

    /// Replies still waited for.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many wait for them: requests of one waiter next to each other count once.
    #[inline]
    pub fn waiter_count(&self) -> usize {
        self.waiters.len()
    }

    /// Replies that have come, all in all.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Queues `count` requests of one waiter; [`Self::flush`] sends them. Requests that are
    /// kept are queued one by one.
    #[inline]
    pub fn push(&mut self, bytes: &[u8], waiter: W, count: u32, now: Instant) {
        if let Some(marks) = &mut self.marks {
            marks.extend(std::iter::repeat_n(W::Mark::default(), count as usize));
        }
        self.queue(bytes, 0..bytes.len(), waiter, count, now);
    }

    /// The same for requests of which something is to be remembered: a mark for each.
    #[inline]
    pub fn push_marked(&mut self, bytes: &[u8], waiter: W, marks: &[W::Mark], now: Instant) {
        if let Some(queue) = &mut self.marks {
            queue.extend(marks);
        }
        self.queue(bytes, 0..bytes.len(), waiter, marks.len() as u32, now);
    }

    /// The same for requests that are each a part of something larger, a mark for each.
    #[inline]
    pub fn push_each<'a>(
        &mut self,
        requests: impl ExactSizeIterator<Item = (&'a [u8], Range<usize>, W::Mark)>,
        waiter: W,
        now: Instant,
    ) {
        let count = requests.len() as u32;
        let Self { marks, kept, outgoing, .. } = self;
        for (from, request, mark) in requests {
            match kept {
                Some(kept) => kept.push(from, request),
                None => outgoing.push_from(from, request),
            }
            if let Some(marks) = marks {
                marks.push_back(mark);
            }
        }
        self.note_queued(waiter, count, now);
    }

    #[inline]
    fn queue(&mut self, from: &[u8], requests: Range<usize>, waiter: W, count: u32, now: Instant) {
        match &mut self.kept {
            Some(kept) => {
                debug_assert_eq!(count, 1);
                kept.push(from, requests);
            }
            None => self.outgoing.push_from(from, requests),
        }
        self.note_queued(waiter, count, now);
    }

    #[inline]
    fn note_queued(&mut self, waiter: W, count: u32, now: Instant) {
        if self.waiting == 0 && self.is_ready() {
            self.expect_answer(now);
        }
        self.waiting += count as usize;
        self.unsent += count as usize;
        match self.waiters.back_mut() {
            Some(run) if run.waiter == waiter => run.count += count,
            _ => self.waiters.push_back(Run { waiter, count }),
        }
    }

    /// Queues bytes on a link whose owner knows what they ask for.
    pub fn push_unmatched(&mut self, bytes: &[u8]) {
        debug_assert!(self.kept.is_none());
        self.outgoing.push(bytes);
    }

    /// Whether what is queued is kept here although the link is ready: it may be sent on another.
    pub fn hold_back(&mut self, held_back: bool) {
        self.held_back = held_back;
    }

    /// Takes out what was queued by [`Self::push_unmatched`] and held back so far.
    pub fn take_unmatched(&mut self) -> Vec<u8> {
        debug_assert!(self.held_back, "some of it may be sent");
        self.outgoing.take()
    }

    /// Writes what is queued, as far as the socket takes it.
    pub fn flush(&mut self, now: Instant) -> Result<(), LinkError> {
        if !self.connected {
            if let Some(error) = self.stream.take_error().map_err(LinkError::Connect)? {
                return Err(LinkError::Connect(error));
            }
            if !self.stream.is_connected() {
                return Ok(());
            }
            self.connected = true;
        }
        if self.greeting.is_some() {
            self.first_words.flush(&mut self.stream).map_err(LinkError::Connect)?;
            self.stream.flush().map_err(LinkError::Connect)
        } else if self.held_back {
            Ok(())
        } else {
            match &mut self.kept {
                Some(kept) => kept.flush(&mut self.stream),
                None => self.outgoing.flush(&mut self.stream),
            }
            .map_err(LinkError::Io)?;
            self.stream.flush().map_err(LinkError::Io)?;
            self.note_taken(now);
            if self.backlog_bytes() == 0 {
                self.unsent = 0;
                if self.shut == Shut::Wanted && !self.stream.wants_write() {
                    self.shut = Shut::Done;
                    self.stream.shut_write();
                }
            }
            Ok(())
        }
    }

    /// Closes this side of the connection as soon as what is queued is sent. The server answers
    /// what it can answer at once, and then closes its side: it does not go on waiting for the
    /// sake of a client that has left.
    pub fn shut(&mut self, now: Instant) -> Result<(), LinkError> {
        if self.shut == Shut::No {
            self.shut = Shut::Wanted;
            if self.is_ready() {
                self.expect_answer(now);
            }
        }
        self.flush(now)
    }

    /// Nothing more can be asked here: see [`Self::shut`].
    pub fn is_shut(&self) -> bool {
        self.shut != Shut::No
    }

    /// Sends what is queued, unless it is better to wait for the answers to what is out.
    ///
    /// While requests are out, later ones gather and leave together when the answers have
    /// come, or when as many have gathered as are out. That is what makes a busy pipeline
    /// cheap, for both sides: a write costs the same for one request as for thirty. A request
    /// waits for one answer of the server at most, and only if the server is so near that it
    /// could answer within `GATHER_TIME`; nothing waits on a pipeline on which nothing is out.
    pub fn flush_gathered(&mut self, now: Instant) -> Result<(), LinkError> {
        if self.stream.is_full() || self.stream.wants_write() {
            // It was given to the socket already; if encrypted, it is no longer among what is
            // queued.
            return self.flush(now);
        }
        // Of what was sent in part, some may be answered while the rest is still unsent.
        let out = self.waiting.saturating_sub(self.unsent);
        let (enough, most) = match self.kept {
            Some(_) => (0, GATHER_SPREAD_REQUESTS),
            None => (self.unsent, GATHER_REQUESTS),
        };
        if out > enough
            && self.answer_time < GATHER_TIME
            && self.unsent < most
            && self.backlog_bytes() < GATHER_BYTES
            && self.is_ready()
        {
            return Ok(());
        }
        if out == 0 {
            self.sent_at = Some(now);
        }
        self.flush(now)
    }

    /// Reads once and hands over what came. `scratch` is only used during the call.
    /// `answered` gets the mark of each request that is answered, where there are marks, with
    /// the reply, or its last piece and how many bytes came before that.
    pub fn receive(
        &mut self,
        scratch: &mut [u8],
        now: Instant,
        mut deliver: impl FnMut(Delivery<'_, W>),
        mut answered: impl FnMut(&W::Mark, &[u8], u64),
    ) -> Result<Received, LinkError> {
        let count = loop {
            match self.stream.read(scratch) {
                Ok(0) => return Err(self.closed()),
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.go_on_greeting()?;
                    return Ok(Received::Drained);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.is_ready() => return Err(LinkError::Io(error)),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset && self.is_mute() => {
                    return Err(LinkError::Mute);
                }
                Err(error) => return Err(LinkError::Connect(error)),
            }
        };
        self.expect_answer(now);
        if let Some(sent_at) = self.sent_at.take() {
            let time = now.saturating_duration_since(sent_at);
            self.answer_time = self.answer_time.min(time);
        }
        let fresh = &scratch[..count];
        if self.input.is_empty() {
            let used = self.take(fresh, &mut deliver, &mut answered)?;
            self.input.extend_from_slice(&fresh[used..]);
        } else {
            let mut input = std::mem::take(&mut self.input);
            input.extend_from_slice(fresh);
            let used = self.take(&input, &mut deliver, &mut answered)?;
            if used == input.len() && input.capacity() > 4 * STREAM_BYTES {
                input = Vec::new();
            } else {
                input.drain(..used);
            }
            self.input = input;
        }
        self.go_on_greeting()?;
        let more = count == scratch.len() || self.stream.has_ended();
        if more { Ok(Received::More) } else { Ok(Received::Drained) }
    }

    /// The waiters whose replies will not come, oldest first, with their number; and whether
    /// part of the first reply was handed over already.
    pub fn abandon(&mut self) -> (bool, impl Iterator<Item = (W, u32)> + use<W>) {
        self.waiting = 0;
        let waiters = std::mem::take(&mut self.waiters);
        (self.within, waiters.into_iter().map(|run| (run.waiter, run.count)))
    }

    /// The marks of requests that were not answered, oldest first. They are given up.
    pub fn take_marks(&mut self) -> impl Iterator<Item = W::Mark> + use<W> {
        self.marks.as_mut().map(std::mem::take).unwrap_or_default().into_iter()
    }

    /// The address of this side, by which the server knows the connection unless it was translated.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.stream.local_address()
    }

    /// The address it was opened to, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What is registered for events, to end that; the socket closes when the link is dropped.
    pub fn source(&mut self) -> &mut impl Source {
        &mut self.stream
    }

    /// With TLS, the first words can be said only after what was just read.
    fn go_on_greeting(&mut self) -> Result<(), LinkError> {
        if self.greeting.is_some() { self.flush(self.since) } else { Ok(()) }
    }

    /// Connected without TLS, and not a byte has come.
    fn is_mute(&self) -> bool {
        let unanswered = self.greeting.as_ref().is_some_and(|greeting| !greeting.is_answered());
        self.connected && unanswered && self.input.is_empty() && !self.stream.is_tls()
    }

    /// The end of the stream means different things before and after the greeting.
    fn closed(&self) -> LinkError {
        match &self.greeting {
            // `maxclients` and protected mode are said before the connection is closed.
            Some(_) if self.input.first() == Some(&b'-') => {
                LinkError::Refused(self.input[1..].trim_ascii_end().to_vec())
            }
            Some(_) if self.is_mute() => LinkError::Mute,
            Some(_) => LinkError::Connect(io::ErrorKind::ConnectionReset.into()),
            None => LinkError::Closed,
        }
    }

    /// Hands over what is complete in `buf`; returns how many bytes are done with.
    fn take(
        &mut self,
        buf: &[u8],
        deliver: &mut impl FnMut(Delivery<'_, W>),
        answered: &mut impl FnMut(&W::Mark, &[u8], u64),
    ) -> Result<usize, LinkError> {
        let mut used = 0;
        while self.greeting.is_some() {
            let frame = self.next_frame(&buf[used..]).map_err(|_| not_a_server())?;
            let Some(frame) = frame else { return Ok(used) };
            let frame = &buf[used..used + frame];
            used += frame.len();
            self.greet(frame)?;
        }
        used += match self.framing {
            Framing::Replies => self.take_replies(&buf[used..], deliver, answered)?,
            Framing::Frames => self.take_frames(&buf[used..], deliver)?,
        };
        Ok(used)
    }

    fn greet(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        let Some(greeting) = &mut self.greeting else { return Ok(()) };
        if greeting.on_reply(frame).map_err(LinkError::Refused)? {
            self.connection_id = greeting.connection_id;
            self.needs_auth = greeting.needs_auth;
            self.greeting = None;
            self.first_words = Outgoing::default();
            // It was heard just now.
            self.flush(self.since)?;
        }
        Ok(())
    }

    fn next_frame(&mut self, buf: &[u8]) -> Result<Option<usize>, LinkError> {
        if buf.is_empty() {
            return Ok(None);
        }
        match self.scan.advance(buf) {
            Ok(Status::Complete(len)) => Ok(Some(len)),
            Ok(Status::Incomplete) => Ok(None),
            Err(_) => Err(LinkError::Garbled),
        }
    }

    fn take_replies(
        &mut self,
        buf: &[u8],
        deliver: &mut impl FnMut(Delivery<'_, W>),
        answered: &mut impl FnMut(&W::Mark, &[u8], u64),
    ) -> Result<usize, LinkError> {
        let mut at = 0;
        while at < buf.len() {
            if buf[at] == b'>' && !self.within {
                let Some(len) = self.next_frame(&buf[at..])? else { return Ok(at) };
                deliver(Delivery::Push(&buf[at..at + len]));
                at += len;
                continue;
            }
            let Some(run) = self.waiters.front() else { return Err(LinkError::Garbled) };
            let (waiter, wanted) = (run.waiter, run.count);
            let start = at;
            let mut incomplete = false;
            let mut elsewhere = None;
            let mut failed = None;
            while self.ends.len() < wanted as usize
                && at < buf.len()
                && (buf[at] != b'>' || self.within)
            {
                let len = match self.next_frame(&buf[at..]) {
                    Ok(Some(len)) => len,
                    Ok(None) => {
                        incomplete = true;
                        break;
                    }
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                };
                if let Some(marks) = &mut self.marks
                    && let Some(mark) = marks.front()
                {
                    // Where it lies: a copy would be read before it is written.
                    answered(mark, &buf[at..at + len], std::mem::take(&mut self.passed));
                    marks.pop_front();
                }
                if buf[at] == b'-'
                    && !self.within
                    && self.kept.is_some()
                    && is_for_elsewhere(&buf[at..at + len])
                {
                    elsewhere = Some(len);
                    break;
                }
                at += len;
                self.ends.push(at - start);
                self.within = false;
            }
            if !self.ends.is_empty() {
                let bytes = &buf[start..at];
                deliver(Delivery::Replies { waiter, ends: &self.ends, bytes });
                if let Some(kept) = &mut self.kept {
                    kept.forget(self.ends.len());
                }
                self.answered(self.ends.len() as u32);
                self.ends.clear();
            }
            if let Some(error) = failed {
                return Err(error);
            }
            if let Some(len) = elsewhere {
                let error = &buf[at..at + len];
                if let Some(requests) = &self.kept {
                    let request = requests.front();
                    let behind = Behind { waiters: &self.waiters, requests, skipped: 1 };
                    deliver(Delivery::Elsewhere { waiter, request, error, behind });
                }
                if let Some(kept) = &mut self.kept {
                    kept.forget(1);
                }
                self.answered(1);
                at += len;
            }
            if incomplete {
                let rest = buf.len() - at;
                if rest >= STREAM_BYTES && (self.within || !(self.holds || waiter.wants_whole())) {
                    let len = self.scan.pass(rest);
                    deliver(Delivery::Part { waiter, bytes: &buf[at..at + len] });
                    self.within = true;
                    self.passed += len as u64;
                    at += len;
                }
                return Ok(at);
            }
        }
        Ok(at)
    }

    /// `count` replies of the first run have come.
    #[inline]
    fn answered(&mut self, count: u32) {
        self.waiting -= count as usize;
        self.told += u64::from(count);
        if let Some(run) = self.waiters.front_mut() {
            run.count -= count;
            if run.count == 0 {
                self.waiters.pop_front();
            }
        }
    }

    fn take_frames(
        &mut self,
        buf: &[u8],
        deliver: &mut impl FnMut(Delivery<'_, W>),
    ) -> Result<usize, LinkError> {
        let mut at = 0;
        while at < buf.len() {
            let begins = !self.within;
            if let Some(len) = self.next_frame(&buf[at..])? {
                deliver(Delivery::Frame { bytes: &buf[at..at + len], begins, ends: true });
                self.within = false;
                at += len;
            } else {
                let rest = buf.len() - at;
                if rest >= STREAM_BYTES {
                    let len = self.scan.pass(rest);
                    deliver(Delivery::Frame { bytes: &buf[at..at + len], begins, ends: false });
                    self.within = true;
                    at += len;
                }
                break;
            }
        }
        Ok(at)
    }
}

/// Errors with which a node of a cluster does not execute a request that another node, or the
/// same one a little later, would. What has the wrong type may stand where a value was moved
/// from.
fn is_for_elsewhere(error: &[u8]) -> bool {
    let words: [&[u8]; 7] = [
        b"-MOVED ",
        b"-ASK ",
        b"-TRYAGAIN ",
        b"-CLUSTERDOWN ",
        b"-MASTERDOWN ",
        b"-LOADING ",
        b"-WRONGTYPE ",
    ];
    words.iter().any(|prefix| error.starts_with(prefix))
}

/// Whatever answers there does not speak the protocol.
fn not_a_server() -> LinkError {
    let text = "what listens there does not speak RESP";
    LinkError::Connect(io::Error::new(io::ErrorKind::InvalidData, text))
}
