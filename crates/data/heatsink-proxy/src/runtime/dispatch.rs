//! Requests that need a decision: what state of the client, the server or the cluster is needed.
//!
//! Called by: `intake`, with each request that does not simply go on.
//! Bound: one request at a time; one that has to wait stays in the client's input.
//! Invariant: a request is decided about again when it comes again, and counted once, when it is
//! taken.

use heatsink_resp::command::{Command, CommandTable, Role};
use heatsink_resp::request::{ProtocolError, RequestScan};
use heatsink_resp::{encode, inline};

use crate::decide::{Decision, Situation, decide};
use crate::downstream::connection::ClientKey;
use crate::downstream::intake::Flow;
use crate::downstream::request::Request;
use crate::hot::Verdict;
use crate::observe::{Observer, Writer};
use crate::runtime::worker::Worker;
use crate::session::dedicated::Expected;

impl Worker {
    /// A request in the telnet form, passed on in the usual one.
    pub(crate) fn take_inline(
        &mut self,
        key: ClientKey,
        line: &[u8],
        table: &CommandTable,
    ) -> Result<Flow, ProtocolError> {
        let words = inline::split(line)?;
        if words.is_empty() {
            return Ok(Flow::Taken);
        }
        let mut bytes = Vec::new();
        encode::command(&mut bytes, &words);
        let mut args = Vec::new();
        let limits = &self.request_limits[usize::from(self.is_unauthenticated(key))];
        RequestScan::default().advance(&bytes, limits, |span| args.push(span))?;
        let request = Request { bytes: &bytes, args: &args };
        let command = table.lookup(request.name(), request.arg(1));
        Ok(self.dispatch(key, request, command))
    }

    /// Decides about one request and carries it out.
    pub(crate) fn dispatch(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: Option<&Command>,
    ) -> Flow {
        match (self.decide(key, command, request), command) {
            (Some(Decision::Mitigate), Some(command)) => self.mitigate_alone(key, request, command),
            (Some(decision), command) => self.settle_and_carry_out(key, request, command, decision),
            (None, _) => Flow::Taken,
        }
    }

    /// A request that touches hot keys, in the telnet form; if no mitigation takes it, it goes on as if
    /// they were not hot.
    fn mitigate_alone(&mut self, key: ClientKey, request: Request<'_>, command: &Command) -> Flow {
        // Before anything is remembered of it: a request that waits comes again.
        if self.behind_old_map(key).is_some() {
            return Flow::Wait;
        }
        match self.mitigate(key, request, command, false) {
            Verdict::Done(flow) => flow,
            Verdict::Marked(mark) => {
                self.send_on(key, self.home(key), request.bytes, &[mark]);
                Flow::Taken
            }
            Verdict::Pass => {
                self.settle_and_carry_out(key, request, Some(command), Decision::Forward)
            }
        }
    }

    /// What becomes of a request of a client that is still there.
    #[inline]
    pub(crate) fn decide(
        &self,
        key: ClientKey,
        command: Option<&Command>,
        request: Request<'_>,
    ) -> Option<Decision> {
        let client = self.clients.get_ref(key)?;
        let (is_clustered, checks_logins) =
            (self.cluster.view.is_some(), self.shared.verifier.is_some());
        let situation = Situation::of(client, is_clustered, checks_logins);
        let touches_hot = |command: &Command| {
            self.mitigations.is_active() && self.mitigations.touches_hot_keys(request, command)
        };
        Some(decide(&situation, command, request, touches_hot))
    }

    /// Carries out what was decided about a request, when keys that it touches are whole, and notes
    /// what it may have done to others.
    pub(crate) fn settle_and_carry_out(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: Option<&Command>,
        decision: Decision,
    ) -> Flow {
        match decision {
            Decision::Wait => return Flow::Wait,
            Decision::RefuseReserved => return self.refuse_reserved(key),
            Decision::RefuseUnknown => {
                self.clients.refuse_unknown(key, command.map(|command| command.role));
                return Flow::Taken;
            }
            _ => {}
        }
        let waits = match command {
            Some(command) => self.make_whole(key, request, command),
            None => self.make_all_whole(key),
        };
        if let Some(flow) = waits {
            return flow;
        }
        if let (Decision::ListNames, Some(command)) = (decision, command) {
            return self.ask_for_names(key, request, command);
        }
        let Some(client) = self.clients.get(key) else { return Flow::Taken };
        let queueing = client.is_queueing();
        if let Some(dedicated) = &mut client.dedicated {
            dedicated.unmarked = false;
        }
        let counted = self.observer.as_ref().map(Observer::counted);
        let flow = self.carry_out(key, request, command, decision);
        if flow == Flow::Taken {
            self.clients.end_hold(key);
        }
        if flow == Flow::Taken && command.is_none() {
            self.touch_all(key);
            if let Some(client) = self.clients.get(key).filter(|_| queueing) {
                client.queued_keys.get_or_insert_default().add_unknown();
            }
        }
        if flow == Flow::Taken
            && let Some(command) = command
        {
            self.touch_dispatched(key, command, request, queueing);
            if counted == self.observer.as_ref().map(Observer::counted) {
                self.observe_apart(key, command, request, queueing);
            }
        }
        flow
    }

    /// Counts the keys of a request that did not go the usual way; those of a transaction are
    /// only noted, and counted when the server has executed it.
    pub(crate) fn observe_apart(
        &mut self,
        key: ClientKey,
        command: &Command,
        request: Request<'_>,
        queueing: bool,
    ) {
        let Some(observer) = &mut self.observer else { return };
        let Some(client) = self.clients.get(key).filter(|client| !client.within) else { return };
        // What went elsewhere, or was answered here, must not be taken for what went there last.
        let dedicated = client.dedicated.as_mut().filter(|dedicated| dedicated.unmarked);
        if !queueing {
            // What a `MULTI` that was refused has left.
            client.queued_keys = None;
            let mark = observer.sent_apart(Writer(key.slot), command, request);
            if let Some(dedicated) = dedicated
                && dedicated.expected.back() == Some(&Expected::Plain)
                && let Some(last) = dedicated.marks.back_mut()
            {
                *last = mark;
            }
            return;
        }
        match command.role {
            Role::Exec => {
                let queued = client.queued_keys.take();
                if let Some(dedicated) = dedicated
                    && dedicated.expected.back() == Some(&Expected::Exec)
                    && let Some(last) = dedicated.executing.back_mut()
                {
                    *last = queued;
                }
            }
            Role::Discard | Role::Reset | Role::Quit => client.queued_keys = None,
            // It is not queued, and nothing else is executed either.
            _ if command.refuses_count(request.len()) => {}
            _ => {
                let queued = client.queued_keys.get_or_insert_default();
                if !queued.add(command, request) {
                    let _ = observer.sent_apart(Writer(key.slot), command, request);
                }
            }
        }
    }
}
