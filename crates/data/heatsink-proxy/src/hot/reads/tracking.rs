//! The links of the cache: the invalidations that come along them, and whether the server is still there.

use std::time::{Duration, Instant};

use heatsink_cache::identity::LoginId;
use heatsink_cache::local::LinkId;
use heatsink_resp::value::Value;

use crate::hot::Mitigations;
use crate::hot::reads::TrackedLink;
use crate::relay::Relay;
use crate::upstream::links::SILENCE;
use crate::upstream::ticket::{Purpose, Ticket};

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

impl Mitigations {
    /// A link of the cache is ready: what is read along it from now on can be kept.
    pub(crate) fn tracking_ready(&mut self, relay: &mut Relay, slot: usize) {
        let Some(upstream) = relay.upstream.links.get(slot) else { return };
        let (pool, node, generation) = (upstream.pool, upstream.node, upstream.generation);
        let login = LoginId(relay.upstream.pools[pool].serial as u32);
        let id = self.reads.cache.link_opened(login);
        self.reads.links.push(TrackedLink {
            slot,
            pool,
            node,
            generation,
            id,
            asked_at: None,
            // Nothing was read along it before.
            heard_up_to: relay.world.now(),
            delay: Duration::ZERO,
        });
        self.forget_refusal(node);
    }

    /// A link is gone: what was read along it is not served any more.
    pub(crate) fn tracking_lost(&mut self, generation: u32) {
        let at = self.reads.links.iter().position(|link| link.generation == generation);
        if let Some(at) = at {
            let lost = self.reads.links.swap_remove(at);
            self.reads.cache.link_lost(lost.id);
        }
    }

    /// Evaluates pushed messages of the server, before any reply that came together with them.
    pub(crate) fn look_at_pushes(&mut self, relay: &mut Relay) {
        if self.heard.pushes.is_empty() {
            return;
        }
        for push in std::mem::take(&mut self.heard.pushes) {
            let Ok(value) = Value::decode(&push) else { continue };
            if let Value::Error(_) = value {
                self.listening_refused(relay);
                continue;
            }
            let items = value.array();
            if items.first().and_then(Value::text) != Some(b"invalidate") {
                self.heard(items);
                continue;
            }
            match items.get(1) {
                Some(keys) if !keys.array().is_empty() => {
                    for key in keys.array().iter().filter_map(Value::text) {
                        self.on_invalidation(Some(key));
                    }
                }
                _ => self.on_invalidation(None),
            }
        }
    }

    /// No key is hot any more: the links of the cache that owe nothing are closed.
    pub(in crate::hot) fn close_tracked(&mut self, relay: &mut Relay) {
        let links: Vec<usize> = self.reads.links.iter().map(|link| link.slot).collect();
        for slot in links {
            let upstream = relay.upstream.links.get(slot);
            if let Some(upstream) = upstream.filter(|upstream| upstream.link.waiting() == 0) {
                let generation = upstream.generation;
                relay.links().drop_link(slot);
                self.tracking_lost(generation);
            }
        }
    }

    /// Asks each link of the cache whether it is still there.
    pub(in crate::hot) fn feel_pulse(&mut self, relay: &mut Relay) {
        for at in 0..self.reads.links.len() {
            self.ask_whether_there(relay, at);
        }
    }

    /// Asks those of a pool that have not been heard since a time.
    pub(in crate::hot) fn ask_for_word(&mut self, relay: &mut Relay, pool: usize, since: Instant) {
        for at in 0..self.reads.links.len() {
            let link = &self.reads.links[at];
            if link.pool == pool && link.heard_up_to <= since {
                self.ask_whether_there(relay, at);
            }
        }
    }

    fn ask_whether_there(&mut self, relay: &mut Relay, at: usize) {
        let link = &mut self.reads.links[at];
        let slot = link.slot;
        let upstream = relay.upstream.links.get(slot);
        if upstream.is_none_or(|upstream| upstream.generation != link.generation) {
            // It is lost, which is about to be said.
            return;
        }
        if link.asked_at.is_none() {
            // Not the time of the turn, which may have gone on for a while.
            link.asked_at = Some(relay.world.now());
            relay.upstream.push_to_link(relay.now, slot, PING, Ticket::internal(Purpose::Pulse));
            // When nothing was out at the last look, the next one may be a second away.
            relay.next_tick = relay.next_tick.min(relay.now + SILENCE);
        }
    }

    /// A link of the cache is still there.
    pub(crate) fn pulse_felt(&mut self, relay: &mut Relay, slot: usize) {
        let generation = relay.upstream.links.get(slot).map(|upstream| upstream.generation);
        let link = self.reads.links.iter_mut().find(|link| Some(link.generation) == generation);
        if let Some(link) = link
            && let Some(asked_at) = link.asked_at.take()
        {
            link.delay = relay.world.now().saturating_duration_since(asked_at);
            link.heard_up_to = link.heard_up_to.max(asked_at);
        }
    }
}

impl Mitigations {
    /// What the cache calls a link, once it is ready.
    pub(in crate::hot) fn link_id(&self, relay: &Relay, slot: usize) -> Option<LinkId> {
        let generation = relay.upstream.links.get(slot)?.generation;
        self.reads.links.iter().find(|link| link.generation == generation).map(|link| link.id)
    }

    /// A read along a link of the cache is answered, which was sent at that time: all invalidations up to
    /// then have come.
    pub(in crate::hot) fn heard_on(&mut self, id: LinkId, sent_at: Instant) {
        if let Some(link) = self.reads.links.iter_mut().find(|link| link.id == id) {
            link.heard_up_to = link.heard_up_to.max(sent_at);
        }
    }
}
