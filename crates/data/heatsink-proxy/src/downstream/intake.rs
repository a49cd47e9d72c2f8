//! From a client's bytes to requests, and from each request to what is done with it.
//!
//! Called by: the worker when a client is readable, or may go on.
//! Bound: input is buffered only for a request that is incomplete, up to [`BIG_REQUEST_BYTES`] if it
//! can then be passed on piece by piece on a dedicated connection, else up to the limit of a request;
//! or for one that has to wait. Nothing is read from a client that waits.

use std::io::{self, Read};
use std::ops::Range;
use std::rc::Rc;

use heatsink_resp::command::{Command, CommandTable};
use heatsink_resp::request::{ProtocolError, RequestScan, Status};

use crate::cluster::node_batches::Text;
use crate::decide::Decision;
pub(crate) use crate::downstream::batch::Batch;
use crate::downstream::clients::Clients;
use crate::downstream::clients::MAX_OUTSTANDING;
use crate::downstream::connection::{Client, ClientKey, Closing, Replies};
use crate::downstream::request::Request;
use crate::hot::runs::Run;
use crate::hot::{Hotness, Verdict};
use crate::observe::Mark;
use crate::runtime::worker::Worker;
use crate::session::dedicated::Expected;

/// Requests above this size are passed on before they are complete, if all their keys are known; and
/// not along the pipelines that clients share, unless they touch hot keys.
pub(crate) const BIG_REQUEST_BYTES: usize = 256 << 10;
/// Above this much unsent on a link, its clients are not read from.
pub(crate) const BACKLOG_BYTES: usize = 1 << 20;
/// The same for what is sent and kept because it is not answered.
pub(crate) const KEPT_BYTES: usize = 16 << 20;

/// What each turn uses and none keeps.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// What sockets are read into.
    pub(crate) read: Vec<u8>,
    /// The arguments of the request at hand.
    args: Vec<Range<usize>>,
    /// Requests that go together.
    batch: Batch,
}

impl Scratch {
    pub(crate) fn new(read_bytes: usize) -> Self {
        Self { read: vec![0; read_bytes], args: Vec::new(), batch: Batch::default() }
    }
}

/// Whether a request was dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Taken,
    /// It stays in the input until the client is resumed.
    Wait,
}

/// The command before, which in a pipeline is often the same.
#[derive(Default)]
struct Memo<'b, 't> {
    name: &'b [u8],
    command: Option<&'t Command>,
}

impl<'b, 't> Memo<'b, 't> {
    #[inline]
    fn lookup(
        &mut self,
        table: &'t CommandTable,
        name: &'b [u8],
        second: Option<&[u8]>,
    ) -> Option<&'t Command> {
        if self.name == name && self.command.is_some_and(|command| !command.needs_second_argument())
        {
            return self.command;
        }
        self.name = name;
        self.command = table.lookup(name, second);
        self.command
    }
}

impl Worker {
    /// Reads once from a client and acts on what came.
    pub(crate) fn read_client(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get(key) else { return };
        match client.closing {
            Closing::No if client.stopped || !client.readable => return,
            Closing::AfterReplies => return,
            Closing::No | Closing::Lingering { .. } => {}
        }
        let lingering = client.closing != Closing::No;
        let read = if lingering {
            client.socket.read_raw(&mut self.scratch.read)
        } else {
            client.socket.read(&mut self.scratch.read)
        };
        match read {
            Ok(0) => {
                client.readable = false;
                client.eof = true;
                self.close_if_done(key);
            }
            Ok(count) => {
                // A short read has emptied the socket, unless its end is still to be read.
                client.readable =
                    count == self.scratch.read.len() || client.hung_up || client.socket.has_ended();
                if client.readable {
                    self.clients.eager.push(key);
                }
                if !lingering {
                    self.take_fresh(key, count);
                    self.clients.count_input(key);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => client.readable = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.clients.eager.push(key);
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData && !lingering => {
                // TLS: what is wrong is told by an alert, which has to be read.
                tracing::info!(%error, "a client was closed");
                self.linger(key);
            }
            Err(_) => {
                client.readable = false;
                client.eof = true;
                self.client_gone(key);
            }
        }
    }

    /// Goes on with a client that had to wait.
    pub(crate) fn resume(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get(key) else { return };
        if client.session.is_some() {
            // Two things that it waited for happened at once, and the first has led it into a
            // wait for something else: the answer to that resumes it.
            return;
        }
        client.stopped = false;
        if client.closing == Closing::No && !client.input.is_empty() {
            let input = std::mem::take(&mut client.input);
            self.take_held(key, input);
            self.clients.count_input(key);
        }
        self.read_client(key);
        self.close_if_done(key);
        self.close_if_draining(key);
    }

    /// Acts on `count` bytes in the scratch buffer.
    fn take_fresh(&mut self, key: ClientKey, count: usize) {
        let Some(client) = self.clients.get(key) else { return };
        let read = std::mem::take(&mut self.scratch.read);
        if client.input.is_empty() {
            let used = self.take_requests(key, &read[..count]);
            if used < count
                && let Some(client) = self.clients.get(key)
                && client.closing == Closing::No
            {
                client.input.extend_from_slice(&read[used..count]);
            }
        } else {
            let mut input = std::mem::take(&mut client.input);
            input.extend_from_slice(&read[..count]);
            self.take_held(key, input);
        }
        self.scratch.read = read;
    }

    /// Acts on bytes that had been held, and holds what is left of them.
    fn take_held(&mut self, key: ClientKey, mut input: Vec<u8>) {
        let used = self.take_requests(key, &input);
        if used < input.len()
            && let Some(client) = self.clients.get(key)
            && client.closing == Closing::No
        {
            input.drain(..used);
            client.input = input;
        }
    }

    /// Acts on the requests in `buf`; returns how many bytes are done with.
    fn take_requests(&mut self, key: ClientKey, buf: &[u8]) -> usize {
        let table = Rc::clone(&self.table);
        let mut args = std::mem::take(&mut self.scratch.args);
        let mut batch = std::mem::take(&mut self.scratch.batch);
        let mut last = None;
        let taken_before = self.taken;
        let used = self.take_each(key, buf, &table, &mut args, &mut batch, &mut last);
        self.forward_batch(key, buf, &mut batch);
        self.clients.is_leaving_out(key, self.taken > taken_before);
        let (spread, now) = (self.cluster.view.is_some(), self.now);
        if let (Some(name), Some(client)) = (last, self.clients.get(key)) {
            if spread {
                // What came together is one burst, unless the one before is not over.
                client.order.is_within_burst();
            }
            client.record.note_request(name, now);
            if client.within {
                self.taken_within += self.taken - taken_before;
            }
        }
        args.clear();
        args.shrink_to(1024);
        self.scratch.args = args;
        self.scratch.batch = batch;
        used
    }

    fn take_each<'t>(
        &mut self,
        key: ClientKey,
        buf: &[u8],
        table: &'t CommandTable,
        args: &mut Vec<Range<usize>>,
        batch: &mut Batch,
        last: &mut Option<&'t str>,
    ) -> usize {
        let mut at = 0;
        let mut memo = Memo::default();
        let taken_before = self.taken;
        let mut run = Run::default();
        while at < buf.len() {
            let Some(client) = self.clients.get(key) else { return buf.len() };
            if client.closing != Closing::No {
                return buf.len();
            }
            if client.retrying > 0 || client.alone && client.order.outstanding() > 0 {
                self.clients.stop(key);
                break;
            }
            client.alone = false;
            if client.stopped || client.session.is_some() {
                break;
            }
            if client.dedicated.as_ref().is_some_and(|dedicated| dedicated.uploading) {
                match self.pass_on(key, &buf[at..]) {
                    0 => break,
                    passed => at += passed,
                }
                continue;
            }
            let (within, replies) = (client.within, client.replies);
            if client.hot.version != self.mitigations.version()
                && !within
                && !self.follow_hot_keys(key)
            {
                self.clients.stop(key);
                break;
            }
            if replies != Replies::On && self.clients.is_leaving_out(key, self.taken > taken_before)
            {
                self.forward_batch(key, buf, batch);
                if self.clients.waits_for_left_out(key) {
                    self.clients.stop(key);
                    break;
                }
            }
            let limits = &self.request_limits[usize::from(self.is_unauthenticated(key))];
            let Some(client) = self.clients.get_ref(key) else { return buf.len() };
            args.clear();
            let mut scan = client.scan;
            let resumed = scan.is_within_request();
            let mut status = scan.advance(&buf[at..], limits, |span| args.push(span));
            if resumed && matches!(status, Ok(Status::Complete { .. })) {
                // The arguments reported before are forgotten by now.
                args.clear();
                status = RequestScan::default().advance(&buf[at..], limits, |span| args.push(span));
            }
            if let Some(client) = self.clients.get(key) {
                client.scan = scan;
                client.held &= scan.is_within_request();
            }
            match status {
                Ok(Status::Complete { len }) => {
                    let request = Request { bytes: &buf[at..at + len], args };
                    let name = &buf[at + args[0].start..at + args[0].end];
                    let command = memo.lookup(table, name, request.arg(1));
                    *last = command.map(|command| &*command.name);
                    let Some(mut decision) = self.decide(key, command, request) else {
                        return buf.len();
                    };
                    let mut hot = None;
                    if decision == Decision::Mitigate
                        && let Some(command) = command
                        && self.hotness(key, request, command) == Hotness::Hot
                    {
                        if self.join_to_shard(key, request, command, at, batch) {
                            self.taken += 1;
                            at += len;
                            continue;
                        }
                        self.forward_batch(key, buf, batch);
                        // Before anything is remembered of it: a request that waits comes again.
                        if self.behind_old_map(key).is_some() {
                            self.clients.stop(key);
                            break;
                        }
                        let together =
                            self.stays_together(key, (buf, at), request, command, table, &mut run);
                        match self.mitigate(key, request, command, together) {
                            Verdict::Done(Flow::Taken) => {
                                self.taken += 1;
                                at += len;
                                continue;
                            }
                            Verdict::Done(Flow::Wait) => {
                                self.clients.stop(key);
                                break;
                            }
                            Verdict::Marked(mark) => hot = Some(mark),
                            Verdict::Pass => {}
                        }
                    }
                    if decision == Decision::Mitigate {
                        // No mitigation takes it: it goes on as if its keys were not hot.
                        let goes_alone = len >= BIG_REQUEST_BYTES
                            && hot.is_none()
                            && self.cluster.view.is_none();
                        decision = if goes_alone {
                            Decision::Dedicated(Expected::Plain)
                        } else {
                            Decision::Pass
                        };
                    }
                    match (decision, command) {
                        (Decision::Pass, Some(command)) if self.cluster.view.is_some() => {
                            if let Some(node) =
                                self.fast_path_node(key, request, command, &batch.node_batches)
                            {
                                let text = Text::Asked(at..at + len);
                                self.join_batch(key, request, command, at, (node, text), batch);
                            } else {
                                self.forward_batch(key, buf, batch);
                                if self.forward_clustered(key, request, command) == Flow::Wait {
                                    self.clients.stop(key);
                                    break;
                                }
                            }
                        }
                        (Decision::Pass, _) => {
                            if batch.bytes.end != at {
                                self.forward_batch(key, buf, batch);
                                batch.bytes.start = at;
                            }
                            if batch.marks.is_empty()
                                && let Some(flow) = self.behind_old_map(key)
                            {
                                debug_assert_eq!(flow, Flow::Wait);
                                self.clients.stop(key);
                                break;
                            }
                            let place = batch.marks.len();
                            let mark = hot.unwrap_or_else(|| match (command, &mut self.observer) {
                                (Some(command), Some(observer)) if !within => {
                                    observer.sent_in_batch(key, command, request, at, place)
                                }
                                _ => Mark::Nothing,
                            });
                            batch.marks.push(mark);
                            batch.bytes.end = at + len;
                            if batch.marks.len() as u32 >= MAX_OUTSTANDING / 4 {
                                self.taken += 1;
                                at += len;
                                self.forward_batch(key, buf, batch);
                                continue;
                            }
                        }
                        (decision, command) => {
                            self.forward_batch(key, buf, batch);
                            let flow = self.settle_and_carry_out(key, request, command, decision);
                            if flow == Flow::Wait {
                                self.clients.stop(key);
                                break;
                            }
                        }
                    }
                    self.taken += 1;
                    at += len;
                }
                Ok(Status::Inline { len }) => {
                    self.forward_batch(key, buf, batch);
                    match self.take_inline(key, &buf[at..at + len], table) {
                        Ok(Flow::Taken) => {
                            self.taken += 1;
                            at += len;
                        }
                        Ok(Flow::Wait) => {
                            self.clients.stop(key);
                            break;
                        }
                        Err(error) => return self.clients.refuse(key, error, buf.len(), at),
                    }
                }
                Ok(Status::Empty { len }) => at += len,
                Ok(Status::Incomplete) => {
                    let held = self.clients.get_ref(key).is_some_and(|client| client.held);
                    if held || buf.len() - at < BIG_REQUEST_BYTES {
                        break;
                    }
                    self.forward_batch(key, buf, batch);
                    match self.begin_upload(key, &buf[at..], table, args) {
                        // The next round passes on what is there.
                        Some(Flow::Taken) => {}
                        Some(Flow::Wait) => {
                            self.clients.stop(key);
                            break;
                        }
                        None => {
                            if let Some(client) = self.clients.get(key) {
                                client.held = true;
                            }
                            break;
                        }
                    }
                }
                Err(error) => {
                    self.forward_batch(key, buf, batch);
                    return self.clients.refuse(key, error, buf.len(), at);
                }
            }
        }
        at
    }

    /// The small limits hold: the server has asked for a password and got none yet.
    #[inline]
    pub(crate) fn is_unauthenticated(&self, key: ClientKey) -> bool {
        let client = self.clients.get_ref(key);
        client.is_some_and(|client| {
            (self.upstream.pools[client.pool].needs_auth || !client.is_known)
                && client.dedicated.as_ref().is_none_or(|dedicated| !dedicated.strayed)
        })
    }
}

impl Clients {
    /// Whether the reply to the last request that was taken is to be left out; `is_taken` if one was
    /// taken since the client said so.
    pub(crate) fn is_leaving_out(&mut self, key: ClientKey, is_taken: bool) -> bool {
        let Some(client) = self.get(key) else { return false };
        if client.replies == Replies::SkipNext && is_taken {
            client.replies = Replies::Skipping;
        }
        client.replies == Replies::Skipping
    }

    /// Goes on with a client as before when the request is answered; true if it is not yet.
    pub(crate) fn waits_for_left_out(&mut self, key: ClientKey) -> bool {
        let Some(client) = self.get(key) else { return false };
        if !client.is_settled() {
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

    /// A request that breaks the protocol or a limit: said so, then closed.
    pub(crate) fn refuse(
        &mut self,
        key: ClientKey,
        error: ProtocolError,
        len: usize,
        at: usize,
    ) -> usize {
        let settled = self.get_ref(key).is_none_or(Client::is_settled);
        if !settled {
            // Its turn comes when what was asked before has been answered.
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
