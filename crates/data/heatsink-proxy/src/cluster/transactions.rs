//! Transactions on a cluster: `MULTI` names no key, so its node is known only later.
//!
//! `MULTI` is answered here; it is sent, on a dedicated connection of the client, with the first
//! command behind it, to that command's node. What was sent is kept: if the node turns out to
//! be another (the first commands name no key, or the slot moves), all of it is sent again
//! there, since nothing of it has been executed before `EXEC` has.
//! Bound: [`MAX_KEPT_BYTES`]; a longer transaction is not followed to another node.

use heatsink_resp::command::{Command, Role};

use crate::cluster::route::Slots;
use crate::decide::{Situation, decide_by_role};
use crate::downstream::clients::Clients;
use crate::downstream::connection::{ClientKey, Lost};
use crate::downstream::intake::Flow;
use crate::downstream::request::Request;
use crate::runtime::worker::Worker;

/// Commands of a transaction that are kept.
const MAX_KEPT_BYTES: usize = 64 << 20;
pub(crate) const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
/// What a server says to keys of different slots.
pub(crate) const CROSS_SLOT: &[u8] = b"-CROSSSLOT Keys in request don't hash to the same slot\r\n";

/// A transaction on a cluster.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// What was queued and answered.
    pub(crate) queued: Vec<u8>,
    pub(crate) count: usize,
    /// The request under way is to be queued.
    pending: bool,
    /// The slot of its keys, once it has named one.
    pub(crate) slot: Option<u16>,
    /// Too long to be kept.
    pub(crate) overflown: bool,
}

impl Transaction {
    fn keep(&mut self, bytes: &[u8]) {
        self.count += 1;
        if self.queued.len() + bytes.len() > MAX_KEPT_BYTES {
            self.overflown = true;
            self.queued = Vec::new();
        }
        if !self.overflown {
            self.queued.extend_from_slice(bytes);
        }
    }
}

impl Worker {
    /// A request inside a transaction.
    pub(crate) fn step_transaction(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: Option<&Command>,
    ) -> Flow {
        let role = command.map(|command| command.role);
        let service = self.shared.verifier.is_some();
        let slots = command.map_or(Slots::None, |command| Slots::of(command, request));
        let Some(client) = self.clients.get(key) else { return Flow::Taken };
        if !client.is_settled() {
            // One at a time, so that what has to be sent again is known.
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
                    self.clients.reply(key, b"+OK\r\n");
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
            if let Some(flow) = self.without_map(key) {
                return flow;
            }
        }
        let Some(client) = self.clients.get(key) else { return Flow::Taken };
        let Some(transaction) = &mut client.transaction else { return Flow::Taken };
        if transaction.slot.is_none() {
            transaction.slot = slots.first();
        }
        let ends = match role {
            // With an argument too many they fail the transaction, wherever it goes.
            Some(Role::Exec | Role::Discard | Role::Reset) => request.len() == 1,
            Some(Role::Quit) => true,
            _ => false,
        };
        if !begun {
            let node =
                slots.first().map_or_else(|| self.home(key), |slot| self.primary_of(slot, key));
            if let Err(why) = self.begin_transaction_at(key, node, false) {
                return self.clients.transaction_unavailable(key, &why, ends);
            }
        }
        let Some(client) = self.clients.get(key) else { return Flow::Taken };
        let decision = decide_by_role(&Situation::of(client, true, service), role, request);
        let flow = self.carry_out(key, request, command, decision);
        if flow == Flow::Taken
            && !ends
            && let Some(client) = self.clients.get(key)
            && let Some(transaction) = &mut client.transaction
        {
            // Not what was answered without being sent.
            let dedicated = client.dedicated.as_ref();
            transaction.pending = dedicated.is_some_and(|dedicated| {
                !dedicated.is_settled() && dedicated.current == request.bytes
            });
        }
        flow
    }
}

impl Clients {
    /// `MULTI` outside of any state.
    pub(crate) fn begin_transaction(&mut self, key: ClientKey) -> Flow {
        let Some(client) = self.get(key) else { return Flow::Taken };
        if !client.is_settled() {
            return Flow::Wait;
        }
        client.transaction = Some(Box::default());
        client.record.facts().in_transaction = true;
        self.reply(key, b"+OK\r\n");
        Flow::Taken
    }

    /// The node cannot be reached: nothing of the transaction will be executed.
    pub(crate) fn transaction_unavailable(
        &mut self,
        key: ClientKey,
        why: &str,
        ends: bool,
    ) -> Flow {
        if let Some(client) = self.get(key) {
            client.transaction = None;
            client.lost = if ends { Lost::Nothing } else { Lost::Transaction };
        }
        self.error(key, why);
        Flow::Taken
    }
}
