//! What is looked after now and then: overdue things, idle clients, an orderly end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::cluster::redirects::Later;
use crate::cluster::refresh::View;
use crate::downstream::connection::{ClientKey, Closing};
use crate::runtime::worker::Worker;
use crate::upstream::pools::Owner;

/// How often overdue things are looked for, and totals told, while requests come or something is
/// waited for, and while not.
pub(crate) const BUSY_TICK: Duration = Duration::from_millis(50);
const IDLE_TICK: Duration = Duration::from_secs(1);
/// How long a client may take to agree on how to encrypt.
const HANDSHAKE: Duration = Duration::from_secs(5);

impl Worker {
    /// What is looked at now and then.
    pub(crate) fn tick(&mut self) {
        self.end_long_stalls();
        self.look_after_pools();
        self.look_after_clients();
        self.look_after_logins();
        self.look_after_topology();
        self.try_later();
        // Told at times that depend on chance, totals would make rates that jump.
        let serving = self.taken > 0;
        self.count_requests();
        self.tell_slowest();
        self.look_after_input();
        let waiting = self.upstream.links.iter().any(|(_, upstream)| {
            let dedicated = matches!(upstream.owner, Owner::Client(_) | Owner::Listener);
            dedicated || !upstream.link.is_ready() || upstream.link.waiting() > 0
        });
        let alert = self.cluster.view.as_ref().is_some_and(View::is_alert);
        let busy = serving || waiting || alert || self.drain_until.is_some();
        let tick = if busy { BUSY_TICK } else { IDLE_TICK };
        self.next_tick = self.now + tick;
        if let Some(at) = self.cluster.later.iter().map(Later::at).min() {
            self.next_tick = self.next_tick.min(at);
        }
    }

    fn look_after_clients(&mut self) {
        let idle_ms = self.live.limits.idle.map(|idle| idle.as_millis() as u64);
        let handshake_ms = HANDSHAKE.as_millis() as u64;
        let mut overdue = Vec::new();
        for (slot, client) in &self.clients.slab {
            let key = ClientKey { slot: slot as u32, generation: client.generation };
            match client.closing {
                Closing::Lingering { until } if self.now >= until => overdue.push(key),
                Closing::No
                    if client.socket.is_handshaking()
                        && client.record.idle_ms(self.now) >= handshake_ms =>
                {
                    overdue.push(key);
                }
                Closing::No
                    if client.is_settled()
                        && client.dedicated.is_none()
                        && idle_ms.is_some_and(|ms| client.record.idle_ms(self.now) >= ms) =>
                {
                    overdue.push(key);
                }
                _ => {}
            }
        }
        if let Some(until) = self.drain_until
            && self.now >= until
        {
            for (slot, client) in &self.clients.slab {
                let dedicated =
                    client.dedicated.as_ref().map_or(0, |dedicated| dedicated.expected.len());
                let unanswered = client.order.outstanding() as usize + dedicated;
                self.shared.unanswered.fetch_add(unanswered, Ordering::AcqRel);
                overdue.push(ClientKey { slot: slot as u32, generation: client.generation });
            }
        }
        for key in overdue {
            self.close_client(key);
        }
    }

    /// Answers what is in flight, then closes everything.
    pub(crate) fn drain(&mut self, until: Instant) {
        self.drain_until = Some(until);
        self.next_tick = self.now;
        let all: Vec<_> =
            (0..self.clients.slab.capacity()).filter_map(|slot| self.clients.key(slot)).collect();
        for key in all {
            // What the client had sent before it could know counts as in flight.
            if let Some(client) = self.clients.get(key) {
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
            && let Some(client) = self.clients.get(key)
            && !client.stopped
            && !client.readable
        {
            self.clients.close_after_replies(key);
        }
    }

    /// Closes a client at once.
    pub(crate) fn close_client(&mut self, key: ClientKey) {
        if self.clients.get(key).is_none() {
            return;
        }
        let mut client = self.clients.slab.remove(key.slot as usize);
        self.clients.copied_bytes -= client.counted;
        self.clients.input_bytes -= client.input_counted;
        self.end_stall(key);
        self.world.remove_client(&mut client.socket);
        self.shared.directory.remove(client.record.id);
        self.shared.client_count.fetch_sub(usize::from(!client.within), Ordering::AcqRel);
        self.upstream.leave_pool(self.now, client.pool);
        if client.apart > 0 {
            self.forget_apart(key);
        }
        if client.hot.awaits() {
            self.mitigations.forget_waits(key);
        }
        self.forget_touched(std::mem::take(&mut client.hot.touched));
        if let Some(session) = client.session {
            self.forget_session(&session);
        }
        if let Some(dedicated) = client.dedicated {
            if dedicated.is_releasable() {
                self.spare_link(dedicated.link);
            } else {
                // What the client sent before it left is the server's to read.
                if let Some(upstream) = self.upstream.links.get_mut(dedicated.link) {
                    let _ = upstream.link.flush(self.now);
                }
                self.drop_dedicated_links(key, &dedicated);
            }
        }
    }
}
