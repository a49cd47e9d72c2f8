//! Requests that need a decision, by the state of the client, the server and the cluster.
//!
//! Called by: `intake`, with each request that is not passed on along the fast path.
//! Bound: one request at a time; one that has to wait stays in the client's input.
//! Invariant: a request that had to wait is decided about again; it is counted once, when it is taken.

use heatsink_resp::command::{Command, CommandTable};
use heatsink_resp::request::{ProtocolError, RequestScan};
use heatsink_resp::{encode, inline};

use crate::decide::Decision;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::{Flow, Request};
use crate::hot::{Incoming, Mitigated};
use crate::observe::Observer;
use crate::reserved::names;
use crate::runtime::worker::Worker;

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
        let limits = &self.relay.request_limits[usize::from(self.relay.is_unauthenticated(key))];
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
        if self.relay.routing().behind_old_map(key).is_some() {
            return Flow::Wait;
        }
        let incoming = Incoming { key, request, command, together: false };
        let mitigated = self.hot.mitigate(&mut self.relay, incoming);
        self.apply_effects();
        match mitigated {
            Mitigated::Done(flow) => flow,
            Mitigated::Marked(mark) => {
                let node = self.relay.home(key);
                self.relay.routing().send_on(key, node, request.bytes, &[mark]);
                Flow::Taken
            }
            Mitigated::Cold => {
                self.settle_and_carry_out(key, request, Some(command), Decision::Forward)
            }
        }
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
                self.relay.clients.refuse_unknown(key, command.map(|command| command.role));
                return Flow::Taken;
            }
            _ => {}
        }
        let waits = match command {
            Some(command) => self
                .hot
                .make_whole(&mut self.relay, Incoming { key, request, command, together: false }),
            None => self.hot.make_all_whole(&mut self.relay, key),
        };
        if let Some(flow) = waits {
            return flow;
        }
        if let (Decision::ListNames, Some(command)) = (decision, command) {
            return self.ask_for_names(key, request, command);
        }
        let Some(client) = self.relay.clients.get(key) else { return Flow::Taken };
        let queueing = client.is_queueing();
        if let Some(dedicated) = &mut client.dedicated {
            dedicated.unmarked = false;
        }
        let counted = self.relay.observer.as_ref().map(Observer::counted);
        let flow = self.carry_out(key, request, command, decision);
        self.apply_effects();
        if flow == Flow::Taken {
            self.relay.clients.end_hold(key);
        }
        if flow == Flow::Taken && command.is_none() {
            self.hot.touch_all(&mut self.relay, key);
            if let Some(client) = self.relay.clients.get(key).filter(|_| queueing) {
                client.queued_keys.get_or_insert_default().add_unknown();
            }
        }
        if flow == Flow::Taken
            && let Some(command) = command
        {
            self.hot.touch_dispatched(
                &mut self.relay,
                Incoming { key, request, command, together: false },
                queueing,
            );
            if counted == self.relay.observer.as_ref().map(Observer::counted) {
                self.sessions().observe_apart(key, command, request, queueing);
            }
        }
        flow
    }

    /// Refuses a request that names something of the fleet's; a transaction that it was to be a
    /// part of is not executed.
    pub(crate) fn refuse_reserved(&mut self, key: ClientKey) -> Flow {
        let Some(client) = self.relay.clients.get(key) else { return Flow::Taken };
        if client.dedicated.is_some() && !client.is_drained() {
            return Flow::Wait;
        }
        if client.is_queueing() || client.transaction.is_some() {
            self.sessions().end_dedicated_state(key);
        }
        self.relay.clients.error(key, names::REFUSAL);
        Flow::Taken
    }
}
