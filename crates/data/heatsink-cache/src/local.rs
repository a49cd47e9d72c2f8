//! The local cache of one worker: replies to reads of registered keys, exactly as coherent as
//! promised.
//!
//! Called by: the proxy's worker that owns it, for reads and writes of registered keys, for
//! what its tracked links push, and when links, logins, nodes or rules change.
//! Bound: [`Limits`].
//! Invariant: a key with a pending write has no entries; an entry's link is open; nothing
//! happened to an entry's key since its fill was sent.
//!
//! What the caller has to do, so that a connection never sees a key go back in time:
//!
//! 1. Reads of a registered key that [`crate::commands::cacheable`] knows are answered by a
//!    hit or travel on the tracked link of their login and node, never on another one.
//! 2. Where the server does not tell of changes, everything else that touches the key is bracketed by
//!    [`LocalCache::write_sent`] and [`LocalCache::write_done`], whatever its outcome, a plain read of
//!    several keys too. Where it does, see 6.
//! 3. A command that touches the key waits while its own connection has an unanswered one on
//!    another link that touches the key, too. A read behind an unanswered *fill* of its own
//!    connection may not be a hit (the fill may be answered with something newer, and its
//!    reply stands first): it takes a token from [`LocalCache::fill_token`] and follows on
//!    the tracked link, or waits.
//! 4. Pushes and replies of a tracked link are reported in the order in which they came.
//! 5. [`LocalCache::register`] gives a token, too: back with it once everything that was sent
//!    before the registration and might touch the key is answered or given up.
//! 6. Instead of 2 and 5, where the server tells of changes: the connection that sent such a request
//!    is given no hit from then on, until it is answered and every tracked link of its login has
//!    answered something that was sent after that. Word of what the request changed stands before that
//!    answer. Others are told of it by the server alone, so that nothing which changes nothing takes
//!    anything from them.

mod answer;
mod counters;
mod entries;
mod keys;
mod limits;
mod links;
#[cfg(test)]
mod model;
mod reads;
mod room;
mod token;

#[cfg(test)]
mod tests;

pub use answer::{Hit, Lookup, Registered, Ttl};
pub use counters::{Evicted, KeyCounters, Reason};
pub use limits::{KeySettings, Limits};
pub use links::LinkId;
pub use token::{FillToken, KeyId, WriteToken, Written};

use crate::identity::LoginId;
use entries::Entries;
use keys::Keys;
use links::Links;

/// Replies of at least this many bytes are shared by the clients that read them, not copied for each.
pub const LARGE_BYTES: usize = 16 << 10;

/// One worker's cache.
#[derive(Debug, Default)]
pub struct LocalCache {
    limits: Limits,
    keys: Keys,
    entries: Entries,
    links: Links,
    #[cfg(test)]
    planted: model::Planted,
}

impl LocalCache {
    /// An empty cache.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    // Writes.

    /// Something that may change `key` is about to be sent. `None` if the key is not
    /// registered.
    pub fn write_sent(&mut self, key: &[u8]) -> Option<WriteToken> {
        let slot = self.keys.find(key)?;
        self.keys.bump(slot);
        self.evict_key(slot, Reason::Write);
        let key = self.keys.at(slot);
        key.pending += 1;
        key.counters.writes += 1;
        Some(WriteToken { key: Some(self.keys.id(slot)) })
    }

    /// Something that changes all keys is about to be sent: a flush, or the like. What is cached
    /// goes now, and what was stored meanwhile when it is done. In between keys are served and
    /// stored, so that whoever has such a thing under way for long takes the cache from nobody.
    pub fn write_sent_to_all(&mut self) -> WriteToken {
        self.keys.bump_all();
        self.evict_matching(Reason::Write, |_| true);
        WriteToken { key: None }
    }

    /// The same of something that the server will most likely refuse: nothing goes before it is done.
    /// If it is refused, its token is dropped.
    pub fn write_to_all_suspected(&self) -> WriteToken {
        WriteToken { key: None }
    }

    /// The write was answered, failed, or was given up. Fills sent while it was under way are
    /// not stored: their tokens are not storable, and the epoch is another one again. If it was
    /// about all keys, those that were stored meanwhile go.
    #[expect(clippy::needless_pass_by_value, reason = "a token is given back once")]
    pub fn write_done(&mut self, token: WriteToken) {
        match token.key {
            None => {
                self.keys.bump_all();
                self.evict_matching(Reason::Write, |_| true);
            }
            Some(id) => {
                if let Some(key) = self.keys.get(id) {
                    key.pending -= 1;
                    self.keys.bump(id.slot);
                }
            }
        }
    }

    /// What a write that is under way may change.
    pub fn written(&self, token: &WriteToken) -> Written<'_> {
        match token.key {
            None => Written::All,
            Some(id) => self.keys.name(id).map_or(Written::Nothing, Written::Key),
        }
    }

    /// Whether something that may change the key is under way.
    pub fn is_pending(&self, key: &[u8]) -> bool {
        self.keys.find(key).is_some_and(|slot| self.keys.peek(slot).pending > 0)
    }

    // What the upstream tells.

    /// A tracked link pushed an invalidation of `key`; entries of all logins go.
    pub fn invalidated(&mut self, key: &[u8]) {
        if let Some(slot) = self.keys.find(key) {
            self.keys.bump(slot);
            self.keys.at(slot).counters.invalidations += 1;
            self.evict_key(slot, Reason::Invalidation);
        }
    }

    /// Somebody was told a reply of `key` that came another way than along a tracked link. What
    /// came along that, and what is still to come, may be older: none of it is served.
    pub fn overtaken(&mut self, key: &[u8]) {
        if let Some(slot) = self.keys.find(key) {
            self.keys.bump(slot);
            self.evict_key(slot, Reason::Policy);
        }
    }

    /// A tracked link pushed that everything is gone.
    pub fn flushed(&mut self) {
        self.keys.bump_all();
        self.evict_matching(Reason::Invalidation, |_| true);
    }

    /// A link was opened and has tracking on.
    pub fn link_opened(&mut self, login: LoginId) -> LinkId {
        self.links.open(login)
    }

    /// A link is gone, or silent for longer than its heartbeat allows.
    pub fn link_lost(&mut self, link: LinkId) {
        if self.links.close(link) {
            self.evict_matching(Reason::Link, |entry| entry.link == link.slot());
        }
    }

    // Rules.

    /// From now on replies to reads of `key` are kept. New settings for a known key empty it.
    pub fn register(&mut self, key: &[u8], settings: KeySettings) -> Registered {
        if let Some(slot) = self.keys.find(key) {
            if self.keys.at(slot).settings != settings {
                self.keys.at(slot).settings = settings;
                self.keys.bump(slot);
                self.evict_key(slot, Reason::Policy);
            }
            return Registered::Known;
        }
        if self.keys.len() >= self.limits.keys {
            return Registered::Full;
        }
        let slot = self.keys.insert(key, settings);
        self.keys.at(slot).pending = 1;
        Registered::New(WriteToken { key: Some(self.keys.id(slot)) })
    }

    /// Forgets a key; its counters are returned. Fills and writes under way may still be
    /// reported and change nothing.
    pub fn deregister(&mut self, key: &[u8]) -> Option<KeyCounters> {
        let slot = self.keys.find(key)?;
        self.evict_key(slot, Reason::Policy);
        let counters = self.keys.at(slot).counters;
        self.keys.remove(slot);
        Some(counters)
    }

    /// Sets other bounds and makes room as needed. Keys over their bound stay.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.make_room(limits.entries, limits.bytes);
    }

    // What is known.

    /// The registered key of that name.
    pub fn key_id(&self, key: &[u8]) -> Option<KeyId> {
        self.keys.find(key).map(|slot| self.keys.id(slot))
    }

    /// The counters of a registered key.
    pub fn counters(&self, key: &[u8]) -> Option<&KeyCounters> {
        self.keys.find(key).map(|slot| &self.keys.peek(slot).counters)
    }

    /// Every registered key with its counters.
    pub fn keys(&self) -> impl Iterator<Item = (&[u8], &KeyCounters)> {
        self.keys.iter().map(|(_, key)| (&*key.name, &key.counters))
    }

    /// Entries held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held, as counted against [`Limits::bytes`].
    pub fn bytes(&self) -> usize {
        self.entries.bytes()
    }
}
