//! Requests inside a transaction on a cluster, one at a time; see [`crate::cluster::transactions`].

use heatsink_resp::command::{Command, Role};

use crate::cluster::route::Slots;
use crate::decide::{Situation, decide_by_role};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::{Flow, Request};
use crate::runtime::worker::Worker;

impl Worker {
    /// A request inside a transaction.
    pub(crate) fn step_transaction(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: Option<&Command>,
    ) -> Flow {
        let role = command.map(|command| command.role);
        let service = self.relay.shared.verifier.is_some();
        let slots = command.map_or(Slots::None, |command| Slots::of(command, request));
        let Some(client) = self.relay.clients.get(key) else { return Flow::Taken };
        if !client.is_drained() {
            // One request at a time: it is kept, in case it has to be sent again.
            return Flow::Wait;
        }
        let begun = client.dedicated.is_some();
        if let (Some(transaction), Some(dedicated)) =
            (&mut client.transaction, &mut client.dedicated)
            && std::mem::take(&mut transaction.pending)
        {
            transaction.keep(&std::mem::take(&mut dedicated.current));
        }
        if !begun {
            match role {
                Some(Role::Discard) if request.len() == 1 => {
                    client.transaction = None;
                    client.record.facts().in_transaction = false;
                    self.relay.clients.reply(key, b"+OK\r\n");
                    return Flow::Taken;
                }
                Some(Role::Quit | Role::Reset)
                    if role == Some(Role::Quit) || request.len() == 1 =>
                {
                    client.transaction = None;
                    let client = Situation::of(client, true, service);
                    let decision = decide_by_role(&client, role, request);
                    return self.carry_out(key, request, command, decision);
                }
                _ => {}
            }
            if let Some(flow) = self.relay.routing().without_map(key) {
                return flow;
            }
        }
        let Some(client) = self.relay.clients.get(key) else { return Flow::Taken };
        let Some(transaction) = &mut client.transaction else { return Flow::Taken };
        if transaction.slot.is_none() {
            transaction.slot = slots.first();
        }
        let ends = match role {
            // With an extra argument the server refuses the command, and with it the transaction.
            Some(Role::Exec | Role::Discard | Role::Reset) => request.len() == 1,
            Some(Role::Quit) => true,
            _ => false,
        };
        if !begun {
            let node = slots
                .first()
                .map_or_else(|| self.relay.home(key), |slot| self.relay.primary_of(slot, key));
            if let Err(why) = self.sessions().begin_transaction_at(key, node, false) {
                return self.relay.clients.transaction_unavailable(key, &why, ends);
            }
        }
        let Some(client) = self.relay.clients.get(key) else { return Flow::Taken };
        let decision = decide_by_role(&Situation::of(client, true, service), role, request);
        let flow = self.carry_out(key, request, command, decision);
        if flow == Flow::Taken
            && !ends
            && let Some(client) = self.relay.clients.get(key)
            && let Some(transaction) = &mut client.transaction
        {
            // Not what was answered without being sent.
            let dedicated = client.dedicated.as_ref();
            transaction.pending = dedicated.is_some_and(|dedicated| {
                !dedicated.is_drained() && dedicated.current == request.bytes
            });
        }
        flow
    }
}
