//! Requests that may change, or show, hot keys past the cache: writes and reads of several keys,
//! commands of which nobody knows what they touch, large requests that are passed on before they are
//! complete, transactions without end, commands that block, and whatever was under way when a key became
//! hot.
//!
//! Called by: `hot`, when other keys are hot, and with each read; `writes` and `combining`, with such
//! requests.
//! Bound: a flag and a time for each client; a `PING` for each link of the cache that is not answered.
//! Invariant: a client never sees an older value than it has seen, or written, before. Nobody else
//! is concerned: the server tells of what such a request changes as it does of any other change. So one
//! client cannot take the cache from all, whatever it tries; only what changes a key ends what is cached
//! of it.
//!
//! ```text
//! 1. k is cached, read along T             2. C's request goes along another link
//! 3. it is executed and changes k: word of it is on its way along T
//! 4. C is answered                         5. C reads k: served from here, it would be the old value
//! ```
//!
//! So from 2 on C is not served from the cache. Word of the change stands before the answer to anything
//! that is asked along T after 4: the first read of C itself, which goes along T as when nothing is
//! cached, and the question whether T is there, every [`crate::hot::PULSE`]. Then C is served again. Where
//! the client's login has several such links, one to each node of a cluster, C's read asks the others
//! at once.
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

use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::hot::Mitigations;
use crate::hot::reads::RIGHTS_TIME;
use crate::relay::Relay;

impl Mitigations {
    /// Whether nothing is served to those of a pool that was overwritten before that time.
    fn has_heard_up_to(&self, pool: usize, time: Instant, now: Instant) -> bool {
        let announced = self.reads.listening.is_open() && now < time + RIGHTS_TIME;
        let mut links = self.reads.links.iter().filter(|link| link.pool == pool);
        !announced && links.all(|link| link.heard_up_to > time)
    }
}

impl Mitigations {
    /// Whether a client may be served from the cache.
    #[inline]
    pub(in crate::hot) fn may_hit(&mut self, relay: &mut Relay, key: ClientKey) -> bool {
        let Some(client) = relay.clients.get(key) else { return false };
        let Some(since) = client.hot.unseen_since else { return true };
        let pool = client.pool;
        let has_heard = self.has_heard_up_to(pool, since, relay.now);
        if has_heard {
            client.hot.unseen_since = None;
        } else if relay.cluster.view.is_some() {
            self.ask_for_word(relay, pool, since);
        }
        has_heard
    }
}

impl Clients {
    /// Keys have become hot: so far nobody has noted what is under way for them.
    pub(in crate::hot) fn suspect_unanswered(&mut self) {
        for (_, client) in &mut self.slab {
            if !client.is_settled() {
                client.hot.apart = true;
                client.hot.unknown = true;
            }
        }
    }

    /// A request of a client may touch any key, or take for ever.
    pub(in crate::hot) fn keep_unseen(&mut self, key: ClientKey) {
        if let Some(client) = self.get(key) {
            client.hot.apart = true;
            client.hot.unknown = true;
        }
    }
}
