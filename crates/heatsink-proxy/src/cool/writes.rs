//! Whatever touches a hot key and is not answered here.
//!
//! Bound: one entry for each such request that is not answered.
//! Invariant: a key is pending from before the request is sent until it is answered, failed or
//! given up.

use heatsink_cache::local::WriteToken;
use heatsink_resp::command::{Access, Command, Role, Unnamed};

use super::Cool;
use crate::connection::ClientKey;
use crate::intake::Flow;
use crate::observe::Mark;
use crate::request::{Request, is_untold};
use crate::worker::Worker;

/// A request that touches hot keys, on a shared link.
#[derive(Debug)]
pub(crate) struct HotWrite {
    tokens: Vec<WriteToken>,
    client: ClientKey,
    /// What else is remembered of it.
    inner: Mark,
}

impl HotWrite {
    pub(super) fn inner(&self) -> Mark {
        self.inner
    }
}

impl Worker {
    /// Requests that touched hot keys and are answered.
    pub(crate) fn look_at_ended(&mut self) {
        while let Some(write) = self.cooling.ended.pop() {
            self.end_hot_write(write);
        }
    }

    /// A request that counts as a write of the hot keys that it may touch.
    pub(super) fn mark_write(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Cool {
        let Some(client) = self.clients.get(key) else { return Cool::Done(Flow::Taken) };
        if client.awaits_hot() {
            return Cool::Done(Flow::Wait);
        }
        client.hot_writes += 1;
        let tokens = self.write_tokens(key, request, command);
        let inner = self.observe(key, command, request);
        let write = self.cooling.writes.insert(HotWrite { tokens, client: key, inner });
        Cool::Marked(Mark::Hot(write as u32))
    }

    /// The same before a cluster, where requests may come apart, or be sent on to other nodes:
    /// what it touches is pending until the client is settled.
    pub(super) fn write_clustered(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Cool {
        let Some(client) = self.clients.get(key) else { return Cool::Done(Flow::Taken) };
        if client.awaits_hot() {
            return Cool::Done(Flow::Wait);
        }
        let flow = self.forward_clustered(key, request, command);
        if flow == Flow::Taken {
            // Nothing has left yet, or at least nothing else has been looked at.
            self.touch_apart(key, command, request);
        }
        Cool::Done(flow)
    }

    /// Tokens for the hot keys that a request may touch. One that may touch any key ends nothing
    /// for others where the server tells of changes; see the module `unseen`.
    fn write_tokens(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Vec<WriteToken> {
        let unnamed = request.unnamed(command);
        if unnamed == Unnamed::Anything {
            self.keep_unseen(key);
            let writes = command.access == Access::Write;
            let is_told = !is_untold(command) && self.all_tell_of_changes();
            if writes && !is_told {
                return vec![self.cooling.cache.write_sent_to_all()];
            }
        }
        let Self { cooling, .. } = self;
        let mut tokens = Vec::new();
        let arg = |index| request.arg(index).unwrap_or_default();
        command.for_each_key(request.len(), arg, |index| {
            if cooling.hot.get(arg(index)).is_some() {
                tokens.extend(cooling.cache.write_sent(arg(index)));
            }
        });
        if unnamed == Unnamed::Matching {
            let matching = cooling.hot.iter().filter(|(name, _)| request.matches(command, name));
            tokens.extend(matching.filter_map(|(name, _)| cooling.cache.write_sent(name)));
        }
        tokens
    }

    /// A request that touches hot keys is answered or given up; what else was remembered of
    /// it.
    pub(crate) fn end_hot_write(&mut self, write: u32) -> Mark {
        let Some(write) = self.cooling.writes.try_remove(write as usize) else {
            return Mark::Nothing;
        };
        for token in write.tokens {
            self.write_over(token);
        }
        if let Some(client) = self.clients.get(write.client) {
            client.hot_writes -= 1;
            client.hot_written_at = Some(self.now);
        }
        write.inner
    }

    /// A request was decided about on its own; those of a transaction touch nothing before it
    /// is executed.
    pub(crate) fn touch_dispatched(
        &mut self,
        key: ClientKey,
        command: &Command,
        request: Request<'_>,
        queueing: bool,
    ) {
        if !queueing {
            self.touch_apart(key, command, request);
        } else if command.role == Role::Exec {
            self.touch_executed(key);
        }
    }

    /// A request went along a connection of the client's own, or in another unusual way: what
    /// it touches is pending until the client is settled.
    pub(crate) fn touch_apart(&mut self, key: ClientKey, command: &Command, request: Request<'_>) {
        if !self.cooling.is_active() || !self.touches_hot_keys(request, command) {
            return;
        }
        let may_block = matches!(command.role, Role::Blocking | Role::BlockingOption);
        if may_block && self.all_tell_of_changes() {
            return self.keep_unseen(key);
        }
        let tokens = self.write_tokens(key, request, command);
        self.keep_touched(key, tokens);
    }

    /// A transaction is executed: what it has named is touched now.
    pub(crate) fn touch_executed(&mut self, key: ClientKey) {
        if !self.cooling.is_active() {
            return;
        }
        let Some(client) = self.clients.get_ref(key) else { return };
        let Self { cooling, .. } = self;
        let mut tokens = Vec::new();
        // If nothing was noted, it may have named any.
        let mut names_any = true;
        if let Some(queued) = &client.queued_keys {
            queued.for_each(|name, _, _, _| tokens.extend(cooling.cache.write_sent(name)));
            names_any = queued.is_incomplete();
            if queued.is_untold() {
                tokens.push(cooling.cache.write_sent_to_all());
            }
        }
        self.keep_touched(key, tokens);
        if names_any {
            self.touch_all(key);
        }
    }

    /// Nobody knows what it touches. Where the server tells of changes, that ends nothing for
    /// others; see the module `unseen`.
    pub(crate) fn touch_all(&mut self, key: ClientKey) {
        if !self.cooling.is_active() {
            return;
        }
        self.keep_unseen(key);
        if !self.all_tell_of_changes() {
            let token = self.cooling.cache.write_sent_to_all();
            self.keep_touched(key, vec![token]);
        }
    }

    pub(super) fn keep_touched(&mut self, key: ClientKey, tokens: Vec<WriteToken>) {
        let Some(client) = self.clients.get(key) else {
            self.forget_touched(tokens);
            return;
        };
        client.hot_apart = true;
        client.hot_touched.extend(tokens);
        if !self.cooling.unsettled.contains(&key) {
            self.cooling.unsettled.push(key);
        }
    }

    /// Clients that have been answered since.
    pub(super) fn look_at_unsettled(&mut self) {
        let Self { cooling, clients, now, .. } = self;
        let mut over = Vec::new();
        cooling.unsettled.retain(|key| {
            let Some(client) = clients.get(*key) else { return false };
            if !client.is_settled() {
                return true;
            }
            over.append(&mut client.end_apart(*now));
            false
        });
        self.forget_touched(over);
    }

    /// A client has gone: what it had under way may still be executed, which the server tells
    /// of like any other change.
    pub(crate) fn forget_touched(&mut self, tokens: Vec<WriteToken>) {
        for token in tokens {
            self.write_over(token);
        }
    }
}
