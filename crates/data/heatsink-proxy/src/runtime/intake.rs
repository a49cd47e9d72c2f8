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

use crate::cluster::forward::{Batch, Text};
use crate::decide::{Decision, Situation, decide};
use crate::downstream::clients::MAX_OUTSTANDING;
use crate::downstream::connection::{ClientKey, Closing, Replies};
use crate::downstream::request::{BIG_REQUEST_BYTES, Flow, Request};
use crate::hot::runs::Run;
use crate::hot::{Hotness, Incoming, Mitigated};
use crate::observe::Mark;
use crate::relay::Relay;
use crate::runtime::worker::Worker;
use crate::session::dedicated::Expected;

/// Buffers that every turn uses, and that are empty between turns.
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

/// The command of the previous request: in a pipeline the next one is often the same.
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

/// One client's input, while its requests are looked at.
struct Intake<'b, 't> {
    key: ClientKey,
    buf: &'b [u8],
    /// It moves data for this process.
    is_within: bool,
    table: &'t CommandTable,
    /// The arguments of the request at hand.
    args: Vec<Range<usize>>,
    /// Requests to be passed on together, which are not queued on a link yet.
    batch: Batch,
    memo: Memo<'b, 't>,
    run: Run,
    /// The last command.
    last: Option<&'t str>,
    /// How many requests the worker had taken before.
    taken_before: u64,
}

/// Whether the next request of a client may be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Not before what the client waits for has happened.
    Shut,
    /// A large request is being passed on, and the input is a piece of it.
    Uploading,
    /// No: the client has gone, or no more requests are taken from it.
    Gone,
}

impl Worker {
    /// Reads once from a client and acts on what came.
    pub(crate) fn read_client(&mut self, key: ClientKey) {
        let Some(client) = self.relay.clients.get(key) else { return };
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
                    self.relay.clients.eager.push(key);
                }
                if !lingering {
                    self.hot.notice_pause_in_turn(&self.relay);
                    self.take_fresh(key, count);
                    self.relay.clients.count_input(key);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => client.readable = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.relay.clients.eager.push(key);
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData && !lingering => {
                // TLS: a failed handshake is explained by an alert, which the client has to read.
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
        let Some(client) = self.relay.clients.get(key) else { return };
        if client.session.is_some() {
            // It was resumed twice in one turn, and after the first time it began to wait for
            // something else, which will resume it.
            return;
        }
        client.stopped = false;
        if client.closing == Closing::No && !client.input.is_empty() {
            let input = std::mem::take(&mut client.input);
            self.take_held(key, input);
            self.relay.clients.count_input(key);
        }
        self.read_client(key);
        self.close_if_done(key);
        self.close_if_draining(key);
    }

    /// Acts on `count` bytes in the scratch buffer.
    fn take_fresh(&mut self, key: ClientKey, count: usize) {
        let Some(client) = self.relay.clients.get(key) else { return };
        let read = std::mem::take(&mut self.scratch.read);
        if client.input.is_empty() {
            let used = self.take_requests(key, &read[..count]);
            if used < count
                && let Some(client) = self.relay.clients.get(key)
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
            && let Some(client) = self.relay.clients.get(key)
            && client.closing == Closing::No
        {
            input.drain(..used);
            client.input = input;
        }
    }

    /// Acts on the requests in `buf`. Returns how many bytes of it were taken.
    fn take_requests(&mut self, key: ClientKey, buf: &[u8]) -> usize {
        let table = Rc::clone(&self.relay.table);
        let mut intake = Intake {
            key,
            buf,
            is_within: self.relay.clients.get_ref(key).is_some_and(|client| client.within),
            table: &table,
            args: std::mem::take(&mut self.scratch.args),
            batch: std::mem::take(&mut self.scratch.batch),
            memo: Memo::default(),
            run: Run::default(),
            last: None,
            taken_before: self.taken,
        };
        let used = self.take_each(&mut intake);
        self.forward_batch(key, buf, &mut intake.batch);
        let Intake { mut args, batch, last, taken_before, .. } = intake;
        self.relay.clients.is_leaving_out(key, self.taken > taken_before);
        let (spread, now) = (self.relay.cluster.view.is_some(), self.relay.now);
        if let (Some(name), Some(client)) = (last, self.relay.clients.get(key)) {
            if spread {
                // Requests that came together are one burst, unless the last burst is not over.
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

    fn take_each(&mut self, intake: &mut Intake<'_, '_>) -> usize {
        let (key, buf) = (intake.key, intake.buf);
        let mut at = 0;
        while at < buf.len() {
            match self.gate(intake) {
                Gate::Open => {}
                Gate::Shut => break,
                Gate::Gone => return buf.len(),
                Gate::Uploading => {
                    let passed = self.sessions().pass_on(key, &buf[at..]);
                    self.apply_effects();
                    if passed == 0 {
                        break;
                    }
                    at += passed;
                    continue;
                }
            }
            let (len, flow) = match self.scan_request(intake, at) {
                Ok(Status::Complete { len }) => (len, self.take_complete(intake, at, len)),
                Ok(Status::Inline { len }) => {
                    self.forward_batch(key, buf, &mut intake.batch);
                    match self.take_inline(key, &buf[at..at + len], intake.table) {
                        Ok(flow) => (len, flow),
                        Err(error) => return self.relay.clients.refuse(key, error, buf.len(), at),
                    }
                }
                Ok(Status::Empty { len }) => {
                    at += len;
                    continue;
                }
                Ok(Status::Incomplete) => match self.take_incomplete(intake, at) {
                    // The next round passes on what is there.
                    Some(Flow::Taken) => continue,
                    Some(Flow::Wait) => (0, Flow::Wait),
                    None => break,
                },
                Err(error) => {
                    self.forward_batch(key, buf, &mut intake.batch);
                    return self.relay.clients.refuse(key, error, buf.len(), at);
                }
            };
            self.apply_effects();
            if flow == Flow::Wait {
                self.relay.clients.stop(key);
                break;
            }
            self.taken += 1;
            at += len;
        }
        at
    }

    /// Whether the next request of a client may be looked at.
    #[inline]
    fn gate(&mut self, intake: &mut Intake<'_, '_>) -> Gate {
        let key = intake.key;
        let Some(client) = self.relay.clients.get(key) else { return Gate::Gone };
        if client.closing != Closing::No {
            return Gate::Gone;
        }
        if client.retrying > 0 || client.alone && client.order.outstanding() > 0 {
            client.stopped = true;
            return Gate::Shut;
        }
        client.alone = false;
        if client.stopped || client.session.is_some() {
            return Gate::Shut;
        }
        if client.dedicated.as_ref().is_some_and(|dedicated| dedicated.uploading) {
            return Gate::Uploading;
        }
        let (within, replies) = (client.within, client.replies);
        if client.hot.version != self.hot.version()
            && !within
            && !self.hot.follow_hot_keys(&mut self.relay, key)
        {
            self.relay.clients.stop(key);
            return Gate::Shut;
        }
        if replies != Replies::On
            && self.relay.clients.is_leaving_out(key, self.taken > intake.taken_before)
        {
            self.forward_batch(key, intake.buf, &mut intake.batch);
            if self.relay.clients.waits_for_left_out(key) {
                self.relay.clients.stop(key);
                return Gate::Shut;
            }
        }
        Gate::Open
    }

    /// Looks for the end of the next request, and for its arguments.
    #[inline]
    fn scan_request(
        &mut self,
        intake: &mut Intake<'_, '_>,
        at: usize,
    ) -> Result<Status, ProtocolError> {
        let Intake { key, buf, args, .. } = intake;
        let limits = &self.relay.request_limits[usize::from(self.relay.is_unauthenticated(*key))];
        let Some(client) = self.relay.clients.get(*key) else { return Ok(Status::Incomplete) };
        args.clear();
        let resumed = client.scan.is_within_request();
        let mut status = client.scan.advance(&buf[at..], limits, |span| args.push(span));
        if resumed && matches!(status, Ok(Status::Complete { .. })) {
            // The arguments reported before are forgotten by now.
            args.clear();
            status = RequestScan::default().advance(&buf[at..], limits, |span| args.push(span));
        }
        client.held &= client.scan.is_within_request();
        status
    }

    /// Takes a whole request: decides about it, and has it mitigated, passed on or carried out.
    #[inline]
    fn take_complete(&mut self, intake: &mut Intake<'_, '_>, at: usize, len: usize) -> Flow {
        let (key, buf) = (intake.key, intake.buf);
        let args = std::mem::take(&mut intake.args);
        let request = Request { bytes: &buf[at..at + len], args: &args };
        let name = &buf[at + args[0].start..at + args[0].end];
        let command = intake.memo.lookup(intake.table, name, request.arg(1));
        intake.last = command.map(|command| &*command.name);
        let flow = match (self.decide(key, command, request), command) {
            (Some(Decision::Pass), command) => self.pass(intake, request, command, at, None),
            (Some(Decision::Mitigate), Some(command)) => {
                self.take_hot(intake, request, command, at)
            }
            (Some(decision), command) if intake.batch.marks.is_empty() => {
                self.settle_and_carry_out(key, request, command, decision)
            }
            (Some(_), command) => {
                // The decision depends on which requests are unanswered: first those before it are queued.
                self.forward_batch(key, buf, &mut intake.batch);
                self.dispatch(key, request, command)
            }
            (None, _) => Flow::Wait,
        };
        intake.args = args;
        flow
    }

    /// What becomes of a request of a client that is still there.
    #[inline]
    pub(crate) fn decide(
        &self,
        key: ClientKey,
        command: Option<&Command>,
        request: Request<'_>,
    ) -> Option<Decision> {
        let client = self.relay.clients.get_ref(key)?;
        let (is_clustered, checks_logins) =
            (self.relay.cluster.view.is_some(), self.relay.shared.verifier.is_some());
        let mut situation = Situation::of(client, is_clustered, checks_logins);
        if self.hot.has_moved() && !client.within && self.relay.is_unauthenticated(key) {
            // The server refuses whatever it asks: no value is moved for that.
            situation.is_known = false;
        }
        let touches_hot =
            |command: &Command| self.hot.is_active() && self.hot.touches_hot_keys(request, command);
        Some(decide(&situation, command, request, touches_hot))
    }

    /// A request that touches hot keys; if no mitigation takes it, it goes on as if they were not hot.
    fn take_hot(
        &mut self,
        intake: &mut Intake<'_, '_>,
        request: Request<'_>,
        command: &Command,
        at: usize,
    ) -> Flow {
        let (key, buf) = (intake.key, intake.buf);
        let incoming = Incoming { key, request, command, together: false };
        let mut hot = None;
        if self.hot.hotness(&mut self.relay, incoming) == Hotness::Hot {
            if self.join_to_shard(key, request, command, at, &mut intake.batch) {
                return Flow::Taken;
            }
            self.forward_batch(key, buf, &mut intake.batch);
            // Before anything is remembered of it: a request that waits comes again.
            if self.relay.routing().behind_old_map(key).is_some() {
                return Flow::Wait;
            }
            let run = &mut intake.run;
            let together =
                self.hot.stays_together(&self.relay, incoming, (buf, at), intake.table, run);
            let incoming = Incoming { together, ..incoming };
            let mitigated = self.hot.mitigate(&mut self.relay, incoming);
            self.apply_effects();
            match mitigated {
                Mitigated::Done(flow) => return flow,
                Mitigated::Marked(mark) => hot = Some(mark),
                Mitigated::Cold => {}
            }
        }
        let is_big = request.bytes.len() >= BIG_REQUEST_BYTES;
        if is_big && hot.is_none() && self.relay.cluster.view.is_none() {
            self.forward_batch(key, buf, &mut intake.batch);
            let decision = Decision::Dedicated(Expected::Plain);
            return self.settle_and_carry_out(key, request, Some(command), decision);
        }
        self.pass(intake, request, Some(command), at, hot)
    }

    /// Passes a request on along a shared link, together with earlier ones of its client; `hot` is what the
    /// mitigations remember of it.
    #[inline]
    fn pass(
        &mut self,
        intake: &mut Intake<'_, '_>,
        request: Request<'_>,
        command: Option<&Command>,
        at: usize,
        hot: Option<Mark>,
    ) -> Flow {
        let Intake { key, buf, batch, is_within, .. } = intake;
        let (key, len, is_within) = (*key, request.bytes.len(), *is_within);
        if self.relay.cluster.view.is_some()
            && let Some(command) = command
        {
            let Relay { clients, upstream, cluster, .. } = &self.relay;
            let batches = &batch.node_batches;
            let node = clients.get_ref(key).and_then(|client| {
                cluster.fast_path_node(upstream, client, request, command, batches)
            });
            let Some(node) = node else {
                self.forward_batch(key, buf, batch);
                return self.relay.routing().forward_clustered(key, request, command);
            };
            let text = Text::Asked(at..at + len);
            self.relay.routing().join_batch(key, request, command, at, (node, text), batch);
            return Flow::Taken;
        }
        if batch.bytes.end != at {
            self.forward_batch(key, buf, batch);
            batch.bytes.start = at;
        }
        if batch.marks.is_empty()
            && let Some(flow) = self.relay.routing().behind_old_map(key)
        {
            return flow;
        }
        let place = batch.marks.len();
        let mark = hot.unwrap_or_else(|| match (command, &mut self.relay.observer) {
            (Some(command), Some(observer)) if !is_within => {
                observer.sent_in_batch(key, command, request, at, place)
            }
            _ => Mark::Nothing,
        });
        batch.marks.push(mark);
        batch.bytes.end = at + len;
        if batch.marks.len() as u32 >= MAX_OUTSTANDING / 4 {
            self.forward_batch(key, buf, batch);
        }
        Flow::Taken
    }

    /// Looks at a request that is not complete. A large one is passed on in pieces, if all its keys are
    /// known. None if the rest of the request has to come first.
    fn take_incomplete(&mut self, intake: &mut Intake<'_, '_>, at: usize) -> Option<Flow> {
        let Intake { key, buf, table, args, batch, .. } = intake;
        let held = self.relay.clients.get_ref(*key).is_some_and(|client| client.held);
        if held || buf.len() - at < BIG_REQUEST_BYTES {
            return None;
        }
        self.forward_batch(*key, buf, batch);
        let flow = self.sessions().begin_upload(*key, &buf[at..], table, args);
        self.taken += u64::from(flow == Some(Flow::Taken));
        if flow.is_none()
            && let Some(client) = self.relay.clients.get(*key)
        {
            client.held = true;
        }
        flow
    }

    /// A request for a split key joins the batch under the name of its shard; false if it cannot.
    #[inline]
    pub(super) fn join_to_shard(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
        at: usize,
        batch: &mut Batch,
    ) -> bool {
        let Batch { node_batches, renamed, .. } = batch;
        let start = renamed.len();
        let node = self.hot.fast_path_to_shard(
            &mut self.relay,
            Incoming { key, request, command, together: false },
            node_batches,
            renamed,
        );
        let Some(node) = node else { return false };
        let text = Text::Renamed(start..renamed.len());
        self.relay.routing().join_batch(key, request, command, at, (node, text), batch);
        true
    }

    /// Queues the gathered requests on their link.
    #[inline]
    fn forward_batch(&mut self, key: ClientKey, buf: &[u8], batch: &mut Batch) {
        if !batch.marks.is_empty() {
            self.relay.routing().forward_batch(key, buf, batch);
            self.apply_effects();
        }
    }
}
