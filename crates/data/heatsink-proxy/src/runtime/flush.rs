//! The end of a turn: what it has produced is written, once per link and once per client.

use std::io::{self, Write};
use std::time::Duration;

use heatsink_upstream::error::LinkError;
use heatsink_upstream::outgoing::Outgoing;

use crate::downstream::clients::{BULKY_BYTES, Clients};
use crate::downstream::connection::{Client, ClientKey, Closing, Deferral, Replies};
use crate::runtime::upkeep::BUSY_TICK;
use crate::runtime::worker::Worker;
use crate::upstream::links::Owner;

/// How long a client that was told why it is closed may take to read that. Not longer: one that goes on
/// sending notices only when this is over.
const LINGER: Duration = Duration::from_millis(100);
/// Replies of a pipeline over several nodes gather this long at most.
const GATHER_TIME: Duration = Duration::from_millis(2);
/// … but so many turns of the event loop at least.
const GATHER_TURNS: u32 = 2;

impl Worker {
    /// Writes what the turn has produced, and does what became possible by it.
    pub(crate) fn finish_turn(&mut self) {
        self.write_turn();
        self.bound_output();
        self.bound_input();
    }

    fn write_turn(&mut self) {
        if !self.relay.upstream.dirty_links.is_empty() {
            // After a while without requests the next tick is far.
            self.relay.next_tick = self.relay.next_tick.min(self.relay.now + BUSY_TICK);
        }
        if !self.session.pins.is_empty() {
            self.sessions().serve_pins();
            self.apply_effects();
        }
        for slot in std::mem::take(&mut self.relay.upstream.eager_links) {
            self.read_link(slot);
        }
        for key in std::mem::take(&mut self.relay.clients.eager) {
            self.read_client(key);
            self.close_if_draining(key);
        }
        // What is resumed here may have to wait again; the rest is for the next turn.
        for _ in 0..4 {
            for key in std::mem::take(&mut self.relay.clients.resume) {
                self.resume(key);
            }
            self.flush_links();
            self.flush_clients();
            for key in std::mem::take(&mut self.relay.clients.overflown) {
                self.close_slow(key, "limits.max_output_bytes");
            }
            if self.relay.clients.resume.is_empty()
                && self.relay.clients.dirty.is_empty()
                && self.relay.upstream.dirty_links.is_empty()
            {
                return;
            }
        }
    }

    /// Everything is said; the client is closed once it has read it.
    pub(crate) fn linger(&mut self, key: ClientKey) {
        let until = self.relay.now + LINGER;
        let Some(client) = self.relay.clients.get(key) else { return };
        client.closing = Closing::Lingering { until };
        self.relay.next_tick = self.relay.next_tick.min(until);
        client.socket.shut_write();
        client.readable = true;
        self.read_client(key);
    }

    /// If the process stood still for long, nothing that was planned before is sent, or sent
    /// again: shards that it was meant for may be gone; see [`crate::runtime::clock`].
    pub(crate) fn notice_pause(&mut self) {
        if !self.hot.keys.has_moved() {
            return self.awake.forget();
        }
        let Some(still) = self.awake.note(self.relay.world.clock.uptime()) else { return };
        tracing::warn!("stood still for {} s: upstream connections are made anew", still.as_secs());
        let links: Vec<usize> = self.relay.upstream.links.iter().map(|(slot, _)| slot).collect();
        for slot in links {
            let error = io::Error::other("this Heatsink stood still");
            self.relay.links().lose_link(slot, &LinkError::Io(error));
            self.apply_effects();
        }
    }

    fn flush_links(&mut self) {
        self.hot.depart(&mut self.relay);
        self.apply_effects();
        self.hot.close_flights();
        self.notice_pause();
        let mut dirty = std::mem::take(&mut self.relay.upstream.dirty_links);
        for slot in dirty.drain(..) {
            let Some(upstream) = self.relay.upstream.links.get_mut(slot) else { continue };
            upstream.dirty = false;
            let flushed = match upstream.owner {
                Owner::Pool => upstream.link.flush_gathered(self.relay.now),
                _ => upstream.link.flush(self.relay.now),
            };
            if let Err(error) = flushed {
                self.relay.links().lose_link(slot, &error);
                self.apply_effects();
                continue;
            }
            let owner = upstream.owner;
            let of_pool = owner == Owner::Pool
                && !self.relay.upstream.pools[upstream.pool].throttled.is_empty();
            let pool = upstream.pool;
            let full = upstream.is_full() || (of_pool && self.relay.upstream.is_pool_full(pool));
            if !full {
                let upstream = &self.relay.upstream.links[slot];
                match upstream.owner {
                    Owner::Pool => {
                        let pool = upstream.pool;
                        self.relay
                            .clients
                            .resume
                            .append(&mut self.relay.upstream.pools[pool].throttled);
                    }
                    Owner::Client(key) => {
                        if self.relay.clients.get(key).is_some_and(|client| client.stopped) {
                            self.relay.clients.resume.push(key);
                        }
                    }
                    Owner::Spare
                    | Owner::Once
                    | Owner::Tracked
                    | Owner::Listener
                    | Owner::Retired { .. } => {}
                }
            }
        }
        // What was queued meanwhile stays queued; the buffer is used again.
        if self.relay.upstream.dirty_links.is_empty() {
            self.relay.upstream.dirty_links = dirty;
        }
    }

    /// Replies of a pipeline over several nodes come from each at another time; they gather,
    /// so that they leave in one write. Not for long: the event loop wakes up for those that
    /// wait in vain, to the millisecond.
    pub(crate) fn end_gathering(&mut self) {
        self.relay.clients.turn = self.relay.clients.turn.wrapping_add(1);
        while let Some((key, deferral)) = self.relay.clients.deferred.front().copied() {
            // However long a turn took: what came meanwhile is looked at first.
            let turns = self.relay.clients.turn.wrapping_sub(deferral.turn);
            if self.relay.now < deferral.until || turns < GATHER_TURNS {
                return;
            }
            self.relay.clients.deferred.pop_front();
            if let Some(client) = self.relay.clients.get(key)
                && client.deferred == Some(deferral)
            {
                client.order.end_burst();
                client.deferred = None;
                client.overdue = true;
                if !client.dirty {
                    client.dirty = true;
                    self.relay.clients.dirty.push(key);
                }
            }
        }
    }

    fn flush_clients(&mut self) {
        let gathers = self.relay.cluster.view.is_some();
        let mut dirty = std::mem::take(&mut self.relay.clients.dirty);
        for key in dirty.drain(..) {
            let Clients { slab, buffers, deferred, turn, copied_bytes, .. } =
                &mut self.relay.clients;
            let Some(client) = slab.get_mut(key.slot as usize) else { continue };
            if client.generation != key.generation {
                continue;
            }
            client.dirty = false;
            if gathers && client.gathers_replies() {
                if client.deferred.is_none() {
                    let until = self.relay.now + GATHER_TIME;
                    let deferral = Deferral { until, turn: *turn };
                    client.deferred = Some(deferral);
                    deferred.push_back((key, deferral));
                }
                continue;
            }
            if client.deferred.take().is_some()
                && deferred.front().is_some_and(|(first, _)| *first == key)
            {
                // The event loop need not wake up for it.
                deferred.pop_front();
            }
            client.overdue = false;
            if client.replies != Replies::On {
                client.order.advance(&mut Outgoing::default(), buffers);
            }
            let before = client.unread();
            let Client { order, output, socket, gone, .. } = client;
            if *gone {
                order.advance(output, buffers);
                output.discard();
            } else if order.write(socket.plain(), output, buffers).is_err()
                || output.flush(socket).is_err()
                || socket.flush().is_err()
            {
                self.client_gone(key);
                continue;
            }
            buffers.reclaim(&mut client.output);
            let copied = client.output.copied_len() + client.order.copied_bytes();
            if copied != client.counted {
                *copied_bytes += copied;
                *copied_bytes -= std::mem::replace(&mut client.counted, copied);
            }
            // Nothing was left for it, or it has taken some.
            if client.unread() < before {
                client.took_at = self.relay.now;
            }
            let unread = client.output.len();
            let empty = unread == 0 && (client.gone || !client.socket.wants_write());
            let over = client.is_settled() || client.order.is_cut();
            if client.closing == Closing::AfterReplies && empty && over {
                self.linger(key);
                continue;
            }
            if let Some(dedicated) = &client.dedicated
                && unread <= BULKY_BYTES / 2
            {
                let readable =
                    |link: &usize| self.relay.upstream.links.get(*link).is_some_and(|l| l.readable);
                self.relay.upstream.eager_links.extend(dedicated.links().filter(readable));
            }
            if unread <= BULKY_BYTES / 2 {
                if client.bulky && client.stopped && self.relay.cluster.view.is_some() {
                    self.relay.clients.resume.push(key);
                }
                self.end_stall(key);
            }
            if empty {
                self.close_if_done(key);
            }
        }
        if self.relay.clients.dirty.is_empty() {
            self.relay.clients.dirty = dirty;
        }
    }
}
