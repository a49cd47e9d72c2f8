//! The ticks of a worker: overdue requests, idle clients and links, totals, an orderly end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::cluster::redirects::Later;
use crate::cluster::refresh::View;
use crate::downstream::connection::{ClientKey, Closing};
use crate::runtime::worker::Worker;
use crate::upstream::links::Owner;

/// Time between two ticks while requests come or replies are outstanding, and while not.
pub(crate) const BUSY_TICK: Duration = Duration::from_millis(50);
const IDLE_TICK: Duration = Duration::from_secs(1);
/// How long a client may take to agree on how to encrypt.
const HANDSHAKE: Duration = Duration::from_secs(5);

impl Worker {
    /// One tick.
    pub(crate) fn tick(&mut self) {
        self.end_long_stalls();
        self.look_after_links();
        self.look_after_clients();
        self.sessions().look_after_logins();
        self.relay.routing().look_after_topology();
        self.apply_effects();
        for later in self.relay.routing().take_due() {
            self.relay.routing().try_later(later);
            self.apply_effects();
        }
        // At regular times: rates are computed from the differences of totals.
        let serving = self.taken > 0;
        self.count_requests();
        self.tell_slowest();
        self.look_after_input();
        let waiting = self.relay.upstream.links.iter().any(|(_, upstream)| {
            let dedicated = matches!(upstream.owner, Owner::Client(_) | Owner::Listener);
            dedicated || !upstream.link.is_ready() || upstream.link.waiting() > 0
        });
        let alert = self.relay.cluster.view.as_ref().is_some_and(View::is_alert);
        let busy = serving || waiting || alert || self.drain_until.is_some();
        let tick = if busy { BUSY_TICK } else { IDLE_TICK };
        self.relay.next_tick = self.relay.now + tick;
        if let Some(at) = self.relay.cluster.later.iter().map(Later::at).min() {
            self.relay.next_tick = self.relay.next_tick.min(at);
        }
    }

    /// Gives up links that take too long, closes pools and spare links that are not needed, and opens those
    /// that will be.
    fn look_after_links(&mut self) {
        self.relay.links().look_around();
        self.apply_effects();
        self.sessions().look_after_spares();
        for (slot, generation, error) in self.relay.links().overdue_links() {
            // What is in its place may be another by now.
            let link = self.relay.upstream.links.get(slot);
            if link.is_some_and(|link| link.generation == generation) {
                self.relay.links().lose_link(slot, &error);
                self.apply_effects();
            }
        }
        self.relay.links().look_after_pools();
        self.apply_effects();
    }

    fn look_after_clients(&mut self) {
        let idle_ms = self.relay.live.limits.idle.map(|idle| idle.as_millis() as u64);
        let handshake_ms = HANDSHAKE.as_millis() as u64;
        let (mut overdue, mut leaving) = (Vec::new(), Vec::new());
        for (slot, client) in &self.relay.clients.slab {
            let key = ClientKey { slot: slot as u32, generation: client.generation };
            if client.dedicated.as_ref().is_some_and(|dedicated| dedicated.blocks_left.is_some()) {
                leaving.push(key);
            }
            match client.closing {
                Closing::Lingering { until } if self.relay.now >= until => overdue.push(key),
                Closing::No
                    if client.socket.is_handshaking()
                        && client.record.idle_ms(self.relay.now) >= handshake_ms =>
                {
                    overdue.push(key);
                }
                Closing::No
                    if client.is_drained()
                        && client.dedicated.is_none()
                        && idle_ms
                            .is_some_and(|ms| client.record.idle_ms(self.relay.now) >= ms) =>
                {
                    overdue.push(key);
                }
                _ => {}
            }
        }
        if let Some(until) = self.drain_until
            && self.relay.now >= until
        {
            for (slot, client) in &self.relay.clients.slab {
                let dedicated =
                    client.dedicated.as_ref().map_or(0, |dedicated| dedicated.expected.len());
                let unanswered = client.order.outstanding() as usize + dedicated;
                self.relay.shared.unanswered.fetch_add(unanswered, Ordering::AcqRel);
                overdue.push(ClientKey { slot: slot as u32, generation: client.generation });
            }
        }
        for key in overdue {
            self.close_client(key);
        }
        for key in leaving {
            self.close_if_done(key);
        }
    }

    /// Answers what is in flight, then closes everything.
    pub(crate) fn drain(&mut self, until: Instant) {
        self.drain_until = Some(until);
        self.relay.next_tick = self.relay.now;
        let all: Vec<_> = (0..self.relay.clients.slab.capacity())
            .filter_map(|slot| self.relay.clients.key(slot))
            .collect();
        for key in all {
            // Requests that the client sent before it could know of the end count as in flight.
            if let Some(client) = self.relay.clients.get(key) {
                client.readable = true;
                self.read_client(key);
            }
            self.close_if_draining(key);
        }
    }

    /// While draining, ends a client once all it had sent is on its way. One that waits to go
    /// on (behind a `SELECT`, say) has requests that were received and not yet sent.
    pub(crate) fn close_if_draining(&mut self, key: ClientKey) {
        if self.drain_until.is_some()
            && let Some(client) = self.relay.clients.get(key)
            && !client.stopped
            && !client.readable
        {
            self.relay.clients.close_after_replies(key);
        }
    }

    /// Closes a client at once.
    pub(crate) fn close_client(&mut self, key: ClientKey) {
        if self.relay.clients.get(key).is_none() {
            return;
        }
        let mut client = self.relay.clients.slab.remove(key.slot as usize);
        self.relay.clients.copied_bytes -= client.counted;
        self.relay.clients.input_bytes -= client.input_counted;
        self.end_stall(key);
        self.relay.world.remove_client(&mut client.socket);
        self.relay.shared.directory.remove(client.record.id);
        self.relay.shared.client_count.fetch_sub(usize::from(!client.within), Ordering::AcqRel);
        self.relay.upstream.leave_pool(self.relay.now, client.pool);
        if client.apart > 0 {
            self.relay.routing().forget_apart(key);
        }
        if client.hot.awaits() {
            self.hot.forget_waits(key);
        }
        self.hot.forget_touched(&mut self.relay, std::mem::take(&mut client.hot.touched));
        if let Some(session) = client.session {
            self.sessions().forget_session(&session);
        }
        if let Some(dedicated) = client.dedicated {
            if dedicated.is_releasable() {
                self.sessions().spare_link(dedicated.link);
            } else {
                // What the client sent before it left is the server's to read.
                if let Some(upstream) = self.relay.upstream.links.get_mut(dedicated.link) {
                    let _ = upstream.link.flush(self.relay.now);
                }
                self.sessions().drop_dedicated_links(key, &dedicated);
            }
        }
        self.apply_effects();
    }
}
