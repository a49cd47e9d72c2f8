//! Carries a [`Decision`] out.

use heatsink_cluster::join::Join;
use heatsink_resp::command::{Command, Role};

use crate::cluster::route::Slots;
use crate::cluster::scatter_gather::{Ending, Targets};
use crate::cluster::transactions::CROSS_SLOT;
use crate::decide::Decision;
use crate::downstream::connection::{Client, ClientKey};
use crate::downstream::request::{Flow, Request};
use crate::runtime::worker::Worker;
use crate::session::dedicated::{Expected, Transaction};

/// The error for commands that one node can carry out, and several cannot.
const NOT_HERE: &str = "ERR heatsink: not possible on a connection that leads to a whole cluster";
/// The error for a command that blocks on keys of another slot than those that its client watches.
const WATCHES: &str = "ERR heatsink: not possible while keys of another slot are watched";

impl Worker {
    /// Does what was decided, or says that it has to wait.
    pub(crate) fn carry_out(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: Option<&Command>,
        decision: Decision,
    ) -> Flow {
        match (decision, command) {
            (Decision::StepTransaction, command) => self.step_transaction(key, request, command),
            // In the telnet form.
            (Decision::Pass | Decision::Mitigate, command) => {
                self.carry_out(key, request, command, Decision::Forward)
            }
            (Decision::Forward, Some(command)) if self.relay.clients.hides_names(key, command) => {
                self.ask_for_names(key, request, command)
            }
            (Decision::Forward, Some(command)) if self.relay.cluster.view.is_some() => {
                self.forward_beside_dedicated(key, request, command)
            }
            // A client that does not read has to wait: a dedicated connection leads to one node only.
            (Decision::Dedicated(Expected::Plain), Some(command))
                if self.relay.cluster.view.is_some()
                    && command.role != Role::Urgent
                    && self
                        .relay
                        .clients
                        .get_ref(key)
                        .is_some_and(|client| client.dedicated.is_none()) =>
            {
                self.relay.routing().forward_clustered(key, request, command)
            }
            (Decision::Dedicated(expected), command) if self.relay.cluster.view.is_some() => {
                self.send_dedicated_clustered(key, request, command, expected)
            }
            (Decision::DedicatedWait, Some(command)) if self.relay.cluster.view.is_some() => {
                self.ask_apart(key, request, command, true)
            }
            (Decision::Stray | Decision::Misplaced, _) if self.relay.cluster.view.is_some() => {
                self.refuse_misplaced(key, NOT_HERE)
            }
            _ => self.carry_out_plainly(key, request, decision),
        }
    }

    fn carry_out_plainly(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        decision: Decision,
    ) -> Flow {
        match decision {
            Decision::Wait => Flow::Wait,
            Decision::Pass | Decision::Mitigate | Decision::ListNames | Decision::Forward => {
                self.relay.routing().forward(key, request.bytes)
            }
            Decision::StepTransaction => self.step_transaction(key, request, None),
            Decision::RefuseReserved => self.refuse_reserved(key),
            Decision::RefuseUnknown => {
                self.relay.clients.refuse_unknown(key, None);
                Flow::Taken
            }
            Decision::Dedicated(expected) => {
                let node = self.relay.home(key);
                self.sessions().send_dedicated(key, node, request.bytes, expected)
            }
            Decision::DedicatedWait => self.sessions().send_wait(key, request.bytes),
            Decision::Takeover => self.take_over(key, request),
            Decision::Stray => self.sessions().stray(key, request),
            Decision::Misplaced => {
                self.refuse_misplaced(key, "ERR heatsink: not possible inside a transaction")
            }
            Decision::Multi => self.relay.clients.begin_transaction(key),
            Decision::Auth => self.sessions().auth(key, request),
            Decision::Hello => self.sessions().hello(key, request),
            Decision::Select => self.sessions().select(key, request),
            Decision::Client => self.sessions().client_command(key, request),
            Decision::Reset => {
                self.sessions().reset(key);
                Flow::Taken
            }
            Decision::Quit => {
                self.relay.clients.reply(key, b"+OK\r\n");
                self.relay.clients.close_after_replies(key);
                Flow::Taken
            }
            Decision::Barred => {
                if self.relay.clients.is_queueing(key) {
                    self.sessions().end_dedicated_state(key);
                }
                let text = "ERR heatsink: a login is not possible in the middle of this";
                self.relay.clients.error(key, text);
                Flow::Taken
            }
            Decision::LongChannel => {
                if self.relay.clients.is_queueing(key) {
                    self.sessions().end_dedicated_state(key);
                }
                let text =
                    "ERR heatsink: names of channels and patterns are limited to 16384 bytes";
                self.relay.clients.error(key, text);
                Flow::Taken
            }
            Decision::Hangup => {
                tracing::warn!("a client that speaks HTTP was hung up on");
                self.close_client(key);
                Flow::Taken
            }
            Decision::Lost(step) => {
                self.sessions().step_lost(key, step);
                Flow::Taken
            }
        }
    }

    /// Sends a request along the shared links, of a client that may have a dedicated connection without
    /// state.
    fn forward_beside_dedicated(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Flow {
        let Some(client) = self.relay.clients.get(key) else { return Flow::Taken };
        if client.dedicated.as_ref().is_some_and(|dedicated| !dedicated.is_drained()) {
            return Flow::Wait;
        }
        self.relay.routing().forward_clustered(key, request, command)
    }

    /// On a dedicated connection of the client, to the node of the request's key.
    fn send_dedicated_clustered(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: Option<&Command>,
        expected: Expected,
    ) -> Flow {
        if let Some(flow) = self.relay.routing().without_map(key) {
            return flow;
        }
        if let Some(command) = command
            && command.role == Role::Urgent
            && !self.relay.clients.is_queueing(key)
        {
            let dedicated =
                self.relay.clients.get_ref(key).and_then(|client| client.dedicated.as_ref());
            if dedicated.is_some_and(|dedicated| !dedicated.is_drained()) {
                // It may overtake commands of other clients, but not those of its own.
                return Flow::Wait;
            }
            return match &*command.name {
                "shutdown" => {
                    self.relay
                        .clients
                        .error(key, "ERR heatsink: SHUTDOWN is for one node, not for all");
                    Flow::Taken
                }
                _ => self.ask_apart(key, request, command, false),
            };
        }
        if let Some(command) = command
            && let Some(flow) = self.relay.routing().note_written(key, request, command)
        {
            return flow;
        }
        let slot = command.and_then(|command| Slots::of(command, request).first());
        let Some(client) = self.relay.clients.get(key) else { return Flow::Taken };
        if command.is_none() {
            client.written.add_all();
        }
        if client.order.outstanding() > 0 {
            return Flow::Wait;
        }
        if let Some(dedicated) = &client.dedicated {
            let watches = dedicated.transaction == Transaction::Watching;
            let of_another = watches
                && dedicated.slot.is_some_and(|watched| slot.is_some_and(|slot| slot != watched));
            if of_another && matches!(expected, Expected::Watch | Expected::Blocking) {
                if !client.is_drained() {
                    return Flow::Wait;
                }
                if expected == Expected::Watch {
                    self.relay.clients.reply(key, CROSS_SLOT);
                } else {
                    self.relay.clients.error(key, WATCHES);
                }
                return Flow::Taken;
            }
            let node = dedicated.node;
            return self.sessions().send_dedicated(key, node, request.bytes, expected);
        }
        if let Some(flow) = self.relay.routing().behind_old_map(key) {
            return flow;
        }
        let node =
            slot.map_or_else(|| self.relay.home(key), |slot| self.relay.primary_of(slot, key));
        let flow = self.sessions().send_dedicated(key, node, request.bytes, expected);
        if expected == Expected::Watch
            && let Some(client) = self.relay.clients.get(key)
            && let Some(dedicated) = &mut client.dedicated
        {
            dedicated.slot = slot;
        }
        flow
    }

    /// Asks each primary on connections where nobody waits behind it.
    pub(crate) fn ask_apart(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
        after_writes: bool,
    ) -> Flow {
        if let Some(flow) = self.relay.routing().without_map(key) {
            return flow;
        }
        let is_drained = self.relay.clients.get_ref(key).is_some_and(Client::is_drained);
        if after_writes && !is_drained {
            return Flow::Wait;
        }
        let targets = Targets::Apart { bytes: request.bytes, after_writes };
        self.relay.routing().fan_out(key, &targets, Ending::Join(Join::for_command(command)))
    }

    /// Commands after which a connection speaks another protocol. Only `MONITOR` is carried out: a copy of
    /// the data set (`SYNC`) would have the fleet's keys and shards in it, and a debugger
    /// (`SCRIPT DEBUG`) has a protocol of its own.
    fn take_over(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        let clustered = self.relay.cluster.view.is_some();
        let Some(client) = self.relay.clients.get_ref(key) else { return Flow::Taken };
        let queueing = client.transaction.is_some() || self.relay.clients.is_queueing(key);
        let is_for_nodes =
            ["readonly", "readwrite", "asking"].iter().any(|name| request.is(0, name));
        if is_for_nodes && !clustered {
            let node = self.relay.home(key);
            return self.sessions().send_dedicated(key, node, request.bytes, Expected::Pinning);
        }
        if is_for_nodes && !queueing {
            // Heatsink is no replica, and moves no slots.
            self.relay.clients.reply(key, b"+OK\r\n");
            return Flow::Taken;
        }
        // Before a cluster, of one node.
        if request.is(0, "monitor") && !queueing && (!clustered || client.dedicated.is_none()) {
            return self.sessions().monitor(key, request.bytes);
        }
        let text = "ERR heatsink: not possible through a proxy, only at the server itself";
        self.refuse_misplaced(key, if clustered { NOT_HERE } else { text })
    }

    /// A transaction that lacks a command must not be executed. A watch, or subscriptions, are not
    /// touched.
    fn refuse_misplaced(&mut self, key: ClientKey, text: &str) -> Flow {
        let Some(client) = self.relay.clients.get_ref(key) else { return Flow::Taken };
        if !client.is_drained() {
            return Flow::Wait;
        }
        if client.transaction.is_some() || self.relay.clients.is_queueing(key) {
            self.sessions().end_dedicated_state(key);
        }
        self.relay.clients.error(key, text);
        Flow::Taken
    }
}
