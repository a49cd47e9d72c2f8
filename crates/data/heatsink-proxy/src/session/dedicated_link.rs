//! Gives a client a dedicated connection, and takes it back.
//!
//! See [`crate::session::dedicated`] for the state of such a connection.

use std::ops::Range;
use std::sync::Arc;

use heatsink_resp::command::{Command, CommandTable, Role};
use heatsink_resp::encode;
use heatsink_resp::request::RequestScan;
use heatsink_upstream::Protocol;
use heatsink_upstream::link::Framing;

use crate::downstream::clients::{Clients, MAX_OUTSTANDING};
use crate::downstream::connection::{ClientKey, Lost};
use crate::downstream::request::{Flow, Request};
use crate::observe::Writer;
use crate::relay::Relay;
use crate::relay::effects::Effect;
use crate::reserved::names;
use crate::session::Sessions;
use crate::session::dedicated::{Dedicated, Expected, Transaction};
use crate::session::login_queue::Turn;
use crate::session::lost::LostStep;
use crate::upstream;
use crate::upstream::links::{BACKLOG_BYTES, Failure, Owner};
use crate::upstream::nodes::NodeId;

impl Sessions<'_> {
    /// Sends a request on the client's dedicated connection.
    pub(crate) fn send_dedicated(
        &mut self,
        key: ClientKey,
        node: NodeId,
        bytes: &[u8],
        expected: Expected,
    ) -> Flow {
        let gone = self.relay.clients.get_ref(key).is_some_and(|client| client.gone);
        if gone && expected == Expected::Blocking && !self.relay.clients.is_queueing(key) {
            // The client has left: an element that it pops would be lost. It is left unsent, as if it had
            // found nothing and waited.
            self.relay.effects.push(Effect::Close(key));
            return Flow::Taken;
        }
        match self.ensure_dedicated(key, node) {
            Ensured::Wait => return Flow::Wait,
            Ensured::Unavailable(why) => {
                self.dedicated_unavailable(key, expected, &why);
                return Flow::Taken;
            }
            Ensured::Ready => {}
        }
        let Some(client) = self.relay.clients.get(key) else { return Flow::Taken };
        let Some(dedicated) = &mut client.dedicated else { return Flow::Taken };
        if self.relay.cluster.view.is_none() && dedicated.expected.len() >= MAX_OUTSTANDING as usize
        {
            return Flow::Wait;
        }
        if self.relay.cluster.view.is_some() {
            if dedicated.expected.iter().any(|expected| *expected != Expected::Unasked) {
                // One request at a time, since it may be redirected.
                return Flow::Wait;
            }
            dedicated.current.clear();
            dedicated.current.extend_from_slice(bytes);
            dedicated.hops = 0;
            dedicated.retry_until = None;
        }
        // Naming the connection is not a request that the client waits for.
        let was_drained = dedicated.expected.iter().all(|expected| *expected == Expected::Unasked);
        dedicated.sent(expected);
        if expected == Expected::Blocking {
            client.record.facts().blocked = true;
        }
        let (link, others) = dedicated.ask();
        for link in std::iter::once(link).chain(others) {
            if was_drained {
                self.relay.upstream.links[link].link.expect_answer(self.relay.now);
            }
            self.relay.upstream.links[link].requests += 1;
            self.push_dedicated(key, link, bytes);
        }
        if self.relay.cluster.view.is_some() {
            self.tell_everywhere(key, bytes, expected);
        }
        if expected == Expected::Blocking {
            self.note_blocking(key);
        }
        Flow::Taken
    }

    /// Sends a request on the client's dedicated connection whose reply the client is not given.
    pub(in crate::session) fn say_unasked(&mut self, key: ClientKey, bytes: &[u8], count: usize) {
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(dedicated) = &mut client.dedicated else { return };
        let link = dedicated.link;
        dedicated.expected.extend(std::iter::repeat_n(Expected::Unasked, count));
        self.relay.upstream.links[link].requests += count as u64;
        self.push_dedicated(key, link, bytes);
    }

    /// `WAIT`, when all that the client wrote is answered; see [`crate::cluster::own_writes`].
    pub(crate) fn send_wait(&mut self, key: ClientKey, bytes: &[u8]) -> Flow {
        let node = self.relay.home(key);
        let writing = self.relay.routing().writing_to(node);
        match self.send_dedicated(key, node, &writing.request, Expected::Writing) {
            Flow::Taken => {}
            Flow::Wait => return Flow::Wait,
        }
        if let Some(removal) = writing.removal {
            self.say_unasked(key, &removal, 1);
        }
        if self.relay.clients.get_ref(key).is_some_and(|client| client.dedicated.is_some()) {
            self.send_dedicated(key, node, bytes, Expected::Blocking)
        } else {
            // There is no connection, and the client was told so in place of the write's reply.
            Flow::Taken
        }
    }

    /// `AUTH`, `HELLO` or `SELECT` while the client's dedicated connection has state that must not be lost.
    /// From then on the connection has another user, database or protocol than the pool, and stays the
    /// client's: which keys its requests name is unknown. A login has to wait for its turn here as well.
    pub(crate) fn stray(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        if let Some(flow) = self.relay.routing().wait_for_whole(key) {
            return flow;
        }
        let says_hello = request.is(0, "hello");
        let protocol = match request.arg(1) {
            Some(b"2") if says_hello => Some(Protocol::Resp2),
            Some(b"3") if says_hello => Some(Protocol::Resp3),
            _ => None,
        };
        let tried = match self.stray_login(key, request) {
            None => None,
            Some(Turn::Now(tried)) => Some(tried),
            Some(Turn::Later) => return Flow::Wait,
            Some(Turn::Never) => return Flow::Taken,
        };
        let node = self.relay.home(key);
        let flow =
            self.send_dedicated(key, node, request.bytes, Expected::Stray { protocol, tried });
        if flow == Flow::Wait
            && let Some(tried) = tried
        {
            self.login_not_refused(key, tried);
        }
        flow
    }

    /// Notes what the server has said of a login on a client's dedicated connection.
    fn note_stray_login(&mut self, key: ClientKey) {
        let dedicated = self.relay.clients.get(key).and_then(|client| client.dedicated.as_mut());
        match dedicated.and_then(|dedicated| dedicated.login_told.take()) {
            Some((tried, true)) => self.login_not_refused(key, tried),
            Some((tried, false)) => self.login_refused(key, tried),
            None => {}
        }
    }

    /// `MONITOR`: the connection is the client's until it leaves, if the server agrees.
    pub(crate) fn monitor(&mut self, key: ClientKey, bytes: &[u8]) -> Flow {
        let dedicated =
            self.relay.clients.get_ref(key).and_then(|client| client.dedicated.as_ref());
        if dedicated.is_some_and(|dedicated| dedicated.is_monitor()) {
            // A server says nothing to the second one.
            return Flow::Taken;
        }
        let flow = self.send_dedicated(key, self.relay.home(key), bytes, Expected::Monitor);
        if let Some(dedicated) =
            self.relay.clients.get(key).and_then(|client| client.dedicated.as_mut())
        {
            dedicated.sockets = Some(Arc::clone(&self.relay.shared.sockets));
        }
        flow
    }

    /// A large request begins. `None` if it is held until it is complete: its keys, which may stand at its
    /// end, have to be known before any of it is sent. So only a request with one key is passed on in
    /// pieces, if no mitigation acts on that key. If the key becomes hot, or is to be split, meanwhile, that
    /// waits for the reply: see `draining` and `opaque_requests`.
    pub(crate) fn begin_upload(
        &mut self,
        key: ClientKey,
        buf: &[u8],
        table: &CommandTable,
        args: &mut Vec<Range<usize>>,
    ) -> Option<Flow> {
        if self.relay.cluster.view.is_some() {
            // It may be redirected, so it must be held whole.
            return None;
        }
        args.clear();
        let limits = &self.relay.request_limits[0];
        RequestScan::default().advance(buf, limits, |span| args.push(span)).ok()?;
        if args.is_empty() {
            return None;
        }
        let request = Request { bytes: buf, args };
        let command = table.lookup(request.name(), request.arg(1));
        let role = command.map(|command| command.role);
        let client = self.relay.clients.get(key)?;
        let queueing = client.is_queueing();
        if role != Some(Role::Plain) || client.lost != Lost::Nothing {
            return None;
        }
        let name = command.and_then(Command::single_key_index).and_then(|at| request.arg(at))?;
        if self.relay.cluster.moved.is_hot(name) || !client.within && names::is_reserved(name) {
            return None;
        }
        let node = self.relay.home(key);
        let flow = self.send_dedicated(key, node, b"", Dedicated::expect(role, 0));
        if flow == Flow::Taken {
            if let Some(command) = command {
                self.observe_upload(key, command, request, queueing);
            }
            let client = self.relay.clients.get(key)?;
            match &mut client.dedicated {
                Some(dedicated) => {
                    dedicated.uploading = true;
                    dedicated.upload_key = name.to_vec();
                }
                None => {
                    // Refused, and closed: the rest of it cannot be told from the next request.
                    self.relay.clients.close_after_replies(key);
                }
            }
        }
        Some(flow)
    }

    /// Counts the keys of a large request, as far as it has come.
    fn observe_upload(
        &mut self,
        key: ClientKey,
        command: &Command,
        request: Request<'_>,
        queueing: bool,
    ) {
        if queueing {
            self.observe_apart(key, command, request, queueing);
            return;
        }
        let Some(observer) = &mut self.relay.observer else { return };
        let client = self.relay.clients.get(key).filter(|client| !client.within);
        let Some(dedicated) = client.and_then(|client| client.dedicated.as_mut()) else { return };
        let (upload, mark) = observer.upload_begins(Writer(key.slot), command, request);
        dedicated.upload = Some(upload);
        if dedicated.expected.back() == Some(&Expected::Plain)
            && let Some(last) = dedicated.marks.back_mut()
        {
            *last = mark;
        }
    }

    /// Passes bytes of a large request on; returns how many.
    pub(crate) fn pass_on(&mut self, key: ClientKey, buf: &[u8]) -> usize {
        let limits = &self.relay.request_limits[0];
        let Some(client) = self.relay.clients.get(key) else { return buf.len() };
        let Some(dedicated) = &mut client.dedicated else { return 0 };
        let link = dedicated.link;
        let passed = match client.scan.pass(buf, limits) {
            Ok((passed, done)) => {
                dedicated.uploading = !done;
                if let (Some(observer), Some(upload)) =
                    (&mut self.relay.observer, &mut dedicated.upload)
                {
                    observer.uploaded(upload, passed);
                }
                if done {
                    dedicated.upload = None;
                    self.relay.upstream.links[link].link.expect_answer(self.relay.now);
                }
                passed
            }
            Err(error) => {
                // The server has read a part of it, so nothing else can be sent on that link. And
                // an error now would be taken for the reply to an earlier request.
                let alone = dedicated.expected.len() == 1 && !dedicated.within_frame;
                client.dedicated = None;
                self.relay.links().drop_link(link);
                if alone {
                    self.relay.clients.error(key, &format!("ERR {error}"));
                }
                self.relay.clients.close_after_replies(key);
                return buf.len();
            }
        };
        self.push_dedicated(key, link, &buf[..passed]);
        passed
    }

    pub(in crate::session) fn push_dedicated(&mut self, key: ClientKey, link: usize, bytes: &[u8]) {
        let upstream = &mut self.relay.upstream.links[link];
        upstream.link.push_unmatched(bytes);
        if !upstream.dirty {
            upstream.dirty = true;
            self.relay.upstream.dirty_links.push(link);
        }
        if upstream.link.backlog_bytes() > BACKLOG_BYTES
            && let Some(client) = self.relay.clients.get(key)
        {
            // Resumed when the link has sent enough of it.
            client.stopped = true;
        }
    }

    fn ensure_dedicated(&mut self, key: ClientKey, node: NodeId) -> Ensured {
        let Some(client) = self.relay.clients.get(key) else { return Ensured::Wait };
        if client.dedicated.is_some() {
            // On a cluster, other commands of the client go along shared links: those that were sent
            // there must be executed first.
            let behind = self.relay.cluster.view.is_some() && client.order.outstanding() > 0;
            return if behind { Ensured::Wait } else { Ensured::Ready };
        }
        if !client.is_drained() {
            return Ensured::Wait;
        }
        match self.open_dedicated(key, node) {
            Ok(()) => Ensured::Ready,
            Err(why) => Ensured::Unavailable(why),
        }
    }

    /// Gives a client a connection to a node; it has none.
    pub(in crate::session) fn open_dedicated(
        &mut self,
        key: ClientKey,
        node: NodeId,
    ) -> Result<(), String> {
        let Some(client) = self.relay.clients.get(key) else { return Ok(()) };
        let pool = client.pool;
        let link = self.relay.links().take_link(pool, node, Owner::Client(key))?;
        let protocol = self.relay.upstream.pools[pool].login.protocol;
        let Relay { clients, upstream: upstream::Room { links, .. }, .. } = &mut *self.relay;
        let (Some(client), upstream) = (clients.get(key), &mut links[link]) else {
            return Ok(());
        };
        upstream.link.set_framing(Framing::Frames);
        client.record.set_upstream_node(node);
        client.record.set_upstream_id(upstream.link.connection_id());
        client.dedicated = Some(Box::new(Dedicated::new(link, node, protocol)));
        self.relay.upstream.wait_in_line(key, link);
        self.keep_spare(pool, node);
        self.name_dedicated(key);
        Ok(())
    }

    /// Gives a client's dedicated connection the client's name, if it has another one: a queued
    /// `CLIENT GETNAME` is the server's to answer.
    pub(in crate::session) fn name_dedicated(&mut self, key: ClientKey) {
        let Relay { clients, upstream: upstream::Room { links, dirty_links, .. }, .. } =
            &mut *self.relay;
        let Some(client) = clients.get(key) else { return };
        let name = client.record.facts().name.clone();
        let Some(dedicated) = &mut client.dedicated else { return };
        let Some(upstream) = links.get_mut(dedicated.link) else { return };
        if upstream.name == name {
            return;
        }
        let mut bytes = Vec::new();
        encode::command(&mut bytes, &[&b"CLIENT"[..], b"SETNAME", &name]);
        upstream.link.push_unmatched(&bytes);
        upstream.name = name;
        upstream.requests += 1;
        dedicated.expected.push_back(Expected::Unasked);
        if !upstream.dirty {
            upstream.dirty = true;
            dirty_links.push(dedicated.link);
        }
    }

    /// After frames came: take the connection back if its state has ended.
    pub(crate) fn look_at_dedicated(&mut self, owner: Owner) {
        let Owner::Client(key) = owner else { return };
        self.note_stray_login(key);
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(dedicated) = &client.dedicated else { return };
        let (subscriber, queueing, blocked) = (
            dedicated.is_subscriber(),
            dedicated.transaction == Transaction::Queueing,
            dedicated.is_blocking(),
        );
        {
            let mut facts = client.record.facts();
            facts.subscriber = subscriber;
            facts.in_transaction = queueing;
            facts.blocked = blocked;
            if let Some(dedicated) = &mut client.dedicated
                && let Some(name) = dedicated.named.take()
            {
                if let Some(upstream) = self.relay.upstream.links.get_mut(dedicated.link) {
                    upstream.name.clone_from(&name);
                }
                facts.name = name;
            }
        }
        self.look_beside(key);
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(dedicated) = &client.dedicated else { return };
        let is_drained = dedicated.is_drained();
        let few = dedicated.expected.len() <= MAX_OUTSTANDING as usize / 4;
        let (strayed, releasable, link) =
            (dedicated.strayed, dedicated.is_releasable(), dedicated.link);
        let ended = dedicated.shut && is_drained;
        if few && client.stopped {
            self.relay.clients.resume.push(key);
        }
        if strayed && is_drained && self.relay.cluster.view.is_some() {
            // The connection leads to one node only. The unknown command has named no known key, and the
            // state that it may have left behind ends with the connection.
            self.end_dedicated_state(key);
            return self.relay.clients.finish_if_leaving(key);
        }
        if strayed {
            // After a command that nobody knew it is too late to wait for that.
            self.relay.routing().want_all_whole();
        }
        if ended {
            // The server was told that nothing more will come.
            self.end_dedicated_state(key);
            self.relay.clients.resume.push(key);
        } else if releasable {
            let now = self.relay.now;
            if let Some(client) = self.relay.clients.get(key) {
                client.dedicated = None;
                client.transaction = None;
                client.record.set_upstream_id(None);
                // It may have been waiting for long; it is idle from now on.
                client.record.note_activity(now);
            }
            self.spare_link(link);
        }
        self.relay.clients.finish_if_leaving(key);
    }

    /// There is no connection for the client: its request is answered with an error. If that was to begin a
    /// transaction, the commands of the transaction are refused rather than executed outside of one.
    pub(in crate::session) fn dedicated_unavailable(
        &mut self,
        key: ClientKey,
        expected: Expected,
        why: &str,
    ) {
        let Some(client) = self.relay.clients.get(key) else { return };
        match expected {
            Expected::Multi => self.step_lost(key, LostStep::Begin),
            Expected::Watch => {
                client.lost = Lost::Watch;
                self.relay.clients.error(key, why);
            }
            _ => self.relay.clients.error(key, why),
        }
    }

    /// The client's dedicated connection was lost.
    pub(crate) fn dedicated_link_lost(&mut self, key: ClientKey, link: usize, failure: &Failure) {
        if self.unused_side_lost(key, link, &failure.text) {
            return;
        }
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(dedicated) = client.dedicated.take() else { return };
        client.record.set_upstream_id(None);
        client.record.facts().blocked = false;
        client.transaction = None;
        self.drop_dedicated_links(key, &dedicated);
        let Some(client) = self.relay.clients.get(key) else { return };
        let waited = dedicated.shut && !dedicated.expected.is_empty();
        let state = dedicated.is_pinned()
            || dedicated.strayed
            || dedicated.is_monitor()
            || dedicated.is_subscriber();
        if waited || state || dedicated.within_frame {
            // As on a client's own connection to a server, its state is lost with it.
            self.relay.clients.close_after_replies(key);
            return;
        }
        client.lost = match dedicated.transaction {
            Transaction::None => client.lost,
            Transaction::Watching => Lost::Watch,
            Transaction::Queueing => Lost::Transaction,
        };
        let refusal = failure.refusal.as_ref().filter(|refusal| !refusal.is_empty());
        let text = refusal.map_or(failure.text.as_bytes(), Vec::as_slice);
        let text = String::from_utf8_lossy(text);
        for expected in dedicated.expected {
            self.answer_lost(key, expected, failure.before_ready, &text);
        }
        if dedicated.uploading {
            self.relay.clients.close_after_replies(key);
        }
        self.relay.clients.resume.push(key);
        self.relay.clients.finish_if_leaving(key);
    }

    /// The answer to a request whose reply will not come.
    fn answer_lost(&mut self, key: ClientKey, expected: Expected, unsent: bool, text: &str) {
        let Some(client) = self.relay.clients.get(key) else { return };
        match (expected, client.lost) {
            (Expected::Unasked | Expected::Writing, _) => {}
            (Expected::Multi, _) => self.step_lost(key, LostStep::Begin),
            (Expected::Watch, Lost::Nothing) => {
                client.lost = Lost::Watch;
                self.relay.clients.error(key, text);
            }
            (Expected::Unwatch, Lost::Watch) => self.step_lost(key, LostStep::Unwatch),
            (Expected::Discard, Lost::Transaction) => self.step_lost(key, LostStep::Forget),
            (Expected::Exec, Lost::Transaction) if unsent => {
                self.step_lost(key, LostStep::Abort);
            }
            (Expected::Exec, Lost::Transaction) => {
                // It may have been executed: "discarded" would be a lie.
                client.lost = Lost::Nothing;
                self.relay.clients.error(key, text);
            }
            _ => self.relay.clients.error(key, text),
        }
    }
}

impl Clients {
    /// Looks again at a client that waits to leave, since it may have waited for what just happened.
    pub(in crate::session) fn finish_if_leaving(&mut self, key: ClientKey) {
        if let Some(client) = self.get(key)
            && (client.eof
                || client.hung_up
                || client.closing != crate::downstream::connection::Closing::No)
            && !client.dirty
        {
            client.dirty = true;
            self.dirty.push(key);
        }
    }
}

enum Ensured {
    Ready,
    /// Earlier requests must be answered first.
    Wait,
    Unavailable(String),
}
