//! Requests that touch a hot key and are taken by no mitigation.
//!
//! Where the server tells of changes, such a request ends nothing for others: many change nothing (the
//! server refuses them, `SET NX` finds the key, `MGET` only reads it), and what one changes the server
//! says. Its own client is not served from the cache until word of it must have come; see the module
//! `reads`. Where the server does not tell, the key is *pending*: nothing of it is served or kept.
//!
//! Bound: one entry for each such request that is not answered.
//! Invariant: a client reads no hot key while such a request of its own is unanswered. A key of a
//! server without invalidations is pending from before the request is sent until it is answered, failed
//! or given up.

use std::sync::Arc;

use heatsink_cache::local::WriteToken;
use heatsink_resp::command::{Access, Role, Unnamed};

use crate::downstream::connection::ClientKey;
use crate::downstream::request::{Flow, is_untold};
use crate::hot::{Incoming, Mitigated, Mitigations};
use crate::observe::Mark;
use crate::relay::Relay;

/// A request that touches hot keys, on a shared link.
#[derive(Debug)]
pub(crate) struct HotWrite {
    tokens: Vec<WriteToken>,
    /// The server pushes invalidations for what it changes.
    told: bool,
    /// The server pushes none.
    untold: bool,
    client: ClientKey,
    /// What else is remembered of it.
    inner: Mark,
}

/// Which cached keys a request may change.
#[derive(Debug, Default)]
struct Touched {
    /// Of the keys that are pending.
    tokens: Vec<WriteToken>,
    /// It may change others, for which the server pushes invalidations.
    told: bool,
}

/// What was noted for a request that may change a key.
#[derive(Debug)]
pub(super) enum Sent {
    /// Nothing of the key is cached.
    Uncached,
    /// The server pushes an invalidation if it does.
    Told,
    /// The key is pending.
    Pending(WriteToken),
}

impl HotWrite {
    pub(super) fn inner(&self) -> Mark {
        self.inner
    }
}

impl Mitigations {
    /// Requests that touched hot keys and are answered.
    pub(crate) fn look_at_ended(&mut self, relay: &mut Relay) {
        while let Some((write, refused)) = self.ended.pop() {
            self.end_hot_write(relay, write, refused);
        }
    }

    /// A request that counts as a write of the hot keys that it may touch.
    pub(super) fn mark_write(&mut self, relay: &mut Relay, incoming: Incoming<'_>) -> Mitigated {
        let Incoming { key, request, command, .. } = incoming;
        let Some(client) = relay.clients.get(key) else { return Mitigated::Done(Flow::Taken) };
        if client.hot.awaits() {
            return Mitigated::Done(Flow::Wait);
        }
        client.hot.writes += 1;
        let Touched { tokens, told } = self.touched(relay, incoming);
        let inner = relay.routing().observe(key, command, request);
        let untold = is_untold(command);
        let write = HotWrite { tokens, told, untold, client: key, inner };
        let write = self.writes.insert(write);
        Mitigated::Marked(Mark::Hot(write as u32))
    }

    /// A request that counts as a write, before a cluster. It may be split by slots, or be redirected, so the
    /// keys that it touches are pending until its client is drained.
    pub(super) fn write_clustered(
        &mut self,
        relay: &mut Relay,
        incoming: Incoming<'_>,
    ) -> Mitigated {
        let Incoming { key, request, command, .. } = incoming;
        let Some(client) = relay.clients.get(key) else { return Mitigated::Done(Flow::Taken) };
        if client.hot.awaits() {
            return Mitigated::Done(Flow::Wait);
        }
        let flow = relay.routing().forward_clustered(key, request, command);
        if flow == Flow::Taken {
            // Nothing has left yet, or at least nothing else has been looked at.
            self.touch_apart(relay, incoming);
        }
        Mitigated::Done(flow)
    }

    /// Which cached keys a request may change.
    fn touched(&mut self, relay: &mut Relay, incoming: Incoming<'_>) -> Touched {
        let Incoming { key, request, command, .. } = incoming;
        let unnamed = request.unnamed(command);
        if unnamed == Unnamed::Anything {
            relay.clients.keep_unseen(key);
            let writes = command.access == Access::Write;
            let is_told = !is_untold(command) && self.all_tell_of_changes(relay);
            if writes && !is_told {
                let tokens = vec![self.write_sent_to_all(relay, key)];
                return Touched { tokens, told: false };
            }
        }
        let mut touched = Touched::default();
        let arg = |index| request.arg(index).unwrap_or_default();
        command
            .for_each_key(request.len(), arg, |index| self.touch(relay, arg(index), &mut touched));
        if unnamed == Unnamed::Matching {
            let hot = Arc::clone(&self.keys);
            let matching = hot.iter().filter(|(name, _)| request.matches(command, name));
            matching.for_each(|(name, _)| self.touch(relay, name, &mut touched));
        }
        touched
    }

    /// A request that may change all keys without invalidations is about to be sent.
    ///
    /// A client whose requests the server refuses must not be able to empty the cache for all. So if the last
    /// such request of the same login was refused, the cache is emptied only when this one is answered, and
    /// was carried out.
    fn write_sent_to_all(&mut self, relay: &mut Relay, key: ClientKey) -> WriteToken {
        let pool =
            relay.clients.get_ref(key).and_then(|client| relay.upstream.pools.get(client.pool));
        let refused =
            pool.is_some_and(|pool| pool.untold_refused) && self.all_tell_of_changes(relay);
        let cache = &mut self.reads.cache;
        if refused { cache.write_to_all_suspected() } else { cache.write_sent_to_all() }
    }

    /// What a request that names a key may do to it.
    fn touch(&mut self, relay: &mut Relay, name: &[u8], touched: &mut Touched) {
        match self.write_sent(relay, name) {
            Sent::Uncached => {}
            Sent::Told => touched.told = true,
            Sent::Pending(token) => touched.tokens.push(token),
        }
    }

    /// Something that may change a key is about to be sent.
    pub(super) fn write_sent(&mut self, relay: &mut Relay, name: &[u8]) -> Sent {
        if self.reads.cache.key_id(name).is_none() {
            return Sent::Uncached;
        }
        if self.tells_of_changes(relay.node_of(name)) {
            return Sent::Told;
        }
        self.reads.cache.write_sent(name).map_or(Sent::Uncached, Sent::Pending)
    }

    /// A request that touches hot keys is answered or given up; what else was remembered of
    /// it.
    pub(crate) fn end_hot_write(&mut self, relay: &mut Relay, write: u32, refused: bool) -> Mark {
        let Some(write) = self.writes.try_remove(write as usize) else {
            return Mark::Nothing;
        };
        if write.untold {
            relay.note_untold(write.client, refused);
        }
        // A script may have written before it failed; what servers do not tell of is refused as a whole.
        for token in write.tokens {
            if !(write.untold && refused) {
                self.write_over(relay, token);
            }
        }
        if let Some(client) = relay.clients.get(write.client) {
            client.hot.writes -= 1;
            client.hot.written_at = Some(relay.now);
            if write.told {
                client.hot.hear_of_changes(&relay.world.clock);
            }
        }
        write.inner
    }

    /// A request was decided about on its own; those of a transaction touch nothing before it
    /// is executed.
    pub(crate) fn touch_dispatched(
        &mut self,
        relay: &mut Relay,
        incoming: Incoming<'_>,
        queueing: bool,
    ) {
        let Incoming { key, command, .. } = incoming;
        if !queueing {
            self.touch_apart(relay, incoming);
        } else if command.role == Role::Exec {
            self.touch_executed(relay, key);
        }
    }

    /// A request went along a dedicated connection of the client, or another path than a shared link: the
    /// keys that it touches are pending until the client is drained.
    pub(in crate::hot) fn touch_apart(&mut self, relay: &mut Relay, incoming: Incoming<'_>) {
        let Incoming { key, request, command, .. } = incoming;
        if !self.is_active() || !self.touches_hot_keys(request, command) {
            return;
        }
        let touched = self.touched(relay, incoming);
        self.keep_touched(relay, key, touched);
    }

    /// A transaction is executed: the keys that it names are touched now.
    pub(in crate::hot) fn touch_executed(&mut self, relay: &mut Relay, key: ClientKey) {
        if !self.is_active() {
            return;
        }
        let Some(client) = relay.clients.get_ref(key) else { return };
        let mut touched = Touched::default();
        let (mut names, mut is_untold) = (Vec::new(), false);
        // If nothing was noted, it may have named any.
        let mut names_any = true;
        if let Some(queued) = &client.queued_keys {
            let cache = &self.reads.cache;
            queued.for_each(|name, _, _, _| {
                if cache.key_id(name).is_some() {
                    names.push(name.to_vec());
                }
            });
            names_any = queued.is_incomplete();
            is_untold = queued.is_untold();
        }
        for name in &names {
            self.touch(relay, name, &mut touched);
        }
        if is_untold {
            touched.tokens.push(self.write_sent_to_all(relay, key));
        }
        self.keep_touched(relay, key, touched);
        if names_any {
            self.touch_all(relay, key);
        }
    }

    /// Nobody knows what it touches. Where the server tells of changes, that ends nothing for
    /// others; see the head of `reads`.
    pub(crate) fn touch_all(&mut self, relay: &mut Relay, key: ClientKey) {
        if !self.is_active() {
            return;
        }
        relay.clients.keep_unseen(key);
        if !self.all_tell_of_changes(relay) {
            let tokens = vec![self.reads.cache.write_sent_to_all()];
            self.keep_touched(relay, key, Touched { tokens, told: false });
        }
    }

    fn keep_touched(
        &mut self,
        relay: &mut Relay,
        key: ClientKey,
        Touched { tokens, told }: Touched,
    ) {
        let Some(client) = relay.clients.get(key) else {
            self.forget_touched(relay, tokens);
            return;
        };
        client.hot.apart = true;
        client.hot.unknown |= told;
        if tokens.is_empty() {
            // Nobody waits for it to be over.
            return;
        }
        client.hot.touched.extend(tokens);
        if !self.undrained.contains(&key) {
            self.undrained.push(key);
        }
    }

    /// Goes through the clients that touched hot keys apart, for those that are drained by now.
    pub(super) fn look_at_undrained(&mut self, relay: &mut Relay) {
        let Relay { clients, now, world, .. } = relay;
        let mut over = Vec::new();
        self.undrained.retain(|key| {
            let Some(client) = clients.get(*key) else { return false };
            if !client.is_drained() {
                return true;
            }
            over.append(&mut client.hot.end_apart(*now, &world.clock));
            false
        });
        self.forget_touched(relay, over);
    }

    /// A client has gone: what it had under way may still be executed, which the server tells
    /// of like any other change.
    pub(crate) fn forget_touched(&mut self, relay: &mut Relay, tokens: Vec<WriteToken>) {
        for token in tokens {
            self.write_over(relay, token);
        }
    }
}

impl Relay {
    fn note_untold(&mut self, key: ClientKey, refused: bool) {
        if let Some(client) = self.clients.get_ref(key)
            && let Some(pool) = self.upstream.pools.get_mut(client.pool)
        {
            pool.untold_refused = refused;
        }
    }
}
