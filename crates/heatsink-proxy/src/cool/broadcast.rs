//! Where the server does not tell of changes itself, Heatsinks tell each other.
//!
//! Called by: `cool` when a read is to be kept although the server refuses to tell of changes,
//! and whenever a write of a hot key is over.
//! Bound: one link for a worker; one message for each write of a hot key, and for each key while
//! none can be sent.
//! Invariant: what was read is served only while the link is open on which the word of others
//! comes. Word of a change is sent when the change is answered or given up; it bumps the key's
//! epoch wherever it comes, so that a read which was out at the time is not kept.
//!
//! This is weaker than what the server tells: it knows nothing of writers that go past
//! Heatsink, nor of a change whose Heatsink died before it could say so. For both, what is
//! cached lives as long as `local_cache.max_ttl_ms` and `local_cache.ttl_fraction` allow.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use heatsink_cache::identity::{LoginId, NodeId as CacheNode};
use heatsink_cache::local::{LinkId, WriteToken, Written};
use heatsink_resp::encode;
use heatsink_resp::value::Value;
use heatsink_upstream::error::LinkError;
use heatsink_upstream::link::Framing;

use crate::connection::ClientKey;
use crate::lanes::{Owner, Purpose, TRACKING_RETRY, Ticket};
use crate::nodes::NodeId;
use crate::worker::Worker;

/// Where Heatsinks before the same servers meet.
const CHANNEL: &[u8] = b"heatsink:written";
/// A message that means all keys; of one key it is this sign and the key.
const ALL: &[u8] = b"*";
const ONE: u8 = b'=';
/// A key that has been hot for so long is known to all Heatsinks.
const KNOWN_AFTER: Duration = Duration::from_secs(1);
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// The link on which the others tell of what they wrote.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    /// What is known of the servers.
    need: Need,
    /// Place and generation.
    link: Option<(usize, u32)>,
    refused_at: Option<Instant>,
    /// The server has agreed.
    is_open: bool,
    /// What the cache calls it, for each login and node.
    ids: HashMap<(u64, NodeId), LinkId, RandomState>,
    /// The beginning of a message whose end is still to come.
    pub(crate) partial: Vec<u8>,
    /// Messages that are to be sent.
    news: Vec<Vec<u8>>,
}

/// Whether word of others is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Need {
    /// Nobody knows yet. What is written is told, in case that others need it.
    #[default]
    Unknown,
    /// A server has refused to tell of changes, and none has agreed since.
    Some,
    /// A server has agreed to tell of changes.
    None,
}

impl Listening {
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }
}

impl Worker {
    /// A server has refused to tell of changes.
    pub(crate) fn tracking_refused(&mut self, error: &LinkError) {
        if std::mem::replace(&mut self.cooling.listening.need, Need::Some) != Need::Some {
            tracing::warn!("hot keys are cached without word of changes from the server: {error}");
        }
    }

    /// A server tells of changes.
    pub(super) fn tracking_agreed(&mut self) {
        if std::mem::replace(&mut self.cooling.listening.need, Need::None) == Need::Some {
            self.stop_listening();
        }
    }

    /// What the cache calls the link on which changes are told of by others, if that is open.
    /// Not for a key that has become hot only now: others may not know yet that word of it
    /// is needed.
    pub(super) fn broadcast_link(
        &mut self,
        lane: usize,
        node: NodeId,
        name: &[u8],
    ) -> Option<LinkId> {
        if self.cooling.listening.need != Need::Some {
            return None;
        }
        let hot_since = self.cooling.work.get(name)?.since?;
        let is_known = self.now.saturating_duration_since(hot_since) >= KNOWN_AFTER;
        if !is_known {
            return None;
        }
        if !self.cooling.listening.is_open {
            self.listen();
            return None;
        }
        let serial = self.lanes[lane].serial;
        let cooling = &mut self.cooling;
        let id = cooling.listening.ids.entry((serial, node)).or_insert_with(|| {
            cooling.cache.link_opened(LoginId(serial as u32), CacheNode(u32::from(node.0)))
        });
        Some(*id)
    }

    /// A lane is gone.
    pub(crate) fn forget_listening_lane(&mut self, serial: u64) {
        let Self { cooling, .. } = self;
        let (ids, cache) = (&mut cooling.listening.ids, &mut cooling.cache);
        ids.retain(|(of_lane, _), id| {
            if *of_lane == serial {
                cache.link_lost(*id);
            }
            *of_lane != serial
        });
    }

    /// Any server will do: those of a cluster pass messages on.
    fn meeting_place(&self) -> NodeId {
        self.home(ClientKey::NOBODY)
    }

    fn listen(&mut self) {
        let listening = &self.cooling.listening;
        let now = self.now;
        let refused = listening.refused_at;
        let too_soon = refused.is_some_and(|at| now.saturating_duration_since(at) < TRACKING_RETRY);
        if listening.link.is_some() || too_soon {
            return;
        }
        let node = self.meeting_place();
        let Ok(slot) = self.open_link(self.base_lane, node, Owner::Listener) else { return };
        let upstream = &mut self.links[slot];
        upstream.link.set_framing(Framing::Frames);
        let mut bytes = Vec::new();
        encode::command(&mut bytes, &[&b"SUBSCRIBE"[..], CHANNEL]);
        upstream.link.push_unmatched(&bytes);
        self.cooling.listening.link = Some((slot, upstream.generation));
        self.touch_link(slot);
    }

    /// The link is gone: nothing is served that depended on it.
    pub(crate) fn listener_lost(&mut self, generation: u32) {
        let cooling = &mut self.cooling;
        let listening = &mut cooling.listening;
        if listening.link.is_none_or(|(_, of_link)| of_link != generation) {
            return;
        }
        listening.link = None;
        listening.refused_at = (!listening.is_open).then_some(self.now);
        listening.is_open = false;
        listening.partial.clear();
        for (_, id) in listening.ids.drain() {
            cooling.cache.link_lost(id);
        }
    }

    pub(super) fn stop_listening(&mut self) {
        if let Some((slot, _)) = self.cooling.listening.link {
            self.drop_link(slot);
        }
    }

    /// Finds out whether the servers tell of changes, before anybody asks for a hot key.
    pub(super) fn find_out(&mut self) {
        let caches = self.cooling.cache.keys().next().is_some();
        let knows_nodes = self.cluster.is_none() || self.knows_map();
        if caches && knows_nodes && self.cooling.listening.need == Need::Unknown {
            let node = self.meeting_place();
            self.tracked_link(self.base_lane, node);
        }
    }

    /// Asks whether the link is still there.
    pub(super) fn feel_listener(&mut self) {
        if let Some((slot, _)) = self.cooling.listening.link
            && self.cooling.listening.is_open
        {
            self.links[slot].link.push_unmatched(PING);
            self.touch_link(slot);
        }
    }

    /// Something came on the link: word of the server's, or of others.
    pub(super) fn heard(&mut self, items: &[Value]) {
        let word = items.first().and_then(Value::text).unwrap_or_default();
        match (word, items.get(2).and_then(Value::text)) {
            (b"message", Some([ONE, name @ ..])) => self.cooling.cache.invalidated(name),
            (b"message", _) => self.cooling.cache.flushed(),
            (b"subscribe", _) => self.cooling.listening.is_open = true,
            _ => {}
        }
    }

    /// The server does not let us listen.
    pub(super) fn listening_refused(&mut self) {
        self.stop_listening();
    }

    /// A write of a hot key is over, whatever became of it.
    pub(super) fn write_over(&mut self, token: WriteToken) {
        let Self { cooling, shared, .. } = self;
        if cooling.cache.written(&token) == Written::All {
            // The server tells nobody of `SWAPDB`: the other workers hear of it here.
            shared.upheavals.fetch_add(1, Ordering::AcqRel);
        }
        if cooling.listening.need != Need::None {
            match cooling.cache.written(&token) {
                Written::Key(name) => cooling.listening.news.push([&[ONE], name].concat()),
                Written::All => cooling.listening.news.push(ALL.to_vec()),
                Written::Nothing => {}
            }
        }
        cooling.cache.write_done(token);
    }

    /// Tells the others what was written; later, if no server can be reached now.
    pub(super) fn tell_written(&mut self) {
        if self.cooling.listening.news.is_empty() {
            return;
        }
        let mut news = std::mem::take(&mut self.cooling.listening.news);
        news.sort_unstable();
        news.dedup();
        let node = self.meeting_place();
        let Ok(link) = self.lane_link(self.base_lane, node) else {
            self.cooling.listening.news = news;
            return;
        };
        let mut bytes = Vec::new();
        for message in news {
            bytes.clear();
            encode::command(&mut bytes, &[&b"PUBLISH"[..], CHANNEL, &message]);
            self.push_to_link(link, &bytes, Ticket::internal(Purpose::Ignored), 1);
        }
    }
}
