//! Requests of which it is not known which keys they touch, or that may take for ever: commands that
//! nobody knows, large requests that are passed on before they are complete, transactions without
//! end, commands that block, and whatever was under way when a key became hot.
//!
//! Called by: `cool`, when other keys are hot, and with each read; `writes`, with such requests.
//! Bound: a flag and a time for each client; nothing is looked at while nothing happens.
//! Invariant: a client never sees an older value than it has seen, or written, before. Nobody else
//! is concerned: the server tells of what such a request changes as it does of any other change, and
//! one client must not be able to take the cache from all.
//!
//! ```text
//! 1. k is cached, read along T             2. C's request goes along another link
//! 3. it is executed and changes k: word of it is on its way along T
//! 4. C is answered                         5. C reads k: served from here, it would be the old value
//! ```
//!
//! So from 2 on C is not served from the cache. After 4, T is asked whether it is there, as every
//! [`super::PULSE`]; word of the change stands before the answer to that. Then C is served again.
//! C's reads go along T meanwhile, as when nothing is cached: they are executed after 3.
//!
//! This is also why what was under way when a key became hot need not be followed, however often it
//! is redirected or tried again:
//!
//! ```text
//! 1. C: SET k -> node A; k is not hot      2. k becomes hot, and is read and cached from A
//! 3. A: TRYAGAIN; SET k is sent again      4. it is executed; word of it is on its way; C is answered
//! ```
//!
//! C had something unanswered at 2, so after 4 it is not served from the cache until word has come.
//!
//! Where the server does not tell of changes, Heatsinks do. There is no answer that word of a change
//! stands before, but what is cached lives for [`RIGHTS_TIME`] at most: C waits that long.

use std::time::Instant;

use super::Cooling;
use super::reads::RIGHTS_TIME;
use crate::connection::ClientKey;
use crate::worker::Worker;

impl Cooling {
    /// Whether nothing is served here that was overwritten before that time.
    fn has_heard_up_to(&self, time: Instant, now: Instant) -> bool {
        let announced = self.listening.is_open() && now < time + RIGHTS_TIME;
        !announced && self.links.iter().all(|link| link.heard_up_to >= time)
    }
}

impl Worker {
    /// A request of a client may touch any key, or take for ever.
    pub(super) fn keep_unseen(&mut self, key: ClientKey) {
        if let Some(client) = self.clients.get(key) {
            client.hot_apart = true;
            client.hot_unknown = true;
        }
    }

    /// Keys have become hot: so far nobody has noted what is under way for them.
    pub(super) fn doubt_unanswered(&mut self) {
        for (_, client) in &mut self.clients.slab {
            if !client.is_settled() {
                client.hot_apart = true;
                client.hot_unknown = true;
            }
        }
    }

    /// Whether a client may be served from the cache.
    #[inline]
    pub(super) fn may_hit(&mut self, key: ClientKey) -> bool {
        let Self { cooling, clients, now, .. } = self;
        let Some(client) = clients.get(key) else { return false };
        let Some(since) = client.hot_unseen_since else { return true };
        let has_heard = cooling.has_heard_up_to(since, *now);
        if has_heard {
            client.hot_unseen_since = None;
        }
        has_heard
    }
}
