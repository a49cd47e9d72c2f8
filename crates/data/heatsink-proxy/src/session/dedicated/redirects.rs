//! Redirects of requests on a client's dedicated connection: blocking commands, transactions, sharded
//! subscriptions.
//!
//! On a cluster, one request at a time is under way on such a connection, and is kept; so if
//! its node turns out to be another, the client gets a connection to that one, and what the
//! old one had been told is told again.

use std::time::Duration;

use heatsink_cluster::redirect::{self, Redirect};
use heatsink_resp::command::SubscriptionKind;
use heatsink_upstream::Protocol;

use crate::cluster::redirects::is_servers_own;
use crate::cluster::redirects::{Later, MAX_HOPS, RETRY_PAUSE, given_up};
use crate::cluster::route::name_of;
use crate::cluster::route::slot_of;
use crate::cluster::transactions::{CROSS_SLOT, MULTI};
use crate::downstream::clients::error_line;
use crate::downstream::connection::{ClientKey, Lost};
use crate::relay::effects::Effect;
use crate::session::Sessions;
use crate::session::dedicated::{Expected, Transaction};
use crate::upstream::nodes::NodeId;

/// After this long, being sent on again is not the same search any more.
const ANOTHER_STORY: Duration = Duration::from_secs(2);
/// Why a request is not sent to another node, which has its key.
const SUBSCRIBED: &str = "not possible while subscribed, because the key is at another node";
const TOO_LONG: &str = "the slot is at another node, and the transaction too long to be sent there";

impl Sessions<'_> {
    /// A node has not executed the request that is under way on a client's dedicated connection.
    pub(crate) fn dedicated_redirected(&mut self, key: ClientKey, error: &[u8]) {
        let until = self.relay.now + self.relay.live.timeouts.cluster_retry;
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(dedicated) = &mut client.dedicated else { return };
        let from = dedicated.node;
        if dedicated.retry_until.is_some_and(|until| self.relay.now > until + ANOTHER_STORY) {
            // A command that waits for long may be sent on more than once in its life.
            dedicated.retry_until = None;
            dedicated.hops = 0;
        }
        dedicated.hops += 1;
        let give_up = *dedicated.retry_until.get_or_insert(until) <= self.relay.now
            || dedicated.hops > MAX_HOPS;
        let expected = dedicated.expected.front().copied();
        let in_transaction = client.transaction.is_some();
        let (watched, bound_to) = match &client.transaction {
            Some(transaction) => (false, transaction.slot),
            None if dedicated.transaction == Transaction::None => (false, None),
            None => (true, dedicated.slot),
        };
        // What cannot be said again elsewhere.
        let overflown = client.transaction.as_ref().is_some_and(|t| t.overflown);
        let fixed = dedicated.is_subscriber() || overflown;
        let queueing = dedicated.transaction == Transaction::Queueing;
        let current = dedicated.current.clone();
        let confined = dedicated.is_confined();
        let slot = slot_of(&self.relay.table, &current);
        if confined && !matches!(expected, Some(Expected::Subscription { .. })) {
            // A server without slots looks at this first.
            let name = name_of(&self.relay.table, &current);
            let text = format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context"
            );
            self.answer_own(key, &error_line(&text));
            return;
        }
        let of_shard = |expected: Expected| {
            matches!(expected, Expected::Subscription { subscription, .. }
                if subscription.kind == SubscriptionKind::Shard)
        };
        if fixed && !queueing && expected.is_some_and(of_shard) {
            self.subscribe_beside(key, error);
            return;
        }
        if slot.is_some() && bound_to.is_some() && slot != bound_to {
            self.answer_own(key, CROSS_SLOT);
            return;
        }
        // `EXEC` names no key, and a command that nobody knows may say anything.
        let believed = |redirect: &Redirect<'_>| match expected {
            Some(Expected::Exec) => true,
            Some(Expected::Unknown) => false,
            _ => is_servers_own(&self.relay.table, *redirect, error, &current),
        };
        let redirect = redirect::parse(error).filter(believed);
        if fixed {
            let frame = match redirect {
                Some(Redirect::Moved { .. } | Redirect::Ask { .. }) => {
                    let why = if overflown { TOO_LONG } else { SUBSCRIBED };
                    stays(why, expected == Some(Expected::Exec))
                }
                _ => error.to_vec(),
            };
            self.answer_own(key, &frame);
            return;
        }
        if watched && (queueing || expected == Some(Expected::Watch)) {
            self.watch_moved(key);
            return;
        }
        if watched && let Some(client) = self.relay.clients.get(key) {
            client.lost = Lost::Moved;
        }
        let Some(redirect) = redirect else {
            self.answer_own(key, error);
            return;
        };
        if give_up {
            self.answer_own(key, given_up(redirect, error, in_transaction));
            return;
        }
        let to = match redirect {
            Redirect::Moved { host, port, .. } | Redirect::Ask { host, port, .. } => {
                self.relay.routing().named_node(from, host, port)
            }
            _ => None,
        };
        self.relay.routing().want_topology();
        match to {
            Some(to) => {
                self.replay_dedicated(key, Some(to), matches!(redirect, Redirect::Ask { .. }));
            }
            None => self.try_dedicated_again(key),
        }
    }

    /// The request under way is said again after a pause, wherever it belongs then.
    fn try_dedicated_again(&mut self, key: ClientKey) {
        let at = self.relay.now + RETRY_PAUSE;
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(dedicated) = &mut client.dedicated else { return };
        // Trying again is not going further.
        dedicated.hops = 0;
        let link = dedicated.link;
        if let Some(generation) =
            self.relay.upstream.links.get(link).map(|upstream| upstream.generation)
        {
            self.relay.cluster.later.push(Later::Dedicated { at, client: key, link, generation });
            self.relay.next_tick = self.relay.next_tick.min(at);
        }
    }

    /// The request under way is answered with this.
    pub(in crate::session) fn answer_own(&mut self, key: ClientKey, frame: &[u8]) {
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(dedicated) = &mut client.dedicated else { return };
        let link = dedicated.link;
        dedicated.answer(frame);
        self.relay.clients.reply(key, frame);
        self.look_at_dedicated(crate::upstream::links::Owner::Client(key));
        if self.relay.links().look_at_passing(link) {
            self.give_in_turn(link);
        }
    }

    /// Gives the client a connection to another node, or a new one to the node that has its
    /// slot now, and says there what is to be said.
    pub(crate) fn replay_dedicated(&mut self, key: ClientKey, to: Option<NodeId>, asking: bool) {
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(dedicated) = client.dedicated.take() else { return };
        client.record.set_upstream_id(None);
        let in_transaction = client.transaction.is_some();
        let slot = slot_of(&self.relay.table, &dedicated.current).or_else(|| {
            self.relay.clients.get_ref(key).and_then(|client| client.transaction.as_ref()?.slot)
        });
        let home = self.relay.home(key);
        let to = to.unwrap_or_else(|| slot.map_or(home, |slot| self.relay.primary_of(slot, key)));
        if dedicated.transaction == Transaction::None {
            self.spare_link(dedicated.link);
        } else {
            self.relay.links().drop_link(dedicated.link);
        }
        let expected = dedicated.expected.back().copied().unwrap_or(Expected::Plain);
        let opened = if in_transaction {
            self.begin_transaction_at(key, to, asking)
        } else {
            self.open_dedicated(key, to).map(|()| {
                if asking {
                    self.say_unasked(key, b"*1\r\n$6\r\nASKING\r\n", 1);
                }
            })
        };
        if let Err(why) = opened {
            self.dedicated_unavailable(key, expected, &why);
            if in_transaction && let Some(client) = self.relay.clients.get(key) {
                client.transaction = None;
                let ended = matches!(expected, Expected::Exec | Expected::Discard);
                client.lost = if ended { Lost::Nothing } else { Lost::Transaction };
            }
            self.relay.clients.resume.push(key);
            return;
        }
        self.send_dedicated(key, to, &dedicated.current, expected);
        // Still the same request.
        if let Some(client) = self.relay.clients.get(key)
            && let Some(new) = &mut client.dedicated
        {
            new.hops = dedicated.hops;
            new.retry_until = dedicated.retry_until;
            new.executing = dedicated.executing;
            if let (Some(new), Some(old)) = (new.marks.back_mut(), dedicated.marks.back()) {
                *new = *old;
            }
        }
        // The client may have left meanwhile.
        self.relay.effects.push(Effect::CloseIfDone(key));
    }

    /// Opens a connection to the transaction's node and says there what was queued so far.
    pub(crate) fn begin_transaction_at(
        &mut self,
        key: ClientKey,
        node: NodeId,
        asking: bool,
    ) -> Result<(), String> {
        self.open_dedicated(key, node)?;
        if asking {
            // Lasts as long as the transaction.
            self.say_unasked(key, b"*1\r\n$6\r\nASKING\r\n", 1);
        }
        self.say_unasked(key, MULTI, 1);
        let Some(client) = self.relay.clients.get(key) else { return Ok(()) };
        let Some(transaction) = &client.transaction else { return Ok(()) };
        let (queued, count) = (transaction.queued.clone(), transaction.count);
        if let Some(dedicated) = &mut client.dedicated {
            dedicated.transaction = Transaction::Queueing;
        }
        if count > 0 {
            self.say_unasked(key, &queued, count);
        }
        Ok(())
    }

    /// The keys that a client watches are on their way to another node, so they have been
    /// touched: its transaction fails as if somebody had written to them.
    fn watch_moved(&mut self, key: ClientKey) {
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(dedicated) = client.dedicated.take() else { return };
        client.record.set_upstream_id(None);
        let pool = client.pool;
        let expected = dedicated.expected.back().copied().unwrap_or(Expected::Plain);
        let resp3 = self.relay.upstream.pools[pool].login.protocol == Protocol::Resp3;
        self.relay.links().drop_link(dedicated.link);
        let Some(client) = self.relay.clients.get(key) else { return };
        match (dedicated.transaction, expected) {
            (_, Expected::Exec) => {
                client.lost = Lost::Nothing;
                self.relay.clients.reply(key, null(resp3));
            }
            (Transaction::Queueing, _) => {
                client.lost = Lost::MovedTransaction;
                self.relay.clients.reply(key, b"+QUEUED\r\n");
            }
            _ => {
                client.lost = Lost::Moved;
                self.relay.clients.reply(key, b"+OK\r\n");
            }
        }
        self.relay.clients.resume.push(key);
        self.relay.routing().want_topology();
        self.relay.next_tick = self.relay.next_tick.min(self.relay.now + Duration::from_millis(20));
    }
}

/// The error for a request that stays where its key is not. That of `EXEC` says that nothing was executed.
fn stays(why: &str, is_exec: bool) -> Vec<u8> {
    let code = if is_exec { "EXECABORT" } else { "ERR" };
    error_line(&format!("{code} heatsink: {why}"))
}

/// What `EXEC` answers when a watched key was touched.
pub(crate) fn null(resp3: bool) -> &'static [u8] {
    if resp3 { b"_\r\n" } else { b"*-1\r\n" }
}
