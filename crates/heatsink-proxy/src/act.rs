//! Carries a [`Decision`] out.

use heatsink_cluster::join::Join;
use heatsink_resp::command::{Command, Role};

use crate::cluster::fan_out::{Ending, Targets};
use crate::cluster::own_detours::null;
use crate::cluster::route::Slots;
use crate::cluster::transactions::CROSS_SLOT;
use crate::connection::{Client, ClientKey, Lost};
use crate::decide::{Decision, LostStep};
use crate::intake::Flow;
use crate::own::Expected;
use crate::request::Request;
use crate::worker::Worker;

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
            (Decision::Forward, Some(command)) if self.cluster.is_some() => {
                self.forward_beside_own(key, request, command)
            }
            (Decision::Own(expected), command) if self.cluster.is_some() => {
                self.send_own_clustered(key, request, command, expected)
            }
            (Decision::OwnWait, Some(command)) if self.cluster.is_some() => {
                self.ask_apart(key, request, command, true)
            }
            (Decision::Takeover, _) if self.cluster.is_some() => {
                self.take_over_clustered(key, request)
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
            Decision::Forward => self.forward(key, request.bytes, 1),
            Decision::Own(expected) => {
                let node = self.home(key);
                self.send_own(key, node, request.bytes, expected)
            }
            Decision::OwnWait => self.send_wait(key, request.bytes),
            Decision::Takeover => self.open_tunnel(key, request.bytes),
            Decision::Multi => self.begin_transaction(key),
            Decision::Auth => self.auth(key, request),
            Decision::Hello => self.hello(key, request),
            Decision::Select => self.select(key, request),
            Decision::Client => self.client_command(key, request),
            Decision::Reset => {
                self.reset(key);
                Flow::Taken
            }
            Decision::Quit => {
                self.clients.reply(key, b"+OK\r\n");
                self.clients.close_after_replies(key);
                Flow::Taken
            }
            Decision::Hangup => {
                tracing::warn!("a client that speaks HTTP was hung up on");
                self.close_client(key);
                Flow::Taken
            }
            Decision::Lost(step) => {
                self.step_lost(key, step);
                Flow::Taken
            }
        }
    }

    /// Along the shared links, while the client may have a connection of its own: it is not
    /// in the middle of anything there.
    fn forward_beside_own(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Flow {
        let Some(client) = self.clients.get(key) else { return Flow::Taken };
        if client.own.as_ref().is_some_and(|own| !own.is_settled()) {
            return Flow::Wait;
        }
        self.forward_clustered(key, request, command)
    }

    /// On a connection of the client's own, to the node of the request's key.
    fn send_own_clustered(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: Option<&Command>,
        expected: Expected,
    ) -> Flow {
        if let Some(flow) = self.without_map(key) {
            return flow;
        }
        if let Some(command) = command
            && command.role == Role::Urgent
        {
            return match &*command.name {
                "shutdown" => {
                    self.clients.error(key, "ERR heatsink: SHUTDOWN is for one node, not for all");
                    Flow::Taken
                }
                _ => self.ask_apart(key, request, command, false),
            };
        }
        let slot = command.and_then(|command| Slots::of(command, request).first());
        let Some(client) = self.clients.get(key) else { return Flow::Taken };
        if let Some(own) = &client.own {
            let keeps = matches!(expected, Expected::Watch | Expected::Blocking);
            if keeps && own.slot.is_some() && slot.is_some() && own.slot != slot {
                if !client.is_settled() {
                    return Flow::Wait;
                }
                self.clients.reply(key, CROSS_SLOT);
                return Flow::Taken;
            }
            let node = own.node;
            return self.send_own(key, node, request.bytes, expected);
        }
        if let Some(flow) = self.behind_old_map(key) {
            return flow;
        }
        let node = slot.map_or_else(|| self.home(key), |slot| self.primary_of(slot, key));
        let flow = self.send_own(key, node, request.bytes, expected);
        if expected == Expected::Watch
            && let Some(client) = self.clients.get(key)
            && let Some(own) = &mut client.own
        {
            own.slot = slot;
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
        if let Some(flow) = self.without_map(key) {
            return flow;
        }
        let settled = self.clients.get_ref(key).is_some_and(Client::is_settled);
        if after_writes && !settled {
            return Flow::Wait;
        }
        let targets = Targets::Apart { bytes: request.bytes, after_writes };
        self.fan_out(key, &targets, Ending::Join(Join::for_command(command)))
    }

    /// A tunnel leads to one node: right for `MONITOR`, wrong for whoever goes on with
    /// commands of all kinds.
    fn take_over_clustered(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        let Some(client) = self.clients.get(key) else { return Flow::Taken };
        if ["readonly", "readwrite", "asking"].iter().any(|name| request.is(0, name)) {
            // There are no replicas to speak to here, and no slots under way.
            self.clients.reply(key, b"+OK\r\n");
            return Flow::Taken;
        }
        let watching = ["monitor", "sync", "psync", "replconf"];
        if client.own.is_none() && watching.iter().any(|name| request.is(0, name)) {
            return self.open_tunnel(key, request.bytes);
        }
        let own = client.own.take();
        client.transaction = None;
        if let Some(own) = own {
            client.card.set_upstream_id(None);
            if own.transaction == crate::own::Transaction::Queueing {
                client.lost = Lost::Transaction;
            }
            self.drop_link(own.link);
        }
        self.clients
            .error(key, "ERR heatsink: not possible on a connection that leads to a whole cluster");
        Flow::Taken
    }

    /// Brings a lost transaction to its end without anything of it being executed.
    pub(crate) fn step_lost(&mut self, key: ClientKey, step: LostStep) {
        let node = self.home(key);
        let endpoint = self.endpoint(node);
        let Some(client) = self.clients.get(key) else { return };
        match step {
            LostStep::BeginMoved => {
                client.lost = Lost::MovedTransaction;
                self.clients.reply(key, b"+OK\r\n");
            }
            LostStep::Queue => self.clients.reply(key, b"+QUEUED\r\n"),
            LostStep::Touched => {
                client.lost = Lost::Nothing;
                let lane = client.lane;
                let protocol = self.lanes[lane].login.protocol;
                self.clients.reply(key, null(protocol == heatsink_upstream::Protocol::Resp3));
            }
            LostStep::Begin => {
                client.lost = Lost::Transaction;
                self.clients.reply(key, b"+OK\r\n");
            }
            LostStep::Refuse => {
                let text = format!(
                    "ERR heatsink: upstream {endpoint} unavailable: \
                     the connection of this transaction was lost, nothing of it is executed"
                );
                self.clients.error(key, &text);
            }
            LostStep::Abort => {
                client.lost = Lost::Nothing;
                let text = "EXECABORT Transaction discarded because of previous errors.";
                self.clients.error(key, text);
            }
            LostStep::Forget | LostStep::Unwatch => {
                client.lost = Lost::Nothing;
                self.clients.reply(key, b"+OK\r\n");
            }
        }
    }
}
