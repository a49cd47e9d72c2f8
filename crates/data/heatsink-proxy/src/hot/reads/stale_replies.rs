//! The answer to clients that have waited too long for a read: an error or, in mode `relaxed`, an older
//! reply.
//!
//! Bound: [`MOST_REPLIES`] replies of [`MOST_BYTES`] each, and none older than
//! `coalesce.max_stale_ms`.
//! Invariant: a reply is given only to the login that it was read for, and to no connection that may
//! have written the key since it was read:
//!
//! ```text
//! 1. GET k is sent, and answered v1: kept
//! 2. A: SET k v2, answered OK           3. the server stands still
//! 4. A: GET k waits too long: v1 would be older than what A wrote itself
//! ```
//!
//! So each is kept with the time at which its read was sent, and A has to get one that was sent after
//! A's last write was answered. What others wrote does not matter: they may be told v1.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use heatsink_cache::identity::{Protocol, Reader};
use slab::Slab;

use crate::config::Live;
use crate::downstream::clients::{Clients, error_line};
use crate::hot::Mitigations;
use crate::hot::reads::{RIGHTS_TIME, Reads, Waiter};
use crate::relay::Relay;
use crate::upstream;
use crate::upstream::pools::Pool;

/// Replies that are kept.
const MOST_REPLIES: usize = 1024;
/// The longest of them.
const MOST_BYTES: usize = 16 << 10;

/// Login, protocol and request.
type Place = (u32, bool, Vec<u8>);

/// Replies that may be given to those who have waited too long.
#[derive(Debug, Default)]
pub(crate) struct StaleReplies {
    replies: HashMap<Place, (Instant, Vec<u8>), RandomState>,
}

impl StaleReplies {
    /// Keeps the reply to a read that was sent at that time.
    pub(in crate::hot) fn keep(
        &mut self,
        sent_at: Instant,
        reader: Reader,
        command: &[u8],
        reply: &[u8],
    ) {
        if command.len() + reply.len() > MOST_BYTES {
            return;
        }
        let place = place(reader, command);
        if self.replies.len() >= MOST_REPLIES && !self.replies.contains_key(&place) {
            self.replies.clear();
        }
        self.replies.insert(place, (sent_at, reply.to_vec()));
    }

    /// What was read before, and when that was sent, if it is not too old.
    pub(in crate::hot) fn get(
        &self,
        now: Instant,
        reader: Reader,
        command: &[u8],
        max_age: Duration,
    ) -> Option<(Instant, &[u8])> {
        let (sent_at, reply) = self.replies.get(&place(reader, command))?;
        (now.saturating_duration_since(*sent_at) <= max_age).then_some((*sent_at, reply))
    }

    pub(in crate::hot) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub(in crate::hot) fn clear(&mut self) {
        self.replies.clear();
    }
}

fn place(reader: Reader, command: &[u8]) -> Place {
    (reader.login.0, reader.protocol == Protocol::Resp3, command.to_vec())
}

impl Mitigations {
    /// Gives an older reply to clients that have waited for too long, where that is allowed. All others wait
    /// as long as for any other request, and then get an error.
    pub(in crate::hot) fn expire_waits(&mut self, relay: &mut Relay) {
        self.give_old(relay);
        let time = self.time(relay.now);
        if self.reads.flights.next_deadline().is_none_or(|deadline| deadline > time) {
            return;
        }
        let text = "ERR heatsink: the read of a hot key that this one waited for takes too long";
        let error = error_line(text);
        let mut overdue = Vec::new();
        self.reads.flights.expired(time, &mut overdue);
        for waiter in overdue {
            relay.clients.end_wait(waiter);
            relay.clients.fill(waiter.client, waiter.place, &error);
        }
    }

    /// In mode `relaxed`: gives a client that has waited for `coalesce.max_wait_ms` an older reply, if there
    /// is one.
    fn give_old(&mut self, relay: &mut Relay) {
        let time = self.time(relay.now);
        let Some(since) = time.checked_sub(relay.live.coalesce.max_wait) else { return };
        if self.reads.stale.is_empty() {
            return;
        }
        let Relay { clients, live, now, upstream: upstream::Room { pools, .. }, .. } = relay;
        let Reads { flights, stale, .. } = &mut self.reads;
        let old = |reader: Reader, command: &[u8]| {
            stale.get(*now, reader, command, max_stale(live, pools, reader))
        };
        let mut answered = Vec::new();
        flights.take_waiting(
            since,
            |reader, command, waiter| {
                old(reader, command)
                    .is_some_and(|(sent_at, _)| may_be_told(clients, *waiter, sent_at))
            },
            |reader, command, waiter| {
                answered.extend(old(reader, command).map(|(_, reply)| (waiter, reply.to_vec())));
            },
        );
        for (waiter, reply) in answered {
            relay.clients.end_wait(waiter);
            relay.clients.fill(waiter.client, waiter.place, &reply);
        }
    }
}

/// Whether the reply to a read that was sent at that time has all that this client wrote.
pub(in crate::hot) fn may_be_told(clients: &Clients, waiter: Waiter, sent_at: Instant) -> bool {
    let client = clients.get_ref(waiter.client);
    client.is_some_and(|client| client.hot.written_at.is_none_or(|at| at <= sent_at))
}

/// How old a reply may be that is given instead of none.
pub(in crate::hot) fn max_stale(live: &Live, pools: &Slab<Pool>, reader: Reader) -> Duration {
    let max_stale = live.coalesce.max_stale;
    let is_of = |pool: &Pool| pool.serial as u32 == reader.login.0;
    let pool = pools.iter().map(|(_, pool)| pool).find(|pool| is_of(pool));
    // A right that was taken away is noticed in time.
    let has_rights = pool.is_none_or(|pool| pool.login.credentials.is_some());
    if has_rights { max_stale.min(RIGHTS_TIME) } else { max_stale }
}
