//! Pub/sub: channels and patterns.
//!
//! Called by: `table` (the commands) and `engine` (writing what was sent).
//! Invariant: a client's sets and the registry here name the same subscriptions.

use std::sync::Arc;

use crate::args::Args;
use crate::client::{Client, ConnId};
use crate::failure::Outcome;
use crate::tracking::INVALIDATION_CHANNEL;
use crate::value::{Map, Set};
use crate::world::Call;
use heatsink_resp::glob;

/// Something told to a connection that it did not just ask for.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    Message {
        channel: Arc<[u8]>,
        payload: Arc<[u8]>,
    },
    PatternMessage {
        pattern: Arc<[u8]>,
        channel: Arc<[u8]>,
        payload: Arc<[u8]>,
    },
    /// A tracked key changed.
    Invalidate(Arc<[u8]>),
    /// Every key may have changed.
    InvalidateAll,
    /// As the two above, on behalf of another connection that speaks the older protocol.
    Redirected(Option<Arc<[u8]>>),
    /// The connection that invalidations were redirected to is gone.
    RedirectBroken(ConnId),
}

impl Note {
    /// Writes the note in the protocol of its reader.
    pub(crate) fn write(&self, client: &mut Client) {
        let subscriber = client.is_subscriber();
        let reply = &mut client.reply;
        match self {
            Self::Message { channel, payload } => {
                reply.push(3);
                reply.bulk(b"message");
                reply.bulk(channel);
                reply.bulk(payload);
            }
            Self::PatternMessage { pattern, channel, payload } => {
                reply.push(4);
                reply.bulk(b"pmessage");
                reply.bulk(pattern);
                reply.bulk(channel);
                reply.bulk(payload);
            }
            Self::Invalidate(key) if reply.is_resp3() => {
                reply.push(2);
                reply.bulk(b"invalidate");
                reply.bulks([key].into_iter());
            }
            Self::InvalidateAll if reply.is_resp3() => {
                reply.push(2);
                reply.bulk(b"invalidate");
                reply.null();
            }
            Self::RedirectBroken(target) if reply.is_resp3() => {
                reply.push(2);
                reply.bulk(b"tracking-redir-broken");
                reply.int(target.0 as i64);
            }
            Self::Redirected(key) if subscriber && !reply.is_resp3() => {
                reply.array(3);
                reply.bulk(b"message");
                reply.bulk(INVALIDATION_CHANNEL);
                match key {
                    Some(key) => reply.bulks([key].into_iter()),
                    None => reply.null(),
                }
            }
            // The older protocol has no way to say it.
            _ => {}
        }
    }
}

/// Who listens to what.
#[derive(Debug, Default)]
pub(crate) struct PubSub {
    channels: Map<Vec<ConnId>>,
    patterns: Map<Vec<ConnId>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Channel,
    Pattern,
}

impl Kind {
    fn registry(self, pubsub: &mut PubSub) -> &mut Map<Vec<ConnId>> {
        match self {
            Self::Channel => &mut pubsub.channels,
            Self::Pattern => &mut pubsub.patterns,
        }
    }

    fn own(self, client: &mut Client) -> &mut Set {
        match self {
            Self::Channel => &mut client.channels,
            Self::Pattern => &mut client.patterns,
        }
    }
}

impl PubSub {
    fn subscribe(&mut self, client: &mut Client, kind: Kind, name: &[u8]) {
        if kind.own(client).insert(name.to_vec()) {
            kind.registry(self).entry(name.to_vec()).or_default().push(client.id);
        }
    }

    fn unsubscribe(&mut self, client: &mut Client, kind: Kind, name: &[u8]) {
        if !kind.own(client).swap_remove(name) {
            return;
        }
        let registry = kind.registry(self);
        if let Some(listeners) = registry.get_mut(name) {
            listeners.retain(|listener| *listener != client.id);
            if listeners.is_empty() {
                registry.swap_remove(name);
            }
        }
    }

    /// Ends every subscription of a client.
    pub(crate) fn forget(&mut self, client: &mut Client) {
        for kind in [Kind::Channel, Kind::Pattern] {
            while let Some(name) = kind.own(client).last().cloned() {
                self.unsubscribe(client, kind, &name);
            }
        }
    }

    /// Numbers of channels and patterns with listeners.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.channels.len(), self.patterns.len())
    }
}

fn confirm(client: &mut Client, word: &str, name: Option<&[u8]>, count: usize) {
    client.reply.push(3);
    client.reply.bulk(word.as_bytes());
    client.reply.bulk_or_null(name);
    client.reply.len(count);
}

fn subscribe_all(call: &mut Call<'_>, kind: Kind, word: &str) -> Outcome {
    for name in &call.args[1..] {
        call.world.pubsub.subscribe(call.client, kind, name);
        confirm(call.client, word, Some(name), call.client.subscription_count());
    }
    Ok(())
}

fn unsubscribe_all(call: &mut Call<'_>, kind: Kind, word: &str) -> Outcome {
    let all: Vec<Vec<u8>>;
    let listed: Vec<&[u8]>;
    let names: Args<'_> = if call.args.len() > 1 {
        &call.args[1..]
    } else {
        all = kind.own(call.client).iter().cloned().collect();
        listed = all.iter().map(Vec::as_slice).collect();
        &listed
    };
    for name in names {
        call.world.pubsub.unsubscribe(call.client, kind, name);
        confirm(call.client, word, Some(name), call.client.subscription_count());
    }
    if names.is_empty() {
        confirm(call.client, word, None, call.client.subscription_count());
    }
    Ok(())
}

pub(crate) fn subscribe(call: &mut Call<'_>) -> Outcome {
    subscribe_all(call, Kind::Channel, "subscribe")
}

pub(crate) fn unsubscribe(call: &mut Call<'_>) -> Outcome {
    unsubscribe_all(call, Kind::Channel, "unsubscribe")
}

pub(crate) fn psubscribe(call: &mut Call<'_>) -> Outcome {
    subscribe_all(call, Kind::Pattern, "psubscribe")
}

pub(crate) fn punsubscribe(call: &mut Call<'_>) -> Outcome {
    unsubscribe_all(call, Kind::Pattern, "punsubscribe")
}

/// Sends to the listeners, and says how many there are.
pub(crate) fn publish(call: &mut Call<'_>) -> Outcome {
    let (channel, payload): (Arc<[u8]>, Arc<[u8]>) = (call.args[1].into(), call.args[2].into());
    let pubsub = &call.world.pubsub;
    let mut notes: Vec<(ConnId, Note)> = Vec::new();
    for listener in pubsub.channels.get(call.args[1]).into_iter().flatten() {
        let (channel, payload) = (Arc::clone(&channel), Arc::clone(&payload));
        notes.push((*listener, Note::Message { channel, payload }));
    }
    for (pattern, listeners) in &pubsub.patterns {
        if !glob::matches(pattern, &channel) {
            continue;
        }
        let pattern: Arc<[u8]> = pattern.as_slice().into();
        notes.extend(listeners.iter().map(|listener| {
            let (channel, payload) = (Arc::clone(&channel), Arc::clone(&payload));
            let pattern = Arc::clone(&pattern);
            (*listener, Note::PatternMessage { pattern, channel, payload })
        }));
    }
    let count = notes.len();
    for (listener, note) in notes {
        // A client that listens to itself hears the message before the count, as in Redis.
        if listener == call.client.id {
            note.write(call.client);
        } else {
            call.world.outbox.push((listener, note));
        }
    }
    call.client.reply.len(count);
    Ok(())
}

pub(crate) fn channels(call: &mut Call<'_>) -> Outcome {
    let pattern = call.args.get(2).copied();
    let wanted = |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name));
    let names: Vec<&Vec<u8>> = call.world.pubsub.channels.keys().filter(wanted).collect();
    call.client.reply.bulks(names.into_iter());
    Ok(())
}

pub(crate) fn numsub(call: &mut Call<'_>) -> Outcome {
    let names = &call.args[2..];
    call.client.reply.array(names.len() * 2);
    for name in names {
        call.client.reply.bulk(name);
        call.client.reply.len(call.world.pubsub.channels.get(*name).map_or(0, Vec::len));
    }
    Ok(())
}

pub(crate) fn numpat(call: &mut Call<'_>) -> Outcome {
    call.client.reply.len(call.world.pubsub.patterns.len());
    Ok(())
}
