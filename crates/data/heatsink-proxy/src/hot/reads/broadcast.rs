//! Where the server pushes no invalidations, Heatsinks tell each other of writes.
//!
//! Called by: `hot` when a read is to be kept although the server does not know how to tell of
//! changes, and whenever a write of a hot key is over.
//! Bound: one link for a worker; one message for each write of a hot key, and for each key while
//! none can be sent.
//! Invariant: a cached reply is served only while the link is open on which the announcements of others
//! come. A write is announced when it is answered or given up. An announcement bumps the key's epoch
//! wherever it comes, so that a read which was under way at the time is not cached.
//!
//! This works only if every Heatsink announces its writes, and one that has server invalidations does not.
//! So whether writes are announced depends on the server, and never on the user:
//!
//! - The server does not know `CLIENT TRACKING`, for any user. Every Heatsink announces its writes.
//! - The server knows it, and a user is not allowed it. Others are, and do not announce, so no reply is
//!   cached for this user. Its reads are still coalesced.
//! - It is not known yet which: writes are announced, and no reply is cached.
//!
//! ```text
//! what went wrong when a user without the right kept replies all the same:
//! 1. proxy A, user without the right: reads k, keeps it, listens to announcements
//! 2. proxy B, user with the right: writes k; the server tells of that, so B announces nothing
//! 3. A serves the old value until it expires
//! ```
//!
//! Announcements are weaker than the server's invalidations: they miss writers that go past Heatsink, and
//! writes of a Heatsink that died before it could announce them, or may not `PUBLISH`. So a reply that
//! depends on them is cached for a second at most (`reads::RIGHTS_TIME`).

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use heatsink_cache::identity::LoginId;
use heatsink_cache::local::{LinkId, WriteToken, Written};
use heatsink_resp::encode;
use heatsink_resp::value::Value;
use heatsink_upstream::error::LinkError;
use heatsink_upstream::link::Framing;

use crate::downstream::connection::ClientKey;
use crate::hot::Mitigations;
use crate::hot::reads::Reads;
use crate::relay::Relay;
use crate::upstream::links::Owner;
use crate::upstream::nodes::NodeId;
use crate::upstream::pools::TRACKING_RETRY;
use crate::upstream::ticket::{Purpose, Ticket};

/// Where Heatsinks before the same servers meet.
const CHANNEL: &[u8] = b"heatsink:written";
/// The message for all keys. The message for one key is this sign and the key.
const ALL: &[u8] = b"*";
const ONE: u8 = b'=';
/// A key that has been hot for so long is known to all Heatsinks.
const KNOWN_AFTER: Duration = Duration::from_secs(1);
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// The link on which the others tell of what they wrote.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    /// Servers that have refused to tell of changes, until one of them is lost, or agrees.
    refusals: HashMap<NodeId, Refusal, RandomState>,
    /// The log says that a user may not have changes told.
    reported: bool,
    /// Place and generation.
    link: Option<(usize, u32)>,
    refused_at: Option<Instant>,
    /// The server has agreed.
    is_open: bool,
    /// What the cache calls it, for each login and node.
    ids: HashMap<(u64, NodeId), LinkId, RandomState>,
    /// Messages that are to be sent.
    news: Vec<Vec<u8>>,
}

/// Why a server does not tell of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It does not know how to, whoever asks.
    Unsupported,
    /// It does not allow it to some user.
    NotAllowed,
}

impl Listening {
    pub(in crate::hot) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Some server does not know how to tell of changes.
    fn is_needed(&self) -> bool {
        self.refusals.values().any(|refusal| *refusal == Refusal::Unsupported)
    }
}

impl Mitigations {
    /// A server was lost, and may be another when it is back; or it does tell of changes.
    pub(crate) fn forget_refusal(&mut self, node: NodeId) {
        self.reads.listening.refusals.remove(&node);
        let (ids, cache) = (&mut self.reads.listening.ids, &mut self.reads.cache);
        ids.retain(|(_, of_node), id| {
            if *of_node == node {
                cache.link_lost(*id);
            }
            *of_node != node
        });
    }

    /// Whether a server tells those who may have it of changes, so that nobody depends on
    /// announcements.
    pub(in crate::hot) fn tells_of_changes(&self, node: NodeId) -> bool {
        let Reads { links, listening, .. } = &self.reads;
        links.iter().any(|link| link.node == node)
            || listening.refusals.get(&node) == Some(&Refusal::NotAllowed)
    }

    /// Whether that is so of the servers of all keys that are cached.
    pub(in crate::hot) fn all_tell_of_changes(&self, relay: &Relay) -> bool {
        if relay.cluster.view.is_none() {
            return self.tells_of_changes(NodeId::FIRST);
        }
        let mut keys = self.reads.cache.keys();
        keys.all(|(name, _)| self.tells_of_changes(relay.node_of(name)))
    }

    /// What the cache calls the link on which announcements come, if that is open. None for a key that has
    /// just become hot: other Heatsinks may not know yet that they have to announce writes of it.
    pub(in crate::hot) fn broadcast_link(
        &mut self,
        relay: &mut Relay,
        pool: usize,
        node: NodeId,
        name: &[u8],
    ) -> Option<LinkId> {
        if self.reads.listening.refusals.get(&node) != Some(&Refusal::Unsupported) {
            return None;
        }
        let hot_since = self.work.get(name)?.since?;
        let is_known = relay.now.saturating_duration_since(hot_since) >= KNOWN_AFTER;
        if !is_known {
            return None;
        }
        if !self.reads.listening.is_open {
            self.listen(relay);
            return None;
        }
        let serial = relay.upstream.pools[pool].serial;
        let id = self
            .reads
            .listening
            .ids
            .entry((serial, node))
            .or_insert_with(|| self.reads.cache.link_opened(LoginId(serial as u32)));
        Some(*id)
    }

    /// A pool is gone.
    pub(crate) fn forget_listening_pool(&mut self, serial: u64) {
        let (ids, cache) = (&mut self.reads.listening.ids, &mut self.reads.cache);
        ids.retain(|(of_pool, _), id| {
            if *of_pool == serial {
                cache.link_lost(*id);
            }
            *of_pool != serial
        });
    }

    fn listen(&mut self, relay: &mut Relay) {
        let listening = &self.reads.listening;
        let now = relay.now;
        let refused = listening.refused_at;
        let too_soon = refused.is_some_and(|at| now.saturating_duration_since(at) < TRACKING_RETRY);
        if listening.link.is_some() || too_soon {
            return;
        }
        let node = relay.meeting_place();
        let pool = relay.upstream.base_pool;
        let Ok(slot) = relay.links().open_link(pool, node, Owner::Listener) else {
            return;
        };
        let upstream = &mut relay.upstream.links[slot];
        upstream.link.set_framing(Framing::Frames);
        let mut bytes = Vec::new();
        encode::command(&mut bytes, &[&b"SUBSCRIBE"[..], CHANNEL]);
        upstream.link.push_unmatched(&bytes);
        self.reads.listening.link = Some((slot, upstream.generation));
        relay.upstream.touch_link(slot);
    }

    /// The link is gone: nothing is served that depended on it.
    pub(crate) fn listener_lost(&mut self, now: Instant, generation: u32) {
        let listening = &mut self.reads.listening;
        if listening.link.is_none_or(|(_, of_link)| of_link != generation) {
            return;
        }
        listening.link = None;
        listening.refused_at = (!listening.is_open).then_some(now);
        listening.is_open = false;
        self.heard.partial.clear();
        for (_, id) in listening.ids.drain() {
            self.reads.cache.link_lost(id);
        }
    }

    pub(in crate::hot) fn stop_listening(&mut self, relay: &mut Relay) {
        if let Some((slot, generation)) = self.reads.listening.link {
            relay.links().drop_link(slot);
            self.listener_lost(relay.now, generation);
        }
    }

    /// Finds out which servers of hot keys tell of changes, before anybody asks for one.
    pub(in crate::hot) fn find_out(&mut self, relay: &mut Relay) {
        if relay.cluster.view.is_none() || relay.cluster.knows_map() {
            let mut nodes: Vec<NodeId> =
                self.reads.cache.keys().map(|(name, _)| relay.node_of(name)).collect();
            nodes.sort_unstable_by_key(|node| node.index());
            nodes.dedup();
            for node in nodes {
                let is_known = self.reads.listening.refusals.contains_key(&node);
                if !is_known && !self.tells_of_changes(node) {
                    let pool = relay.upstream.base_pool;
                    relay.links().tracked_link(pool, node);
                }
            }
        }
        if !self.reads.listening.is_needed() {
            self.stop_listening(relay);
        }
    }

    /// Asks whether the link is still there.
    pub(in crate::hot) fn feel_listener(&mut self, relay: &mut Relay) {
        if let Some((slot, _)) = self.reads.listening.link
            && self.reads.listening.is_open
        {
            relay.upstream.links[slot].link.push_unmatched(PING);
            relay.upstream.touch_link(slot);
        }
    }

    /// The server does not let us listen.
    pub(in crate::hot) fn listening_refused(&mut self, relay: &mut Relay) {
        self.stop_listening(relay);
    }

    /// A write of a hot key is over, whatever became of it.
    pub(in crate::hot) fn write_over(&mut self, relay: &mut Relay, token: WriteToken) {
        let news = match self.reads.cache.written(&token) {
            Written::Key(name) if self.tells_of_changes(relay.node_of(name)) => None,
            Written::Key(name) => Some([&[ONE], name].concat()),
            Written::All => {
                // The server tells nobody of `SWAPDB`: the other workers hear of it here.
                relay.shared.upheavals.fetch_add(1, Ordering::AcqRel);
                (!self.all_tell_of_changes(relay)).then(|| ALL.to_vec())
            }
            Written::Nothing => None,
        };
        self.reads.listening.news.extend(news);
        self.reads.cache.write_done(token);
    }

    /// Announces what was written, as soon as a server can be reached.
    pub(in crate::hot) fn tell_written(&mut self, relay: &mut Relay) {
        if self.reads.listening.news.is_empty() {
            return;
        }
        let mut news = std::mem::take(&mut self.reads.listening.news);
        news.sort_unstable();
        news.dedup();
        let node = relay.meeting_place();
        let Ok(link) = relay.links().base_link(node) else {
            self.reads.listening.news = news;
            return;
        };
        let mut bytes = Vec::new();
        for message in news {
            bytes.clear();
            encode::command(&mut bytes, &[&b"PUBLISH"[..], CHANNEL, &message]);
            relay.upstream.push_to_link(
                relay.now,
                link,
                &bytes,
                Ticket::internal(Purpose::Ignored),
            );
        }
    }
}

impl Mitigations {
    /// A server has refused to tell of changes. What says nothing about that, an error because it
    /// has too many clients, say, leaves it unknown.
    pub(crate) fn tracking_refused(&mut self, node: NodeId, error: &LinkError) {
        let listening = &mut self.reads.listening;
        if error.is_unsupported() {
            let before = listening.refusals.insert(node, Refusal::Unsupported);
            if before != Some(Refusal::Unsupported) {
                tracing::warn!(
                    "the server does not tell of changes; Heatsinks tell each other: {error}"
                );
            }
        } else if error.is_not_allowed() {
            listening.refusals.entry(node).or_insert(Refusal::NotAllowed);
            if !std::mem::replace(&mut listening.reported, true) {
                tracing::warn!(
                    "hot keys are not cached for a user that needs the rights \
                     client|tracking and client|caching: {error}"
                );
            }
        }
    }

    /// Something came on the link: word of the server's, or of others.
    pub(in crate::hot) fn heard(&mut self, items: &[Value]) {
        let word = items.first().and_then(Value::text).unwrap_or_default();
        match (word, items.get(2).and_then(Value::text)) {
            (b"message", Some([ONE, name @ ..])) => self.on_invalidation(Some(name)),
            (b"message", _) => self.on_invalidation(None),
            (b"subscribe", _) => self.reads.listening.is_open = true,
            _ => {}
        }
    }
}

impl Relay {
    /// Any server will do: those of a cluster pass messages on.
    fn meeting_place(&self) -> NodeId {
        self.home(ClientKey::NOBODY)
    }
}
