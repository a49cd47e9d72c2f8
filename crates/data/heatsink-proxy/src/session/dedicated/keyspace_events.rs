//! What servers tell of their own keys, which a client listens to at every primary.
//!
//! A cluster brings what is published to all of its nodes, but `__keyspace@0__` and `__keyevent@0__`
//! speak of the keys of one node, and only there. To its clients a cluster is one server, so such
//! channels, and patterns that begin like them, are subscribed to at every primary:
//!
//! ```text
//! 1. PSUBSCRIBE __keyevent@0__:* x -> A, the client's dedicated connection: its confirmations are passed on
//! 2. PSUBSCRIBE __keyevent@0__:*   -> B and C, beside: theirs are dropped
//! 3. messages of all of them go to the client
//! ```
//!
//! A primary that joins is listened to when the map shows it. One that is a replica now is left: it
//! would tell everything a second time. If that is the client's dedicated connection, or if a connection is
//! lost on which something may have been missed, the client is closed, as on one server.
//!
//! Called by: `dedicated_link`, with each request on a client's dedicated connection, and with each new map.
//! Bound: the names that a client listens to, and a connection for each primary.

use std::collections::BTreeSet;

use heatsink_resp::command::{Subscription, SubscriptionKind};
use heatsink_resp::encode;

use crate::downstream::connection::ClientKey;
use crate::downstream::request::{Request, spans};
use crate::session::Sessions;
use crate::session::dedicated::{Dedicated, Expected};
use crate::upstream::nodes::NodeId;

/// Channels begin like this that a server tells of its own keys on.
const OF_KEYS: &[u8] = b"__key";

/// Channels and patterns that a client listens to at every primary.
#[derive(Debug, Default)]
pub(super) struct Everywhere {
    channels: BTreeSet<Vec<u8>>,
    patterns: BTreeSet<Vec<u8>>,
}

impl Everywhere {
    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.patterns.is_empty()
    }

    fn len(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// What is to be said to a node that was told nothing yet.
    fn words(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (command, names) in
            [(&b"SUBSCRIBE"[..], &self.channels), (b"PSUBSCRIBE", &self.patterns)]
        {
            if !names.is_empty() {
                let names = names.iter().map(Vec::as_slice);
                let words: Vec<_> = std::iter::once(command).chain(names).collect();
                encode::command(&mut bytes, &words);
            }
        }
        bytes
    }

    /// Notes a request; what of it concerns all nodes, and how many names that are.
    fn note(
        &mut self,
        subscription: Subscription,
        request: Request<'_>,
    ) -> Option<(Vec<u8>, usize)> {
        let known = match subscription.kind {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
            SubscriptionKind::Shard => return None,
        };
        let named = |name: &&[u8]| name.starts_with(OF_KEYS);
        let mut words: Vec<_> = request.args_from(1).filter(named).collect();
        if request.len() == 1 {
            if known.is_empty() {
                return None;
            }
            known.clear();
        } else if words.is_empty() {
            return None;
        } else if subscription.subscribe {
            known.extend(words.iter().map(|name| name.to_vec()));
        } else {
            known.retain(|name| !words.contains(&name.as_slice()));
        }
        words.insert(0, request.name());
        let mut bytes = Vec::new();
        encode::command(&mut bytes, &words);
        Some((bytes, words.len() - 1))
    }
}

impl Dedicated {
    /// Nothing of the kind is left, or ever came about.
    pub(super) fn forget_everywhere(&mut self) {
        if self.channels + self.patterns == 0 {
            self.everywhere = Everywhere::default();
        }
    }
}

impl Sessions<'_> {
    /// A request was sent on a client's dedicated connection: if it is about what servers tell of their
    /// keys, it is for the other primaries, too.
    pub(in crate::session) fn tell_everywhere(
        &mut self,
        key: ClientKey,
        bytes: &[u8],
        expected: Expected,
    ) {
        let Expected::Subscription { subscription, .. } = expected else { return };
        let Some(args) = spans(bytes) else { return };
        let request = Request { bytes, args: &args };
        let Some(dedicated) =
            self.relay.clients.get(key).and_then(|client| client.dedicated.as_mut())
        else {
            return;
        };
        let is_known = !dedicated.everywhere.is_empty();
        let Some((said, names)) = dedicated.everywhere.note(subscription, request) else { return };
        let told: Vec<_> = dedicated.event_links().collect();
        let names = if subscription.subscribe { names } else { 0 };
        for link in &told {
            dedicated.note_events(*link, names);
        }
        for link in told {
            self.relay.upstream.links[link].requests += 1;
            self.push_dedicated(key, link, &said);
        }
        if subscription.subscribe || is_known {
            self.listen_everywhere(key);
        }
    }

    /// Listens at primaries that a client does not listen to yet, and leaves those that are none.
    fn listen_everywhere(&mut self, key: ClientKey) {
        let Some(view) = &self.relay.cluster.view else { return };
        let primaries: Vec<NodeId> = view.routes.shards.iter().map(|shard| shard.primary).collect();
        let Some(client) = self.relay.clients.get(key) else { return };
        let pool = client.pool;
        let Some(dedicated) =
            client.dedicated.as_mut().filter(|dedicated| !dedicated.everywhere.is_empty())
        else {
            return;
        };
        if primaries.is_empty() {
            return;
        }
        if !primaries.contains(&dedicated.node) {
            return self.end_dedicated_state(key);
        }
        let said = dedicated.everywhere.words();
        let names = dedicated.everywhere.len();
        let left = dedicated.take_sides_beyond(&primaries);
        let new: Vec<_> =
            primaries.into_iter().filter(|node| !dedicated.hears_events_of(*node)).collect();
        for link in left {
            self.relay.links().drop_link(link);
        }
        for node in new {
            match self.side_link(key, pool, node) {
                Ok(link) => {
                    if let Some(dedicated) =
                        self.relay.clients.get(key).and_then(|c| c.dedicated.as_mut())
                    {
                        dedicated.note_events(link, names);
                    }
                    self.relay.upstream.links[link].requests += 1;
                    self.push_dedicated(key, link, &said);
                }
                // Tried again before long.
                Err(_) => self.relay.cluster.is_listening_in_vain = true,
            }
        }
        // Its own connection may have waited for one that was left.
        self.read_dedicated_again(key);
    }

    /// The map has changed, or a primary could not be reached.
    pub(crate) fn listen_to_new_nodes(&mut self) {
        self.relay.cluster.is_listening_in_vain = false;
        let listens = |(slot, client): (usize, &crate::downstream::connection::Client)| {
            let dedicated = client.dedicated.as_ref()?;
            let key = ClientKey { slot: slot as u32, generation: client.generation };
            (!dedicated.everywhere.is_empty()).then_some(key)
        };
        let listening: Vec<_> = self.relay.clients.slab.iter().filter_map(listens).collect();
        for key in listening {
            self.listen_everywhere(key);
        }
    }
}
