//! Closes clients when all of them together have too much unread output, or too much held input.

use crate::downstream::connection::{Client, ClientKey};
use crate::downstream::input;
use crate::downstream::input::WorkerInput;
use crate::downstream::output::{LOG_INTERVAL, WorkerOutput, slowness};
use crate::runtime::shared::Message;
use crate::runtime::worker::Worker;

impl Worker {
    /// Closes clients while all of them together have too much unread output.
    #[inline]
    pub(crate) fn bound_output(&mut self) {
        let bytes = (self.relay.clients.copied_bytes + self.relay.clients.ledger.bytes()) as u64;
        if bytes != self.output.told_bytes && self.tell_output(bytes) > self.max_output() {
            self.close_slowest();
        }
    }

    fn max_output(&self) -> u64 {
        self.relay.live.limits.max_total_output_bytes
    }

    /// Publishes the total of this worker's clients. Returns the sum of all workers.
    fn tell_output(&mut self, bytes: u64) -> u64 {
        let before = std::mem::replace(&mut self.output.told_bytes, bytes);
        self.relay.shared.output.change(before, bytes)
    }

    /// Another worker has found that all clients together have too much output.
    pub(crate) fn output_bound_asked(&mut self) {
        self.relay.shared.output.looked(self.relay.index);
        if self.relay.shared.output.bytes() > self.max_output() {
            self.close_slowest();
        }
    }

    /// At each tick: how slow the slowest client is, if that may matter soon.
    pub(crate) fn tell_slowest(&mut self) {
        let total = self.relay.shared.output.bytes();
        let matters = total > self.max_output() / 2;
        let slowest = if matters { self.by_slowness().first().map_or(0, |(s, _)| *s) } else { 0 };
        self.relay.shared.output.tell_worst(self.relay.index, slowest);
        if total > self.max_output() {
            // Whoever was asked may have had nobody left.
            self.close_slowest();
        }
        self.log_closed();
    }

    /// Clients that have not read everything, the slowest first.
    fn by_slowness(&self) -> Vec<(u64, ClientKey)> {
        let slow = |(slot, client): (usize, &Client)| {
            let key = ClientKey { slot: slot as u32, generation: client.generation };
            (slowness(client, self.relay.now), key)
        };
        let unread = |(_, client): &(usize, &Client)| client.unread() > 0 && !client.within;
        let mut clients: Vec<_> = self.relay.clients.slab.iter().filter(unread).map(slow).collect();
        clients.sort_unstable_by_key(|(slowness, _)| std::cmp::Reverse(*slowness));
        clients
    }

    /// Closes slow clients until what is left fits, or another worker has slower ones.
    fn close_slowest(&mut self) {
        let mut clients = self.by_slowness().into_iter().peekable();
        loop {
            let dedicated = clients.peek().map_or(0, |(slowness, _)| *slowness);
            self.relay.shared.output.tell_worst(self.relay.index, dedicated);
            let (worker, slowness) = self.relay.shared.output.worst();
            if slowness > dedicated {
                if self.relay.shared.output.ask(worker) {
                    self.relay.shared.mailboxes[worker].send(Message::BoundOutput);
                }
                return;
            }
            let Some((_, key)) = clients.next() else { return };
            self.close_slow(key, "limits.max_total_output_bytes");
            let bytes =
                (self.relay.clients.copied_bytes + self.relay.clients.ledger.bytes()) as u64;
            if self.tell_output(bytes) <= self.max_output() {
                return;
            }
        }
    }

    /// Closes a client that has too much unread output.
    pub(crate) fn close_slow(&mut self, key: ClientKey, reason: &'static str) {
        if self.relay.clients.get(key).is_none() {
            return;
        }
        self.close_client(key);
        self.relay.shared.output.note_closed();
        self.output.unlogged += 1;
        self.output.reason = reason;
        self.log_closed();
    }

    fn log_closed(&mut self) {
        let WorkerOutput { unlogged, reason, next_log, .. } = &mut self.output;
        if *unlogged > 0 && self.relay.now >= *next_log {
            tracing::warn!(
                clients = std::mem::take(unlogged),
                limit = reason,
                "clients that did not read their replies were closed: a limit is reached"
            );
            *next_log = self.relay.now + LOG_INTERVAL;
        }
    }
}

impl Worker {
    /// Closes clients while all of them together have too much held input.
    #[inline]
    pub(crate) fn bound_input(&mut self) {
        let bytes = self.relay.clients.input_bytes as u64;
        if bytes != self.input.told_bytes {
            self.input_changed(bytes);
        }
    }

    #[cold]
    fn input_changed(&mut self, bytes: u64) {
        let total = self.tell_input(bytes);
        let max = self.relay.live.limits.max_total_input_bytes;
        // Another worker may have to know soon.
        let largest =
            if total > max / 2 { self.largest_input().map_or(0, |(most, _)| most) } else { 0 };
        self.relay.shared.input.tell_worst(self.relay.index, largest);
        if total > max {
            self.close_largest();
        }
    }

    /// Publishes the total of this worker's clients. Returns the sum of all workers.
    fn tell_input(&mut self, bytes: u64) -> u64 {
        let before = std::mem::replace(&mut self.input.told_bytes, bytes);
        self.relay.shared.input.change(before, bytes)
    }

    /// Another worker has found that all clients together have too much input held.
    pub(crate) fn input_bound_asked(&mut self) {
        self.relay.shared.input.looked(self.relay.index);
        if self.relay.shared.input.bytes() > self.relay.live.limits.max_total_input_bytes {
            self.close_largest();
        }
    }

    /// At each tick: whoever was asked may have had nobody left.
    pub(crate) fn look_after_input(&mut self) {
        if self.relay.shared.input.bytes() > self.relay.live.limits.max_total_input_bytes {
            self.close_largest();
        }
        self.log_refused();
    }

    /// The client for which most is held.
    fn largest_input(&self) -> Option<(u64, ClientKey)> {
        let held = |(slot, client): (usize, &Client)| {
            let key = ClientKey { slot: slot as u32, generation: client.generation };
            (client.input_counted as u64, key)
        };
        let clients = self.relay.clients.slab.iter().filter(|(_, client)| !client.within);
        clients.map(held).filter(|(held, _)| *held > 0).max_by_key(|(held, _)| *held)
    }

    /// Closes clients until what is left fits, or another worker has one for which more is held.
    fn close_largest(&mut self) {
        loop {
            let largest = self.largest_input();
            let dedicated = largest.map_or(0, |(held, _)| held);
            self.relay.shared.input.tell_worst(self.relay.index, dedicated);
            let (worker, most) = self.relay.shared.input.worst();
            if most > dedicated {
                if self.relay.shared.input.ask(worker) {
                    self.relay.shared.mailboxes[worker].send(Message::BoundInput);
                }
                return;
            }
            let Some((_, key)) = largest else { return };
            self.refuse_input(key);
            let bytes = self.relay.clients.input_bytes as u64;
            if self.tell_input(bytes) <= self.relay.live.limits.max_total_input_bytes {
                let left = self.largest_input().map_or(0, |(held, _)| held);
                self.relay.shared.input.tell_worst(self.relay.index, left);
                return;
            }
        }
    }

    /// Tells a client that its request is too much, behind the replies that it is owed, and closes it.
    fn refuse_input(&mut self, key: ClientKey) {
        let Some(client) = self.relay.clients.get_ref(key) else { return };
        if client.dedicated.as_ref().is_none_or(|dedicated| dedicated.is_drained()) {
            self.relay.clients.error(key, input::REFUSAL);
        }
        self.relay.clients.close_after_replies(key);
        self.relay.shared.input.note_closed();
        self.input.unlogged += 1;
        self.log_refused();
    }

    fn log_refused(&mut self) {
        let WorkerInput { unlogged, next_log, .. } = &mut self.input;
        if *unlogged > 0 && self.relay.now >= *next_log {
            tracing::warn!(
                clients = std::mem::take(unlogged),
                "clients with large unfinished requests were closed: limits.max_total_input_bytes is reached"
            );
            *next_log = self.relay.now + LOG_INTERVAL;
        }
    }
}
